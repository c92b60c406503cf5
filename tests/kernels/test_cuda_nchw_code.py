"""The code of the NCHW templates of CUDA: vectors of 16 bytes, no spills."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from dwconv.kernels import build
from dwconv.kernels.artifact import Artifact
from dwconv.measure.simulator.simulate import source_only
from dwconv.problems.target import parse_target
from dwconv.problems.workload import DTYPES, Workload
from dwconv.schedules.template import Candidate, all_templates
from tests.turns import every, in_turns, slow

SM_90 = parse_target("cuda:sm_90")
PLAIN = Workload(pass_="fprop", batch=2, channels=4, input_size=(8, 16), kernel=(3, 3), padding=((1, 1), (1, 1)))
NAMES = [
    f"cuda.{pass_}_nchw{kind}"
    for pass_ in ("fprop", "dgrad")
    for kind in ("", "_strip", "_plane", "_wide", "_toeplitz")
]


def of(name: str, **changes: object) -> Workload:
    """PLAIN with ``changes``, in the pass of the template ``name``."""
    return dataclasses.replace(PLAIN, pass_=all_templates()[name].pass_, **changes)  # type: ignore[arg-type]


def candidate(name: str, knobs: dict[str, Any] | None = None, **changes: object) -> Candidate:
    """A configuration of the template ``name``, the default but for ``knobs``, for PLAIN with ``changes``."""
    workload = of(name, **changes)
    space = all_templates()[name].space(workload, SM_90)
    return Candidate(workload, space.check({**space.default.to_dict(), **(knobs or {})}))


def built(name: str, knobs: dict[str, Any] | None = None, **changes: object) -> Artifact:
    return build(candidate(name, knobs, **changes), SM_90)


def source_of(name: str, knobs: dict[str, Any] | None = None, **changes: object) -> str:
    """Not compiled, which takes many times as long."""
    return source_only(candidate(name, knobs, **changes), SM_90).source


# -- lean code -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "vector"), [("bfloat16", "uint4"), slow("float32", "float4"), slow("float16", "uint4")]
)
@pytest.mark.parametrize("name", ["cuda.fprop_nchw_strip", "cuda.dgrad_nchw_strip"])
def test_strips_read_and_write_16_bytes_at_a_time(name: str, dtype: str, vector: str) -> None:
    text = source_of(name, channels=96, batch=64, input_size=(56, 56), dtype=dtype)
    source, result = ("x", "y") if name.startswith("cuda.fprop") else ("dy", "dx")
    assert f"*({vector}*)({source}_ptr + " in text
    assert f"*({vector}*)({result}_ptr + " in text


@pytest.mark.parametrize(("dtype", "pipeline"), in_turns(DTYPES, [2, 3]))
@pytest.mark.parametrize("name", ["cuda.fprop_nchw", "cuda.dgrad_nchw"])
def test_the_next_patches_are_copied_16_bytes_at_a_time_while_one_is_computed(
    name: str, pipeline: int, dtype: str
) -> None:
    knobs = {"planes": 2, "block_h": 14, "tile_h": 7, "threads_w": 28, "vthread_w": 1, "pipeline": pipeline, "turns": 4}
    size = (28, 28) if dtype == "float32" else (28, 56)
    artifact = built(name, knobs | {"threads_w": size[1]}, channels=16, input_size=size, dtype=dtype)
    copies = re.findall(
        r"cp\.async\.cg\.shared\.global \[%0\], \[%1\], %2, %3;.*?\"n\"\((\d+)\)", artifact.source, re.DOTALL
    )
    assert copies == ["16"]
    assert "st.shared" not in artifact.source, "zeros are filled in by the copy"
    waits = re.findall(r"cp\.async\.wait_group (\d+);", artifact.source)
    assert str(pipeline - 1) in waits, "all but the newest copies have arrived"
    assert artifact.resources["spill_bytes"] == artifact.resources["stack_bytes"] == 0


@pytest.mark.parametrize(("dtype", "size"), in_turns(DTYPES, [7, 14]))
@pytest.mark.parametrize("name", every(2, ["cuda.fprop_nchw_plane", "cuda.dgrad_nchw_plane"]))
def test_planes_of_any_size_are_read_and_written_16_bytes_at_a_time(name: str, size: int, dtype: str) -> None:
    text = source_of(name, {"held": dtype}, channels=384, batch=64, input_size=(size, size), dtype=dtype)
    source, result = ("x", "y") if name.startswith("cuda.fprop") else ("dy", "dx")
    vector = "float4" if dtype == "float32" else "uint4"
    loads = re.findall(rf"\*\((\w+)\*\)\({source}_ptr \+ ", text)
    stores = re.findall(rf"^ *\*\((\w+)\*\)\({result}_ptr \+ ", text, re.MULTILINE)
    assert loads and stores and {*loads, *stores} == {vector}
    assert text.count("__syncthreads();") == 3, "TVM adds others where it believes that buffers overlap"


def test_a_plane_of_one_thread_multiplies_no_padding() -> None:
    knobs = {"planes": 64, "thread_planes": 1, "tile_h": 7, "tile_w": 7}
    source = source_of("cuda.fprop_nchw_plane", knobs, channels=64, input_size=(7, 7))
    assert source.count(" * weight_local") == 19 * 19, "7 outputs a row: five meet three taps, two meet two"


def test_wide_rows_read_16_bytes_of_shared_memory_at_a_time() -> None:
    source = source_of("cuda.fprop_nchw_wide", channels=64, input_size=(28, 28), kernel=(31, 31), padding=PADDING_31)
    _, after = source.split("__syncthreads();")
    pixels, taps = (re.findall(rf"^ *\*\((\w+)\*\)\({name}_local", after, re.MULTILINE) for name in ("pixel", "tap"))
    assert pixels and set(pixels) == {"float4"}
    assert taps and set(taps) == {"float2"}, "of 16 planes, which a warp holds, two words each are one turn"


PADDING_31 = ((15, 15), (15, 15))


def test_taps_in_the_padding_are_not_multiplied() -> None:
    """Of 31 columns of the kernel, 14 columns of a map meet at most 14: whole columns are left out when compiling."""
    source = source_of("cuda.fprop_nchw_wide", input_size=(14, 14), kernel=(31, 31), padding=PADDING_31)
    _, after = source.split("__syncthreads();")
    assert after.count(" * tap_local") == 14 * 14


def test_a_strided_gradient_has_no_dead_taps() -> None:
    tiles = {"planes": 4, "threads_h": 4, "tile_h": 2, "threads_w": 8, "tile_w": 2}
    source = source_of("cuda.dgrad_nchw_strip", tiles, stride=(2, 2))
    assert source.count(" * weight_local") == 9, "1 + 2 + 2 + 4 products for the four positions of a 2 × 2 tile"


LAYERS = [
    {"channels": 96, "input_size": (56, 56), "kernel": (3, 3), "padding": ((1, 1), (1, 1))},
    {"channels": 96, "input_size": (28, 28), "kernel": (7, 7), "padding": ((3, 3), (3, 3))},
    {"channels": 960, "input_size": (7, 7), "kernel": (3, 3), "padding": ((1, 1), (1, 1))},
    {"channels": 384, "input_size": (14, 14), "kernel": (5, 5), "padding": ((2, 2), (2, 2))},
    {"channels": 96, "input_size": (57, 57), "kernel": (3, 3), "padding": ((1, 1), (1, 1)), "stride": (2, 2)},
    {"channels": 64, "input_size": (28, 28), "kernel": (31, 31), "padding": PADDING_31},
]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        pytest.param(
            name,
            shape,
            id=f"{name}-{shape['input_size'][0]}-k{shape['kernel'][0]}",
            marks=() if (number + turn) % 6 == 0 else (pytest.mark.slow,),
        )
        for turn, name in enumerate(NAMES)
        for number, shape in enumerate(LAYERS)
        if (number + turn) % 3 == 0 and all_templates()[name].misfit(of(name, dtype="float16", **shape), SM_90) is None
    ],
)
def test_defaults_stay_in_registers(name: str, shape: dict[str, Any]) -> None:
    """Of each family on each layer, fprop and the gradient in turns."""
    resources = built(name, dtype="float16", **shape).resources
    assert resources["spill_bytes"] == resources["stack_bytes"] == 0
