"""Every template in every type, launched, and judged as a candidate is before it is timed."""

from __future__ import annotations

import dataclasses
import threading

import pytest
import torch

from dwconv.measure.verify.cases import make_case
from dwconv.measure.verify.verify import verify, verify_finalist
from dwconv.problems.block import Block
from dwconv.problems.workload import BLOCK_PASSES, DTYPES, DType, Pass
from tests.schedules.cuda_layers import TEMPLATES, fitted, layer
from tests.schedules.volumes import VOLUMES
from tests.standin.on_gpu.kernels import default
from tests.turns import alternating, slow

SHAPES = (
    layer(10, (9, 12), (3, 3), batch=3),
    layer(5, (7, 6), (3, 5), batch=3, padding=((1, 2), (2, 1))),
    layer(16, (8, 8), (3, 3), batch=3),
)
"""Each template is tried on the first of these that it can run."""


def types_of(template: str) -> list[DType]:
    """Those that it takes: tensor cores multiply 16 bits alone."""
    return [dtype for dtype in DTYPES if any(fitted(shape, TEMPLATES[template], dtype) for shape in SHAPES)]


@pytest.mark.parametrize(
    ("template", "dtype"),
    [
        (template, dtype) if turn == number % len(types_of(template)) else slow(template, dtype)
        for number, template in enumerate(sorted(TEMPLATES))
        for turn, dtype in enumerate(types_of(template))
    ],
)
def test_a_template_is_right_at_any_batch(template: str, dtype: DType) -> None:
    workload = next(found for shape in SHAPES if (found := fitted(shape, TEMPLATES[template], dtype)))
    kernel = default(workload, template)
    for batch in (workload.batch, 1, workload.batch + 2):
        verdict = verify(kernel, make_case(workload.with_batch(batch), data="integers", device="cuda"))
        assert verdict.right, f"batch {batch}: {verdict.reason}"


@pytest.mark.parametrize(
    ("template", "dtype"),
    alternating([name for name in TEMPLATES if TEMPLATES[name].most_axes == 3], ["float32", "bfloat16"], quick_of=2),
)
def test_a_template_of_3d_is_right_at_any_batch(template: str, dtype: DType) -> None:
    volume = dataclasses.replace(VOLUMES["padding per side"], layout=TEMPLATES[template].layout, dtype=dtype)
    workload = volume.for_pass(TEMPLATES[template].pass_)
    kernel = default(workload, template)
    for batch in (1, workload.batch + 2):
        verdict = verify(kernel, make_case(workload.with_batch(batch), data="integers", device="cuda"))
        assert verdict.right, f"batch {batch}: {verdict.reason}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("pass_", "around"), [*((pass_, "bn+relu6,bn+silu") for pass_ in BLOCK_PASSES), ("backward", "none,none")]
)
def test_a_block_is_right_at_any_batch(pass_: Pass, around: str, dtype: DType) -> None:
    """Its statistics are those of the batch."""
    given = layer(16, (7, 8), (3, 3), batch=3)
    workload = dataclasses.replace(given, pass_=pass_, layout="nhwc", dtype=dtype, block=Block.parse(around))
    kernel = default(workload, f"cuda.block_{pass_}_nhwc")
    for batch in (workload.batch, 1, workload.batch + 2):
        verdict = verify(kernel, make_case(workload.with_batch(batch), data="integers", device="cuda"))
        assert verdict.right, f"batch {batch}: {verdict.reason}"


def test_several_kernels_with_a_workspace_are_right_on_other_data() -> None:
    workload = dataclasses.replace(layer(16, (8, 8), (3, 3), batch=6), layout="nhwc").for_pass("wgrad")
    kernel = default(workload, "cuda.wgrad_nhwc")
    assert len(kernel.artifact.launches) > 1 and kernel.artifact.workspaces
    cases = [make_case(workload.with_batch(batch), data="normal", device="cuda") for batch in (6, 1, 7)]
    verdict = verify_finalist(kernel, cases)
    assert verdict.right, verdict.reason


def test_a_thread_that_never_called_cuda_launches_what_another_one_loaded() -> None:
    workload = layer(10, (9, 12), (3, 3), batch=3)
    kernel, case = default(workload, "cuda.fprop_nchw"), make_case(workload, data="integers", device="cuda")
    kernel(*case.inputs)
    results: list[torch.Tensor] = []
    other = threading.Thread(target=lambda: results.append(kernel(*case.inputs)))
    other.start()
    other.join()
    assert torch.equal(results[0], case.answers[0].expected)
