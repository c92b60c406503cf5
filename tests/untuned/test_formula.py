"""Chosen by formula: legal, of least estimate, and the same every time."""

from __future__ import annotations

import dataclasses

import pytest

from dwconv.errors import NoTemplate
from dwconv.problems.target import CpuTarget, parse_target
from dwconv.problems.workload import LAYOUTS, PASSES, Layout, Pass, Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import estimated_us, template, templates_for
from dwconv.untuned import starts
from dwconv.untuned.starts import by_formula

TARGET = CpuTarget(device="test", threads=2, vector_bytes=64)
LAYER = Workload(
    pass_="fprop", batch=8, channels=96, input_size=(28, 28), kernel=(5, 5), padding=((2, 2), (2, 2)), layout="nhwc"
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_the_chosen_are_legal_and_no_worse_than_any_default(pass_: Pass, layout: Layout) -> None:
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


def test_the_same_are_chosen_every_time() -> None:
    assert by_formula(LAYER, TARGET) == by_formula(LAYER, TARGET)
    assert by_formula(LAYER, TARGET, count=1) == by_formula(LAYER, TARGET)[:1]


def test_a_small_space_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    small = dataclasses.replace(LAYER, input_size=(2, 7), kernel=(3, 3), padding=((1, 1), (1, 1)), layout="nchw")
    (space,) = [each.space(small, TARGET) for each in templates_for(small, TARGET) if each.layout == "nchw"]
    assert starts.DRAWN < space.size <= starts.LISTED
    asked = recorded(monkeypatch)
    by_formula(small, TARGET)
    assert {config for config in asked if config.template == space.template} == set(space)


def test_in_nchw_a_kernel_of_the_other_layout_is_chosen_where_none_other_runs() -> None:
    strided = dataclasses.replace(LAYER, layout="nchw", stride=(1, 5))
    assert [config.template for config in by_formula(strided, TARGET)] == ["cpu.fprop_nhwc"] * 2


def test_templates_without_an_estimate_choose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = [dataclasses.replace(each, estimate_us=None) for each in templates_for(LAYER, TARGET)]
    monkeypatch.setattr(starts, "templates_for", lambda workload, target: unknown)
    assert by_formula(LAYER, TARGET) == []


def test_a_gpu_that_is_not_here() -> None:
    gpu = parse_target("cuda:sm_90")
    chosen = by_formula(dataclasses.replace(LAYER, layout="nchw"), gpu)
    assert len(chosen) == 2 and all(config.template.startswith("cuda.fprop_nchw") for config in chosen)


def test_no_template_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dwconv.schedules.template.all_templates", dict)
    with pytest.raises(NoTemplate):
        by_formula(LAYER, TARGET)


def test_a_choice_asks_for_few_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes 0.1 ms, and who converts a model waits for all of them."""
    asked = recorded(monkeypatch)
    by_formula(LAYER, TARGET)
    assert 20 < len(asked) < 600
    assert len(set(asked)) == len(asked)


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations whose estimates will be asked for."""
    asked: list[Config] = []

    def asks(workload: Workload, config: Config, target: CpuTarget) -> float:
        asked.append(config)
        return estimated_us(workload, config, target)

    monkeypatch.setattr(starts, "estimated_us", asks)
    return asked
