"""CPU kernels of 3-D layers against the reference: every pass, both layouts, all types, all ways of cutting."""

import dataclasses
import itertools

import pytest

from dwconv.problems.workload import PASSES
from tests.schedules.cpu_layers import WAYS, assert_right, built, lying, some_configs
from tests.schedules.volumes import VOLUMES

TYPES = ("float32", "float32", "bfloat16", "float16")


def cases():
    """Every volume with every pass, every volume in every way, and every pass in every way, in types and configurations
    that take turns."""
    for (turn, name), (number, pass_), way in itertools.product(enumerate(VOLUMES), enumerate(PASSES), enumerate(WAYS)):
        layout, template_layout = way[1]
        if (turn + number + way[0]) % len(WAYS):
            continue
        dtype = TYPES[(turn + 2 * number + way[0]) % len(TYPES)]
        label = f"{name}-{pass_}-{layout} by {template_layout}-{dtype}"
        yield pytest.param(name, pass_, layout, template_layout, dtype, turn // len(WAYS) + number, id=label)


@pytest.mark.parametrize(("name", "pass_", "layout", "template_layout", "dtype", "which"), list(cases()))
def test_right(name, pass_, layout, template_layout, dtype, which):
    workload = dataclasses.replace(lying(VOLUMES[name], layout).for_pass(pass_), dtype=dtype)
    configs = some_configs(workload, 3, layout=template_layout)
    assert_right(built(workload, configs[which % len(configs)]), workload)
