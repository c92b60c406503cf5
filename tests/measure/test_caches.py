"""What a timed call finds in the caches: tensors take turns, and results do not come back to the same memory."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from dwconv.measure.clock.timing import InTurn, inputs_in_turn, results_held
from dwconv.problems.operands import operands
from dwconv.problems.target import CudaTarget, cpu_target, parse_target
from dwconv.problems.workload import PASSES, Workload

WORKLOAD = Workload(pass_="fprop", batch=2, channels=16, input_size=(8, 8), kernel=(3, 3), padding=((1, 1), (1, 1)))
TENSOR_BYTES = 4 * 2 * 16 * 8 * 8
TARGET = dataclasses.replace(cpu_target(), cache_bytes=TENSOR_BYTES, others_cache_bytes=2 * TENSOR_BYTES)


def test_calls_take_turns_and_results_stay_alive():
    made = InTurn([lambda: torch.zeros(64), lambda: torch.ones(64)], held=3)
    for _ in range(4):
        made()
    held = list(made._held)
    assert [int(result[0]) for result in held] == [1, 0, 1]
    assert len({result.data_ptr() for result in held}) == 3
    assert made.turns == 4 and InTurn([lambda: 1] * 6, held=3).turns == 6


@pytest.mark.parametrize("pass_", PASSES)
def test_warm_is_the_same_tensors_again(pass_):
    workload = WORKLOAD.for_pass(pass_)
    inputs = operands(workload, data="normal", seed=0)
    assert inputs_in_turn(workload, inputs, caches="warm", target=TARGET) == [inputs]
    assert results_held(workload, caches="warm", target=TARGET) == 0


def test_in_training_what_was_saved_has_left_the_cache():
    workload = WORKLOAD.for_pass("wgrad")
    x, dy = operands(workload, data="normal", seed=0)
    sets = inputs_in_turn(workload, (x, dy), caches="training", target=TARGET)
    assert len({saved.data_ptr() for saved, _ in sets}) == len(sets) == 6  # twice the cache
    assert all(torch.equal(saved, x) and other is dy for saved, other in sets)
    assert results_held(workload, caches="training", target=TARGET) == 0


@pytest.mark.parametrize("pass_", ["fprop", "dgrad"])
def test_in_training_results_go_to_other_memory(pass_):
    workload = WORKLOAD.for_pass(pass_)
    inputs = operands(workload, data="normal", seed=0)
    assert inputs_in_turn(workload, inputs, caches="training", target=TARGET) == [inputs]
    assert results_held(workload, caches="training", target=TARGET) == 6


def test_in_the_cold_nothing_comes_back_before_the_cache_has_lost_it():
    workload = WORKLOAD.for_pass("wgrad")
    inputs = operands(workload, data="normal", seed=0)
    sets = inputs_in_turn(workload, inputs, caches="cold", target=TARGET)
    assert len(sets) == 3  # of two tensors, twice the cache
    assert len({tensor.data_ptr() for given in sets for tensor in given}) == 6
    assert all(torch.equal(own, tensor) for given in sets for own, tensor in zip(given, inputs, strict=True))
    assert results_held(WORKLOAD, caches="cold", target=TARGET) == 6


def test_a_gpu_has_a_cache_of_its_own(monkeypatch):
    target = parse_target("cuda:sm_90")
    assert isinstance(target, CudaTarget)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 40, 1 << 40))
    large = dataclasses.replace(WORKLOAD, batch=64, channels=1024)
    expected = math.ceil(2 * target.limits.cache_bytes / (64 * 1024 * 8 * 8 * 4))
    assert results_held(large, caches="cold", target=target) == expected > 1
