"""``python -m bench instructions``: how lean the CUDA kernels are, compiled, without a GPU.

A line a regime and configuration: lane-instructions an output, over the budget that the memory leaves time for; the
share of multiply-adds; registers, spills, threads and loads in flight on an SM; computed time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.cases import same_padding
from dwconv.commands.command_line import ArgumentParser, from_0, run, writable_file
from dwconv.errors import BuildError, InvalidChoice, NoTemplate, UnknownTarget
from dwconv.problems.workload import DType, Layout, Pass, Workload
from dwconv.system.new_file import replace_file

if TYPE_CHECKING:
    from dwconv.problems.target import CudaTarget
    from dwconv.schedules.space import Config
    from dwconv.tuner.gpu_cost.cost_model import Cost

BATCH = 64
CHANNELS = {112: 64, 57: 96, 56: 96, 28: 192, 14: 384, 7: 960}
"""Channels by the size of the map: about as many as networks have there."""
BYTES_IN_FLIGHT_PER_SM = 50_000


@dataclass(frozen=True, kw_only=True)
class Regime:
    """A workload and its goals; 0 is no goal."""

    workload: Workload
    most_of_budget: float = 0.0
    least_fma: float = 0.0
    """Share of the issued instructions that multiply and add."""
    least_gain: float = 0.0
    """Times that tensor cores are faster than the fastest template without."""

    @property
    def name(self) -> str:
        at = self.workload
        stride = "" if at.stride == (1, 1) else f" s{at.stride[0]}"
        return f"{at.pass_} {at.kernel[0]}×{at.kernel[1]}{stride} {at.dtype} {at.layout} {at.input_size[0]}²"

    def missed(self, cost: Cost, *, others_us: float) -> list[str]:
        """The goals that ``cost`` misses; ``others_us``: the time of the fastest template without tensor cores."""
        found = []
        if self.least_gain and cost.on_tensor_cores and others_us / cost.microseconds < self.least_gain:
            found.append(f"gain <{self.least_gain:.1f} ({others_us / cost.microseconds:.1f})")
        if self.most_of_budget and cost.share_of_budget > self.most_of_budget:
            found.append(f"budget >{self.most_of_budget:.2f}")
        if self.least_fma and fma_share(cost) < self.least_fma:
            found.append(f"fma <{self.least_fma:.0%}")
        if cost.slowest.bytes_in_flight_per_sm < BYTES_IN_FLIGHT_PER_SM:
            found.append("in flight <50 KB")
        if any(kernel.resources.get("spill_bytes") or kernel.resources.get("stack_bytes") for kernel in cost.kernels):
            found.append("spills")
        return found


def fma_share(cost: Cost) -> float:
    """The share of multiply-adds in the instructions that the slowest kernel issues."""
    return cost.slowest.fma_per_output / cost.slowest.instructions_per_output


_GOALS: tuple[tuple[DType, float, float], ...] = (
    ("float32", 0.35, 0.6), ("float16", 0.55, 0.9), ("bfloat16", 0.55, 0.9)
)  # fmt: skip
"""Most of the issue budget that a 3×3 kernel may take, and the same on the smallest maps, for each type."""
_OTHERS: tuple[tuple[DType, int], ...] = (("float32", 57), ("float32", 112), ("float16", 112))
_WIDE: tuple[tuple[int, int, float, float], ...] = ((7, 56, 1.5, 0.0), (13, 14, 4.0, 3.0), (31, 28, 6.0, 3.0))
"""Kernels in 16 bits: width, map, and the gain of tensor cores in fprop and dgrad, and in wgrad."""


def regimes() -> Iterator[Regime]:
    """3×3 on every map size, pass, layout and type; then larger kernels and strides."""
    for pass_ in ("fprop", "dgrad", "wgrad"):
        for layout in ("nchw", "nhwc"):
            for dtype, goal, small_goal in _GOALS:
                for size in (56, 28, 14, 7):
                    at = _workload(pass_, size=size, dtype=dtype, layout=layout)
                    yield Regime(workload=at, most_of_budget=small_goal if size == 7 else goal)
            for dtype, size in _OTHERS:
                stride = 2 if size == 112 else 1
                yield Regime(workload=_workload(pass_, size=size, stride=stride, dtype=dtype, layout=layout))
            yield Regime(workload=_workload(pass_, size=28, kernel=5, layout=layout), most_of_budget=0.6)
            yield Regime(workload=_workload(pass_, size=56, kernel=7, layout=layout), least_fma=0.85)
            yield Regime(workload=_workload(pass_, size=28, kernel=31, layout=layout), least_fma=0.9)
            for kernel, size, gain, wgrad_gain in _WIDE:
                at = _workload(pass_, size=size, kernel=kernel, dtype="float16", layout=layout)
                yield Regime(workload=at, least_gain=wgrad_gain if pass_ == "wgrad" else gain)


def _workload(
    pass_: Pass, *, size: int, kernel: int = 3, stride: int = 1, dtype: DType = "float32", layout: Layout
) -> Workload:
    return Workload(
        pass_=pass_, batch=BATCH, channels=CHANNELS[size], input_size=(size, size), kernel=(kernel, kernel),
        stride=(stride, stride), padding=same_padding((kernel, kernel)), dtype=dtype, layout=layout,
    )  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    return run(_main, argv)


def _main(argv: list[str] | None) -> int:
    parser = ArgumentParser(prog="python -m bench instructions", description=__doc__.partition("\n")[2].strip())
    parser.add_argument("--target", default="cuda:sm_90", metavar="cuda:sm_NN", help="default cuda:sm_90")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="regimes with all these words, such as 'wgrad nhwc'"
    )
    parser.add_argument(
        "--trials", type=int, default=0, metavar="N", help="also the best of N by an analytic search; default none"
    )
    parser.add_argument("--seconds", type=from_0, metavar="S", help="the most that a search may take")
    parser.add_argument("--out", type=writable_file, metavar="FILE", help="write the figures as JSON, too")
    arguments = parser.parse_args(argv)

    from dwconv.problems.target import CudaTarget, parse_target

    target = parse_target(arguments.target)
    if not isinstance(target, CudaTarget):
        raise UnknownTarget(f"target={arguments.target} is no GPU; use cuda:sm_90")
    words = arguments.only.split()
    found = [regime for regime in regimes() if all(word in regime.name.split() for word in words)]
    print(_HEADING)
    rows = []
    for regime in found:
        for row in _rows(regime, target, arguments):
            rows.append(row)
            if arguments.out:
                _write(arguments.out, rows)
    return 0


def _write(out: Path, rows: list[dict[str, Any]]) -> None:
    try:
        replace_file(out, [json.dumps(rows, indent=1).encode(), b"\n"], durable=False)
    except OSError as error:
        raise InvalidChoice(f"out={out} cannot be written: {error.strerror}; name another file") from error


_HEADING = (
    f"{'regime':34} {'config':8} {'instr':>6} {'budget':>6} {'share':>5} {'fma':>4} {'regs':>4} {'spill':>5} "
    f"{'thr/SM':>6} {'KB/SM':>5} {'µs':>7} {'limit':>7}  by          goals missed"
)


def _rows(regime: Regime, target: CudaTarget, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from dwconv.schedules.template import templates_for

    try:
        templates = templates_for(regime.workload, target)
    except NoTemplate:
        print(f"{regime.name:34} no template", flush=True)
        return
    configs = [("default", template.space(regime.workload, target).default) for template in templates]
    if arguments.trials:
        configs += [("best", config) for config in _best(regime.workload, target, arguments)]
    costs: list[tuple[str, Config, Cost]] = []
    for which, config in configs:
        try:
            costs.append((which, config, _cost(regime.workload, config, target)))
        except BuildError as error:
            print(f"{regime.name:34} {which:8} {error}", flush=True)
    others = [cost.microseconds for _, _, cost in costs if not cost.on_tensor_cores]
    for which, config, cost in costs:
        missed = regime.missed(cost, others_us=min(others, default=math.inf))
        print(_line(regime, which, config, cost, missed), flush=True)
        yield _data(regime, which, config, cost, missed)


def _best(workload: Workload, target: CudaTarget, arguments: argparse.Namespace) -> list[Config]:
    from dwconv.records.log import TuningLog
    from dwconv.tuner.search.loop import RunnerChoice, SearchPlan, tune_workload
    from dwconv.tuner.search.search_result import Budget

    with tempfile.TemporaryDirectory() as folder:
        result = tune_workload(
            workload,
            target,
            log=TuningLog(Path(folder) / "log.jsonl"),
            plan=SearchPlan(strategy="analytic"),
            budget=Budget(trials=arguments.trials, seconds=arguments.seconds, patience=None),
            runner=RunnerChoice(jobs=2, check=False),
        )
    return [result.best.config] if result.best else []


def _cost(workload: Workload, config: Config, target: CudaTarget) -> Cost:
    from dwconv.kernels import build
    from dwconv.schedules.template import Candidate
    from dwconv.tuner.gpu_cost.cost_model import computed_cost

    return computed_cost(build(Candidate(workload, config), target), workload, target)


def _line(regime: Regime, which: str, config: Config, cost: Cost, missed: list[str]) -> str:
    slowest = cost.slowest
    return (
        f"{regime.name:34} {which:8} {cost.instructions_per_output:6.1f} {cost.budget_per_output:6.1f} "
        f"{cost.share_of_budget:5.2f} {fma_share(cost):4.0%} {slowest.resources['registers']:4} "
        f"{slowest.resources['spill_bytes']:5} {slowest.occupancy.threads_per_sm:6} "
        f"{slowest.bytes_in_flight_per_sm / 1e3:5.0f} {cost.microseconds:7.1f} {cost.limit_us:7.1f}  "
        f"{cost.limiter:10}  {', '.join(missed)}  [{config.template.removeprefix('cuda.')}]"
    )


def _data(regime: Regime, which: str, config: Config, cost: Cost, missed: list[str]) -> dict[str, Any]:
    from dwconv.tuner.gpu_cost.cost_model import cost_data

    return {
        "regime": regime.name,
        "which": which,
        "goal": {name: value for name, value in dataclasses.asdict(regime).items() if name != "workload"},
        "missed": missed,
        "workload": regime.workload.to_dict(),
        "config": config.to_dict(),
        "cost": cost_data(cost),
    }
