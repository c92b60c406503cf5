"""The words of a comparison of plans."""

from __future__ import annotations

import dataclasses

from rich.console import Console

from dwconv.parallel.planning.compare import Proposal, propose
from dwconv.parallel.planning.partition import Cluster, Shape
from dwconv.parallel.planning.plan import Link
from dwconv.parallel.planning.plan_text import print_proposal, recommendation
from tests.parallel.made_up_layers import layer

SLOW = Link(gb_s=0.1, latency_us=10.0)
UNEVEN = (
    layer(name="embedding", parameter_bytes=10**7, output_bytes=0),
    layer(name="head", forward_us=700.0, parameter_bytes=0, output_bytes=0),
)


def _uneven() -> Proposal:
    return propose(UNEVEN, Cluster(world=3, link=SLOW), Shape(microbatches=6, schedule="1f1b"))


def _printed(proposal: Proposal) -> str:
    console = Console(width=100, highlight=False)
    with console.capture() as captured:
        print_proposal(proposal, console)
    return captured.get()


def test_a_best_plan_that_no_mesh_runs_is_said_with_the_best_that_one_does():
    text = recommendation(_uneven())
    assert text.startswith("recommended: 2 stages on 1 + 2 ranks, ")
    assert text.endswith(
        "its replicas differ, which no mesh pipeline × data can run: data parallelism is the best that can be run"
    )
    only = dataclasses.replace(_uneven(), candidates=_uneven().candidates[:1])
    assert "plain data parallelism does not fit; no mesh pipeline × data can run it" in recommendation(only)


def test_data_parallelism_is_recommended_with_what_the_best_pipeline_takes():
    layers, shape = [layer(output_bytes=10**6)] * 4, Shape(microbatches=8, schedule="1f1b")
    proposal = propose(layers, Cluster(world=4, link=SLOW), shape)
    assert recommendation(proposal).startswith("recommended: plain data parallelism; the best pipeline, ")
    assert recommendation(proposal).endswith(" times as long")
    alone = dataclasses.replace(proposal, candidates=proposal.candidates[:1])
    assert recommendation(alone) == "recommended: plain data parallelism"


def test_stages_with_their_ranks_and_layers():
    lines = [line.split() for line in _printed(_uneven()).splitlines()]
    assert ["0", "0", "embedding", "0.10", "0.10", "0.10", "10.0", "0.000"] in [line[:8] for line in lines]
    assert ["1", "1", "to", "2", "head", "0.70", "0.10", "0.10"] in [line[:8] for line in lines]
    assert ["2", "stages", "on", "1", "+", "2", "ranks"] in [line[:7] for line in lines]
    (row,) = (line for line in lines if line[:2] == ["2", "stages"] and line[-1] in ("yes", "no"))
    assert row[-1] == "no"


def test_what_is_left_out_is_printed_with_its_reason():
    layers = [layer(saved_bytes=10_000, parameter_bytes=0)] * 4
    cluster = Cluster(world=4, link=SLOW, memory_bytes=35_000)
    printed = _printed(propose(layers, cluster, Shape(microbatches=8, schedule="1f1b")))
    assert "left out: data parallelism: needs 4e-05 GB a rank" in printed
