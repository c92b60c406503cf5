"""A training step whose graphs can be run by one schedule after the other, so that settings are timed in turns.

    torch.compile ─► forward graph ──► as PyTorch hands it over    ─► an engine for every setting that keeps it so
                  └► backward graph ─► dgrad and wgrad in two tasks ─► an engine for every setting that needs that

One model serves all settings. Between two of them nothing changes but the engines, so that the same start and data must
give the same losses.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition
from torch.fx import GraphModule

from bench.concurrency.models import TrainedNetwork
from bench.concurrency.times import Models, curves_of
from dwconv.concurrency.backend import dwconv_concurrent
from dwconv.concurrency.candidates import at_once_schedule
from dwconv.concurrency.explain_schedules import explain
from dwconv.concurrency.gradient_pairs import pairs
from dwconv.concurrency.lanes import one_at_a_time
from dwconv.concurrency.list_scheduling import Curves
from dwconv.concurrency.program import Engine, Program
from dwconv.concurrency.schedule import Machine, Schedule
from dwconv.concurrency.strategies import combined, manual, schedules
from dwconv.concurrency.task_timer import PairTimes, TaskTimer, pair_times
from dwconv.concurrency.tasks import CutGraph

_EVERY_CONVOLUTION = range(10_000)
_LEARNING_RATE = 0.01


class Graph:
    """One graph of the step, cut in two ways, and the engine that runs it now."""

    def __init__(self, module: GraphModule) -> None:
        self.whole = Program(module)
        self.whole.split_all_but(_EVERY_CONVOLUTION)
        self.apart = Program(module)
        self.pairs: Sequence[PairTimes] = ()
        self.engine: Engine | None = None
        """None: plain execution."""

    def keep_whole_what_is_better_so(self, timer: TaskTimer, *, cores: int) -> None:
        """Have ``timer`` time the two gradients of every convolution; those stay one operator that lose by being
        two."""
        found = pair_times(self.apart.cut, timer, cores=cores)
        whole = [each.pair.convolution for each in found if each.is_better_whole and each.pair.convolution is not None]
        if whole:
            self.apart.split_all_but(whole)
        left = {each.pair.convolution: each for each in found}
        self.pairs = [replace(left[pair.convolution], pair=pair) for pair in pairs(self.apart.cut)]

    def boxed(self) -> Callable[[list[Any]], list[Any]]:
        """The function that AOTAutograd calls."""
        plain = self.whole.boxed()

        def call(inputs: list[Any]) -> list[Any]:
            return self.engine.run(inputs) if self.engine else plain(inputs)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call


class Training:
    """A network in training: its model, optimizer and data, the same for the same seed."""

    def __init__(self, network: TrainedNetwork, *, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = network.make().train()
        self._start = copy.deepcopy(self.model.state_dict())
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=_LEARNING_RATE, momentum=0.9)
        self._data = network.data()

    def step(self, model: Callable[..., torch.Tensor]) -> float:
        """A step of SGD in which ``model`` runs; returns the loss before it."""
        self._optimizer.zero_grad(set_to_none=True)
        loss = model(*self._data)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.item()

    def start_again(self, *, rounded: bool = False) -> None:
        """Back to the first weights and statistics; ``rounded`` moves each weight by one unit in the last place."""
        self.model.load_state_dict(self._start)
        self._optimizer.state.clear()
        if rounded:
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.copy_(torch.nextafter(parameter, torch.full_like(parameter, torch.inf)))


class EagerStep:
    """Steps without any compilation; a call returns the loss."""

    def __init__(self, training: Training) -> None:
        self.training = training

    def __call__(self) -> float:
        return self.training.step(self.training.model)


class BackendStep:
    """Steps with the backend as users have it, which chooses for itself in its first step; a call returns the loss."""

    def __init__(self, training: Training, *, seconds: float) -> None:
        self.training = training
        options: dict[str, Any] = {"log": False, "seconds": seconds}
        self._compiled = torch.compile(training.model, backend=dwconv_concurrent, options=options, dynamic=False)
        self()
        training.start_again()

    def __call__(self) -> float:
        return self.training.step(self._compiled)

    @property
    def chosen(self) -> str:
        """What runs, and why."""
        return "; ".join(f"{graph.runs}: {graph.reason}" for graph in explain(self.training.model).graphs)


class SwitchedStep:
    """Steps whose graphs any engine may run."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.graphs: list[Graph] = []
        backend = aot_autograd(fw_compiler=self._compile, bw_compiler=self._compile, partition_fn=default_partition)
        self._compiled = torch.compile(training.model, backend=backend, dynamic=False)
        self.step()  # traces both graphs
        training.start_again()

    def _compile(self, module: GraphModule, examples: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        graph = Graph(module)
        self.graphs.append(graph)
        return graph.boxed()

    def step(self) -> float:
        """A step by the engines that are set."""
        return self.training.step(self._compiled)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A way to run both graphs."""

    name: str
    programs: tuple[Program, ...]
    schedules: tuple[Schedule, ...]

    @property
    def expected_us(self) -> float:
        """What the schedules expect of both graphs."""
        return sum(schedule.makespan_us for schedule in self.schedules)

    @property
    def shape(self) -> object:
        """Equal for settings that run alike."""
        return tuple(
            (id(program), schedule.shape) for program, schedule in zip(self.programs, self.schedules, strict=True)
        )


class SettingStep:
    """Steps by one setting; a call returns the loss."""

    def __init__(self, step: SwitchedStep, setting: Setting) -> None:
        self.training = step.training
        self._step = step
        both = zip(setting.programs, setting.schedules, strict=True)
        self._engines = [program.prepared(schedule) for program, schedule in both]

    def __call__(self) -> float:
        for graph, engine in zip(self._step.graphs, self._engines, strict=True):
            graph.engine = engine
        return self._step.step()


def cuts(graphs: Sequence[Graph]) -> list[CutGraph]:
    """Every cut of every graph."""
    return [program.cut for graph in graphs for program in (graph.whole, graph.apart)]


# -- the settings that are compared ------------------------------------------------------------------------------------


RECOMMENDED = "recommended"
GRADIENTS = "gradients"
ALL = ("S1", "S2", "S3", "S4")
_FEW = 4


def all_settings(graphs: Sequence[Graph], models: Models, *, machine: Machine) -> list[Setting]:
    """Recommended first; then manual ones, both models with all strategies, and the strategies with hill climbing.
    Settings by hand keep the graphs as PyTorch hands them over."""
    made = [
        _made(
            RECOMMENDED,
            graphs,
            models,
            _by_hand(workers=1, threads=machine.cores, machine=Machine(cores=machine.cores)),
        )
    ]
    for workers in tried_by_hand(machine.cores):
        for threads in tried_by_hand(machine.cores):
            if (workers, threads) != (1, machine.cores):
                make = _by_hand(workers=workers, threads=threads, machine=machine)
                made.append(_made(f"manual {workers} × {threads}", graphs, models, make))
    for model in ("hill climbing", "regression"):
        made.append(_made(model, graphs, models, _by_strategies(ALL, machine), model=model))
    for names in combined():
        made.append(_made("+".join(names), graphs, models, _by_strategies(names, machine), model="hill climbing"))
    if any(pair.at_once_wins for graph in graphs for pair in graph.pairs):
        made.append(_gradients(graphs, models, cores=machine.cores))
    return made


def tried_by_hand(cores: int) -> list[int]:
    """The numbers of workers, and of threads, to try by hand: every one up to 4, then powers of two, and all cores."""
    return [number for number in range(1, cores + 1) if number <= _FEW or number & (number - 1) == 0 or number == cores]


Make = Callable[[Program, Curves], Schedule]


def _by_hand(*, workers: int, threads: int, machine: Machine) -> Make:
    return lambda program, curves: manual(program.cut.graph, curves, threads=threads, workers=workers, machine=machine)


def _by_strategies(names: tuple[str, ...], machine: Machine) -> Make:
    return lambda program, curves: schedules(program.cut.graph, curves, strategies=names, machine=machine)


def _made(name: str, graphs: Sequence[Graph], models: Models, make: Make, *, model: str | None = None) -> Setting:
    """``model`` gives the times of the graphs with gradients apart; None keeps the graphs whole."""
    programs = tuple(graph.apart if model else graph.whole for graph in graphs)
    by_signature = models.curves[model or "hill climbing"]
    placed = tuple(make(program, curves_of(program.cut.graph, by_signature)) for program in programs)
    return Setting(name=name, programs=programs, schedules=placed)


def _gradients(graphs: Sequence[Graph], models: Models, *, cores: int) -> Setting:
    placed = []
    for graph in graphs:
        cut = graph.apart.cut
        curves = curves_of(cut.graph, models.curves["hill climbing"])
        placed.append(at_once_schedule(cut, curves, graph.pairs, cores=cores) if graph.pairs
                      else one_at_a_time(cut, threads=cores))  # fmt: skip
    return Setting(name=GRADIENTS, programs=tuple(graph.apart for graph in graphs), schedules=tuple(placed))
