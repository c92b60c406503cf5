"""``python -m bench first_minute``: the time of training from its start, summed, over plain training's.

    race              no record, no kernel; ``dwconv.convert(model, x)``, whose own time counts
    race again        the same once more: what it found is known, its kernels are built
    records           a log of all that layers run, and an empty kernel folder; ``dwconv.convert(model)``
    records+kernels   the same with the kernels that were built then
    nothing           no record, no kernel; ``dwconv.convert(model)``

A race leaves out the gradients that only blocks run; one without blocks adds them to the log of layers. Each case runs
in a process of its own. Plain steps are timed before the model is converted, and again at the end: the plain sum is
their mean times the number of steps. Calls go through what is compiled of them already.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import dwconv
from bench.models import GhostNet, MobileNetV2
from bench.process import in_a_process
from bench.results import MachineWatch, add_out_argument, write_results
from dwconv import native, settings
from dwconv.call.call_plan import plans
from dwconv.commands.command_line import ArgumentParser, from_0
from dwconv.errors import InvalidChoice, say
from dwconv.problems.target import cpu_target

MARKS = (1, 10, 40, 100, 300, 1000)
"""Steps after which the sums are compared."""
CASES = ("race", "race again", "records", "records+kernels", "nothing")
_PLAIN = 10
"""Plain steps before and after, besides three to warm up."""
_SIZES = (96, 112, 128, 144, 160, 176, 192, 208, 224, 240)


@dataclass(frozen=True, kw_only=True)
class ShapedModel:
    """A model, and the shapes of its batches, which take turns."""

    make: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]

    def batches(self) -> Iterator[Tensor]:
        """Without end; images are channels_last."""
        made = [torch.randn(shape) for shape in self.shapes]
        last = [x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in made]
        while True:
            yield from last


class Rows(nn.Module):
    """Two depthwise Conv1d, as in a Conformer's or a Mamba's block: (N, 256, L) -> (N, 256, L)."""

    def __init__(self) -> None:
        super().__init__()
        wide, short = (nn.Conv1d(256, 256, taps, padding=taps // 2, groups=256) for taps in (31, 5))
        self.layers = nn.Sequential(wide, nn.SiLU(), nn.Conv1d(256, 256, 1), short, nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Wide(nn.Module):
    """Three depthwise Conv2d and nothing else, the case in which kernels matter most: (N, 88, H, W) -> the same."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Conv2d(88, 88, k, padding=k // 2, groups=88) for k in (5, 3, 7)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


TRAININGS = {
    "MobileNetV2": ShapedModel(make=MobileNetV2, shapes=((8, 3, 224, 224),)),
    "GhostNet": ShapedModel(make=GhostNet, shapes=((8, 3, 224, 224),)),
    "three-layers": ShapedModel(make=Wide, shapes=((4, 88, 36, 36),)),
    "Conv1d-lengths": ShapedModel(make=Rows, shapes=tuple((8, 256, length) for length in range(200, 600, 37))),
    "detection-sizes": ShapedModel(make=MobileNetV2, shapes=tuple((2, 3, size, size) for size in _SIZES)),
}


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(
        prog="bench first_minute", description=(__doc__ or "").partition(": ")[2].partition("\n")[0]
    )
    parser.add_argument("--models", nargs="+", default=list(TRAININGS), metavar="NAME", help="default: all")
    parser.add_argument("--cases", nargs="+", default=list(CASES), metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--seconds", type=from_0, default=90, help="of ours, of each case, default 90")
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    for given, known in ((arguments.models, TRAININGS), (arguments.cases, CASES)):
        if unknown := [each for each in given if each not in known]:
            raise InvalidChoice(f"{unknown[0]} is none of {', '.join(known)}")
    watch = MachineWatch(threads=torch.get_num_threads())
    native.native()  # compiled once, before anything is timed
    rows = []
    print(f"{'model':16} {'case':16} {'step, ms':>9}" + "".join(f"{f'{mark}':>16}" for mark in MARKS))
    print(f"{'':16} {'':16} {'plain':>9}" + f"{'ours/plain, s':>16}" * len(MARKS))
    for model in arguments.models:
        with tempfile.TemporaryDirectory(prefix="dwconv-first-minute-") as folder:
            for row in _of_model(model, arguments.cases, Path(folder), seconds=arguments.seconds):
                rows.append(row)
                print(_line(row), flush=True)
    write_results("first-minute", target=cpu_target(), rows=rows, folder=arguments.out, machine=watch.facts(rows))
    return 0


def _of_model(model: str, cases: Sequence[str], folder: Path, *, seconds: float) -> Iterator[dict[str, Any]]:
    """In the order of ``CASES``: the first writes the records of the next ones."""
    layers_are_known = False
    for case in CASES:
        if case not in cases and (case != "race" or {*cases} == {"nothing"}):
            continue
        environment = fresh_environment(*(folder / each for each in _FOLDERS[case]))
        if case.startswith("records") and not layers_are_known:
            raced = folder / "raced"
            in_a_process(race_layers, {"model": model}, environment=fresh_environment(raced, raced))
            layers_are_known = True
        say(f"{model}: {case}")
        given = {"model": model, "races": case.startswith("race"), "seconds": seconds}
        row = in_a_process(trained, given, environment=environment)
        if case in cases:
            yield {"model": model, "case": case, **row}


_FOLDERS = {
    "race": ("raced", "raced"),
    "race again": ("raced", "raced"),
    "records": ("raced", "records"),
    "records+kernels": ("raced", "raced"),
    "nothing": ("nothing", "nothing"),
}
"""Of logs, and of kernels."""


def fresh_environment(logs: Path, kernels: Path) -> dict[str, str]:
    """Of a process whose records are those in ``logs`` alone, and whose kernels those in ``kernels``; both folders are
    made. What is compiled of calls is there."""
    places = {"DWCONV_TUNING_LOGS": str(logs / "logs"), "XDG_CACHE_HOME": str(kernels / "cache")}
    environment = {**os.environ, "DWCONV_UNTUNED": "predict", **places}
    environment.pop("DWCONV_CACHE", None)
    for place in places.values():
        Path(place).mkdir(parents=True, exist_ok=True)
    _take_what_is_compiled(kernels / "cache" / "dwconv")
    return environment


def _take_what_is_compiled(cache: Path) -> None:
    """The C++ of calls is no kernel: what this process has of it."""
    here, own = settings.cache_folder() / "native", cache / "native"
    if here.exists() and not own.exists():
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copytree(here, own)


def race_layers(model: str) -> None:
    """In a process of its own: race what the layers of a model run without blocks."""
    net, batches = _made(model)
    dwconv.convert(net, next(batches), blocks=False)


def _made(model: str) -> tuple[nn.Module, Iterator[Tensor]]:
    """The model, and its batches."""
    training = TRAININGS[model]
    torch.manual_seed(0)
    net = training.make()
    if len(training.shapes[0]) == 4:
        net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net, training.batches()


def trained(model: str, races: bool, seconds: float) -> dict[str, Any]:
    """In a process of its own: the sums, and what there was."""
    net, batches = _made(model)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step() -> float:
        began = time.perf_counter()
        loss = net(next(batches)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return time.perf_counter() - began

    def plain() -> list[float]:
        turns = len(TRAININGS[model].shapes)
        count = max(_PLAIN, turns) // turns * turns
        for _ in range(max(3, turns)):
            step()
        return [step() for _ in range(count)]

    before = plain()
    began = time.perf_counter()
    dwconv.convert(net, next(batches) if races else None)
    converted_s = time.perf_counter() - began
    sums: dict[int, float] = {}
    count = 0
    while count < MARKS[-1] and time.perf_counter() - began < seconds:
        step()
        count += 1
        if count in MARKS:
            sums[count] = time.perf_counter() - began
    late = [step() for _ in range(len(before))]
    building = sum(plan.is_open for plan in plans())
    dwconv.revert(net)
    after = plain()
    mean_s = statistics.fmean([statistics.fmean(before), statistics.fmean(after)])
    return {
        "plain_step_s": mean_s,
        "plain_drift": statistics.fmean(after) / statistics.fmean(before),
        "convert_s": converted_s,
        "sums_s": {str(mark): each for mark, each in sums.items()},
        "plain_sums_s": {str(mark): mark * mean_s for mark in sums},
        "late_step_s": statistics.fmean(late),
        "open_plans": building,
    }


def _line(row: dict[str, Any]) -> str:
    figures = []
    for mark in MARKS:
        ours, plain = row["sums_s"].get(str(mark)), row["plain_sums_s"].get(str(mark))
        figures.append(f"{f'{ours:.1f}/{plain:.1f}':>16}" if ours is not None else f"{'':>16}")
    speed = row["plain_step_s"] / row["late_step_s"]
    return f"{row['model']:16} {row['case']:16} {row['plain_step_s'] * 1e3:9.1f}{''.join(figures)}  then {speed:.2f} ×"
