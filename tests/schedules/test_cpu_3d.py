"""CPU kernels of 3-D layers against the reference: every pass, both layouts, all types, all ways of cutting."""

import dataclasses
import itertools

import pytest

from dwconv.problems.workload import PASSES
from tests.schedules.cpu_layers import WAYS, assert_right, built, lying, some_configs
from tests.schedules.volumes import VOLUMES

TYPES = ("float32", "float32", "bfloat16", "float16")


def cases():
    """Every volume in every pass and way, in types that take turns. Of the ways one is quick, with configurations that
    take turns too."""
    for (turn, name), (number, pass_), way in itertools.product(enumerate(VOLUMES), enumerate(PASSES), enumerate(WAYS)):
        at, (layout, template_layout) = turn + number + way[0], way[1]
        dtype = TYPES[(turn + 2 * number + way[0]) % len(TYPES)]
        marks = pytest.mark.slow if at % len(WAYS) else ()
        label = f"{name}-{pass_}-{layout} by {template_layout}-{dtype}"
        yield pytest.param(name, pass_, layout, template_layout, dtype, turn % 2, marks=marks, id=label)


@pytest.mark.parametrize(("name", "pass_", "layout", "template_layout", "dtype", "which"), list(cases()))
def test_right(name, pass_, layout, template_layout, dtype, which, request):
    workload = dataclasses.replace(lying(VOLUMES[name], layout).for_pass(pass_), dtype=dtype)
    configs = some_configs(workload, 3, layout=template_layout)
    for config in configs if request.node.get_closest_marker("slow") else configs[which::2]:
        assert_right(built(workload, config), workload)
