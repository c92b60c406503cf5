"""What tensors a kernel takes: their shapes, and their strides in its layout."""

from __future__ import annotations

import dataclasses

import pytest

from dwconv.kernels.artifact import Argument, Artifact, Extent
from dwconv.kernels.operand import Operand
from dwconv.problems.workload import LAYOUTS, PASSES, Layout, Pass, Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from tests.planted_records import workload_of


def artifact(workload: Workload) -> Artifact:
    """As it would be built; x is a slice if the workload has a pitch."""
    candidate = Candidate(workload, Config.of(f"cpu.{workload.pass_}_{workload.layout}"))
    arguments = []
    for name in (*workload.inputs, *workload.results):
        shape = [Extent(), *workload.shape_of(name)[1:]]
        if name == "x" and workload.x_pitch:
            shape[1] = workload.x_pitch
        is_image = name in ("x", "y", "dx", "dy")
        held = [shape[0], *shape[2:], shape[1]] if is_image and workload.layout == "nhwc" else shape
        arguments.append(Argument(name, workload.dtype, tuple(held) if is_image else workload.shape_of(name)))
    return Artifact(candidate=candidate, kind="cpu", source="", arguments=tuple(arguments))


def operands(workload: Workload) -> dict[str, Operand]:
    built = artifact(workload)
    return {name: Operand.of(name, built, device="cpu") for name in (*workload.inputs, *workload.results)}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("size", [(5, 9), (1, 7), (6, 1), (3, 4, 5), (3, 1, 5)])
@pytest.mark.parametrize("x_pitch", [0, 40])
def test_at_another_size_and_number_of_channels_they_are_as_if_made_for_it(
    pass_: Pass, layout: Layout, size: tuple[int, ...], x_pitch: int
) -> None:
    sizes = {"kernel": (3,) * len(size), "layout": layout}
    first, other = (
        dataclasses.replace(workload_of(shape=shape, pass_=pass_, **sizes), x_pitch=x_pitch)  # type: ignore[arg-type]
        if pass_ != "dgrad"
        else workload_of(shape=shape, pass_=pass_, **sizes)  # type: ignore[arg-type]
        for shape in ((2, 8, *(12 for _ in size)), (2, 16, *size))
    )
    wanted = operands(other)
    for name, operand in operands(first).items():
        found = operand.at(other)
        assert found.shape == wanted[name].shape and found.pitch == wanted[name].pitch
        assert found.strides == wanted[name].strides, name
