"""CUDA source and launches: run on the CPU exactly as listed, the numbers are right."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tvm import s_tir, te, tirx

from dwconv.errors import BuildError, InvalidConfig
from dwconv.kernels import build
from dwconv.kernels.artifact import Argument, Artifact, Extent, Scalar
from dwconv.kernels.cuda import extent, lower
from dwconv.measure.simulator.simulate import source_only
from dwconv.problems.target import parse_target
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, template
from tests.kernels import emulator

SM_90 = parse_target("cuda:sm_90")
PLAIN = Workload(pass_="fprop", batch=3, channels=5, input_size=(9, 11), kernel=(3, 3), padding=((1, 1), (1, 1)))

# (what differs from PLAIN, knobs that differ from the default)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "stride 2": ({"stride": (2, 2), "input_size": (31, 70)}, {"vthread_w": 2, "threads_w": 9}),
    "stride 2, kernel 1": ({"stride": (2, 1), "kernel": (1, 1), "padding": ((1, 0), (2, 1)), "batch": 1}, {}),
    "stride 3 and 2, unused rows": (
        {"stride": (3, 2), "kernel": (2, 3), "input_size": (20, 33), "padding": ((0, 2), (3, 0))},
        {"tile_h": 1},
    ),
    "dilation 2, asymmetric": (
        {"dilation": (2, 3), "kernel": (4, 3), "padding": ((3, 1), (0, 4)), "input_size": (17, 23)},
        {"tile_h": 3},
    ),
    "multiplier 2": ({"multiplier": 2, "channels": 3}, {"planes": 2}),
    "a part of a multiplier": ({"multiplier": 34, "channels": 2, "batch": 1}, {"planes": 2, "tile_h": 1}),
    "5 × 7 rows one at a time": ({"kernel": (5, 7), "input_size": (24, 40)}, {"unroll": "row", "vthread_w": 2}),
    "1-D": ({"input_size": (1, 200), "kernel": (1, 9), "padding": ((0, 0), (8, 0))}, {"vthread_w": 2}),
    "registers, stride 2": (
        {"stride": (2, 2), "multiplier": 2, "padding": ((0, 1), (1, 2)), "input_size": (13, 29)},
        {"stage": "registers", "tile_w": 2, "threads_w": 8, "planes": 10},
    ),
    "dynamic shared memory": (
        {"channels": 32, "input_size": (30, 56), "batch": 1},
        {"planes": 16, "block_h": 30, "tile_h": 10, "threads_w": 14, "vthread_w": 4},
    ),
}


def candidate(case: str = "plain") -> Candidate:
    changes, knobs = CASES[case]
    workload = dataclasses.replace(PLAIN, **changes)
    space = template("cuda.fprop_nchw").space(workload, SM_90)
    return Candidate(workload, space.check({**space.default.to_dict(), **knobs}))


@pytest.mark.parametrize("case", CASES)
def test_source_and_launches_give_the_right_numbers(case: str, objects: Path) -> None:
    chosen = candidate(case)
    workload = chosen.workload
    artifact = source_only(chosen, SM_90)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(workload.input_shape, np.float32)
    w = rng.standard_normal(workload.weight_shape, np.float32)
    run = emulator.run(artifact, {"x": x, "w": w}, batch=workload.batch, folder=objects)
    assert run.guards_intact
    error = np.abs(run.tensors["y"].astype(np.float64) - exact(workload, x, w))
    assert error.max() < 1e-5 * max(1, workload.kernel[0] * workload.kernel[1] ** 0.5)


def exact(workload: Workload, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    (top, bottom), (left, right) = workload.padding
    padded = F.pad(torch.from_numpy(x).double(), (left, right, top, bottom))
    weight = torch.from_numpy(w).double().unsqueeze(1)
    y = F.conv2d(padded, weight, stride=workload.stride, dilation=workload.dilation, groups=workload.channels)
    return y.numpy()


def test_arguments_are_listed_as_the_kernel_takes_them() -> None:
    artifact = build(candidate(), SM_90)
    (launch,) = artifact.launches
    listed = [
        ("int", argument.name) if isinstance(argument, Scalar) else ("float*", f"{argument.name}_ptr")
        for argument in launch.arguments
    ]
    assert listed == emulator.signature(artifact.source, launch.kernel)
    assert artifact.arguments == (
        Argument("x", "float32", (Extent(), 5, 9, 11)),
        Argument("w", "float32", (5, 3, 3)),
        Argument("y", "float32", (Extent(), 5, 9, 11)),
    )


def test_one_kernel_serves_every_batch() -> None:
    small, large = (build(Candidate(PLAIN.with_batch(n), candidate().config), SM_90) for n in (1, 64))
    assert small.source == large.source and small.launches == large.launches
    (launch,) = small.launches
    assert isinstance(launch.grid[0], Extent) and launch.grid[1:] == (1, 1)
    assert launch.grid[0].at(64) == 64 * launch.grid[0].at(1)


def test_resources_count_all_shared_memory() -> None:
    artifact = build(candidate("dynamic shared memory"), SM_90)
    (launch,) = artifact.launches
    assert launch.shared_bytes > 48 * 1024
    assert artifact.resources["shared_bytes"] == launch.shared_bytes
    assert 0 < artifact.resources["registers"] <= 255
    assert artifact.cubin.startswith(b"\x7fELF")


def test_no_guard_in_the_inner_loop() -> None:
    """What is multiplied was fetched before the barrier, and every guard after it is on a store."""
    source = build(candidate("dilation 2, asymmetric"), SM_90).source
    _, after = source.split("__syncthreads();")
    multiplied, _, stored = after.partition("if (")
    assert "* w_ptr[" in multiplied and "* w_ptr[" not in stored


def test_a_config_from_outside_the_space_is_refused() -> None:
    wild = Config.of("cuda.fprop_nchw", **{**dict(candidate().config.values), "planes": 3})
    with pytest.raises(InvalidConfig, match="planes=3"):
        build(Candidate(PLAIN, wild), SM_90)


def test_threads_that_tvm_would_drop_are_an_error() -> None:
    x = te.placeholder((64,), "float32", name="x")
    half = te.compute((32,), lambda i: x[2 * i], name="half")
    y = te.compute((64,), lambda i: half[i // 2], name="y")
    sch = s_tir.Schedule(te.create_prim_func([x, y]))
    for name in ("half", "y"):
        sch.bind(sch.get_loops(sch.get_sblock(name))[0], "threadIdx.x")
    with pytest.raises(BuildError, match=r"threadIdx\.x is bound to loops of 32 and of 64"):
        lower(sch.mod["main"], (), arch="sm_90")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (lambda n: tirx.IntImm("int32", 7), 7),
        (lambda n: n, Extent()),
        (lambda n: n * 6, Extent(times=6)),
        (lambda n: (n * 6 + 3) // 4, Extent(times=6, over=4)),
        (lambda n: (n + 7) // 8, Extent(times=1, over=8)),
    ],
)
def test_extents_are_read_in_terms_of_the_batch(expression: Any, expected: int | Extent) -> None:
    assert extent(expression(te.var("n", "int32"))) == expected


def test_other_extents_are_an_error() -> None:
    with pytest.raises(BuildError, match="is not a multiple of n"):
        extent(te.var("n", "int32") * 2 + 5)


def test_artifacts_are_plain_data() -> None:
    artifact = build(candidate(), SM_90)
    assert isinstance(artifact, Artifact) and artifact.kind == "cuda"
    assert set(artifact.resources) == {"registers", "shared_bytes", "spill_bytes", "stack_bytes"}
    assert "#include <cuda" not in artifact.source
