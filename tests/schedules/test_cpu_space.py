"""The spaces of the CPU templates: a default that is legal and uses every thread, and what depends on the size."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from dwconv.errors import InvalidConfig
from dwconv.problems.block import Block
from dwconv.problems.workload import BLOCK_PASSES, LAYOUTS, PASSES, Layout, Pass
from dwconv.schedules.space import Config
from dwconv.schedules.template import templates_for
from tests.schedules.cpu_layers import SHAPES, TARGET, TARGETS, layer, lying, some_configs


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_every_space_has_a_default_and_something_to_search(pass_: Pass, layout: Layout) -> None:
    wrong = []
    for (shape, workload), target in itertools.product(SHAPES.items(), TARGETS.values()):
        workload = lying(workload.for_pass(pass_), layout)
        space = templates_for(workload, target)[0].space(workload, target)
        assert space.check(space.default.to_dict()) == space.default, (shape, target)
        if len({space.sample(random.Random(seed)) for seed in range(10)}) <= 3:
            wrong.append(f"{shape}, {target.vector_bytes} bytes")
    assert not wrong, "nothing to search"


ON_SIZE = ("threads", "store", "prefetch")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize("pass_", PASSES)
def test_only_threads_stores_and_prefetches_depend_on_the_batch(pass_: Pass, batch: int, layout: Layout) -> None:
    workload = lying(layer(96, (28, 28), (5, 5), padding=((2, 2), (2, 2))).for_pass(pass_), layout)
    space, other = (
        templates_for(workload, TARGET)[0].space(dataclasses.replace(workload, batch=size), TARGET)
        for size in (2, batch)
    )
    knobs, others = ([knob for knob in each.knobs if knob.name not in ON_SIZE] for each in (space, other))
    assert knobs == others
    assert all(other.why_illegal(config) is None for config in some_configs(workload, 20))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_a_small_workload_chooses_its_threads(pass_: Pass, layout: Layout) -> None:
    small = lying(layer(96, (7, 7), (3, 3), padding=((1, 1), (1, 1)), batch=1).for_pass(pass_), layout)
    large = dataclasses.replace(small, channels=960, batch=8)
    target = dataclasses.replace(TARGET, threads=6)
    spaces = [templates_for(each, target)[0].space(each, target) for each in (small, large)]
    choices = [{knob.name: knob.values for knob in space.knobs}.get("threads") for space in spaces]
    assert choices == [(1, 2, 4, 6), None]
    assert spaces[0].default.threads == 6
    alone = dataclasses.replace(TARGET, threads=1)
    assert "threads" not in templates_for(small, alone)[0].space(small, alone).default.to_dict()


def test_the_default_leaves_work_for_every_thread() -> None:
    workload = layer(96, (28, 28), (3, 3), padding=((1, 1), (1, 1)), batch=1)
    config = some_configs(workload, 0)[0]
    assert -(-28 // config.block_h) >= 2 * TARGET.threads


@pytest.mark.parametrize("pass_", BLOCK_PASSES)
def test_a_block_is_as_high_as_the_image_where_there_are_two_images_for_each_thread(pass_: Pass) -> None:
    """Then no row is computed twice, and no thread waits for long."""

    def default(batch: int) -> Config:
        problem = layer(96, (28, 28), (3, 3), padding=((1, 1), (1, 1)), batch=batch)
        of = lying(dataclasses.replace(problem, pass_=pass_, block=Block.parse("bn+relu6,bn+relu6")), "nhwc")
        (template,) = templates_for(of, TARGET)
        return template.space(of, TARGET).default

    assert default(2 * TARGET.threads).block_h == 28
    assert default(1).block_h < 28


def test_the_rows_that_a_block_holds_stay_below_four_megabytes() -> None:
    problem = layer(1024, (8, 600), (7, 7), padding=((3, 3), (3, 3)))
    of = lying(dataclasses.replace(problem, pass_="forward", block=Block.parse("bn+relu6,bn+relu6")), "nhwc")
    (template,) = templates_for(of, TARGET)
    space = template.space(of, TARGET)
    wide, narrow = ({**space.default.to_dict(), "block_c": channels} for channels in (1024, 64))
    with pytest.raises(InvalidConfig, match="the ring of rows is too large"):
        space.check(wide)
    assert space.check(narrow).block_c == 64
    assert 4 * 7 * 606 * space.default.block_c <= 2**22 < 4 * 7 * 606 * 2 * space.default.block_c


def test_code_too_long_to_compile_is_not_in_the_space() -> None:
    workload = layer(64, (28, 28), (31, 31), padding=((15, 15), (15, 15)))
    for pass_ in PASSES:
        space = templates_for(workload.for_pass(pass_), TARGET)[0].space(workload.for_pass(pass_), TARGET)
        widest = {knob.name: knob.values[-1] for knob in space.knobs} | {"unroll": "kw", "tile_w": 1}
        tall = Config.of(space.template, **widest)
        assert space.why_illegal(tall) is not None
