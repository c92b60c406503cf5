"""Both gradients in one kernel, beside the two: the share of their time that docs/cuda.md says."""

from __future__ import annotations

import re

import pytest

from dwconv.kernels import build
from dwconv.problems.workload import DType, Layout, Workload
from dwconv.schedules.template import Candidate, templates_for
from dwconv.tuner.gpu_cost.cost_model import computed_cost
from tests.pages import table_row
from tests.schedules.cuda_layers import SM_90, layer

CELLS: list[tuple[str, int, Layout, DType]] = [
    ("192 × 28 × 28, k3", 0, "nchw", "float32"),
    ("960 × 7 × 7, k3", 1, "nchw", "float16"),
    ("240 × 28 × 28, k5", 2, "nhwc", "float32"),
    ("144 × 56 × 56, k3", 3, "nhwc", "float16"),
]
"""One of each column of the table: all of them take minutes."""


def computed_us(workload: Workload) -> float:
    """Of the fastest default that the pass has."""
    defaults = [found.space(workload, SM_90).default for found in templates_for(workload, SM_90)]
    artifacts = [build(Candidate(workload, config), SM_90) for config in defaults]
    assert not any(artifact.resources["spill_bytes"] for artifact in artifacts)
    return min(computed_cost(artifact, workload, SM_90).microseconds for artifact in artifacts)


@pytest.mark.slow
@pytest.mark.parametrize(("named", "column", "layout", "dtype"), CELLS)
def test_one_kernel_takes_the_share_of_the_time_that_the_page_says(
    named: str, column: int, layout: Layout, dtype: DType
) -> None:
    channels, size, _, kernel = map(int, re.findall(r"\d+", named))
    one = layer(channels, (size, size), (kernel, kernel), batch=64, layout=layout, dtype=dtype)
    both, *apart = (computed_us(one.for_pass(pass_)) for pass_ in ("backward", "dgrad", "wgrad"))
    assert table_row("docs/cuda.md", named)[column] == f"{both / sum(apart):.2f}"
