"""Records as tuning would leave them, without the minute that tuning takes: real kernels at default configurations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import dwconv
from dwconv.problems.block import Block
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import BLOCK_PASSES, PASSES, DType, Layout, Pass, Workload
from dwconv.records.log import TuningLog
from dwconv.records.record import AROUND, Measurement, Status, TuningRecord, Verdict
from dwconv.schedules.space import Config
from dwconv.schedules.template import templates_for, version_of
from dwconv.system import versions


def workload_of(
    *,
    shape: tuple[int, ...] = (2, 8, 9, 7),
    kernel: tuple[int, ...] = (3, 3),
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 1,
    multiplier: int = 1,
    pass_: Pass = "fprop",
    layout: Layout = "nhwc",
    bias: bool = False,
    block: str | None = None,
    dtype: DType = "float32",
) -> Workload:
    """A workload, from its input shape, (N, C, H, W) or (N, C, D, H, W), and what the test cares for."""
    strides, paddings = (each if isinstance(each, tuple) else (each,) * len(kernel) for each in (stride, padding))
    problem = Workload(
        pass_="forward" if block else "fprop",
        batch=shape[0],
        channels=shape[1],
        input_size=shape[2:],
        kernel=kernel,
        multiplier=multiplier,
        stride=strides,
        padding=tuple((each, each) for each in paddings),
        dilation=(1,) * len(kernel),
        dtype=dtype,
        layout=layout,
        bias=bias,
        block=Block.parse(block) if block else None,
    )
    return problem if block else problem.for_pass(pass_)


def record_of(
    workload: Workload,
    *,
    config: Config | None = None,
    device: str = "",
    median_us: float = 50.0,
    baseline_us: float | None = 100.0,
    around_us: float | None = None,
    status: Status = Status.OK,
    computed: bool = False,
    created: str = "",
) -> TuningRecord:
    """A record with what the test gives; by default, that the candidate is twice as fast."""
    measured = Measurement(median_us=median_us, spread_us=1.0, rounds=9, computed=computed)
    others = {"onednn-nhwc": baseline_us, AROUND: around_us}
    other = {
        name: Measurement(median_us=taken_us, spread_us=1.0, rounds=9)
        for name, taken_us in others.items()
        if taken_us is not None
    }
    ok = status is Status.OK
    config = config or Config.of("cpu.made_up", block_h=4)
    return TuningRecord(
        workload=workload,
        config=config,
        device=device or cpu_target().device,
        status=status,
        measurement=measured if ok else None,
        verdict=Verdict(right=True, max_error=0.0, allowed_error=1e-5) if ok else None,
        providers=other if ok else {},
        detail="" if ok else "it did not work",
        versions={**versions.installed(), "template": str(version_of(config.template))},
        created=created,
    )


def plant(
    path: Path,
    workloads: Iterable[Workload],
    *,
    passes: Sequence[Pass] | None = None,
    median_us: float = 50.0,
    baseline_us: float = 1000.0,
    around_us: float | None = None,
    template_layout: Layout = "nhwc",
    threads: int | None = None,
) -> None:
    """Append, for every pass of every workload, the default of the template of a layout: a kernel that runs, tuned with
    as many threads as PyTorch uses, or as said."""
    log, target = TuningLog(path), cpu_target(threads=threads)
    for workload in workloads:
        for pass_ in passes or (BLOCK_PASSES if workload.block else PASSES):
            of_pass = workload.for_pass(pass_)
            (template,) = (found for found in templates_for(of_pass, target) if found.layout == template_layout)
            space = template.space(of_pass, target)
            times = {"median_us": median_us, "baseline_us": baseline_us, "around_us": around_us}
            log.append(record_of(of_pass, config=space.default, device=target.device, **times))


def write(logs: Path, *records: TuningRecord) -> None:
    """The log of these alone, which dispatch reads."""
    log = TuningLog(logs / "log.jsonl")
    log.path.unlink(missing_ok=True)
    for record in records:
        log.append(record)
    dwconv.reset()
