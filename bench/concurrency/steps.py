"""Training steps of one network in every way that ``bench concurrency`` compares.

    torch.compile ─► forward graph  ─► plain, or an engine of any schedule      one model, all settings
                  └► backward graph ─► plain, or an engine of any schedule
    eager, inductor, the backend's own choice                                   a model of the same seed each

Between two settings nothing changes but the engines, so the same start and data must give the same losses.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from bench.concurrency.models import TrainedNetwork
from bench.concurrency.times import Curves, Models
from dwconv.concurrency.backend import dwconv_concurrent, graphs
from dwconv.concurrency.engine import Engine
from dwconv.concurrency.explain_schedules import explain
from dwconv.concurrency.list_scheduling import Curves as TaskCurves
from dwconv.concurrency.options import PLAIN
from dwconv.concurrency.planned_times import retimed
from dwconv.concurrency.program import Program
from dwconv.concurrency.strategies import COMBINED, STRATEGIES, manual, schedules
from dwconv.concurrency.task_graph import Machine, Schedule
from dwconv.concurrency.task_timer import TimeLeft
from dwconv.concurrency.timeline import in_steps, recorded

RECOMMENDED, AGAIN, HILL_CLIMBING, REGRESSION = "recommended", "again", "hill climbing", "regression"
BACKEND, EAGER, INDUCTOR = "backend", "eager", "inductor"
_LEARNING_RATE = 0.01
_CORRECTING_S = 60.0
"""For steps that correct times, at most."""
_FEW = 4


class SgdSteps:
    """A network in training, the same for the same seed; a call is a step of SGD, and returns the loss before it.
    ``backend``: of torch.compile; None for no compilation."""

    def __init__(
        self,
        network: TrainedNetwork,
        *,
        seed: int,
        backend: Any = None,
        options: Mapping[str, Any] | None = None,
        device: str = "cpu",
    ) -> None:
        torch.manual_seed(seed)
        self.model = network.make().train()
        self.model.to(device)
        self._start = copy.deepcopy(self.model.state_dict())
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=_LEARNING_RATE, momentum=0.9)
        self._data = [each.to(device) for each in network.data()]
        self._run: Callable[..., torch.Tensor] = self.model
        if backend is not None:
            given = None if options is None else dict(options)
            self._run = torch.compile(self.model, backend=backend, options=given, dynamic=False)

    def __call__(self) -> float:
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._run(*self._data)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return float(loss.detach())

    def start_again(self, *, rounded: bool = False) -> None:
        """Back to the first weights and statistics; ``rounded`` moves each weight by one unit in the last place."""
        self.model.load_state_dict(self._start)
        self._optimizer.state.clear()
        if rounded:
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.copy_(torch.nextafter(parameter, torch.full_like(parameter, torch.inf)))


class ScheduledStep:
    """Steps of one network that any schedules may run. What torch.compile has of other networks is forgotten: it
    compiles the same code only so many times."""

    def __init__(self, network: TrainedNetwork, *, seed: int) -> None:
        torch._dynamo.reset()
        self.training = SgdSteps(network, seed=seed, backend=dwconv_concurrent, options={"schedule": PLAIN})
        self.training()  # traces both graphs
        mine = {id(parameter) for parameter in self.training.model.parameters()}
        (graph,) = (graph for graph in graphs if not mine.isdisjoint(graph.parameters))
        self.programs = [each for each in (graph.forward, graph.backward) if each is not None]

    def by(self, placed: Sequence[Schedule] | None) -> SettingStep:
        """A step by these schedules of both graphs; None for plain execution."""
        engines: list[Engine | None] = [None] * len(self.programs)
        if placed is not None:
            engines = [program.prepared(each) for program, each in zip(self.programs, placed, strict=True)]
        return SettingStep(training=self.training, programs=self.programs, engines=engines)

    def corrected(self, known: Curves, *, machine: Machine) -> list[TaskCurves]:
        """By graph, the times of its tasks by signature, as far longer or shorter as they are in a step."""
        curves = [{task.index: known[task.signature] for task in each.cut.graph.tasks} for each in self.programs]
        return [*in_steps(self.programs, curves, self.training, machine=machine, budget=TimeLeft(_CORRECTING_S))]

    def simulated_us(self, setting: Setting, now: Sequence[TaskCurves], *, machine: Machine) -> float:
        """How long the graphs take by a setting, without optimizer and loss, by the times that tasks have ``now``: what
        a process has in memory makes its steps longer or shorter."""
        parts = zip(setting.schedules, self.programs, setting.curves, now, strict=True)
        return sum(
            retimed(schedule, program.cut.graph, before=before, now=after, machine=machine).makespan_us
            for schedule, program, before, after in parts
        )

    def seen_us(self, placed: Sequence[Schedule]) -> float:
        """How long the graphs take by these schedules, without optimizer and loss."""
        ran = recorded(self.programs, placed, self.training)
        return sum(max((each.end_us or 0.0 for each in graph), default=0.0) for graph in ran)


@dataclass(frozen=True, kw_only=True)
class SettingStep:
    """Steps by one setting."""

    training: SgdSteps
    programs: Sequence[Program]
    engines: Sequence[Engine | None]

    def __call__(self) -> float:
        for program, engine in zip(self.programs, self.engines, strict=True):
            program.engine = engine
        return self.training()


class ChosenStep:
    """Steps with the backend as users have it, which chooses for itself in its first step."""

    def __init__(self, network: TrainedNetwork, *, seed: int, seconds: float, device: str = "cpu") -> None:
        options = {"log": False, "seconds": seconds}
        self.training = SgdSteps(network, seed=seed, backend=dwconv_concurrent, options=options, device=device)

    def __call__(self) -> float:
        return self.training()

    @property
    def chosen(self) -> str:
        """What runs, and why."""
        return "; ".join(f"{graph.runs}: {graph.reason}" for graph in explain(self.training.model).graphs)


# -- the settings that are compared ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A way to run both graphs by schedules."""

    name: str
    schedules: tuple[Schedule, ...]
    curves: Sequence[TaskCurves]
    """Of each graph, which the schedules were made of."""
    model: str = HILL_CLIMBING
    """Where the curves come from."""
    fits: bool = True
    """False if its tasks may use more threads than there are cores: then it takes longer than is expected."""

    @property
    def expected_us(self) -> float:
        """What the schedules expect of both graphs."""
        return sum(schedule.makespan_us for schedule in self.schedules)

    @property
    def shape(self) -> object:
        """Equal for settings that run alike."""
        return tuple(schedule.shape for schedule in self.schedules)


def all_settings(step: ScheduledStep, models: Models, *, machine: Machine) -> list[Setting]:
    """The grid of settings by hand, both models with all strategies, and every combination with hill climbing."""
    programs, found = step.programs, []
    climbed, regressed = (step.corrected(known, machine=machine) for known in (models.climbed, models.regressed))
    for workers in tried_by_hand(machine.cores):
        for threads in tried_by_hand(machine.cores):
            made = [
                manual(program.cut.graph, curves, threads=threads, workers=workers, machine=machine)
                for program, curves in zip(programs, climbed, strict=True)
            ]  # fmt: skip
            fits = threads * workers <= machine.cores
            name = f"manual {workers} × {threads}"
            found.append(Setting(name=name, schedules=tuple(made), curves=climbed, fits=fits))
    found.append(_by_strategies(HILL_CLIMBING, programs, climbed, STRATEGIES, machine))
    by_regression = _by_strategies(REGRESSION, programs, regressed, STRATEGIES, machine)
    found.append(replace(by_regression, model=REGRESSION))
    return found + [_by_strategies("+".join(each), programs, climbed, each, machine) for each in COMBINED]


def _by_strategies(
    name: str, programs: Sequence[Program], known: Sequence[TaskCurves], strategies: Sequence[str], machine: Machine
) -> Setting:
    made = tuple(
        schedules(program.cut.graph, curves, strategies=strategies, machine=machine)
        for program, curves in zip(programs, known, strict=True)
    )
    return Setting(name=name, schedules=made, curves=known)


def tried_by_hand(cores: int) -> list[int]:
    """The numbers of tasks at a time (inter-op), and of threads (intra-op), to try by hand: every one up to 4, then
    powers of two, and all cores."""
    return [number for number in range(1, cores + 1) if number <= _FEW or number & (number - 1) == 0 or number == cores]


# -- losses ------------------------------------------------------------------------------------------------------------


_LOSSES = 2
"""Steps whose losses are compared: the second one shows the gradients of the first."""
_ROUNDING, _TIMES_ROUNDING = 1e-5, 30
"""Losses may differ by this share, or by so many times as much as one unit in the last place of each first weight makes
of it."""


def loss_differences(
    calls: Mapping[str, SettingStep | ChosenStep | SgdSteps], eager: SgdSteps
) -> tuple[dict[str, float], float]:
    """By setting, the largest difference of its losses from the eager ones, as a share; and what is permitted. All
    begin with the same weights."""
    wanted = _few(eager)
    rounded = _apart(_few(eager, rounded=True), wanted)
    found = {name: _apart(_few(call), wanted) for name, call in calls.items()}
    return found, max(_ROUNDING, _TIMES_ROUNDING * rounded)


def _few(call: SettingStep | ChosenStep | SgdSteps, *, rounded: bool = False) -> list[float]:
    training = call if isinstance(call, SgdSteps) else call.training
    training.start_again(rounded=rounded)
    return [call() for _ in range(_LOSSES)]


def _apart(losses: Sequence[float], wanted: Sequence[float]) -> float:
    return max(abs(loss / eager - 1) for loss, eager in zip(losses, wanted, strict=True))
