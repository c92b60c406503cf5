"""A build worker's answer is checked before it is run."""

import dataclasses

import pytest

from dwconv.kernels.artifact import Argument, Extent
from dwconv.measure.building import misfit
from dwconv.problems.target import CpuTarget
from tests.measure.planted_kernels import artifact, candidate, workload

TARGET = CpuTarget(device="test-cpu", threads=1, vector_bytes=32)
GOOD = artifact(candidate())
X, W, Y, WORKSPACE = GOOD.arguments


def with_arguments(*arguments):
    return dataclasses.replace(GOOD, arguments=arguments)


@pytest.mark.parametrize("pass_", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_the_artifact_of_the_candidate_fits(pass_, layout):
    wanted = candidate(of=workload(pass_, layout=layout, bias=pass_ != "dgrad", multiplier=2, stride=(2, 1)))
    assert misfit(wanted, artifact(wanted), target=TARGET) == ""


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "NoneType is no artifact"),
        (candidate(), "Candidate is no artifact"),
        (artifact(candidate(order=1)), "the artifact of another candidate, fault=none order=1"),
        (artifact(candidate(of=workload(channels=7))), "the artifact of another candidate"),
        (dataclasses.replace(GOOD, kind="cuda"), "an artifact for cuda, not for cpu"),
        (with_arguments(), "a kernel without x"),
        (with_arguments(X, W), "a kernel without y"),
        (with_arguments(W, X, Y), "a kernel without x"),
        (with_arguments(X, W, dataclasses.replace(Y, dtype="float16")), "a kernel of Argument"),
        (with_arguments(X, W, dataclasses.replace(Y, shape=(Extent(), 9, 7, 7))), "a kernel of Argument"),
        (with_arguments(X, W, dataclasses.replace(Y, shape=(2, 9, 7, 6))), "a kernel of Argument"),
        (with_arguments(X, W, Y, WORKSPACE, Argument("bias", "float32", (6,))), "a kernel of bias"),
    ],
)
def test_others_do_not(answer, words):
    assert misfit(candidate(), answer, target=TARGET).startswith(words)
