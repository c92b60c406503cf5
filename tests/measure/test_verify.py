"""Each fault is planted in a kernel, and verification must find it and call it by its name: in kernels of Python, in a
catalogue of wrong ones, and in kernels as they are built.
"""

from __future__ import annotations

import ctypes
import dataclasses
import re
from functools import lru_cache

import pytest
import torch

from dwconv.errors import BuildError
from dwconv.kernels import build
from dwconv.kernels.kernel import AnySize, Kernel
from dwconv.measure.requests import CheckRequest, MeasureSetup, TimeRequest
from dwconv.measure.runner import LocalRunner
from dwconv.measure.timing_worker import TimingHandler
from dwconv.measure.verify.cases import batches_of_finalists, cases_of_finalists, fresh_case, make_case
from dwconv.measure.verify.cases import judge as judge_numbers
from dwconv.measure.verify.verify import verify, verify_finalist
from dwconv.problems.right_answers import Answer, repeated
from dwconv.problems.target import cpu_target
from dwconv.records.record import Status
from dwconv.schedules.template import Candidate, templates_for
from dwconv.system import memory
from dwconv.system.openmp import openmp_is_here
from tests.measure.planted_catalogue import HOW, OF_WGRAD, WHEN, planted
from tests.measure.planted_kernels import artifact, candidate, load, workload
from tests.turns import slow


def as_a_finalist(kernel, case):
    return verify_finalist(kernel, [case])


def judge(fault, *, data="integers", of=None, verify=verify):
    of = of or workload()
    kernel = load(artifact(candidate(fault, of=of)))
    return verify(kernel, make_case(of, data=data))


@pytest.mark.parametrize("pass_", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("changes", [{}, {"multiplier": 2, "stride": (2, 1), "bias": True}])
def test_a_right_kernel_is_right(pass_, layout, changes):
    of = workload(layout=layout, **changes).for_pass(pass_)
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


def test_errors_are_finite_numbers_even_for_nan():
    verdict = judge("gives NaN")
    assert verdict.max_error > 1e100 and verdict.max_error < float("inf")


def test_tensors_that_there_is_no_memory_for_are_not_made(monkeypatch):
    with pytest.raises(MemoryError, match=r"it needs 4096.0 GiB for its tensors, .* GiB are free"):
        judge("allocates too much")
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)  # as a control group may leave
    with pytest.raises(MemoryError, match=r"for its tensors, 0\.0 GiB are free"):
        judge("none")


def test_exact_data_leaves_no_room():
    """An error far below what rounding allows passes on normal data and is found on integers."""
    got = torch.ones(4, dtype=torch.float64)
    bound = torch.full((4,), 1e-3, dtype=torch.float64)
    near = Answer(expected=got + 1e-4, allowed=bound)
    exact = Answer(expected=got + 1e-4, allowed=None)
    assert judge_numbers(got, near, name="y").right
    verdict = judge_numbers(got, exact, name="y")
    assert not verdict.right and verdict.max_error == pytest.approx(1e-4) and verdict.allowed_error == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_results_in_16_bits(dtype):
    of = workload(dtype=dtype)
    case = make_case(of, data="integers")
    (answer,) = case.answers
    assert answer.expected.dtype == getattr(torch, dtype) and answer.allowed is None
    assert judge("none", of=of).right


def test_where_a_sum_may_overflow_infinity_has_no_error():
    got, infinite = torch.tensor([torch.inf, 1.5]), torch.tensor([torch.inf, 1.0], dtype=torch.float64)
    answer = Answer(expected=torch.tensor([1e38, 1.0], dtype=torch.float64), allowed=infinite)
    verdict = judge_numbers(got, answer, name="y")
    assert (verdict.right, verdict.max_error, verdict.allowed_error) == (True, 0.5, 1.0)


NOT_FOUND = {
    *(f"at batch {n}" for n in (9, 17, 1017)),
    "on 17 threads",
    "on more than 8 threads and images",
    *(f"{name} starts 48 after a cache line" for name in "xwy"),
    "in every 1000th run",
    "-0 lost",
}
"""One batch size or number of threads among many; a start that vector loads take for 16; what timing finds at best;
and a sign that PyTorch's own op loses."""
FOUND = [fault for fault in (*WHEN, *HOW, *OF_WGRAD) if fault not in NOT_FOUND]
QUICK = FOUND[::6]


@lru_cache
def cases(of):
    return make_case(of, data="integers"), cases_of_finalists(of, device="cpu"), fresh_case(of, device="cpu")


def found(fault):
    """How; None if it is not."""
    kernel = planted(fault)
    first, finalists, fresh = cases(kernel.workload)
    try:
        for judge, data in ((verify, first), (verify_finalist, finalists), (verify, fresh)):
            if not (verdict := judge(kernel, data)).right:
                return verdict.reason
    finally:
        torch.set_flush_denormal(False)
    return None


@pytest.mark.parametrize("fault", [slow(fault) if fault not in QUICK else fault for fault in FOUND])
def test_it_is_found(fault):
    with torch.inference_mode():
        assert found(fault)


def flush_denormals_in_the_team(flushes):
    """On every thread that PyTorch's operators run on, but this one. How many those are."""
    process, seen = ctypes.CDLL(None), []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def on_each(_):
        if process.omp_get_thread_num():
            seen.append(torch.set_flush_denormal(flushes))

    process.GOMP_parallel(on_each, None, torch.get_num_threads(), 0)
    return len(seen)


def test_a_kernel_that_leaves_a_team_flushing_denormals_is_wrong():
    """Then PyTorch's operators would compute otherwise on that thread."""
    if not openmp_is_here():
        pytest.skip("PyTorch's threads are not OpenMP's here")
    kernel = load(artifact(candidate()))
    compute = kernel.compute
    torch.set_num_threads(2)
    try:
        if flush_denormals_in_the_team(False) != 1:
            pytest.skip("OpenMP has one thread here")
        cases = [make_case(kernel.artifact.candidate.workload, data="normal")]
        assert verify_finalist(kernel, cases).right
        kernel.compute = lambda *inputs: (flush_denormals_in_the_team(True), compute(*inputs))[1]
        verdict = verify_finalist(kernel, cases)
    finally:
        flush_denormals_in_the_team(False)
    assert not verdict.right and verdict.reason.startswith("float mode: ")
    assert torch.full((1 << 16,), torch.finfo(torch.float32).tiny).mul_(0.5).ne_(0.0).all(), "it is restored"


def test_a_right_kernel_has_no_blind_spot():
    assert found("none") is None


def test_what_is_not_found_is_known():
    """So that this list, and what the documentation says, stay true."""
    with torch.inference_mode():
        assert {fault for fault in NOT_FOUND if found(fault) is None} == NOT_FOUND


@pytest.mark.parametrize(("images", "periods"), [(3, range(1, 5)), (8, range(1, 33))])
def test_no_image_can_be_taken_for_another(images, periods):
    for batch in (9, 13, 33):
        order = repeated(batch, images)
        assert set(order.tolist()) == set(range(images)) and order[-1] != order[-2]
        for period in periods[: batch - 1]:
            assert not torch.equal(order, order[torch.arange(batch) % period]), (batch, period)


@pytest.mark.parametrize(
    ("of", "few", "many"),
    [
        ({"batch": 8}, [3, 5, 6, 8, 4, 7, 9], 33),
        ({"batch": 1}, [3, 5, 6, 8, 4, 7, 2], 33),
        ({"batch": 33}, [3, 5, 6, 8, 4, 7, 34], 35),
        ({"batch": 8, "channels": 64, "input_size": (112, 112), "kernel": (3, 3)}, [3], 9),
        ({"batch": 8, "channels": 16, "input_size": (112, 112), "kernel": (3, 3)}, [3, 5, 6], 9),
    ],
)
def test_batch_sizes_follow_the_size_of_images(of, few, many):
    first, largest, *others = batches_of_finalists(workload(**of))
    assert ([first, *others], largest) == (few, many)


def default(of, target):
    return Candidate(of, templates_for(of, target)[0].space(of, target).default)


@pytest.fixture(scope="module")
def built():
    of, target = workload(channels=20, input_size=(13, 9)), cpu_target()
    return build(default(of, target), target)


def test_a_built_kernel_is_right_at_any_batch(built):
    """The cases share out the numbers of threads and the ways of calling, as those of a finalist do."""
    of = built.candidate.workload
    cases = [
        make_case(of.with_batch(batch), data=data) for data in ("integers", "normal", "extreme") for batch in (1, 2, 5)
    ]
    verdict = verify_finalist(Kernel.load(built), cases)
    assert verdict.right, verdict.reason


# In LLVM's words, whatever the width of the vectors and the machine they become code for.
VALUE = r"(\S+ x float>|float) (%[\w.]+)"
MULTIPLY_ADD = re.compile(rf"(@llvm\.(?:fmuladd|fma)\.\w+)\({VALUE}, {VALUE}, {VALUE}\)")
STORE = re.compile(
    r"^  (?:store (?:<\d+ x float>|float) |(?:tail )?call void @llvm\.masked\.store\.v\d+f32).*\n", re.MULTILINE
)


def judged(built, source):
    """The verdict on that code; and whether it gives the right results, by a look at them alone."""
    kernel = Kernel.load(dataclasses.replace(built, source=source))
    case = make_case(built.candidate.workload, data="integers")
    (answer,) = case.answers
    y = torch.full_like(answer.expected.permute(0, 2, 3, 1), torch.nan)
    scratch = [torch.full(argument.shape_at(case.workload.batch), torch.nan) for argument in built.workspaces]
    x, w = case.inputs
    kernel.run_into([x.permute(0, 2, 3, 1), w], [y], scratch)
    return verify(kernel, case), torch.equal(y.permute(0, 3, 1, 2), answer.expected)


def test_wrong_sums_in_machine_code_are_found(built):
    source, changes = MULTIPLY_ADD.subn(r"\1(\2 \3, \6 \7, \4 \5)", built.source)  # a·c + b
    assert changes > 0
    verdict, _ = judged(built, source)
    assert verdict.reason.startswith("value: ")


def test_a_store_that_is_missing_in_machine_code_is_found(built):
    stores = list(STORE.finditer(built.source))
    assert stores
    reasons = []
    for store in dict.fromkeys([stores[0], *stores[1 : -1 : max(1, len(stores) // 6)], stores[-1]]):
        verdict, gives_right_results = judged(built, built.source[: store.start()] + built.source[store.end() :])
        assert verdict.right == gives_right_results, store.group()
        reasons.append(verdict.reason)
    assert any(reasons)
    verdict, _ = judged(built, STORE.sub("", built.source))
    assert verdict.reason.startswith("not written: ")


def test_half_an_artifact_does_not_load(built):
    with pytest.raises(BuildError):
        Kernel.load(dataclasses.replace(built, source=built.source[: len(built.source) // 2]))


SIZES = ((9, 7), (12, 5))


@pytest.fixture(scope="module")
def of_any_size():
    of = dataclasses.replace(workload("fprop", channels=32), input_size=SIZES[0], any_size=True, also_at=SIZES[1:])
    return build(default(of, cpu_target(threads=2)), cpu_target(threads=2))


@pytest.mark.slow
@pytest.mark.usefixtures("brief_timing")
def test_a_kernel_of_any_size_is_built_verified_and_timed_at_every_size(of_any_size):
    of, target = of_any_size.candidate.workload, cpu_target(threads=2)
    good = of_any_size.candidate
    illegal = dataclasses.replace(good, config=dataclasses.replace(good.config, values=()))
    with LocalRunner(of, target, jobs=1) as runner:
        refused, record = sorted(runner.measure([good, illegal]), key=lambda record: record.status is Status.OK)
        (confirmed,) = runner.confirm([good])
    assert (refused.config, refused.status) == (illegal.config, Status.COMPILE_ERROR)
    for each, providers in ((record, 1), (confirmed, 2)):
        assert each.status is Status.OK, each.detail
        assert [there.workload.input_size for there in each.at_each_size] == list(SIZES)
        assert all(there.measured and len(there.providers) == providers for there in each.at_each_size)


@pytest.mark.usefixtures("brief_timing", "threads_as_asked")
@pytest.mark.parametrize("wrong_at", ["another", "odd"])
def test_a_kernel_that_is_wrong_at_another_size_is_refused(of_any_size, monkeypatch, wrong_at):
    usual = AnySize.at

    def idle(sized):
        return Kernel.of_machine_code(sized, lambda *_: None, 0)

    def at(self, size):
        if size.input_size == SIZES[1] if wrong_at == "another" else size.input_size not in SIZES:
            return usual(AnySize(self.artifact, idle), size)
        return usual(self, size)

    monkeypatch.setattr(AnySize, "at", at)
    measurer = TimingHandler(MeasureSetup(target=cpu_target(threads=2), compiles_calls=False))
    (trial,) = measurer(TimeRequest(artifacts=(of_any_size,), stage="trial")).each
    check = measurer(CheckRequest(finalist=of_any_size))
    assert trial.verdict.right == (wrong_at == "odd")
    assert not check.verdict.right and check.verdict.reason.startswith("not written")
    assert "at 12×5" in check.verdict.reason or wrong_at == "odd"
