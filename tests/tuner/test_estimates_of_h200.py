"""What an H200 measured, 453 candidates of 30 workloads in 16 bits, against what estimates say today."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from statistics import mean, median

import numpy as np
import pytest

from bench.cases import square
from dwconv.kernels.cache import build_cached
from dwconv.problems.block import NOTHING
from dwconv.problems.target import parse_target
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.schedules.template import Candidate, all_templates, estimated_us
from dwconv.tuner.gpu_cost import computed_cost
from tests.pages import ROOT, table_row, text_of

GRADIENTS = ("dgrad", "wgrad")
H200 = parse_target("cuda:sm_90")
WORKLOADS = {
    workload.key: workload
    for batch, channels, size, kernel in (
        (64, 96, 56, 7), (64, 384, 14, 7), (64, 384, 14, 13), (16, 128, 56, 31), (64, 144, 56, 3)
    )
    for layout in ("nchw", "nhwc")
    for workload in square("H200", batch=batch, channels=channels, size=size, kernel=kernel).workloads(
        dtype="float16", layout=layout
    )
}  # fmt: skip
MEASURED = json.loads((Path(__file__).parent / "h200_candidates.json").read_text())
"""By workload: (µs, configuration) of candidates that were drawn, and the first ones of each space."""


def rank_correlation(one, other):
    """Spearman's ρ; equal values, of which there are few, keep the order in which they come."""
    ranks = [np.argsort(np.argsort(values, kind="stable")) for values in (one, other)]
    return np.corrcoef(ranks)[0, 1]


def test_estimates_put_candidates_in_the_order_that_was_measured():
    """As docs/cuda.md says, and a search relies on: it begins with the candidates of the least estimates."""
    correlations, fastest_in_five = [], 0
    for key, candidates in MEASURED.items():
        measured, estimates = [us for us, _ in candidates], []
        names = {fields["template"] for _, fields in candidates}
        spaces = {name: all_templates()[name].space(WORKLOADS[key], H200) for name in names}
        for _, fields in candidates:
            config = spaces[fields["template"]].check(
                {name: each for name, each in fields.items() if name != "template"}
            )
            estimates.append(estimated_us(WORKLOADS[key], config, H200))
        correlations.append(rank_correlation(estimates, measured))
        first = sorted(range(len(estimates)), key=lambda number: estimates[number])[:5]
        fastest_in_five += min(measured) == min(measured[number] for number in first)
    assert len(correlations) == 30 and sum(map(len, MEASURED.values())) == 453
    assert f"{median(correlations):.1f}" == "0.9"
    assert fastest_in_five == 30


@pytest.mark.slow
def test_computed_times_are_off_by_about_what_the_page_says():
    """Of some records: building all of them takes minutes."""
    told = re.search(r"of the (\d+) candidates in the shipped records is (\d+) % off", text_of("docs/cuda.md"))
    measured = [
        record for record in TuningLog(ROOT / "tuning_logs/nvidia-h200.jsonl").load().records if record.measured
    ]
    assert len(measured) == int(told[1])
    off = []
    for record in measured[::12]:
        artifact = build_cached(Candidate(record.workload, record.config), H200)
        computed_us = computed_cost(artifact, record.workload, H200).microseconds
        off.append(abs(math.log(computed_us / record.measurement.median_us)))
    assert mean(off) == pytest.approx(int(told[2]) / 100, abs=0.04)


def test_the_table_of_both_gradients_in_one_kernel_is_what_was_measured():
    """A blank where one of the three was not measured."""
    records = Database.load([ROOT / "tuning_logs/nvidia-h200.jsonl"])
    shares = {}
    for workload in {each.workload for each in records if each.workload.block == NOTHING}:
        one, *two = (records.best(each, "nvidia-h200") for each in (workload, *map(workload.convolution, GRADIENTS)))
        if all(two):
            layer = f"{workload.channels} × {workload.input_size[0]}², k{workload.kernel[0]}"
            share = one.measurement.median_us / sum(each.measurement.median_us for each in two)
            shares[f"stride {workload.stride[0]}", f"{workload.dtype}, {workload.layout.upper()}", layer] = share
    told = {}
    for stride in ("stride 1", "stride 2"):
        layers = table_row("docs/cuda.md", stride)
        for kind in {kind for at, kind, _ in shares if at == stride}:
            cells = zip(layers, table_row("docs/cuda.md", kind, under=f"| {stride} |", until="\n\n"), strict=True)
            told |= {(stride, kind, layer): cell for layer, cell in cells if cell}
    assert told == {where: f"{share:.2f}" for where, share in shares.items()} and len(told) > 20
    for kind in ("float16", "bfloat16", "float32"):
        of_kind = [share for (_, where, _), share in shares.items() if where.startswith(kind)]
        faster = sum(share < 1 for share in of_kind)
        assert f"{faster} of {len(of_kind)} in {kind}" in text_of("docs/cuda.md")
