"""The computed cost: what is certain about it, without a GPU to compare with; and records of it, of candidates for a
GPU that is not here."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dwconv import tune
from dwconv.errors import BrokenInstallation
from dwconv.kernels import build, cuda
from dwconv.kernels.artifact import Artifact
from dwconv.measure.simulator import compile as compiling
from dwconv.measure.simulator.compile import available
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.problems.workload import Workload
from dwconv.records.log import TuningLog
from dwconv.records.record import Status
from dwconv.schedules.cuda.gpu.cost import ALONE, LAUNCH_US, NOT_HIDDEN, RESOURCES, BlockWork, price
from dwconv.schedules.cuda.gpu.hardware import occupancy
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, estimated_us, template, templates_for
from dwconv.tuner.gpu_cost import (
    ComputeRunner,
    Cost,
    Predictor,
    PredictSetup,
    computed_cost,
    cost_data,
    cost_lines,
    issue_budget,
)
from tests.tune_command import shown_next
from tests.turns import slow

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


def _with(artifact: Artifact, **resources: int) -> Artifact:
    kernels = {name: {**known, **resources} for name, known in artifact.kernel_resources.items()}
    return dataclasses.replace(artifact, kernel_resources=kernels)


def test_what_the_compiler_spills_costs() -> None:
    """Every load and store of local memory goes through the load/store units, as a line a word."""
    lean, cost = _cost(), computed_cost(_with(_built(), spill_bytes=400), LAYER, SM_90)
    (kernel,) = cost.kernels
    warps = -(-kernel.work.threads // 32)
    assert kernel.local_bytes == kernel.work.blocks * warps * 100 * 128 and lean.kernels[0].local_bytes == 0
    turns = math.ceil(kernel.work.blocks / SM_90.sms) * warps * 100 / (SM_90.clock_ghz * 1e3)
    assert cost.busy_us["load_store"] == pytest.approx(lean.busy_us["load_store"] + turns)
    assert "a choice without is preferred" in "\n".join(cost_lines(cost))


def test_registers_are_those_that_the_compiler_gave() -> None:
    fewer, more = (computed_cost(_with(_built(), registers=count), LAYER, SM_90) for count in (32, 200))
    assert fewer.occupancy.blocks_per_sm > more.occupancy.blocks_per_sm == 65536 // (200 * more.kernels[0].work.threads)
    assert fewer.microseconds < more.microseconds


def test_what_does_not_fit_costs_infinity() -> None:
    artifact = _built()
    hungry = _with(artifact, shared_bytes=10**6)
    cost = computed_cost(hungry, LAYER, SM_90)
    assert math.isinf(cost.microseconds) and cost.occupancy.limiter == "shared_bytes"


def test_instructions_are_counted_against_what_the_memory_leaves_time_for() -> None:
    cost = _cost()
    assert cost.budget_per_output == pytest.approx(55, rel=0.01)  # 8 bytes an output
    assert 9 <= cost.fma_per_output < 12  # 3 × 3, few wasted
    assert cost.fma_per_output < cost.instructions_per_output
    assert cost.share_of_budget == pytest.approx(cost.instructions_per_output / cost.budget_per_output)
    strided = dataclasses.replace(LAYER, stride=(2, 2), input_size=(112, 112))
    assert issue_budget(strided, SM_90) == pytest.approx(137, rel=0.01)
    assert issue_budget(strided.for_pass("dgrad"), SM_90) == pytest.approx(34.4, rel=0.01)
    assert issue_budget(dataclasses.replace(LAYER, dtype="float16"), SM_90) == pytest.approx(27.5, rel=0.01)


def test_the_report_names_every_resource() -> None:
    cost = _cost()
    text = "\n".join(cost_lines(cost))
    for word in (*RESOURCES, "registers", "spills", "waves", "KB of loads in flight", "multiply and add"):
        assert word in text
    data = json.loads(json.dumps(cost_data(cost)))
    assert data["kernels"][0]["resources"]["registers"] > 0
    assert data["share_of_budget"] == pytest.approx(cost.share_of_budget)


def test_estimates_put_the_good_before_the_bad() -> None:
    space = template("cuda.fprop_nchw").space(LAYER, SM_90)
    wasteful = {"planes": 8, "block_h": 2, "tile_h": 1, "threads_w": 7, "vthread_w": 1}
    good, bad = space.default, space.check({**space.default.to_dict(), **wasteful})
    assert estimated_us(LAYER, good, SM_90) < 0.9 * estimated_us(LAYER, bad, SM_90)
    every = [estimated_us(LAYER, config, SM_90) for config in itertools.islice(space, 200)]
    assert all(time > 0 for time in every)


def test_estimates_know_that_whole_planes_suit_small_maps() -> None:
    layer = dataclasses.replace(LAYER, channels=960, input_size=(7, 7), dtype="float16")
    estimates = {
        template.name: estimated_us(layer, template.space(layer, SM_90).default, SM_90)
        for template in templates_for(layer, SM_90)
    }
    assert min(estimates, key=lambda name: estimates[name]) == "cuda.fprop_nchw_plane"
    assert estimates["cuda.fprop_nchw_plane"] < 0.6 * estimates["cuda.fprop_nchw_strip"]


# -- records of candidates ---------------------------------------------------------------------------------------------

SMALL_LAYER = dataclasses.replace(LAYER, batch=8, channels=32, input_size=(28, 28))
SMALL = dataclasses.replace(LAYER, batch=2, channels=8, input_size=(14, 14))
simulator = pytest.mark.skipif(not available(), reason="the simulator needs g++ 12 or newer")


@pytest.fixture(scope="module")
def candidates() -> list[Candidate]:
    space = template("cuda.fprop_nchw").space(SMALL_LAYER, SM_90)
    rng = random.Random(0)
    good = [config for config in (space.default, space.sample(rng), space.sample(rng)) if config]
    wild = Config.of("cuda.fprop_nchw", **{**dict(space.default.values), "planes": 3})
    return [Candidate(SMALL_LAYER, config) for config in (*good, wild)]


@pytest.mark.parametrize("check", [slow(False), pytest.param(True, marks=[simulator, pytest.mark.slow])])
def test_one_record_a_candidate_computed_and_marked(candidates: list[Candidate], check: bool) -> None:
    candidates = candidates[-2:] if check else candidates  # a simulation takes seconds
    with ComputeRunner(SM_90, check=check, jobs=2) as runner:
        records = {record.config: record for record in runner.measure(candidates)}
        assert not list(runner.confirm(candidates[:1]))
    assert set(records) == {candidate.config for candidate in candidates}
    *good, wild = (records[candidate.config] for candidate in candidates)
    for record in good:
        assert record.status is Status.OK and record.device == "sm_90" and record.detail == ""
        assert record.measurement is not None and record.measurement.computed and not record.measured
        assert record.measurement.median_us > LAUNCH_US
        assert record.resources["registers"] > 0
        assert record.providers == {} and record.versions
        if check:
            assert record.verdict is not None and record.verdict.right and record.verdict.max_error == 0
        else:
            assert record.verdict is None
    assert wild.status is Status.COMPILE_ERROR and wild.measurement is None
    assert "planes=3" in wild.detail


@pytest.mark.slow
def test_a_candidate_that_takes_too_long_is_ended(candidates: list[Candidate]) -> None:
    with ComputeRunner(SM_90, check=False, timeout_s=0.001) as runner:
        (record,) = runner.measure(candidates[:1])
    assert record.status is Status.TIMEOUT


@pytest.mark.slow
def test_a_candidate_limited_by_memory_is_predicted_too() -> None:
    """Its traffic is counted with NumPy, whose numbers cannot pass between processes."""
    space = template("cuda.fprop_nchw").space(LAYER, SM_90)
    direct = space.check({**space.default.to_dict(), "stage": "registers", "block_h": 56, "tile_h": 14, "tile_w": 2,
                          "threads_w": 28, "vthread_w": 1, "planes": 1})  # fmt: skip
    with ComputeRunner(SM_90, check=False) as runner:
        (record,) = runner.measure([Candidate(LAYER, direct)])
    assert record.status is Status.OK, record.detail
    assert record.measurement is not None and type(record.measurement.median_us) is float


@simulator
def test_a_fault_is_a_wrong_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source loses its barriers on the way to the simulator."""
    original = cuda.self_contained
    monkeypatch.setattr(cuda, "self_contained", lambda source: original(source).replace("__syncthreads();", ""))
    default = Candidate(SMALL, template("cuda.fprop_nchw").space(SMALL, SM_90).default)
    outcome = Predictor(PredictSetup(target=SM_90, check=True))(default)
    record = ComputeRunner(SM_90, check=False)._record(default, outcome)
    assert record.status is Status.WRONG and record.measurement is None
    assert record.detail.startswith("race: staged_shared")


def test_checking_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_version", lambda: 11)
    with pytest.raises(BrokenInstallation, match=r"needs g\+\+ 12 or newer, there is version 11; install it"):
        ComputeRunner(SM_90, check=True)


# -- the command -----------------------------------------------------------------------------------------------------

COMMAND = ["--shape", "2,8,14,14", "--kernel", "3", "--passes", "fprop", "--trials", "3", "--jobs", "1"]


@simulator
@pytest.mark.slow
@pytest.mark.usefixtures("short_ranking")
def test_what_was_only_computed_is_looked_at_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    arguments = [*COMMAND, "--log", str(log), "--target", "cuda:sm_90"]
    assert tune.main([*arguments, "--no-check"]) == 0
    assert "3 built and computed, none of them checked" in capsys.readouterr().out
    assert tune.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "3 built and computed, 3 of them checked in the simulator" in printed and "computed, not measured" in printed
    records = TuningLog(log).load().records
    assert [record.verdict is not None for record in records] == [False] * 3 + [True] * 3


@pytest.mark.slow
@pytest.mark.usefixtures("short_ranking")
def test_without_a_compiler_one_line_says_that_nothing_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiling, "_version", lambda: 0)
    log = tmp_path / "log.jsonl"
    arguments = [*COMMAND, "--trials", "1", "--log", str(log), "--target", "cuda:sm_90"]
    assert tune.main(arguments) == 0
    printed = capsys.readouterr()
    assert "note: candidates are not checked: the simulator needs g++ 12 or newer, there is none" in printed.err
    assert "1 built and computed, none of them checked" in printed.out
    assert shown_next(printed.out) == ["source", "cost", "sass"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "cpu", "--runner", "predict"], "--runner predict is for GPUs, the target is cpu"),
        (["--target", "cuda:sm_80", "--runner", "local"], "cuda:sm_80 is not in this machine; use --runner predict"),
    ],
)
def test_a_runner_that_cannot_work_is_one_line(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune.main([*COMMAND, *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
