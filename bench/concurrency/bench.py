"""``python -m bench concurrency``: training steps of six networks, run op by op, in every way there is to choose.

    recommended      one operator at a time on all cores, as PyTorch is set up; ``again``: the same, as a control
    manual W × T     at most W tasks at a time (inter-op) with T threads each (intra-op), the whole grid
    hill climbing    all four strategies, with times from hill climbing; ``regression``: with times from regression
    S1 … S1+S2+S3+S4 each strategy alone and combined, with times from hill climbing
    backend          dwconv_concurrent as users have it: what it chooses for itself
    eager, inductor  PyTorch without compilation, and with its own

A step is forward, backward and optimizer. All begin with the same weights on the same data: a row is void if their
losses differ by more than rounding. Steps are taken in turns, at least ten of each. Schedules that are the same are
timed once.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import torch

from bench.concurrency.models import NETWORKS, TrainedNetwork
from bench.concurrency.picture import draw
from bench.concurrency.shown import lines, model_lines, summary
from bench.concurrency.steps import (
    AGAIN,
    BACKEND,
    EAGER,
    HILL_CLIMBING,
    INDUCTOR,
    RECOMMENDED,
    REGRESSION,
    ChosenStep,
    ScheduledStep,
    SettingStep,
    SgdSteps,
    all_settings,
    loss_differences,
)
from bench.concurrency.times import measured_models
from bench.evidence import Row, ratio_of
from bench.results import add_out_argument, read_results, write_results
from dwconv import native
from dwconv.commands.command_line import ArgumentParser, from_0, whole_from_0
from dwconv.concurrency.counters import available
from dwconv.concurrency.machine_costs import this_machine
from dwconv.concurrency.options import Options
from dwconv.concurrency.second_threads import NO_SLOTS
from dwconv.concurrency.task_graph import Machine
from dwconv.concurrency.timed_schedules import lap_apart, measurement
from dwconv.errors import InvalidChoice, one_line
from dwconv.measure.clock.timing import CpuClock, Lap
from dwconv.problems.target import cpu_target
from dwconv.records.record import CONTENDED
from dwconv.system import versions

_INDUCTOR = "inductor"
"""The backend of that name."""
_LEAST_TURNS, _MOST_TURNS = 10, 31
_MODELS_SHARE, _BACKEND_SHARE, _LEAST_TURNS_SHARE = 0.3, 0.3, 0.3
"""Of the seconds for a network: for the times of its tasks; for what the backend measures to choose, but no more than
it has by default; and for steps in turns, however long the rest takes."""


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench concurrency", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    known = {network.name: network for network in NETWORKS}
    names = f"only this one, of {', '.join(known)}; may be repeated"
    parser.add_argument("--model", action="append", metavar="NAME", help=names)
    parser.add_argument("--models", action="store_true", help="only the models of times, against a sweep; no steps")
    parser.add_argument("--no-compile", action="store_true", help="leave inductor out, which compiles for minutes")
    parser.add_argument("--resume", action="store_true", help="keep the networks that the results already have")
    parser.add_argument("--draw", type=Path, metavar="TRACE", help="only draw what explain(timeline=…) wrote, as SVG")
    parser.add_argument("--seconds", type=from_0, default=240, help="for each network, about, default 240")
    parser.add_argument("--seed", type=whole_from_0, default=0, help="of weights and data, default 0")
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    if not arguments.seconds > 0:
        raise InvalidChoice(f"--seconds {arguments.seconds:g} leaves no time to measure in; give more than 0")
    for name in arguments.model or ():
        if name not in known:
            raise InvalidChoice(f"--model {name} is unknown; use one of {', '.join(known)}")
    if arguments.draw:
        print(f"drawn to {draw(arguments.draw)}")
        return 0
    native.native()  # compiled here if need be, so that it does not come in the middle of what is timed
    chosen = [known[name] for name in arguments.model or known]
    machine = this_machine(torch.get_num_threads())
    print("\n".join(_said(machine)), flush=True)
    results = "concurrency-models" if arguments.models else "concurrency"
    facts = {"seed": arguments.seed, "seconds": arguments.seconds}
    rows: list[Row] = _kept(results, folder=arguments.out, facts=facts) if arguments.resume else []
    for network in chosen:
        if any(row["network"] == network.name for row in rows):
            print(f"\n{network.name} is in the results already", flush=True)
            continue
        if arguments.models:
            rows.append(_of_models(network, machine=machine, seconds=arguments.seconds, seed=arguments.seed))
            print("\n".join([f"\n{network.name}", *model_lines(rows[-1])]), flush=True)
        else:
            compiles = not arguments.no_compile
            rows.append(
                _measured(network, machine=machine, seconds=arguments.seconds, seed=arguments.seed, compiles=compiles)
            )
            print("\n".join(lines(rows[-1])), flush=True)
        write_results(
            results, target=cpu_target(), rows=rows, folder=arguments.out, **facts,
            handover_us=machine.handover_us, change_us=machine.change_us, slots=asdict(machine.slots),
            counters=asdict(available()), native=native.why_not or "C++",
        )  # fmt: skip
    if rows and not arguments.models:
        print("\n".join(summary(rows)))
    return 0


def _said(machine: Machine) -> list[str]:
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
        said.append(NO_SLOTS)
    return said + ([available().note] if available().note else [])


class _Earlier(msgspec.Struct):
    """What the file of an earlier run has to have."""

    versions: dict[str, str | None]
    rows: list[Row]
    seed: int | None = None
    seconds: float | None = None


def _kept(results: str, *, folder: Path, facts: Mapping[str, Any]) -> list[Row]:
    """The rows of an earlier run with the same versions, seed and seconds; none if there is none."""
    path = Path(folder) / f"{results}-{cpu_target().device}.json"
    if not path.exists():
        return []
    found = read_results(path, _Earlier, way_out="remove it, or leave out --resume")
    same = {**facts, **versions.installed()}
    was = {"seed": found.seed, "seconds": found.seconds, **found.versions}
    rows = found.rows if same == {name: was.get(name) for name in same} else []
    return [row for row in rows if "network" in row]


def _of_models(network: TrainedNetwork, *, machine: Machine, seconds: float, seed: int) -> Row:
    """The row of one network for ``--models``."""
    models = measured_models(ScheduledStep(network, seed=seed).programs, cores=machine.cores, seconds=seconds)
    accuracies = {name: asdict(found) for name, found in models.accuracies.items()}
    return {"network": network.name, "accuracy": accuracies, "estimated": models.estimated}


def _measured(network: TrainedNetwork, *, machine: Machine, seconds: float, seed: int, compiles: bool = True) -> Row:
    """The row of one network; without ``compiles`` inductor is left out."""
    started = time.monotonic()
    step = ScheduledStep(network, seed=seed)
    models = measured_models(step.programs, cores=machine.cores, seconds=_MODELS_SHARE * seconds)
    settings = all_settings(step, models, machine=machine)
    first: dict[object, str] = {}
    same_as = {setting.name: first.setdefault(setting.shape, setting.name) for setting in settings}
    distinct = [setting for setting in settings if same_as[setting.name] == setting.name]
    calls: dict[str, SettingStep | ChosenStep | SgdSteps] = {RECOMMENDED: step.by(None), AGAIN: step.by(None)}
    calls |= {setting.name: step.by(setting.schedules) for setting in distinct}
    chosen = ChosenStep(network, seed=seed, seconds=min(Options().seconds, _BACKEND_SHARE * seconds))
    eager = SgdSteps(network, seed=seed)
    calls |= {BACKEND: chosen, EAGER: eager}
    refused = _add_inductor(calls, network, seed=seed) if compiles else {}
    differences, permitted = loss_differences(calls, eager)
    known = {HILL_CLIMBING: models.climbed, REGRESSION: models.regressed}
    now = {name: step.corrected(curves, machine=machine) for name, curves in known.items()}
    simulated = {
        each.name: {
            "expected_ms": step.simulated_us(each, now[each.model], machine=machine) / 1e3,
            "seen_ms": step.seen_us(each.schedules) / 1e3,
        }
        for each in distinct
        if each.fits
    }
    laps, lost = in_turns(calls, seconds=max(_LEAST_TURNS_SHARE * seconds, seconds - (time.monotonic() - started)))
    taken = {name: measurement(laps[name], lost=lost) for name in calls}
    ratios = {name: ratio_of(_ms(laps[RECOMMENDED]), over=_ms(laps[name])) for name in calls}
    return {
        "network": network.name,
        "tasks": [len(program.cut.graph.tasks) for program in step.programs],
        "median_ms": {name: each.median_us / 1e3 for name, each in taken.items()},
        "spread_ms": {name: each.spread_us / 1e3 for name, each in taken.items()},
        "faster": {name: ratio.value for name, ratio in ratios.items()},
        "faster_interval": {name: list(ratio.interval) for name, ratio in ratios.items()},
        "rounds": min(each.rounds for each in taken.values()),
        "contention": max(each.contention for each in taken.values()),
        "expected_ms": {setting.name: setting.expected_us / 1e3 for setting in settings},
        "simulated": simulated,
        "same_as": {name: same_as.get(name, name) for name in dict.fromkeys([RECOMMENDED, AGAIN, *same_as, *calls])},
        "backend": chosen.chosen,
        "refused": refused,
        "loss_difference": differences,
        "permitted": permitted,
        "void": [name for name, apart in differences.items() if not apart <= permitted],
        "accuracy": {name: asdict(found) for name, found in models.accuracies.items()},
        "estimated": models.estimated,
        "seconds": time.monotonic() - started,
    }


def _add_inductor(
    calls: dict[str, SettingStep | ChosenStep | SgdSteps], network: TrainedNetwork, *, seed: int
) -> dict[str, str]:
    """Add inductor's steps; or give the reason why it does not run, by its name: it needs a C++ compiler."""
    inductor = SgdSteps(network, seed=seed, backend=_INDUCTOR)
    try:
        inductor()
    except Exception as error:  # noqa: BLE001  # whatever its compiler raises: the others are measured
        return {INDUCTOR: one_line(f"{type(error).__name__}: {error}", most=200)}
    calls[INDUCTOR] = inductor
    return {}


def _ms(laps: Sequence[Lap]) -> list[float]:
    return [lap.seconds * 1e3 for lap in laps]


def in_turns(calls: Mapping[str, Callable[[], object]], *, seconds: float) -> tuple[dict[str, list[Lap]], float]:
    """The laps of each call, one a turn, for about so many seconds; and the share of the time that other work took. If
    other work took little in enough of the turns, only those count. The calls have run before."""
    clock, until_s = CpuClock(oversubscribed=True), time.monotonic() + seconds  # every lane has threads of its own
    turns: list[tuple[float, dict[str, Lap]]] = []
    while len(turns) < _LEAST_TURNS or (len(turns) < _MOST_TURNS and time.monotonic() < until_s):
        names = random.Random(len(turns)).sample(sorted(calls), len(calls))  # none has always the same neighbours
        lost_in_turn = clock.overall()
        laps = {name: lap_apart(clock, calls[name]) for name in names}
        turns.append((lost_in_turn(), laps))
    uncontended = [turn for turn in turns if turn[0] <= CONTENDED]
    kept = uncontended if len(uncontended) >= _LEAST_TURNS else turns
    return {name: [laps[name] for _, laps in kept] for name in calls}, statistics.mean(share for share, _ in kept)
