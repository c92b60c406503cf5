"""``python -m bench concurrency``: training steps of five networks, run op by op, by every strategy.

    plain            one task at a time on all cores, as PyTorch is set up
    S1 … S2+S3       each strategy alone and combined, with times from hill climbing
    regression       S1+S3, with times from regression
    backend          dwconv_concurrent as users have it: what it chooses for itself
    eager            PyTorch without any compilation

All train the same model, and are timed in turns. Schedules that are the same are timed once. Both models of times are
held against a sweep of every number of threads.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from bench.concurrency.models import NETWORKS, TrainedNetwork
from bench.results import add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0
from dwconv.concurrency.backend import dwconv_concurrent, graphs
from dwconv.concurrency.engine import Engine
from dwconv.concurrency.explain_schedules import explain
from dwconv.concurrency.hill_climbing import HillClimbing
from dwconv.concurrency.machine_costs import this_machine
from dwconv.concurrency.measured import lap_apart, measurement
from dwconv.concurrency.program import Program
from dwconv.concurrency.schedule import Machine, ScalingCurve, Schedule, Task
from dwconv.concurrency.strategies import COMBINED, schedules
from dwconv.concurrency.task_timer import Budget, TaskTimer
from dwconv.concurrency.time_regression import Regression, sweep
from dwconv.errors import InvalidChoice
from dwconv.measure.clock.timing import CpuClock, Lap
from dwconv.problems.target import cpu_target
from dwconv.records.record import CONTENDED, Measurement

PLAIN, REGRESSION, BACKEND, EAGER = "plain", "regression", "backend", "eager"
_LEAST_TURNS, _MOST_TURNS = 3, 31
_MODELS_SHARE, _BACKEND_SHARE, _LEAST_TURNS_SHARE = 0.3, 0.2, 0.2
"""Of the seconds for a network: for the times of its tasks; for what the backend measures to choose; and for steps in
turns, however long the rest takes."""
_SWEPT = 40
"""Signatures against which the models of times are held, spread evenly over those there are."""
_LEARNING_RATE = 0.01


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench concurrency", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    known = {network.name: network for network in NETWORKS}
    names = f"only this one, of {', '.join(known)}; may be repeated"
    parser.add_argument("--model", action="append", metavar="NAME", help=names)
    parser.add_argument("--seconds", type=from_0, default=90, help="for each network, about, default 90")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data, default 0")
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    if not arguments.seconds > 0:
        raise InvalidChoice(f"--seconds {arguments.seconds:g} leaves no time to measure in; give more than 0")
    for name in arguments.model or ():
        if name not in known:
            raise InvalidChoice(f"--model {name} is unknown; use one of {', '.join(known)}")
    machine = this_machine(torch.get_num_threads())
    print(
        f"{machine.cores} cores; handing over to another worker takes {machine.handover_us:.1f} µs, another number of "
        f"threads {machine.change_us:.1f} µs",
        flush=True,
    )
    rows = []
    for name in arguments.model or known:
        rows.append(_measured(known[name], machine=machine, seconds=arguments.seconds, seed=arguments.seed))
        print("\n".join(lines(rows[-1])), flush=True)
        write_results(
            "concurrency", target=cpu_target(), rows=rows, folder=arguments.out,
            handover_us=machine.handover_us, change_us=machine.change_us,
        )  # fmt: skip
    return 0


def _measured(network: TrainedNetwork, *, machine: Machine, seconds: float, seed: int) -> dict[str, Any]:
    """The row of one network."""
    started = time.monotonic()
    step = ScheduledStep(network, seed=seed)
    models = measured_models(step.programs, cores=machine.cores, seconds=_MODELS_SHARE * seconds)
    made = {"+".join(names): _made(step, models.climbed, names, machine) for names in COMBINED}
    made[REGRESSION] = _made(step, models.regressed, ("S1", "S3"), machine)
    first: dict[object, str] = {}
    same_as = {name: first.setdefault(tuple(each.shape for each in placed), name) for name, placed in made.items()}
    calls: dict[str, Callable[[], object]] = {PLAIN: step.by(None)}
    calls |= {name: step.by(placed) for name, placed in made.items() if same_as[name] == name}
    calls[EAGER] = Training(network, seed=seed)
    options = {"log": False, "seconds": _BACKEND_SHARE * seconds}
    chosen = Training(network, seed=seed, options=options)
    calls[BACKEND] = chosen
    for call in calls.values():
        call()
    taken = in_turns(calls, seconds=max(_LEAST_TURNS_SHARE * seconds, seconds - (time.monotonic() - started)))
    return {
        "network": network.name,
        "tasks": [len(program.cut.graph.tasks) for program in step.programs],
        "median_ms": {name: each.median_us / 1e3 for name, each in taken.items()},
        "spread_ms": {name: each.spread_us / 1e3 for name, each in taken.items()},
        "rounds": min(each.rounds for each in taken.values()),
        "contention": max(each.contention for each in taken.values()),
        "expected_ms": {name: sum(each.makespan_us for each in placed) / 1e3 for name, placed in made.items()},
        "same_as": {PLAIN: PLAIN, **same_as, BACKEND: BACKEND, EAGER: EAGER},
        "backend": "; ".join(f"{graph.runs}: {graph.reason}" for graph in explain(chosen.model).graphs),
        "accuracy": {name: asdict(found) for name, found in models.accuracies.items()},
        "learner": models.learner,
        "estimated": models.estimated,
        "seconds": time.monotonic() - started,
    }


def in_turns(calls: Mapping[str, Callable[[], object]], *, seconds: float) -> dict[str, Measurement]:
    """Each call once a turn, for about so many seconds. If other work took little in more than half of the turns, only
    those count. The calls have run before."""
    clock, until_s = CpuClock(oversubscribed=True), time.monotonic() + seconds  # every lane has threads of its own
    turns: list[tuple[float, dict[str, Lap]]] = []
    while len(turns) < _LEAST_TURNS or (len(turns) < _MOST_TURNS and time.monotonic() < until_s):
        names = sorted(calls, reverse=len(turns) % 2 == 1)
        lost_in_turn = clock.overall()
        laps = {name: lap_apart(clock, calls[name]) for name in names}
        turns.append((lost_in_turn(), laps))
    calm = [turn for turn in turns if turn[0] <= CONTENDED]
    kept = calm if 2 * len(calm) > len(turns) else turns
    lost = statistics.mean(share for share, _ in kept)
    return {name: measurement([laps[name] for _, laps in kept], lost=lost) for name in calls}


# -- steps -------------------------------------------------------------------------------------------------------------


class Training:
    """A network in training, the same for the same seed; a call is a step of SGD. ``options``: those of the backend;
    None for no compilation."""

    def __init__(self, network: TrainedNetwork, *, seed: int, options: Mapping[str, Any] | None = None) -> None:
        torch.manual_seed(seed)
        self.model = network.make().train()
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=_LEARNING_RATE, momentum=0.9)
        self._data = network.data()
        self._run: Callable[..., torch.Tensor] = self.model
        if options is not None:
            self._run = torch.compile(self.model, backend=dwconv_concurrent, options=dict(options), dynamic=False)

    def __call__(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._run(*self._data).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()


class ScheduledStep:
    """Steps of one network that any schedules may run."""

    def __init__(self, network: TrainedNetwork, *, seed: int) -> None:
        self._training = Training(network, seed=seed, options={"schedule": PLAIN})
        self._training()  # traces both graphs
        mine = {id(parameter) for parameter in self._training.model.parameters()}
        (graph,) = (graph for graph in graphs if not mine.isdisjoint(graph.parameters))
        self.programs = [each for each in (graph.forward, graph.backward) if each is not None]

    def by(self, placed: Sequence[Schedule] | None) -> Callable[[], None]:
        """A step by these schedules of both graphs; None for plain execution."""
        engines: list[Engine | None] = [None] * len(self.programs)
        if placed is not None:
            engines = [program.prepared(each) for program, each in zip(self.programs, placed, strict=True)]

        def run() -> None:
            for program, engine in zip(self.programs, engines, strict=True):
                program.engine = engine
            self._training()

        return run


Curves = Mapping[str, ScalingCurve]
"""By signature."""


def _made(step: ScheduledStep, known: Curves, names: Sequence[str], machine: Machine) -> list[Schedule]:
    found = []
    for program in step.programs:
        graph = program.cut.graph
        curves = {task.index: known[task.signature] for task in graph.tasks}
        found.append(schedules(graph, curves, strategies=names, machine=machine))
    return found


# -- models of times ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Of one model, over some tasks."""

    tasks: int
    error: float
    """Mean over tasks and counts of the difference between predicted and swept time, as a share of the swept time."""
    slower_than_best: float
    """By which share the counts that the model would choose are slower, all tasks together, than the best ones."""
    timed: int
    """How many times a task was timed with one number of threads, over all tasks."""


def accuracy(predicted: Curves, swept: Curves, *, timed: int = 0) -> Accuracy:
    """``predicted`` against ``swept``, by signature."""
    errors: list[float] = []
    chosen_us = best_us = 0.0
    for signature, curve in swept.items():
        errors += [abs(predicted[signature].median_us[count] - us) / us for count, us in curve.median_us.items()]
        chosen_us += curve.median_us[predicted[signature].best_threads()]
        best_us += min(curve.median_us.values())
    return Accuracy(
        tasks=len(swept), error=statistics.mean(errors), slower_than_best=chosen_us / best_us - 1, timed=timed
    )


@dataclass(frozen=True, kw_only=True)
class Models:
    """Curves of both models, each from measurements of its own, and how good they are."""

    climbed: Curves
    regressed: Curves
    accuracies: Mapping[str, Accuracy]
    learner: str
    """What the regression was fitted to."""
    estimated: int
    """Times that there was no time for."""


def measured_models(programs: Sequence[Program], *, cores: int, seconds: float) -> Models:
    """Fit both models to the tasks within about so many seconds, and sweep a part of them."""
    cuts = [program.cut for program in programs]
    tasks = [*{task.signature: task for cut in cuts for task in cut.graph.tasks}.values()]
    climbing, regression = HillClimbing(cores=cores), Regression(cores=cores)
    by_climbing = TaskTimer(cuts, budget=Budget(seconds / 3))
    climbed = {task.signature: climbing.curve(task, by_climbing) for task in tasks}
    by_regression = TaskTimer(cuts, budget=Budget(seconds / 3))
    regression.fit(tasks, by_regression)
    regressed = {task.signature: regression.curve(task, by_regression) for task in tasks}
    predicted = {task.signature: regression.predicted(task, by_regression) for task in tasks}
    by_sweep = TaskTimer(cuts, budget=Budget(seconds / 3))
    swept = sweep(_spread(tasks), by_sweep, cores=cores)
    return Models(
        climbed=climbed,
        regressed=regressed,
        accuracies={
            "hill climbing": accuracy(climbed, swept, timed=by_climbing.measured),
            "regression": accuracy(predicted, swept, timed=by_regression.measured),
        },
        learner=regression.learnt.learner if regression.learnt else "none: one core",
        estimated=by_climbing.estimated + by_regression.estimated + by_sweep.estimated,
    )


def _spread(tasks: Sequence[Task]) -> list[Task]:
    ordered = sorted(tasks, key=lambda task: (task.flops + task.bytes, task.signature))
    return ordered[:: max(1, -(-len(ordered) // _SWEPT))]


# -- what is printed ---------------------------------------------------------------------------------------------------


def lines(row: dict[str, Any]) -> list[str]:
    """A line for each way to run a step, then what else was found."""
    plain = row["median_ms"][PLAIN]
    shown = [f"\n{row['network']:16} {'ms a step':>10} {'spread':>7} {'× plain':>8}  {'same as':16}"]
    for name, same in row["same_as"].items():
        median_ms, spread_ms = row["median_ms"][same], row["spread_ms"][same]
        said = "" if same == name else same
        shown.append(f"{name:16} {median_ms:10.1f} {spread_ms:7.1f} {plain / median_ms:8.2f}  {said:16}".rstrip())
    shown.append(f"the backend runs {row['backend']}")
    for model, found in row["accuracy"].items():
        shown.append(
            f"{model}: {found['error']:.1%} mean error against a sweep of {found['tasks']} tasks, chosen counts "
            f"{found['slower_than_best']:.1%} slower than the best; {found['timed']} times measured"
        )
    shown.append(f"regression learnt by: {row['learner']}")
    if row["estimated"]:
        shown.append(f"time was up: {row['estimated']} task times are estimates")
    if row["contention"] > CONTENDED:
        shown.append(f"other work took {row['contention']:.0%} of the time: measure again when the machine is quiet")
    return shown
