"""CompiledGraph: one graph that torch.compile hands over, and what runs it: plain execution, or a schedule of tasks.

first call    a choice from the log, if it fits; else measure and choose
later calls   plain: the graph as torch.compile has it, with PyTorch's own autograd
              else:  AOTAutograd's forward and backward graph, each by its schedule
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition
from torch.fx import GraphModule

from dwconv.concurrency.choosing import log
from dwconv.concurrency.choosing.choice import Choice
from dwconv.concurrency.choosing.choose import Chooser, device_name, kept_versions
from dwconv.concurrency.choosing.measured import PLAIN
from dwconv.concurrency.choosing.options import Options
from dwconv.concurrency.choosing.trial import Trial
from dwconv.concurrency.graph.tasks import digest_of
from dwconv.concurrency.running.program import Boxed, Program
from dwconv.errors import CannotBeCut, InvalidChoice, LogError, one_line

_numbers = count()
_MOST_SHOWN = 300
graphs: weakref.WeakSet[CompiledGraph] = weakref.WeakSet()
"""All that this process has compiled and still uses."""


class CompiledGraph:
    """Runs ``module`` plainly until something else was chosen."""

    def __init__(self, module: GraphModule, options: Options) -> None:
        self.module = module
        self.options = options
        self.choice: Choice | None = None
        self.source = ""
        """Where the choice comes from."""
        self.why_plain = ""
        """Why there is nothing to choose; empty if there is."""
        self.forward: Program | None = None
        self.backward: Program | None = None
        self._compiled: Callable[..., Any] | None = None
        self._digest = ""
        self._written: tuple[int, ...] = ()
        self._is_choosing = False
        self._reads_log = options.log
        self._parameters: list[weakref.ref[Tensor]] = []
        self.number = next(_numbers)
        graphs.add(self)

    # -- tracing -------------------------------------------------------------------------------------------------------

    def trace(self, inputs: Sequence[Any]) -> None:
        """Have AOTAutograd trace the graph, and cut it. Raises CannotBeCut."""
        compiler = aot_autograd(
            fw_compiler=self._compile_forward, bw_compiler=self._compile_backward, partition_fn=self._parted
        )
        try:
            self._compiled = compiler(self.module, inputs)
        except CannotBeCut:
            raise
        except RuntimeError as error:  # tracing names the operator that it cannot follow
            raise CannotBeCut(
                f"AOTAutograd cannot trace the graph: {one_line(str(error), most=_MOST_SHOWN)}"
            ) from error

    def _parted(self, joint: GraphModule, inputs: Sequence[Any], **rest: Any) -> Any:
        """Forward and backward graph; what the forward pass has computed is kept for the backward pass, as plain
        execution keeps it."""
        self._digest = digest_of(joint)
        return default_partition(joint, inputs, **rest)

    def _compile_forward(self, module: GraphModule, inputs: Sequence[Any]) -> Boxed:
        self._digest = self._digest or digest_of(module)
        context = torch._guards.TracingContext.try_get()
        if context is not None and context.fw_metadata is not None:
            infos = enumerate(context.fw_metadata.input_info)
            self._written = tuple(place for place, info in infos if info.mutates_data or info.mutates_metadata)
        self.forward = Program(module)
        return self.forward.boxed()

    def _compile_backward(self, module: GraphModule, inputs: Sequence[Any]) -> Boxed:
        """Comes with the first backward pass."""
        try:
            self.backward = Program(module)
        except CannotBeCut as error:
            self.run_plainly(str(error))
            return _uncut(module)
        if self.choice is not None and not self._follow(self.choice):
            self.choice = None
        return self.backward.boxed()

    # -- running -------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any) -> Any:
        if self.why_plain or self._is_choosing:
            if not self._parameters:
                self.remember(args)
            return self.module(*args)
        if self.choice is None:
            self._decide(args)
        if self.choice is None or self.choice.is_plain or self._compiled is None:
            return self.module(*args)
        return self._compiled(*args)

    def run_plainly(self, reason: str) -> None:
        """There is nothing to choose, from now on."""
        self.why_plain = reason

    def uses(self, model: torch.nn.Module) -> bool:
        """True if one of the model's parameters went into the graph."""
        used = {id(found) for each in self._parameters if (found := each()) is not None}
        return any(id(parameter) in used for parameter in model.parameters())

    def remember(self, args: Sequence[Any]) -> None:
        """Remember the parameters among the arguments."""
        self._parameters = [weakref.ref(arg) for arg in args if isinstance(arg, torch.nn.Parameter)]

    def _decide(self, args: Sequence[Any]) -> None:
        """Use what is known of the graph, or measure it now. For another number of threads torch.compile makes another
        graph."""
        self.remember(args)
        if self._reads_log and self._recall():
            return
        self._is_choosing = True
        try:
            self._measure(args)
        except (RuntimeError, MemoryError) as error:  # such as too little memory for a second step: training goes on
            self.run_plainly(f"it could not be measured: {one_line(str(error), most=_MOST_SHOWN)}")
        finally:
            self._is_choosing = False

    def _recall(self) -> bool:
        """Use the choice in the log, if there is one that fits."""
        assert self.forward is not None
        cores = torch.get_num_threads()
        device = device_name(on_gpu=self.forward.on_gpu, cores=cores)
        asked = self.options.asked
        try:
            found = log.kept(graph=self._digest, device=device, cores=cores, asked=asked, versions=kept_versions())
        except LogError:
            return False  # it is measured again, and writing says what is wrong
        if found is None or not self._follow(found):
            return False
        self.choice, self.source = found, f"{log.path_for(device)}, {found.created}"
        return True

    def _follow(self, choice: Choice) -> bool:
        """Let the programs that are there run by ``choice``; False if it does not fit them."""
        programs = [self.forward, self.backward]
        try:
            for program, schedule in zip(programs, choice.schedules, strict=False):
                if program is None:
                    continue
                if program is self.backward and program.kept_whole != choice.kept_whole:
                    program.split_all_but(choice.kept_whole)
                program.engine = program.prepared(schedule)
        except InvalidChoice:
            self._reads_log = False
            for program in programs:
                if program is not None:
                    program.run_one_at_a_time()
            return False
        return True

    def _measure(self, args: Sequence[Any]) -> None:
        assert self.forward is not None and self._compiled is not None
        cores = torch.get_num_threads()
        if self.options.seconds == 0:
            self._choose_plain("nothing was measured: seconds=0", cores=cores)
            return
        trial = Trial(args, written=self._written)
        with trial.unchanged():
            trial.step(self._compiled)()  # compiles the backward graph
            programs = [each for each in (self.forward, self.backward) if each is not None]
            if self.why_plain or all(len(program.cut.graph.tasks) < 2 for program in programs):
                self._choose_plain(self.why_plain or "there are no two tasks", cores=cores)
                return
            chooser = Chooser(programs, options=self.options, cores=cores)
            ranking, winner = chooser.choose(trial, plain=self.module, compiled=self._compiled)
        found = chooser.choice(ranking, winner, graph=self._digest)
        self._follow(found)
        self.choice, self.source = found, "measured in this process"
        if found.trusted and self.options.log:
            self._keep(found)
        elif not found.trusted:
            self.source += " while other work disturbed it: not kept"

    def _choose_plain(self, reason: str, *, cores: int) -> None:
        self.choice = Choice(
            graph=self._digest, device="", cores=cores, asked=self.options.asked, winner=PLAIN, reason=reason,
            trusted=False,
        )  # fmt: skip
        self.source = "not measured"

    def _keep(self, choice: Choice) -> None:
        try:
            path = log.keep(choice)
        except LogError as error:
            self.source += f"; not kept: {error}"
        else:
            self.source += f", kept in {path}"


def _uncut(module: GraphModule) -> Boxed:
    """Runs a traced graph as it is."""

    def call(inputs: list[Any]) -> list[Any]:
        given = inputs[:]
        inputs.clear()
        results: list[Any] = module.forward(*given)
        return results

    call._boxed_call = True  # type: ignore[attr-defined]
    return call
