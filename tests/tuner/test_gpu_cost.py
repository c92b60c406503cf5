"""The computed cost: what is certain about it, without a GPU to compare with; and records of it, of candidates for a
GPU that is not here."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dwconv import tune
from dwconv.errors import BuildError
from dwconv.kernels import build
from dwconv.kernels.artifact import Artifact
from dwconv.measure.simulator import host_compile as compiling
from dwconv.measure.simulator.host_compile import available
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.problems.workload import Workload
from dwconv.records.log import TuningLog
from dwconv.records.record import Status
from dwconv.schedules.cuda.gpu.cost import ALONE, LAUNCH_US, NOT_HIDDEN, RESOURCES, BlockWork, conflicts_us, price
from dwconv.schedules.cuda.gpu.hardware import occupancy
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, estimated_us, template, templates_for
from dwconv.tuner import compute_runner
from dwconv.tuner.compute_runner import ComputeRunner, Predictor, record_of
from dwconv.tuner.cost_report import cost_data, cost_lines
from dwconv.tuner.gpu_cost import Cost, computed_cost
from dwconv.tuner.search import search_loop
from dwconv.tuner.search.search_loop import SearchPlan
from tests.tune_command import shown_next

SM_90 = parse_target("cuda:sm_90")
assert isinstance(SM_90, CudaTarget)
LAYER = Workload(pass_="fprop", batch=64, channels=144, input_size=(56, 56), kernel=(3, 3), padding=((1, 1), (1, 1)))


@cache
def _built(**knobs: Any) -> Artifact:
    space = template("cuda.fprop_nchw").space(LAYER, SM_90)
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
    slowest, rest = cost.busy_us[cost.limiter], sum(cost.busy_us.values())
    assert slowest == max(cost.busy_us.values())
    (kernel,) = cost.kernels
    shown = NOT_HIDDEN + ALONE / kernel.price.occupancy.blocks_per_sm
    assert cost.microseconds == pytest.approx(slowest + shown * (rest - slowest - LAUNCH_US) + LAUNCH_US)
    assert set(cost.busy_us) == {"dram", "cache", "load_store", "fma", "tensor", "issue", "latency", "launch"}


def test_each_resource_has_its_own_rate() -> None:
    """8 blocks an SM, 8 in turn; their loads on the way, a third of what it takes, draw a third of the bandwidth."""
    work = BlockWork(
        blocks=1000, threads=128, registers=64, shared_bytes=0, instructions=2e4, fma=4e3, lines=1e3, bank_turns=500,
        dram_bytes=1e8, cache_bytes=2e8, bytes_in_flight=2048, waits=8,
    )  # fmt: skip
    drawn, cycle_us = 8 * 2048 / 50_000, 1e-3 / 1.755
    fma_us = 1e-3 * 8 * 4e3 * 32 * 2 * SM_90.sms / 67_000
    assert price(work, SM_90).busy_us == pytest.approx({
        "dram": 1e-3 * 1e8 / 4300 / drawn, "cache": 1e-3 * 2e8 / 5500 / drawn, "load_store": 8 * 1500 * cycle_us,
        "fma": fma_us, "tensor": 0, "issue": 8 * 2e4 / 4 * cycle_us, "latency": (8 * 800 + 2 * 2e4 / 4) * cycle_us,
    })  # fmt: skip


def test_a_block_that_loads_ahead_hides_as_two_do() -> None:
    work = BlockWork(
        blocks=SM_90.sms, threads=1024, registers=64, shared_bytes=0, instructions=1e4, fma=0, lines=1e4, bank_turns=0,
        dram_bytes=1e8, cache_bytes=1e8, bytes_in_flight=1e5,
    )  # fmt: skip
    alone, ahead = price(work, SM_90), price(dataclasses.replace(work, loads_ahead=True), SM_90)
    assert alone.occupancy.blocks_per_sm == 1 and alone.busy_us == ahead.busy_us
    rest = sum(alone.busy_us.values()) - max(alone.busy_us.values())
    assert alone.microseconds - ahead.microseconds == pytest.approx(ALONE / 2 * rest)


def test_tensor_cores_are_busy_with_their_products() -> None:
    work = BlockWork(
        blocks=2 * SM_90.sms, threads=128, registers=32, shared_bytes=0, instructions=1, fma=0, tensor_products=1e6,
        lines=0, bank_turns=0, dram_bytes=0, cache_bytes=0, bytes_in_flight=1e5,
    )  # fmt: skip
    busy = price(work, SM_90).busy_us
    assert max(busy, key=lambda name: busy[name]) == "tensor"
    assert busy["tensor"] == pytest.approx(2 * SM_90.sms * 1e6 * 2 / 614e12 * 1e6)


def test_bank_conflicts_cost_the_turns_that_they_add() -> None:
    work = BlockWork(
        blocks=1000, threads=128, registers=64, instructions=1, lines=0, bank_turns=4e4, conflict_turns=3e4,
        dram_bytes=0, cache_bytes=0, bytes_in_flight=1e5,
    )  # fmt: skip
    assert work.transactions_a_request == 4 and work.without_conflicts.transactions_a_request == 1
    assert dataclasses.replace(work, bank_turns=0, conflict_turns=0).transactions_a_request is None
    taken, least = (price(each, SM_90).microseconds for each in (work, work.without_conflicts))
    assert taken > 3 * least and conflicts_us([work, work], SM_90) == pytest.approx(2 * (taken - least))
    assert conflicts_us([work.without_conflicts], SM_90) == 0
    too_large = dataclasses.replace(work, shared_bytes=10**6)
    assert conflicts_us([too_large], SM_90) == 0, "it never runs"


COPIED = {
    "planes": 1,
    "block_h": 56,
    "tile_h": 2,
    "threads_w": 8,
    "vthread_w": 1,
    "pipeline": 2,
    "turns": 4,
}
"""Rows of 60 words lie as in memory: 8 threads of each read, of every second row."""


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({}, "shared memory: 1.0 transactions a request; no bank conflict"),
        ({"stage": "registers", "vthread_w": 1, "tile_w": 2, "tile_h": 2}, "shared memory: unused"),
        (COPIED, "shared memory: 3.5 transactions a request; bank conflicts take "),
    ],
)
def test_the_report_says_how_shared_memory_is_met(knobs: dict[str, Any], words: str) -> None:
    (kernel,) = (cost := _cost(**knobs)).kernels
    assert words in "\n".join(cost_lines(cost))
    (data,) = cost_data(cost)["kernels"]
    assert data["transactions_a_request"] == kernel.work.transactions_a_request
    assert data["conflicts_us"] == kernel.conflicts_us and (kernel.conflicts_us > 0) == ("take" in cost_lines(cost)[-1])


def test_a_lean_candidate_beats_a_wasteful_one_and_nothing_beats_the_memory() -> None:
    cost, wasteful = _cost(), _cost(planes=8, block_h=2, tile_h=1, threads_w=7, vthread_w=1)
    assert wasteful.microseconds > 2 * cost.microseconds and wasteful.busy_us["issue"] > cost.busy_us["issue"]
    assert cost.dram_bytes >= LAYER.bytes * 0.99
    assert cost.microseconds > SM_90.limits.limit_us(bytes_moved=LAYER.bytes, flops=LAYER.flops)
    assert cost.busy_us["fma"] >= LAYER.flops / SM_90.limits.peak_gflop_per_s / 1e3
    costs = [_cost(LAYER.with_batch(batch)).microseconds for batch in (1, 16, 64, 256)]
    assert costs == sorted(costs) and costs[-1] > 3 * costs[-2]


def _with(artifact: Artifact, **resources: int) -> Artifact:
    kernels = {name: {**known, **resources} for name, known in artifact.kernel_resources.items()}
    return dataclasses.replace(artifact, kernel_resources=kernels)


def test_what_the_compiler_spills_costs() -> None:
    """Every load and store of local memory goes through the load/store units, as a line a word."""
    lean, cost = _cost(), computed_cost(_with(_built(), spill_bytes=400), LAYER, SM_90)
    (kernel,) = cost.kernels
    warps = -(-kernel.work.threads // 32)
    turns = math.ceil(kernel.work.blocks / SM_90.sms) * warps * 100 / (SM_90.clock_ghz * 1e3)
    assert cost.busy_us["load_store"] == pytest.approx(lean.busy_us["load_store"] + turns)
    assert "400 bytes spilt" in "\n".join(cost_lines(cost))


def test_registers_and_shared_memory_are_those_that_the_compiler_gave() -> None:
    fewer, more = (computed_cost(_with(_built(), registers=count), LAYER, SM_90) for count in (32, 200))
    blocks = [cost.slowest.price.occupancy.blocks_per_sm for cost in (fewer, more)]
    assert blocks[0] > blocks[1] == 65536 // (200 * more.slowest.work.threads)
    assert fewer.microseconds < more.microseconds
    cost = computed_cost(_with(_built(), shared_bytes=10**6), LAYER, SM_90)
    assert math.isinf(cost.microseconds) and cost.slowest.price.occupancy.limiter == "shared_bytes"
    assert cost_data(cost)["microseconds"] is None


def test_the_report_names_every_resource() -> None:
    cost = _cost()
    text = "\n".join(cost_lines(cost))
    for word in (*RESOURCES, "registers", "spills", "waves", "KB of loads in flight"):
        assert word in text
    issued = sum(kernel.work.instructions * kernel.work.blocks for kernel in cost.kernels)
    moved_us = LAYER.bytes / SM_90.limits.memory_gb_per_s / 1e3
    share = issued / (SM_90.sms * 4 * SM_90.clock_ghz * 1e3 * moved_us)
    assert f"instructions: {share:.0%} of those that the memory leaves time for" in text
    data = json.loads(json.dumps(cost_data(cost)))
    assert data["kernels"][0]["resources"]["registers"] > 0 and data["share_of_budget"] == pytest.approx(share)


def test_estimates_put_the_good_before_the_bad() -> None:
    space = template("cuda.fprop_nchw").space(LAYER, SM_90)
    wasteful = {"planes": 8, "block_h": 2, "tile_h": 1, "threads_w": 7, "vthread_w": 1}
    good, bad = space.default, space.check({**space.default.to_dict(), **wasteful})
    assert 0 < estimated_us(LAYER, good, SM_90) < 0.9 * estimated_us(LAYER, bad, SM_90)
    layer = dataclasses.replace(LAYER, channels=960, input_size=(7, 7), dtype="float16")
    estimates = {
        template.name: estimated_us(layer, template.space(layer, SM_90).default, SM_90)
        for template in templates_for(layer, SM_90)
    }
    assert min(estimates, key=lambda name: estimates[name]) == "cuda.fprop_nchw_plane", "whole planes suit small maps"
    assert estimates["cuda.fprop_nchw_plane"] < 0.6 * estimates["cuda.fprop_nchw_strip"]


# -- records of candidates ---------------------------------------------------------------------------------------------

SMALL = dataclasses.replace(LAYER, batch=2, channels=16, input_size=(14, 14))
simulator = pytest.mark.skipif(not available(), reason="the simulator needs g++ 12 or newer")


@simulator
@pytest.mark.slow
def test_one_record_a_candidate_computed_checked_and_marked() -> None:
    space = template("cuda.fprop_nchw").space(SMALL, SM_90)
    wild = Config.of("cuda.fprop_nchw", **{**dict(space.default.values), "planes": 3})
    candidates = [Candidate(SMALL, config) for config in (space.default, wild)]
    with ComputeRunner(SM_90, jobs=2) as runner:
        records = {record.config: record for record in runner.measure(candidates)}
        assert not list(runner.confirm(candidates[:1]))
    good, wild_one = records[space.default], records[wild]
    assert good.status is Status.OK and good.device == "sm_90" and good.detail == "" and good.versions
    assert good.measurement is not None and good.measurement.computed and not good.measured
    assert good.measurement.median_us > LAUNCH_US and good.providers == {}
    assert good.verdict is not None and good.verdict.right and good.verdict.max_error == 0
    assert good.resources["registers"] > 0
    assert wild_one.status is Status.COMPILE_ERROR and wild_one.measurement is None and "planes=3" in wild_one.detail
    with ComputeRunner(SM_90, timeout_s=0.001) as runner:
        (record,) = runner.measure(candidates[:1])
    assert record.status is Status.TIMEOUT


@simulator
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (compute_runner.Prediction(microseconds=1.0, resources={}), ""),
        (None, "NoneType is not a prediction of "),
        (compute_runner.Prediction(microseconds=math.nan, resources={}), "nan µs, which no kernel takes"),
        (compute_runner.Prediction(microseconds=math.inf, resources={}), "inf µs, which no kernel takes"),
        (compute_runner.Prediction(microseconds=0.0, resources={}), "0.0 µs, which no kernel takes"),
    ],
)
def test_a_worker_answers_with_a_time(answer: object, words: str) -> None:
    found = compute_runner._misfit(_built().candidate, answer)
    assert found.startswith(words) and bool(found) == bool(words)


def test_a_fault_is_a_wrong_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source loses its barriers on the way to the simulator."""
    default = Candidate(SMALL, template("cuda.fprop_nchw").space(SMALL, SM_90).default)
    right = build(default, SM_90)
    wrong = dataclasses.replace(right, source=right.source.replace("__syncthreads();", ""))
    monkeypatch.setattr(compute_runner, "build", lambda *_: wrong)
    record = record_of(default, Predictor(SM_90)(default), SM_90)
    assert record.status is Status.WRONG and record.measurement is None
    assert record.detail.startswith("race: staged_shared")


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("short_ranking")
def test_without_a_compiler_one_line_says_that_nothing_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is computed is a record all the same, and one that does not fit is none."""
    monkeypatch.setattr(compiling, "_version", lambda: 0)

    def made(workload: Workload, target: CudaTarget, *, plan: SearchPlan) -> ComputeRunner:
        runner = ComputeRunner(target, jobs=plan.jobs)
        predict = Predictor(target)
        monkeypatch.setattr(
            runner._workers, "map", lambda candidates, *, timeout_s: enumerate(map(predict, candidates))
        )
        return runner

    monkeypatch.setattr(search_loop, "make_runner", made)
    log = tmp_path / "log.jsonl"
    options = ["--shape", "2,8,14,14", "--kernel", "3", "--passes", "fprop", "--trials", "1", "--jobs", "1"]
    assert tune.main([*options, "--log", str(log), "--target", "cuda:sm_90"]) == 0
    printed = capsys.readouterr()
    assert "note: candidates are not checked: the simulator needs g++ 12 or newer, there is none" in printed.err
    assert "computed, not measured, nor checked in the simulator; such a record never runs" in printed.out
    assert shown_next(printed.out) == ["source", "cost", "sass"]
    (record,) = TuningLog(log).load().records
    assert record.verdict is None and record.measurement is not None and record.measurement.computed
    with pytest.raises(BuildError, match="a block does not fit on an SM: shared_bytes of "):
        monkeypatch.setattr(compute_runner, "build", lambda *_: _with(_built(), shared_bytes=10**6))
        Predictor(SM_90)(Candidate(LAYER, _built().candidate.config))
