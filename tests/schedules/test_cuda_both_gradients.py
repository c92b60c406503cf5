"""Both gradients in one kernel, beside the two: the share of their time that docs/cuda.md says."""

from __future__ import annotations

import re

import pytest

from dwconv.kernels import build
from dwconv.problems.workload import Workload
from dwconv.schedules.template import Candidate, templates_for
from dwconv.tuner.gpu_cost import computed_cost
from tests.pages import table_row
from tests.schedules.cuda_layers import SM_90, layer


def computed_us(workload: Workload) -> float:
    """Of the fastest default that the pass has."""
    defaults = [found.space(workload, SM_90).default for found in templates_for(workload, SM_90)]
    artifacts = [build(Candidate(workload, config), SM_90) for config in defaults]
    assert not any(artifact.resources["spill_bytes"] for artifact in artifacts)
    return min(computed_cost(artifact, workload, SM_90).microseconds for artifact in artifacts)


@pytest.mark.slow
def test_one_kernel_takes_the_share_of_the_time_that_the_page_says() -> None:
    """One cell of the table: all of them take minutes."""
    named, layout, dtype = "144 × 56², k3", "nhwc", "float16"
    channels, size, kernel = map(int, re.findall(r"\d+", named))
    one = layer(channels, (size, size), (kernel, kernel), batch=64, layout=layout, dtype=dtype)
    both, *apart = (computed_us(one.for_pass(pass_)) for pass_ in ("backward", "dgrad", "wgrad"))
    cells = table_row("docs/cuda.md", f"computed: {dtype}, {layout.upper()}")
    assert cells[table_row("docs/cuda.md", "stride 1").index(named)] == f"{both / sum(apart):.2f}"
