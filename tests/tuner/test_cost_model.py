"""The computed cost: what is certain about it, without a GPU to compare with."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from functools import cache
from typing import Any

import pytest

from dwconv.kernels import build
from dwconv.kernels.artifact import Argument, Artifact, Launch
from dwconv.kernels.sass import Code, Instruction
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.gpu.cost import ALONE, LAUNCH_US, NOT_HIDDEN, RESOURCES, BlockWork, price
from dwconv.schedules.cuda.gpu.hardware import occupancy
from dwconv.schedules.template import Candidate, estimated_us, template, templates_for
from dwconv.tuner.gpu_cost import cost_model
from dwconv.tuner.gpu_cost.block_trace import Untraceable
from dwconv.tuner.gpu_cost.cost_model import Cost, computed_cost, cost_data, cost_lines, issue_budget

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
    ("names", "written"), [(("dy", "workspace0", "x"), ["workspace0"]), (("dw", "workspace0"), ["dw"])]
)
def test_a_guess_takes_results_for_written_or_what_they_are_summed_from(
    names: tuple[str, ...], written: list[str]
) -> None:
    workload = LAYER.for_pass("wgrad")
    arguments = tuple(Argument(name, "float32", (8,)) for name in names)
    launch = Launch(kernel="k", grid=(1, 1, 1), block=(32, 1, 1), shared_bytes=0, arguments=arguments)
    trace = cost_model._guessed(Code(kernel="k", instructions=()), launch, workload=workload, blocks=2, warp=32)
    assert trace.written_bytes == dict.fromkeys(written, 16)
    assert trace.read_bytes == {name: 16 for name in names if name not in written}


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
    shown = NOT_HIDDEN + ALONE / kernel.occupancy.blocks_per_sm
    assert cost.microseconds == pytest.approx(slowest + shown * (rest - slowest - LAUNCH_US) + LAUNCH_US)
    assert set(cost.busy_us) == {"dram", "cache", "load_store", "fma", "tensor", "issue", "latency", "launch"}


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


def test_spills_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every executed load and store of local memory goes through the load/store units, as a line a word."""
    lean = _cost()
    original = cost_model.disassemble
    spill = Instruction(0, "LDL.64", ("R2", "[R1+0x8]"))

    def spilling(cubin: bytes) -> dict[str, Code]:
        return {
            name: dataclasses.replace(code, instructions=(*code.instructions, *[spill] * 50))
            for name, code in original(cubin).items()
        }

    def refuse(*_: Any, **__: Any) -> None:
        raise Untraceable("it depends on data")

    monkeypatch.setattr(cost_model, "disassemble", spilling)
    monkeypatch.setattr(cost_model, "trace_block", refuse)
    cost = _cost()
    (kernel,) = cost.kernels
    warps = kernel.blocks * -(-kernel.threads // 32)
    assert kernel.local_bytes == warps * 50 * 2 * 128 and lean.kernels[0].local_bytes == 0
    turns = math.ceil(kernel.blocks / SM_90.sms) * -(-kernel.threads // 32) * 100 / (SM_90.clock_ghz * 1e3)
    assert cost.busy_us["load_store"] > turns
    assert "a choice without is preferred" in "\n".join(cost_lines(cost))


def test_what_does_not_fit_costs_infinity() -> None:
    artifact = _built()
    hungry = _with(artifact, shared_bytes=10**6)
    cost = computed_cost(hungry, LAYER, SM_90)
    assert math.isinf(cost.microseconds) and cost.occupancy.limiter == "shared_bytes"


def test_launches_add_up() -> None:
    artifact = _built()
    twice = dataclasses.replace(artifact, launches=artifact.launches * 2)
    once, both = _cost(), computed_cost(twice, LAYER, SM_90)
    assert both.microseconds == pytest.approx(2 * once.microseconds)
    assert both.busy_us["launch"] == 2 * LAUNCH_US


def test_instructions_are_counted_against_what_the_memory_leaves_time_for() -> None:
    cost = _cost()
    assert cost.budget_per_output == pytest.approx(55, rel=0.01)  # 8 bytes an output
    assert 9 <= cost.issued_per_output["fma"] < 12  # 3 × 3, few wasted
    assert cost.instructions_per_output == pytest.approx(sum(cost.issued_per_output.values()))
    assert cost.share_of_budget == pytest.approx(cost.instructions_per_output / cost.budget_per_output)
    strided = dataclasses.replace(LAYER, stride=(2, 2), input_size=(112, 112))
    assert issue_budget(strided, SM_90) == pytest.approx(137, rel=0.01)
    assert issue_budget(strided.for_pass("dgrad"), SM_90) == pytest.approx(34.4, rel=0.01)
    assert issue_budget(dataclasses.replace(LAYER, dtype="float16"), SM_90) == pytest.approx(27.5, rel=0.01)


def test_what_a_kernel_before_wrote_is_still_in_the_cache() -> None:
    artifact = _built()
    (launch,) = artifact.launches
    x, w, y, *rest = launch.arguments
    again = dataclasses.replace(launch, arguments=(y, w, x, *rest))
    small = LAYER.with_batch(1)
    both = computed_cost(dataclasses.replace(artifact, launches=(launch, again)), small, SM_90)
    first, second = both.kernels
    assert second.dram_bytes < 0.6 * first.dram_bytes
    assert second.cache_bytes == pytest.approx(first.cache_bytes)


def test_what_cannot_be_walked_is_counted_from_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise Untraceable("it depends on data")

    exact = _cost()
    monkeypatch.setattr(cost_model, "trace_block", refuse)
    guessed = _cost()
    assert guessed.kernels[0].note == "it depends on data" and not exact.kernels[0].note
    assert guessed.issued_per_output["fma"] == pytest.approx(exact.issued_per_output["fma"])  # nothing in a loop
    assert guessed.microseconds == pytest.approx(exact.microseconds, rel=0.5)
    assert "it depends on data" in "\n".join(cost_lines(guessed))


def test_the_report_names_every_resource() -> None:
    cost = _cost()
    text = "\n".join(cost_lines(cost))
    for word in (*RESOURCES, "registers", "spills", "waves", "bank conflicts", "KB of loads in flight", "fma "):
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
