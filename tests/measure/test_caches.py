"""What a timed call finds in the caches: tensors take turns, and results do not come back to the same memory."""

from __future__ import annotations

import pytest
import torch

from dwconv.measure import caches as module
from dwconv.measure.caches import InTurn, inputs_in_turn, results_held
from dwconv.reference import operands
from dwconv.workload import PASSES, Workload

WORKLOAD = Workload(pass_="fprop", batch=2, channels=16, input_size=(8, 8), kernel=(3, 3), padding=((1, 1), (1, 1)))
TENSOR_BYTES = 4 * 2 * 16 * 8 * 8


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    monkeypatch.setattr(module, "last_cache_bytes", lambda: 3 * TENSOR_BYTES)


def test_calls_take_turns_and_results_stay_alive():
    made = InTurn([lambda: torch.zeros(64), lambda: torch.ones(64)], held=3)
    for _ in range(4):
        made()
    held = list(made._held)
    assert [int(result[0]) for result in held] == [1, 0, 1]
    assert len({result.data_ptr() for result in held}) == 3


@pytest.mark.parametrize("pass_", PASSES)
def test_warm_is_the_same_tensors_again(pass_):
    workload = WORKLOAD.for_pass(pass_)
    inputs = operands(workload, data="normal", seed=0)
    assert inputs_in_turn(workload, inputs, caches="warm") == [inputs]
    assert results_held(workload, caches="warm") == 0


def test_in_training_what_was_saved_has_left_the_cache():
    workload = WORKLOAD.for_pass("wgrad")
    x, dy = operands(workload, data="normal", seed=0)
    sets = inputs_in_turn(workload, (x, dy), caches="training")
    assert len({saved.data_ptr() for saved, _ in sets}) == len(sets) == 6  # twice the cache
    assert all(torch.equal(saved, x) and other is dy for saved, other in sets)
    assert results_held(workload, caches="training") == 0


@pytest.mark.parametrize("pass_", ["fprop", "dgrad"])
def test_in_training_results_go_to_other_memory(pass_):
    workload = WORKLOAD.for_pass(pass_)
    inputs = operands(workload, data="normal", seed=0)
    assert inputs_in_turn(workload, inputs, caches="training") == [inputs]
    assert results_held(workload, caches="training") == 6
