"""Starts of a search: chosen by formula, or the best of similar workloads."""

from __future__ import annotations

import dataclasses

import pytest

from dwconv.problems.target import CpuTarget, parse_target
from dwconv.problems.workload import LAYOUTS, PASSES, Layout, Pass, Workload
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.space import Config
from dwconv.schedules.template import estimated_us, template, templates_for
from dwconv.untuned import starts
from dwconv.untuned.starts import bests_of_similar, by_formula
from tests import fake_tuning as fake

TARGET = CpuTarget(device="test", threads=2, vector_bytes=64)
LAYER = Workload(
    pass_="fprop", batch=8, channels=96, input_size=(28, 28), kernel=(5, 5), padding=((2, 2), (2, 2)), layout="nhwc"
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_chosen_configurations_are_legal_and_no_worse_than_any_default(pass_: Pass, layout: Layout) -> None:
    workload = dataclasses.replace(LAYER.for_pass(pass_), layout=layout)
    first, second = by_formula(workload, TARGET)
    for config in (first, second):
        space = template(config.template).space(workload, TARGET)
        assert space.check(config.to_dict()) == config
    defaults = [each.space(workload, TARGET).default for each in templates_for(workload, TARGET)]
    least = min(estimated_us(workload, default, TARGET) for default in defaults)
    assert estimated_us(workload, first, TARGET) < 0.99 * least  # a climb leaves the default
    assert estimated_us(workload, first, TARGET) <= estimated_us(workload, second, TARGET)
    near = template(first.template).space(workload, TARGET).neighbours(first)
    assert estimated_us(workload, first, TARGET) <= min(estimated_us(workload, config, TARGET) for config in near)
    different = sum(one != other for one, other in zip(first.values, second.values, strict=False))
    assert first.template != second.template or different >= starts.APART


def test_a_small_space_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    small = dataclasses.replace(LAYER, input_size=(2, 7), kernel=(3, 3), padding=((1, 1), (1, 1)), layout="nchw")
    (space,) = [each.space(small, TARGET) for each in templates_for(small, TARGET) if each.layout == "nchw"]
    assert starts.DRAWN < space.size <= starts.LISTED
    computed = recorded(monkeypatch)
    assert by_formula(small, TARGET) == by_formula(small, TARGET)
    assert {config for config in computed if config.template == space.template} == set(space)


def test_in_nchw_a_kernel_of_the_other_layout_is_chosen_where_none_other_runs() -> None:
    strided = dataclasses.replace(LAYER, layout="nchw", stride=(1, 17))
    assert [config.template for config in by_formula(strided, TARGET)] == ["cpu.fprop_nhwc"] * 2


def test_templates_without_an_estimate_choose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = [dataclasses.replace(each, estimate_us=None) for each in templates_for(LAYER, TARGET)]
    monkeypatch.setattr(starts, "templates_for", lambda workload, target: unknown)
    assert by_formula(LAYER, TARGET) == []


def test_a_gpu_that_is_not_here() -> None:
    gpu = parse_target("cuda:sm_90")
    chosen = by_formula(dataclasses.replace(LAYER, layout="nchw"), gpu)
    assert len(chosen) == 2 and all(config.template.startswith("cuda.fprop_nchw") for config in chosen)


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations whose estimates are computed."""
    computed: list[Config] = []

    def compute(workload: Workload, config: Config, target: CpuTarget) -> float:
        computed.append(config)
        return estimated_us(workload, config, target)

    monkeypatch.setattr(starts, "estimated_us", compute)
    return computed


# -- the best of similar workloads ------------------------------------------------------------------------------------

CONFIGS = [Config.of("fake.fprop", block_h=value) for value in range(7)]


def of(config: Config, *, median_us: float | None = 1.0, **changes: object) -> TuningRecord:
    return fake.record(dataclasses.replace(fake.WORKLOAD, **changes), config, median_us=median_us)


def nearest(*records: TuningRecord, count: int = 9) -> list[Config]:
    return [each.config for each in bests_of_similar(fake.WORKLOAD, records, count=count)]


def test_the_nearest_come_first() -> None:
    records = [
        of(CONFIGS[0], channels=384),
        of(CONFIGS[1], channels=144),
        of(CONFIGS[2], kernel=(5, 5), padding=((2, 2), (2, 2))),
        of(CONFIGS[3], stride=(2, 2), input_size=(56, 56)),
        of(CONFIGS[4], input_size=(24, 24)),
        of(CONFIGS[5], batch=1),
        of(CONFIGS[6], dilation=(3, 3), padding=((3, 3), (3, 3))),
    ]
    assert nearest(*records) == [CONFIGS[i] for i in (5, 4, 1, 0, 6, 2, 3)]
    assert nearest(*records, count=2) == [CONFIGS[5], CONFIGS[4]]


def test_a_tap_that_stands_alone_has_no_dilation() -> None:
    flat = dataclasses.replace(fake.WORKLOAD, kernel=(1, 3), padding=((0, 0), (1, 1)))
    spread = fake.record(dataclasses.replace(flat, dilation=(4, 1)), CONFIGS[0], median_us=1.0)
    (same,) = bests_of_similar(flat, [spread], count=1)
    assert same.octaves == 0.0


def test_of_each_workload_the_best_counts() -> None:
    confirmed = dataclasses.replace(of(CONFIGS[0], channels=128, median_us=9.0), confirmed=True)
    assert nearest(of(CONFIGS[1], channels=128), confirmed, of(CONFIGS[2], channels=128)) == [CONFIGS[0]]
    failed = dataclasses.replace(of(CONFIGS[1], channels=64, median_us=None), status=Status.CRASHED)
    assert nearest(failed) == []


def test_what_cannot_be_compared_is_no_start() -> None:
    strangers = ({"pass_": "wgrad"}, {"layout": "nchw"})
    assert nearest(*(of(CONFIGS[0], **changes) for changes in strangers)) == []


def test_numbers_of_the_same_width_are_nearer_than_others() -> None:
    wide, narrow = of(CONFIGS[0]), of(CONFIGS[1], dtype="float16")
    half = dataclasses.replace(fake.WORKLOAD, dtype="bfloat16")
    similar = bests_of_similar(half, [wide, narrow, of(CONFIGS[2], dtype="bfloat16", batch=1)], count=3)
    assert [each.config for each in similar] == [CONFIGS[2], CONFIGS[1], CONFIGS[0]]
    assert [each.octaves for each in similar][1:] == [1.0, 4.0]


def test_how_far_it_is_counts_the_batch_too() -> None:
    (near,) = bests_of_similar(fake.WORKLOAD, [of(CONFIGS[0], batch=32, channels=192)], count=1)
    assert near.octaves == 3.0
    (same,) = bests_of_similar(fake.WORKLOAD, [of(CONFIGS[0])], count=1)
    assert same.octaves == 0.0
