"""Each fault is planted in a kernel, and verification must find it and call it by its name."""

import pytest
import torch

from dwconv.measure.verify import cases
from dwconv.measure.verify.cases import make_case
from dwconv.measure.verify.verify import verify, verify_finalist
from dwconv.problems.reference import Answer
from dwconv.system import memory
from tests.measure.planted_kernels import artifact, candidate, load, workload


def as_a_finalist(kernel, case):
    return verify_finalist(kernel, [case])


def judge(fault, *, data="integers", of=None, verify=verify):
    of = of or workload()
    kernel = load(artifact(candidate(fault, of=of)))
    return verify(kernel, make_case(of, data=data))


@pytest.mark.parametrize("pass_", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("changes", [{}, {"multiplier": 2, "stride": (2, 1)}])
@pytest.mark.parametrize("bias", [False, True])
def test_a_right_kernel_is_right(pass_, layout, changes, bias):
    of = workload(layout=layout, bias=bias, **changes).for_pass(pass_)
    exact = judge("none", of=of)
    assert exact.right and exact.reason == "" and exact.max_error == exact.allowed_error == 0
    bounded = judge("none", of=of, data="normal")
    assert bounded.right and 0 <= bounded.max_error <= bounded.allowed_error < 2e-4


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("wrong value", "value: 1 of 756 elements of y, the worst at [0, 5, 0, 0]"),
        ("gives NaN", "value: 1 of 756 elements"),
        ("reads stale scratch", "value: 1 of 756 elements of y, the worst at [0, 0, 0, 0]: nan"),
        ("leaves a hole", "not written: 1 of 756 elements of y"),
        ("leaves the last image", "not written: 378 of 756 elements of y"),
        ("writes before", "guard band: it wrote outside y"),
        ("writes after", "guard band: it wrote outside y"),
        ("writes past a workspace", "guard band: it wrote outside workspace"),
        ("writes before an input", "guard band: it wrote outside x"),
        ("changes an input", "input changed: w"),
        ("changes a user's input", "input changed"),
        ("wrong for users", "value: called with PyTorch's tensors"),
    ],
)
@pytest.mark.parametrize("data", ["integers", "normal"])
def test_a_fault_is_found_and_named(fault, reason, data):
    verdict = judge(fault, data=data)
    assert not verdict.right
    assert verdict.reason.startswith(reason)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("wrong value", "value: 1 of 6 elements of dbias, the worst at [5]"),
        ("leaves a hole", "not written: 1 of 6 elements of dbias"),
        ("writes after", "guard band: it wrote outside dbias"),
        ("sums in any order", "not deterministic"),
    ],
)
def test_of_two_results_the_second_is_judged_too(fault, reason):
    of = workload("wgrad", bias=True)
    assert judge(fault, of=of, data="normal", verify=as_a_finalist).reason.startswith(reason)


def test_an_order_that_changes_is_found_though_every_result_is_near_enough():
    assert judge("sums in any order", data="normal", verify=as_a_finalist).reason.startswith("not deterministic")
    assert not judge("sums in any order", data="normal").right


def test_errors_are_finite_numbers_even_for_nan():
    verdict = judge("gives NaN")
    assert verdict.max_error > 1e100 and verdict.max_error < float("inf")


def test_too_much_memory_is_refused_before_it_is_taken():
    with pytest.raises(MemoryError, match=r"it needs 4096.0 GiB for its tensors, .* GiB are free"):
        judge("allocates too much")


def test_exact_data_leaves_no_room():
    """An error far below what rounding allows passes on normal data and is found on integers."""
    got = torch.ones(4, dtype=torch.float64)
    bound = torch.full((4,), 1e-3, dtype=torch.float64)
    near = Answer(expected=got + 1e-4, allowed=bound)
    exact = Answer(expected=got + 1e-4, allowed=None)
    assert cases.judge(got, near, name="y").right
    verdict = cases.judge(got, exact, name="y")
    assert not verdict.right and verdict.max_error == pytest.approx(1e-4) and verdict.allowed_error == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_results_in_16_bits(dtype):
    of = workload(dtype=dtype)
    case = make_case(of, data="integers")
    (answer,) = case.answers
    assert answer.expected.dtype == getattr(torch, dtype) and answer.allowed is None
    assert judge("none", of=of).right


def test_tensors_that_the_control_group_leaves_no_memory_for_are_not_made(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    with pytest.raises(MemoryError, match=r"for its tensors, 0\.0 GiB are free"):
        judge("none")


def test_where_a_sum_may_overflow_infinity_has_no_error():
    got, infinite = torch.tensor([torch.inf, 1.5]), torch.tensor([torch.inf, 1.0], dtype=torch.float64)
    answer = Answer(expected=torch.tensor([1e38, 1.0], dtype=torch.float64), allowed=infinite)
    verdict = cases.judge(got, answer, name="y")
    assert (verdict.right, verdict.max_error, verdict.allowed_error) == (True, 0.5, 1.0)
