"""Layers that the CUDA templates are tried on, and what it means that a kernel is right and clean."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from dwconv.kernels.kernel import Kernel
from dwconv.measure.simulator.machine import SimulatedGpu, SimulatorReport
from dwconv.measure.simulator.simulate import source_only, verified
from dwconv.measure.verify.cases import make_case
from dwconv.measure.verify.verify import verify_runs
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.problems.workload import PASSES, DType, Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, ScheduleTemplate, all_templates

SM_90 = parse_target("cuda:sm_90")
assert isinstance(SM_90, CudaTarget)
TEMPLATES = {
    name: template
    for name, template in all_templates().items()
    if template.device == "cuda" and template.pass_ in PASSES
}
"""Those of a convolution alone."""


def layer(channels: int, size: tuple[int, int], kernel: tuple[int, int], **other: object) -> Workload:
    """fprop, NCHW, float32; with the padding that about keeps the size, if no other is given."""
    same = tuple(((k - 1) // 2, (k - 1) // 2) for k in kernel)
    fields = {"pass_": "fprop", "batch": 2, "padding": same, **other}
    return Workload(channels=channels, input_size=size, kernel=kernel, **fields)  # type: ignore[arg-type]


SHAPES = {
    "odd": layer(5, (9, 13), (3, 3), batch=3),
    "whole vectors": layer(32, (14, 16), (3, 3)),
    "58 channels": layer(58, (9, 12), (3, 3), batch=1),
    "asymmetric padding, stride 2": layer(20, (10, 13), (3, 5), padding=((0, 2), (3, 1)), stride=(2, 2)),
    "stride 1 and 2": layer(16, (12, 20), (5, 3), padding=((2, 2), (1, 0)), stride=(1, 2)),
    "dilation 2": layer(8, (13, 17), (3, 3), padding=((2, 2), (3, 1)), dilation=(2, 2)),
    "dilation and stride": layer(4, (15, 14), (5, 3), padding=((3, 3), (2, 2)), dilation=(2, 3), stride=(3, 2)),
    "multiplier 2": layer(6, (9, 12), (3, 3), padding=((1, 1), (2, 1)), stride=(2, 1), dilation=(1, 2), multiplier=2),
    "multiplier 6": layer(3, (8, 8), (3, 2), padding=((1, 1), (1, 0)), multiplier=6),
    "a bias": layer(24, (9, 11), (3, 3), bias=True),
    "a bias, multiplier 2": layer(4, (9, 8), (7, 7), multiplier=2, bias=True),
    "1 × 7, causal": layer(16, (1, 30), (1, 7), padding=((0, 0), (6, 0))),
    "1 × 31, dilated": layer(5, (1, 90), (1, 31), padding=((0, 0), (30, 0)), dilation=(1, 2)),
    "7 × 7 map": layer(12, (7, 7), (3, 3), batch=17),
    "28 × 28 map": layer(4, (28, 28), (3, 3)),
    "7 × 7 kernel": layer(4, (14, 14), (7, 7)),
    "13 × 12 kernel, stride 2": layer(4, (15, 26), (13, 12), padding=((6, 5), (3, 6)), stride=(2, 2)),
    "31 × 31 kernel": layer(4, (14, 17), (31, 31), batch=1),
    "kernel beyond the map": layer(2, (5, 6), (7, 4), padding=((5, 3), (2, 3))),
    "padding beyond the kernel": layer(3, (6, 8), (3, 3), padding=((5, 4), (4, 6))),
    "taps beside the map alone": layer(6, (1, 1), (3, 2), padding=((1, 1), (1, 1)), dilation=(1, 2)),
    "no padding": layer(4, (11, 9), (4, 2), padding=((0, 0), (0, 0))),
    "stride beyond the kernel": layer(4, (20, 21), (3, 3), stride=(7, 5)),
    "1 by 1": layer(18, (12, 12), (1, 1), stride=(2, 3)),
    "one channel": layer(1, (6, 5), (2, 2), padding=((1, 0), (0, 1))),
    "5 × 7 kernel": layer(16, (11, 13), (5, 7), batch=3),
}  # fmt: skip
"""Each for an edge that templates go wrong on."""


@cache
def fitted(shape: Workload, template: ScheduleTemplate, dtype: DType) -> Workload | None:
    """The shape as the template reads it; None if it cannot, or if its pass knows nothing of the shape's bias."""
    workload = Workload(
        pass_="fprop", batch=shape.batch, channels=shape.channels, input_size=shape.input_size, kernel=shape.kernel,
        multiplier=shape.multiplier, stride=shape.stride, padding=shape.padding, dilation=shape.dilation,
        bias=shape.bias, layout=template.layout, dtype=dtype,
    ).for_pass(template.pass_)  # fmt: skip
    return workload if workload.bias == shape.bias and template.misfit(workload, SM_90) is None else None


def drawn(workload: Workload, template: ScheduleTemplate, **knobs: object) -> Config:
    """A legal configuration with these knobs, the same in every run."""
    space, rng = template.space(workload, SM_90), random.Random(workload.key)
    found = (space.sample(rng) for _ in range(2000))
    others = (dict(config.values) | knobs for config in found if config is not None)
    configs = (Config.of(template.name, **values) for values in others)
    return next(config for config in configs if space.why_illegal(config) is None)


def assert_right_and_clean(workload: Workload, config: Config, objects: Path) -> SimulatorReport:
    """All numbers exactly, without a fault."""
    verdict, report = verified(source_only(Candidate(workload, config), SM_90), workload, folder=objects)
    assert report.clean, f"{config}: {report.faults[0]}"
    assert verdict.right, f"{config}: {verdict.reason}"
    return report


def assert_right_on_extreme_values(workload: Workload, config: Config, objects: Path) -> None:
    """NaN, infinity, large, tiny and far apart values, side by side."""
    artifact = source_only(Candidate(workload, config), SM_90)
    case = make_case(workload, data="extreme", kind="cuda")
    with SimulatedGpu(artifact, folder=objects) as machine:
        verdict = verify_runs(Kernel(artifact, machine, device="cpu"), case)
    assert verdict.right, f"{config}: {verdict.reason}"
