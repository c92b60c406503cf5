"""CPU kernels of 3-D layers against the reference: every pass, both layouts, all types, all ways of cutting."""

import pytest

from dwconv.problems.workload import PASSES
from tests.schedules.cpu_layers import VOLUMES, WAYS, assert_right, built, lying, some_configs


@pytest.mark.parametrize(("layout", "template_layout"), WAYS)
@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("name", VOLUMES)
def test_right(name, pass_, layout, template_layout):
    workload = lying(VOLUMES[name], layout).for_pass(pass_)
    for config in some_configs(workload, 3, layout=template_layout):
        assert_right(built(workload, config), workload)
