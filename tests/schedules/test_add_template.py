"""Adding a template is adding a folder: ``example_family``, put where the registry looks, is found, built and right."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dwconv.schedules.cpu
from dwconv.problems.workload import DType
from dwconv.schedules.template import ScheduleTemplate, all_templates, templates_for
from tests.schedules.cpu_layers import SHAPES, TARGET, TARGETS, assert_right, built
from tests.turns import every

FAMILY = "example"
NAME = "cpu.fprop_nhwc_example"


@contextlib.contextmanager
def family_in(folder: Path) -> Iterator[None]:
    """``example_family`` as one more folder of ``dwconv.schedules.cpu``, as if it stood in ``schedules/cpu``."""
    shutil.copytree(Path(__file__).parent / "example_family", folder / FAMILY)
    cpu = dwconv.schedules.cpu
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cpu, "__path__", [*cpu.__path__, str(folder)])
            all_templates.cache_clear()
            yield
    finally:
        all_templates.cache_clear()
        vars(cpu).pop(FAMILY, None)
        for module in [name for name in sys.modules if name.startswith(f"{cpu.__name__}.{FAMILY}")]:
            del sys.modules[module]


@pytest.fixture
def added(tmp_path: Path) -> Iterator[None]:
    with family_in(tmp_path):
        yield


def example() -> ScheduleTemplate:
    return next(found for found in templates_for(SHAPES["ragged channels"], TARGET) if found.name == NAME)


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "shape", every(2, ["ragged channels", "dilation and stride", "asymmetric padding", "multiplier", "1 by 1"])
)
def test_a_folder_with_templates_is_found_built_and_right(shape: str, bias: bool) -> None:
    workload = dataclasses.replace(SHAPES[shape], bias=bias)
    assert [found.name for found in templates_for(workload, TARGET)] == ["cpu.fprop_nhwc", NAME]
    space = example().space(workload, TARGET)
    other = space.sample(random.Random(shape))
    assert other is not None
    for config in dict.fromkeys([space.default, other]):
        kernel = built(workload, config)
        assert kernel.artifact.candidate.template.name == NAME
        assert_right(kernel, workload)


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_it_runs_numbers_of_16_bits_too(dtype: DType) -> None:
    workload = dataclasses.replace(SHAPES["ragged channels"], dtype=dtype, bias=True)
    assert_right(built(workload, example().space(workload, TARGET).default), workload)


@pytest.mark.usefixtures("added")
def test_an_added_template_runs_its_pass_alone_and_fits_its_tiles_to_the_target() -> None:
    workload = SHAPES["ragged channels"]
    assert NAME not in [found.name for found in templates_for(workload.for_pass("dgrad"), TARGET)]
    widths = {bytes_: {config.tile_w for config in example().space(workload, TARGETS[bytes_])} for bytes_ in (32, 64)}
    assert widths == {32: {1, 2, 4, 8}, 64: {1, 2, 4, 8, 16}}
