"""The backend: ``torch.compile(model, backend="dwconv_concurrent", options={…})``.

PyTorch finds it by its entry point wherever dwconv is installed.

first call    the schedule that the options name; else a choice from the log, if it fits; else measure and choose
later calls   AOTAutograd's forward and backward graph, each plainly or by its schedule

Plain execution is not the graph as torch.compile found it: some of its operators, such as those of a checkpoint, mean
something else when they are called than what AOTAutograd makes of them.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch._functorch.partitioners import default_partition
from torch.fx import GraphModule

from dwconv import native
from dwconv.concurrency.choice import Choice, keep, kept, path_for
from dwconv.concurrency.choose_schedule import Trial, choose, device_name, kept_versions
from dwconv.concurrency.options import PLAIN, Options, read
from dwconv.concurrency.program import Boxed, Program, plainly
from dwconv.concurrency.schedules_to_try import forced_schedule
from dwconv.concurrency.tasks import digest_of
from dwconv.errors import CannotBeCut, DwconvWarning, InvalidChoice, LogError, one_line

_numbers = count()
graphs: weakref.WeakSet[CompiledGraph] = weakref.WeakSet()
"""All that this process has compiled and still uses."""


class CompiledGraph:
    """Runs one graph plainly until something else was chosen."""

    def __init__(self, options: Options, *, why_plain: str = "") -> None:
        self.options = options
        self.choice: Choice | None = None
        self.source = ""
        """Where the choice comes from."""
        self.why_plain = why_plain
        """Why there is nothing to choose; empty if there is."""
        self.forward: Program | None = None
        self.backward: Program | None = None
        self._compiled: Callable[..., Any]
        self._digest = ""
        self._written: tuple[int, ...] = ()
        self._is_choosing = False
        self._reads_log = options.log
        self._parameters: list[weakref.ref[Tensor]] | None = None
        self.number = next(_numbers)
        graphs.add(self)

    # -- tracing -------------------------------------------------------------------------------------------------------

    def trace(self, module: GraphModule, inputs: Sequence[Any]) -> None:
        """Have AOTAutograd trace the graph, and cut it."""
        compiler = aot_autograd(
            fw_compiler=self._compile_forward, bw_compiler=self._compile_backward, partition_fn=self._parted
        )
        self._compiled = compiler(module, inputs)

    def leave_untraced(self, module: GraphModule, reason: str) -> None:
        """AOTAutograd cannot trace the graph: it runs as torch.compile found it, with PyTorch's own autograd."""
        self.run_plainly(reason)
        self._compiled = module

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
            # No engine writes to what was saved for the backward pass: nothing is donated, whatever was chosen, and a
            # backward pass may run again with retain_graph=True.
            context.fw_metadata.bw_donated_idxs = []
        self.forward = self._cut(module)
        return self.forward.boxed() if self.forward else plainly(module)

    def _compile_backward(self, module: GraphModule, inputs: Sequence[Any]) -> Boxed:
        """Comes with the first backward pass."""
        self.backward = self._cut(module)
        if self.backward is None:
            return plainly(module)
        if self.options.schedule:
            self._force(self.options.schedule)
        elif self.choice is not None and not self._follow(self.choice):
            self.choice = None
        return self.backward.boxed()

    def _cut(self, module: GraphModule) -> Program | None:
        """The graph in tasks; None if it has to run plainly."""
        if self.why_plain:
            return None
        try:
            return Program(module)
        except CannotBeCut as error:
            self.run_plainly(str(error))
            return None

    # -- running -------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any) -> Any:
        if self._parameters is None:
            self._parameters = [weakref.ref(arg) for arg in args if isinstance(arg, torch.nn.Parameter)]
        if self.choice is None and not self.why_plain and not self._is_choosing:
            self._decide(args)
        return self._compiled(*args)

    def run_plainly(self, reason: str) -> None:
        """There is nothing to choose, from now on."""
        self.why_plain = reason
        for program in self._programs():
            program.run_plainly()

    def _programs(self) -> list[Program]:
        return [program for program in (self.forward, self.backward) if program is not None]

    @property
    def parameters(self) -> set[int]:
        """The parameters that went into the graph, by id."""
        return {id(found) for each in self._parameters or () if (found := each()) is not None}

    def _decide(self, args: Sequence[Any]) -> None:
        """Use the kept choice for the graph, or measure it now. For another number of threads torch.compile makes
        another graph."""
        if self.options.schedule:
            self._force(self.options.schedule)
            return
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
        requested = self.options.asked
        try:
            found = kept(graph=self._digest, device=device, cores=cores, asked=requested, versions=kept_versions())
        except LogError:
            return False  # it is measured again, and writing raises the error
        if found is None or not self._follow(found):
            return False
        self.choice, self.source = found, f"{path_for(device)}, {found.created}"
        return True

    def _follow(self, choice: Choice) -> bool:
        """Let the programs that are there run by ``choice``; False if it does not fit them."""
        programs = self._programs()
        for program in programs:
            program.run_plainly()
        try:
            for program, schedule in zip(programs, choice.schedules, strict=False):
                program.engine = program.prepared(schedule)
        except InvalidChoice:
            self._reads_log = False
            for program in programs:
                program.run_plainly()
            return False
        return True

    def _force(self, name: str) -> None:
        """Let the programs that are there run by the schedule of this name."""
        cores = torch.get_num_threads()
        for program in self._programs():
            program.run_plainly()
        for part, program in enumerate(self._programs() if name != PLAIN else []):
            schedule = forced_schedule(program.cut, part=part, options=self.options, cores=cores, on_gpu=program.on_gpu)
            program.engine = program.prepared(schedule)
        self._choose_unmeasured(name, f"the option schedule={name!r} forces it", cores=cores)

    def _measure(self, args: Sequence[Any]) -> None:
        cores = torch.get_num_threads()
        if self.options.seconds == 0:
            self._choose_unmeasured(PLAIN, "nothing was measured: seconds=0", cores=cores)
            return
        native.native(limit_s=_COMPILES_S)  # what will run is measured
        trial = Trial(args, written=self._written)
        step = trial.step(self._compiled)
        with trial.unchanged():
            step()  # compiles the backward graph
            programs = self._programs()
            if self.why_plain:
                return
            if all(len(program.cut.graph.tasks) < 2 for program in programs):
                self._choose_unmeasured(PLAIN, "there are no two tasks", cores=cores)
                return
            found = choose(programs, options=self.options, cores=cores, step=step, graph=self._digest)
        self._follow(found)
        self.choice, self.source = found, "measured in this process"
        if not found.trusted:
            self.source += ", and not kept"
        elif self.options.log:
            self._keep(found)

    def _choose_unmeasured(self, winner: str, reason: str, *, cores: int) -> None:
        self.choice = Choice(
            graph=self._digest, device="", cores=cores, asked=self.options.asked, winner=winner, reason=reason,
            trusted=False,
        )  # fmt: skip
        self.source = "not measured"

    def _keep(self, choice: Choice) -> None:
        try:
            path = keep(choice)
        except LogError as error:
            self.source += f"; not kept: {error}"
        else:
            self.source += f", kept in {path}"


_MOST_SHOWN = 300
_COMPILES_S = 45.0
"""For how long a measurement waits until the C++ of lanes is compiled, which is once on a machine."""
_KNOWN_TENSORS = (Tensor, torch.nn.Parameter, torch.nn.Buffer, torch._subclasses.FakeTensor)


def dwconv_concurrent(
    module: GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """What runs one graph of a model. What is wrong with the options is raised by the first call as InvalidChoice: here
    torch.compile would bury it in a report of its own."""
    try:
        if mode not in (None, "default"):
            raise InvalidChoice(f"mode {mode!r} is unknown to dwconv_concurrent; use options={{…}}")
        chosen = read(options)
    except InvalidChoice as error:
        return _that_raises(error)
    graph = CompiledGraph(chosen, why_plain=_why_plain(inputs))
    try:
        graph.trace(module, inputs)
    except TorchDynamoException:
        raise
    except RuntimeError as error:  # tracing names the operator that it cannot follow
        if any(isinstance(node.target, torch._ops.HigherOrderOperator) for node in module.graph.nodes):
            raise  # called as it is, it may compute something else
        said = one_line(str(error), most=_MOST_SHOWN)
        graph.leave_untraced(module, f"AOTAutograd cannot trace the graph: {said}")
    if graph.why_plain:
        _say_once(graph.why_plain)

    def run(*args: Any) -> Any:
        return graph(*args)

    return run


def _why_plain(inputs: Sequence[Any]) -> str:
    """Why no schedule can be made for a graph of such inputs; empty if one can."""
    for each in inputs:
        if isinstance(each, torch.SymInt) or (
            isinstance(each, Tensor) and any(not isinstance(size, int) for size in each.shape)
        ):
            return "a graph of sizes that change runs plainly; torch.compile(…, dynamic=False) makes one for each size"
        if isinstance(each, Tensor) and each.device.type not in ("cpu", "cuda"):
            return f"a graph on {each.device.type} runs plainly; schedules are for the CPU and CUDA devices"
        if isinstance(each, Tensor) and type(each) not in _KNOWN_TENSORS:
            return f"a graph takes a {type(each).__name__} and runs plainly; schedules are for plain tensors"
    return ""


def _that_raises(error: InvalidChoice) -> Callable[..., Any]:
    def refuse(*args: Any) -> Any:
        raise error

    return refuse


_said: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        warnings.warn(text, DwconvWarning, stacklevel=2)
