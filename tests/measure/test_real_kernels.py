"""Verification and the runner on kernels as they are built, and on the same machine code made wrong."""

import dataclasses
import re

import pytest
from planted_kernels import workload

from dwconv.build import build
from dwconv.build.kernel import Kernel
from dwconv.errors import BuildError
from dwconv.measure.runner import LocalRunner
from dwconv.measure.verify import make_case, verify
from dwconv.records.record import Status
from dwconv.schedules.template import Candidate, templates_for
from dwconv.target import cpu_target


def default(of, target):
    return Candidate(of, templates_for(of, target)[0].space(of, target).default)


@pytest.fixture(scope="module")
def built():
    of, target = workload(channels=20, input_size=(13, 9)), cpu_target()
    return build(default(of, target), target)


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("data", ["integers", "normal"])
def test_a_built_kernel_is_right_at_any_batch(built, batch, data):
    case = make_case(built.candidate.workload.with_batch(batch), data=data)
    verdict = verify(Kernel.load(built), case)
    assert verdict.right, verdict.reason


VECTOR = r"(<16 x float> [^,]+)"
STORE = r"  store <16 x float> .*\n"


@pytest.mark.parametrize(
    ("pattern", "instead", "reason"),
    [
        (rf"(@llvm\.fmuladd\.v16f32)\({VECTOR}, {VECTOR}, {VECTOR}\)", r"\1(\2, \4, \3)", "value"),  # a·c + b
        (rf"{STORE}", "", "value"),  # the first: weights in a workspace, so that stale ones are read
        (rf"{STORE}(?![\s\S]*{STORE})", "", "not written"),  # the last: a result
    ],
)
@pytest.mark.skipif(cpu_target().vector_bytes != 64, reason="the patterns are those of 16 lanes")
def test_wrong_machine_code_is_found(built, pattern, instead, reason):
    source, changes = re.subn(pattern, instead, built.source, count=1)
    assert changes == 1
    case = make_case(built.candidate.workload, data="integers")
    assert verify(Kernel.load(dataclasses.replace(built, source=source)), case).reason.startswith(reason)


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
