"""Every CUDA template on some of the shapes that templates go wrong on, the next ones on the others: right, without a
fault, without bank conflicts.

Types and configurations take turns; one in four cases is slow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dwconv.measure.simulator.machine import Machine
from dwconv.measure.simulator.smaller import source_only
from dwconv.problems.workload import DTYPES, DType, Workload
from dwconv.schedules.template import Candidate
from tests.schedules.cuda_layers import (
    SHAPES,
    SM_90,
    TEMPLATES,
    assert_right_and_clean,
    assert_right_on_extreme_values,
    drawn,
    fitted,
    layer,
)

VARIANTS: list[tuple[DType, str]] = [("float32", "default"), ("float16", "drawn"), ("bfloat16", "default")]
LAYERS = {
    "56² K3 s2": layer(96, (56, 56), (3, 3), stride=(2, 2)),
    "14² K3 s2": layer(384, (14, 14), (3, 3), stride=(2, 2)),
    "14² K5": layer(192, (14, 14), (5, 5)),
    "7² K3": layer(960, (7, 7), (3, 3)),
    "7² K7": layer(768, (7, 7), (7, 7)),
    "28² K7": layer(192, (28, 28), (7, 7)),
    "28² K31": layer(64, (28, 28), (31, 31)),
}
MOST_WAVEFRONTS_PERCENT = 106
FEW = 4


def cases(shapes: dict[str, Workload], variants: list[Any], *, quick_of: int) -> Iterator[Any]:
    """Each template with one of ``quick_of`` shapes that it fits, in one of the variants, which take turns; of one that
    fits ``FEW`` alone, with all. Half as many more are slow."""
    for number, (name, template) in enumerate(TEMPLATES.items()):
        fitting = {
            label: [one for one in variants if fitted(shape, template, one[0])] for label, shape in shapes.items()
        }
        met = [label for label, some in fitting.items() if some]
        used: dict[bool, Counter[Any]] = {True: Counter(), False: Counter()}
        for turn, label in enumerate(met, number):
            quick = turn % quick_of == 0 or len(met) <= FEW
            if turn % (2 * quick_of) != quick_of // 2 and not quick:
                continue
            variant = min(fitting[label], key=used[quick].__getitem__)
            used[quick][variant] += 1
            marks = () if quick else (pytest.mark.slow,)
            yield pytest.param(name, label, variant, id=f"{name}-{label}-{'-'.join(variant)}", marks=marks)


@pytest.mark.parametrize(("name", "shape", "variant"), list(cases(SHAPES, VARIANTS, quick_of=6)))
def test_right_and_clean(name: str, shape: str, variant: tuple[DType, str], objects: Path) -> None:
    template, (dtype, choice) = TEMPLATES[name], variant
    workload = fitted(SHAPES[shape], template, dtype)
    assert workload is not None
    config = drawn(workload, template) if choice == "drawn" else template.space(workload, SM_90).default
    assert_right_and_clean(workload, config, objects)
    if dtype == "bfloat16":
        assert_right_on_extreme_values(workload, config, objects)


@pytest.mark.parametrize(("name", "shape", "variant"), list(cases(LAYERS, [("float32",), ("float16",)], quick_of=6)))
def test_defaults_are_free_of_bank_conflicts(name: str, shape: str, variant: tuple[DType], objects: Path) -> None:
    template = TEMPLATES[name]
    workload = fitted(LAYERS[shape], template, variant[0])
    assert workload is not None
    config = template.space(workload, SM_90).default
    with Machine(source_only(Candidate(workload, config), SM_90), folder=objects) as machine:
        report = machine.sample(batch=2, most_blocks=3)
    assert report.clean, f"{config}: {report}"
    assert report.counts.resources()["shared_wavefronts_percent"] <= MOST_WAVEFRONTS_PERCENT, str(config)


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_meets_every_type_and_choice(name: str) -> None:
    """Without what is slow, too, on several shapes."""
    quick = [case.values for case in cases(SHAPES, VARIANTS, quick_of=6) if not case.marks and case.values[0] == name]
    met = {dtype for dtype in DTYPES if any(fitted(shape, TEMPLATES[name], dtype) for shape in SHAPES.values())}
    assert {variant for _, _, variant in quick} == {(dtype, choice) for dtype, choice in VARIANTS if dtype in met}
    assert {"float16", "bfloat16"} <= met
    assert len(quick) >= len(met)
