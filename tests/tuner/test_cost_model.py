"""The computed cost: what is certain about it, without a GPU to compare with."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from typing import Any

import pytest

from dwconv.build import build
from dwconv.build.artifact import Artifact
from dwconv.schedules.cuda import fprop_nchw
from dwconv.schedules.template import Candidate
from dwconv.target import CudaTarget, parse_target
from dwconv.tuner.cost_model import LAUNCH_US, Cost, computed_cost, occupancy
from dwconv.workload import Workload

SM_90 = parse_target("cuda:sm_90")
assert isinstance(SM_90, CudaTarget)
LAYER = Workload(pass_="fprop", batch=64, channels=144, input_size=(56, 56), kernel=(3, 3), padding=((1, 1), (1, 1)))


@cache
def _built(**knobs: Any) -> Artifact:
    space = fprop_nchw.space(LAYER, SM_90)
    return build(Candidate(LAYER, space.check({**space.default.to_dict(), **knobs})), SM_90)


def _cost(workload: Workload = LAYER, **knobs: Any) -> Cost:
    return computed_cost(_built(**knobs), workload, SM_90)


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "blocks", "limiter"),
    [
        (1024, 32, 0, 2, "registers"),  # as many as threads allow, too
        (1024, 16, 0, 2, "threads"),
        (256, 64, 0, 4, "registers"),
        (256, 65, 0, 3, "registers"),
        (128, 32, 100_000, 2, "shared_bytes"),
        (32, 16, 0, 32, "blocks"),
        (1024, 128, 0, 0, "registers"),
    ],
)
def test_occupancy(threads: int, registers: int, shared_bytes: int, blocks: int, limiter: str) -> None:
    found = occupancy(threads=threads, registers=registers, shared_bytes=shared_bytes, target=SM_90)
    assert (found.blocks_per_sm, found.limiter) == (blocks, limiter)


def test_the_slowest_resource_sets_the_time() -> None:
    cost = _cost()
    assert cost.microseconds == pytest.approx(max(cost.busy_us.values()) + LAUNCH_US)
    assert cost.busy_us[cost.limiter] == max(cost.busy_us.values())
    assert set(cost.busy_us) == {"dram", "cache", "load_store", "fma", "issue", "latency", "launch"}


def test_nothing_beats_the_memory() -> None:
    cost = _cost()
    assert cost.dram_bytes >= LAYER.bytes * 0.99
    assert cost.microseconds > SM_90.limits.limit_us(bytes_moved=LAYER.bytes, flops=LAYER.flops)
    assert cost.busy_us["fma"] >= LAYER.flops / SM_90.limits.peak_gflop_per_s / 1e3


def test_more_images_cost_more() -> None:
    costs = [_cost(LAYER.with_batch(batch)).microseconds for batch in (1, 16, 64, 256)]
    assert costs == sorted(costs) and costs[-1] > 3 * costs[-2]


def test_a_lean_candidate_beats_a_wasteful_one() -> None:
    wasteful = _cost(planes=8, block_h=2, tile_h=1, threads_w=7, vthread_w=1)
    assert wasteful.microseconds > 2 * _cost().microseconds
    assert wasteful.busy_us["issue"] > _cost().busy_us["issue"]


def test_halos_are_read_again() -> None:
    low, high = _cost(planes=2, block_h=4, tile_h=2), _cost(planes=2, block_h=28, tile_h=7)
    assert low.cache_bytes > 1.1 * high.cache_bytes


def test_spills_cost() -> None:
    artifact = _built()
    spilling = dataclasses.replace(artifact, resources={**artifact.resources, "spill_bytes": 4000})
    assert computed_cost(spilling, LAYER, SM_90).microseconds > 5 * _cost().microseconds


def test_what_does_not_fit_costs_infinity() -> None:
    artifact = _built()
    hungry = dataclasses.replace(artifact, resources={**artifact.resources, "shared_bytes": 10**6})
    cost = computed_cost(hungry, LAYER, SM_90)
    assert math.isinf(cost.microseconds) and cost.occupancy.limiter == "shared_bytes"


def test_launches_add_up() -> None:
    artifact = _built()
    twice = dataclasses.replace(artifact, launches=artifact.launches * 2)
    once, both = _cost(), computed_cost(twice, LAYER, SM_90)
    assert both.microseconds == pytest.approx(2 * once.microseconds)
    assert both.busy_us["launch"] == 2 * LAUNCH_US
