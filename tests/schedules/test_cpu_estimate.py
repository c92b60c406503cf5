"""The estimated cost of CPU configurations: it exists for all of them, and grows with what costs time."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
import random
from collections.abc import Iterator

import pytest

from dwconv.errors import InvalidConfig
from dwconv.problems.block import Block
from dwconv.problems.target import CacheLevel, CpuTarget, KiB, Limits, MiB
from dwconv.problems.workload import BLOCK_PASSES, EVAL_PASSES, LAYOUTS, PASSES, Layout, Pass, Workload
from dwconv.schedules.cpu.shared.cost import CpuWork, Traffic, price
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import all_templates, estimated_us, templates_for
from tests.fixtures import Golden
from tests.schedules.cpu_layers import SHAPES, TARGET, TARGETS, WAYS, layer, lying, some_configs, template_of

LIMITS = Limits(
    memory_gb_per_s=30,
    cache_gb_per_s=60,
    cache_bytes=32 * MiB,
    peak_gflop_per_s=300,
    levels=(
        CacheLevel(bytes=32 * KiB, gb_per_s=250),
        CacheLevel(bytes=1 * MiB, gb_per_s=80),
        CacheLevel(bytes=16 * MiB, gb_per_s=30),
    ),
    region_us=2,
)
MEASURED = dataclasses.replace(TARGET, limits=LIMITS)
LARGE = layer(144, (56, 56), (5, 5), padding=((2, 2), (2, 2)), batch=16)
CACHED = layer(144, (28, 28), (5, 5), padding=((2, 2), (2, 2)), batch=2)
"""All of it stays in the second-level caches: what a core computes decides."""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_every_legal_configuration_has_an_estimate(pass_: Pass, layout: Layout) -> None:
    """Widths of vectors take turns: a space of others is another, and what counts in it is the same."""
    wrong = []
    for (shape, workload), target in zip(SHAPES.items(), itertools.cycle(TARGETS.values()), strict=False):
        workload = lying(workload.for_pass(pass_), layout)
        measured = dataclasses.replace(target, limits=LIMITS)
        for template in templates_for(workload, target):
            for config in walk(template.space(workload, target), steps=5):
                estimates = [estimated_us(workload, config, one) for one in (target, measured)]
                if not all(math.isfinite(us) and us > 0 for us in estimates):
                    wrong.append(f"{shape}, {target.vector_bytes} bytes: {estimates} for {config}")
    assert not wrong


def walk(space: ConfigSpace, *, steps: int) -> list[Config]:
    """Legal configurations of every kind, the same in every run."""
    rng, found = random.Random(space.template), [space.default]
    for _ in range(steps):
        found.append(rng.choice(space.neighbours(found[-1]) or found))
    return found


@pytest.mark.parametrize(("layout", "of_template"), WAYS)
@pytest.mark.parametrize("pass_", PASSES)
def test_twice_the_batch_takes_about_twice_as_long(pass_: Pass, layout: Layout, of_template: Layout) -> None:
    workload = lying(LARGE.for_pass(pass_), layout)
    for target in (TARGET, MEASURED):
        for config in some_configs(workload, 5, layout=of_template, target=target):
            once, twice = (estimated_us(workload.with_batch(batch), config, target) for batch in (32, 64))
            assert 1.7 < twice / once < 2.5, config


@pytest.mark.parametrize(("layout", "of_template"), WAYS)
@pytest.mark.parametrize("pass_", PASSES)
def test_more_threads_never_cost_more_on_large_work(pass_: Pass, layout: Layout, of_template: Layout) -> None:
    workload = lying(LARGE.for_pass(pass_), layout)
    one = dataclasses.replace(TARGET, threads=1)
    for config in some_configs(workload, 5, layout=of_template, target=dataclasses.replace(TARGET, threads=8)):
        threads = [dataclasses.replace(one, threads=count) for count in (1, 2, 4, 8)]
        estimates = [estimated_us(workload, config, target) for target in threads]
        assert estimates == sorted(estimates, reverse=True), config
        assert estimates[-1] < estimates[0] / 2
        limits = [dataclasses.replace(LIMITS, peak_gflop_per_s=75 * count, region_us=0.1) for count in (1, 2, 4, 8)]
        measured = [dataclasses.replace(target, limits=each) for target, each in zip(threads, limits, strict=True)]
        estimates = [estimated_us(workload, config, target) for target in measured]
        assert estimates == sorted(estimates, reverse=True), config


def default_of(name: str, shape: Workload, target: CpuTarget = TARGET) -> tuple[Workload, Config]:
    template = all_templates()[f"cpu.{name}"]
    workload = lying(shape.for_pass(template.pass_), template.layout)
    return workload, template.space(workload, target).default


def changed(config: Config, **values: int | str) -> Config:
    return Config.of(config.template, **{**dict(config.values), **values})


def work_of(workload: Workload, config: Config) -> CpuWork:
    module = importlib.import_module(all_templates()[config.template].estimate_us.__module__)
    work: CpuWork = module.cpu_work(workload, config, TARGET)
    return work


PINNED = {
    "one more axis": layer(24, (6, 13, 11), (3, 5, 3), padding=((1, 1), (2, 0), (1, 1)), stride=(1, 2, 1), bias=True),
    "multiplier": layer(20, (31, 14), (5, 3), padding=((3, 3), (2, 2)), dilation=(2, 1), multiplier=2),
    "long": layer(40, (1, 4000), (1, 31), padding=((0, 0), (30, 0)), bias=True, dtype="bfloat16"),
}
"""All that an estimate counts is in one of them: planes, edges, gathered lanes, partial sums, conversions."""


def pinned() -> Iterator[Workload]:
    for workload, pass_, layout in itertools.product(PINNED.values(), PASSES, LAYOUTS):
        yield lying(workload.for_pass(pass_), layout)
    images = layer(40, (14, 15), (3, 3), padding=((1, 1), (1, 1)), stride=(2, 2))
    for pass_ in (*BLOCK_PASSES, *EVAL_PASSES):
        yield dataclasses.replace(images, pass_=pass_, block=Block.parse("bn+silu,bn+relu6"))


def test_golden(golden: Golden) -> None:
    """What the work of two configurations of each template on each workload is taken to be: each of its terms alone
    moves few choices, so that nothing else would see it change. ``pytest --update-golden`` rewrites the file."""
    told: list[str] = []
    for workload in pinned():
        for config in some_configs(workload, 1, layout=workload.layout, target=MEASURED):
            told.append(f"{workload.key}: {config}: {', '.join(terms_of(work_of(workload, config)))}\n")
    golden("cpu_work.txt", "".join(told))


def terms_of(work: CpuWork) -> Iterator[str]:
    for field in dataclasses.fields(work):
        value = getattr(work, field.name)
        for row in [dataclasses.astuple(each) for each in value] if field.name == "traffic" else [(value,)]:
            if row[0]:
                yield " ".join((field.name, *(f"{number:.6g}" for number in row)))


def test_a_copy_to_the_other_layout_is_paid_for() -> None:
    workload, config = default_of("fprop_nhwc", LARGE)
    assert estimated_us(lying(workload, "nchw"), config, TARGET) > 1.2 * estimated_us(workload, config, TARGET)


def test_a_template_without_an_estimate_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, config = default_of("fprop_nhwc", LARGE)
    unknown = dataclasses.replace(template_of(workload), estimate_us=None)
    monkeypatch.setattr("dwconv.schedules.template.template", lambda name: unknown)
    with pytest.raises(InvalidConfig, match=r"template=cpu\.fprop_nhwc has no estimate"):
        estimated_us(workload, config, TARGET)


# -- its parts -------------------------------------------------------------------------------------------------------

WORK = CpuWork(
    tasks=8, threads=2, share=0.5, tiles=1e4, multiply_adds=1e6, loads=5e5, stores=1e5, live=0.4, traffic=()
)  # fmt: skip


@pytest.mark.parametrize(
    "more",
    [
        {"share": 0.6},
        {"multiply_adds": 2e6},
        {"loads": 2e6},
        {"stores": 1e6},
        {"spilled_loads": 1e6},
        {"others": 2e6},
        {"turns": 1e5},
        {"tasks": 800},
        {"live": 0.9},
        {"chain": 100.0, "tiles": 1e5},
        {"scratches": 100},
        {"fills": 100},
        {"alone_slots": 1e5},
        {"regions": 2},
        {"copied_bytes": 1e6},
        {"traffic": (Traffic(bytes=1e8, held_bytes=1e8),)},
    ],
    ids=lambda more: "-".join(more),
)
def test_more_of_anything_costs_more(more: dict[str, object]) -> None:
    for target in (TARGET, MEASURED):
        assert price(dataclasses.replace(WORK, **more), target) > 1.01 * price(WORK, target)


def test_bytes_cost_what_the_level_that_holds_them_gives() -> None:
    def us(held_bytes: float, **other: object) -> float:
        traffic = Traffic(bytes=1e8, held_bytes=held_bytes, **other)
        return price(dataclasses.replace(WORK, traffic=(traffic,)), MEASURED)

    held = [us(held_bytes) for held_bytes in (4 * KiB, 100 * KiB, 4 * MiB, 64 * MiB)]
    assert held == sorted(held) and len(set(held)) == 4
    assert held[0] == price(WORK, MEASURED)  # the first level is part of the slots of a load
    assert held[3] - held[2] > 0.5e8 / 60e3
    alone = us(64 * MiB, run_bytes=64)
    assert held[3] < alone < us(64 * MiB, run_bytes=64, neighbour_bytes=64 * MiB)
    assert us(100 * KiB, run_bytes=64) == held[1]


def test_lines_that_are_requested_ahead_are_waited_for_less() -> None:
    traffic = Traffic(bytes=1e8, held_bytes=64 * MiB, run_bytes=64)
    work = dataclasses.replace(WORK, traffic=(traffic,))
    assert price(dataclasses.replace(work, asks_ahead=True), TARGET) < 0.9 * price(work, TARGET)
