"""``python -m bench concurrency``: training steps of five networks, run op by op in every way there is to choose.

    recommended      one task at a time on all cores, as PyTorch is set up
    manual W × T     at most W tasks at a time (inter-op) with T threads each (intra-op), of up to 4 all combinations
    hill climbing    all four strategies, with times from hill climbing; ``regression``: with times from regression
    S1 … S1+S2+S3+S4 each strategy alone and combined, with times from hill climbing
    gradients        one task at a time, but dgrad and wgrad of a convolution at once where that was measured to pay
    backend          dwconv_concurrent as users have it: what it chooses for itself
    eager            PyTorch without any compilation

All run the same step from the same start on the same data: their losses must agree. Steps are taken in turns. Settings
that come to the same schedule are timed once.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from bench.concurrency.models import NETWORKS, TrainedNetwork
from bench.concurrency.step import (
    RECOMMENDED,
    BackendStep,
    EagerStep,
    Setting,
    SettingStep,
    SwitchedStep,
    Training,
    all_settings,
    cuts,
)
from bench.concurrency.times import HurriedTimer, measured_models
from bench.results import add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0
from dwconv.concurrency.counters import unavailable
from dwconv.concurrency.machine_costs import this_machine
from dwconv.concurrency.measured import lap_apart, measurement
from dwconv.concurrency.schedule import Machine
from dwconv.errors import InvalidChoice
from dwconv.measure.clock.timing import CpuClock, Lap
from dwconv.problems.target import cpu_target
from dwconv.records.record import CONTENDED, Measurement

TrainingStep = SettingStep | BackendStep | EagerStep
_LOSSES = 2
"""Steps whose losses are compared."""
_LEAST_TURNS, _MOST_TURNS = 3, 31
_PAIRS_SHARE, _MODELS_SHARE, _BACKEND_SHARE, _LEAST_TURNS_SHARE = 0.05, 0.3, 0.2, 0.2
"""Of the seconds for a network: for the gradients of convolutions in each graph; for the times of its tasks; for what
the backend measures to choose; and for steps in turns, however long the rest takes."""


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench concurrency", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    names = ", ".join(network.name for network in NETWORKS)
    parser.add_argument("--model", action="append", metavar="NAME", help=f"only this one, of {names}; may be repeated")
    parser.add_argument("--seconds", type=from_0, default=90, help="for each network, about, default 90")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data, default 0")
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    if not arguments.seconds > 0:
        raise InvalidChoice(f"--seconds {arguments.seconds:g} leaves no time to measure in; give more than 0")
    networks = _chosen(arguments.model)
    machine = this_machine(torch.get_num_threads())
    print(_said(machine), flush=True)
    rows = []
    for network in networks:
        rows.append(_measured(network, machine=machine, seconds=arguments.seconds, seed=arguments.seed))
        print("\n".join([head(network.name), *lines(rows[-1])]), flush=True)
        write_results(
            "concurrency", target=cpu_target(), rows=rows, folder=arguments.out,
            handover_us=machine.handover_us, change_us=machine.change_us, hardware_counters=unavailable() or "read",
        )  # fmt: skip
    print(summary(rows))
    return 0


def _chosen(names: Sequence[str] | None) -> list[TrainedNetwork]:
    """Raises InvalidChoice for a network that is not there."""
    known = {network.name: network for network in NETWORKS}
    for name in names or ():
        if name not in known:
            raise InvalidChoice(f"--model {name} is unknown; use one of {', '.join(known)}")
    return [known[name] for name in names] if names else list(NETWORKS)


def _said(machine: Machine) -> str:
    slots = machine.slots
    said = [
        f"{machine.cores} cores; handing over to another worker takes {machine.handover_us:.1f} µs, "
        f"another number of threads {machine.change_us:.1f} µs"
    ]
    if slots.count:
        said.append(
            f"{slots.count} second hardware threads: a task takes {slots.slowdown:.2f} times as long there, and its "
            f"neighbour {slots.neighbour_slowdown:.2f} times"
        )
    else:
        said.append("no second hardware threads here: S4 changes nothing")
    if unavailable():
        said.append(f"regression does without hardware events: {unavailable()}")
    return "\n".join(said)


def _measured(network: TrainedNetwork, *, machine: Machine, seconds: float, seed: int) -> dict[str, Any]:
    """The row of one network."""
    started = time.monotonic()
    step = SwitchedStep(Training(network, seed=seed))
    for graph in step.graphs:
        timer = HurriedTimer(graph.apart.cut, until_s=time.monotonic() + _PAIRS_SHARE * seconds)
        graph.keep_whole_what_is_better_so(timer, cores=machine.cores)
    models = measured_models(cuts(step.graphs), cores=machine.cores, seconds=_MODELS_SHARE * seconds)
    settings = all_settings(step.graphs, models, machine=machine)
    same_as = _same(settings)
    distinct = [setting for setting in settings if same_as[setting.name] == setting.name]
    steps = {setting.name: SettingStep(step, setting) for setting in distinct}
    backend = BackendStep(Training(network, seed=seed), seconds=_BACKEND_SHARE * seconds)
    eager = EagerStep(Training(network, seed=seed))
    calls: dict[str, TrainingStep] = {**steps, BACKEND: backend, EAGER: eager}
    losses = _losses(calls, eager)
    left_s = max(_LEAST_TURNS_SHARE * seconds, seconds - (time.monotonic() - started))
    taken = in_turns(calls, seconds=left_s)
    return {
        "network": network.name,
        "tasks": [len(graph.whole.cut.graph.tasks) for graph in step.graphs],
        "median_ms": {name: measured.median_us / 1e3 for name, measured in taken.items()},
        "spread_ms": {name: measured.spread_us / 1e3 for name, measured in taken.items()},
        "rounds": min(measured.rounds for measured in taken.values()),
        "contention": max(measured.contention for measured in taken.values()),
        "expected_ms": {setting.name: setting.expected_us / 1e3 for setting in settings},
        "same_as": {**same_as, BACKEND: BACKEND, EAGER: EAGER},
        "backend": backend.chosen,
        "loss_difference": losses,
        "accuracy": {
            name: {"error": found.error, "slower_than_best": found.slower_than_best, "tasks": found.tasks}
            for name, found in models.accuracies.items()
        },
        "learner": models.learner,
        "timed": dict(models.runs),
        "hurried": models.hurried,
        "at_once": sum(pair.at_once_wins for graph in step.graphs for pair in graph.pairs),
        "pairs": sum(len(graph.pairs) for graph in step.graphs),
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


def _same(settings: Sequence[Setting]) -> dict[str, str]:
    """By name of a setting, the first one that runs alike: itself, if there is none before."""
    first: dict[object, str] = {}
    return {setting.name: first.setdefault(setting.shape, setting.name) for setting in settings}


def _losses(calls: Mapping[str, TrainingStep], eager: TrainingStep) -> dict[str, float]:
    """The largest difference from the losses of eager steps, as a share: of any setting in its first step and in all
    of them, and of eager steps whose first weights were moved by one rounding."""
    wanted = _few(eager)
    found = [_few(each) for each in calls.values()]
    rounded = _few(eager, rounded=True)
    return {
        "first": max(abs(losses[0] / wanted[0] - 1) for losses in found),
        "all": max(_apart(losses, wanted) for losses in found),
        "by rounding alone": _apart(rounded, wanted),
    }


def _few(call: TrainingStep, *, rounded: bool = False) -> list[float]:
    call.training.start_again(rounded=rounded)
    return [call() for _ in range(_LOSSES)]


def _apart(losses: Sequence[float], wanted: Sequence[float]) -> float:
    return max(abs(loss / eager - 1) for loss, eager in zip(losses, wanted, strict=True))


# -- what is printed ---------------------------------------------------------------------------------------------------


BACKEND, EAGER = "backend", "eager"


def head(network: str) -> str:
    """Above the lines of a network."""
    return f"\n{network:16} {'ms a step':>10} {'spread':>7} {'× recommended':>14}  {'same as':16}"


def lines(row: dict[str, Any]) -> list[str]:
    """A line for each setting, then what else was found."""
    recommended = row["median_ms"][RECOMMENDED]
    shown = []
    for name, same in row["same_as"].items():
        median_ms, spread_ms = row["median_ms"][same], row["spread_ms"][same]
        said = "" if same == name else same
        shown.append(
            f"{name:16} {median_ms:10.1f} {spread_ms:7.1f} {recommended / median_ms:14.2f}  {said:16}".rstrip()
        )
    best = best_manual(row)
    shown.append(
        f"best manual setting: {best}, {recommended / row['median_ms'][row['same_as'][best]]:.2f} times as fast"
    )
    shown.append(f"the backend runs {row['backend']}")
    for model, found in row["accuracy"].items():
        shown.append(
            f"{model}: {found['error']:.1%} mean error against a sweep of {found['tasks']} tasks, chosen counts "
            f"{found['slower_than_best']:.1%} slower than the best; {row['timed'][model]} times measured"
        )
    shown.append(f"regression learnt by: {row['learner']}")
    shown.append(f"dgrad and wgrad at once: faster for {row['at_once']} of {row['pairs']} convolutions")
    apart = ", ".join(f"{which} {share:.1e}" for which, share in row["loss_difference"].items())
    shown.append(f"largest difference from the eager losses, as a share: {apart}")
    if row["hurried"]:
        shown.append(f"time was up: {row['hurried']} task times are of a single run")
    if row["contention"] > 0.05:
        shown.append(f"other work took {row['contention']:.0%} of the time: measure again when the machine is quiet")
    return shown


def best_manual(row: dict[str, Any]) -> str:
    """The fastest setting made by hand; the recommended one is one of them."""
    by_hand: list[str] = [name for name in row["same_as"] if name.startswith("manual") or name == RECOMMENDED]
    return min(by_hand, key=lambda name: float(row["median_ms"][row["same_as"][name]]))


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """A line a network: what each way of choosing wins over the recommended setting."""
    shown = [
        "",
        f"{'× recommended':16} {'best manual':>12} {'hill climbing':>14} {'regression':>11} {'best of all':>24}",
    ]
    for row in rows:
        recommended = row["median_ms"][RECOMMENDED]
        ratio = {name: recommended / row["median_ms"][same] for name, same in row["same_as"].items()}
        best = max((name for name in ratio if name != EAGER), key=ratio.__getitem__)
        shown.append(
            f"{row['network']:16} {ratio[best_manual(row)]:12.2f} {ratio['hill climbing']:14.2f} "
            f"{ratio['regression']:11.2f} {f'{ratio[best]:.2f} by {best}':>24}"
        )
    if len(rows) > 1:
        means = [
            statistics.geometric_mean(
                row["median_ms"][RECOMMENDED] / row["median_ms"][row["same_as"][name(row)]] for row in rows
            )
            for name in (best_manual, lambda _: "hill climbing", lambda _: "regression")
        ]
        shown.append(f"{'geometric mean':16} {means[0]:12.2f} {means[1]:14.2f} {means[2]:11.2f}")
    return "\n".join(shown)
