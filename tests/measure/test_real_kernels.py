"""Verification and the runner on kernels as they are built, and on the same machine code made wrong."""

import dataclasses
import re

import pytest
import torch

from dwconv.errors import BuildError
from dwconv.kernels import build
from dwconv.kernels.kernel import Kernel
from dwconv.measure.runner import LocalRunner
from dwconv.measure.verify.cases import make_case
from dwconv.measure.verify.verify import verify, verify_finalist
from dwconv.problems.target import cpu_target
from dwconv.records.record import Status
from dwconv.schedules.template import Candidate, templates_for
from tests.measure.planted_kernels import workload


def default(of, target):
    return Candidate(of, templates_for(of, target)[0].space(of, target).default)


@pytest.fixture(scope="module")
def built():
    of, target = workload(channels=20, input_size=(13, 9)), cpu_target()
    return build(default(of, target), target)


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("data", ["integers", "normal", "extreme"])
def test_a_built_kernel_is_right_at_any_batch(built, batch, data):
    case = make_case(built.candidate.workload.with_batch(batch), data=data)
    verdict = verify_finalist(Kernel.load(built), [case])
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


def test_the_runner_builds_verifies_times_and_confirms():
    of, target = workload("wgrad", channels=32), cpu_target()
    good = default(of, target)
    illegal = dataclasses.replace(good, config=dataclasses.replace(good.config, values=()))
    with LocalRunner(of, target, jobs=1) as runner:
        records = list(runner.measure([good, illegal]))
        confirmed = list(runner.confirm([good]))
    assert {record.config: record.status for record in records} == {
        good.config: Status.OK,
        illegal.config: Status.COMPILE_ERROR,
    }
    (record,) = confirmed
    assert record.status is Status.OK and len(record.providers) == 2, record.detail
