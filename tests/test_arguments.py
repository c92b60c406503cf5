"""Workloads as options of the command lines."""

import pytest

from dwconv import arguments
from dwconv.arguments import workload_options
from dwconv.workload import Workload


@pytest.mark.parametrize(
    "options",
    [
        "--shape 8,144,56,56 --kernel 3",
        "--shape 8,64,1,1000 --kernel 1,31",
        "--shape 2,8,9,10 --kernel 3,5 --stride 2,1 --dilation 2 --padding valid",
        "--shape 2,8,9,10 --kernel 4 --padding same",
        "--shape 2,8,9,10 --kernel 4 --padding 0,3,1,2 --multiplier 2 --dtype float16 --layout nhwc",
        "--shape 2,8,9,10 --kernel 3 --bias",
        "--shape 2,8,9,10 --kernel 5 --padding 1,2",
    ],
)
def test_workloads_read_from_the_options_that_name_them(options):
    workload = _workload(options)
    assert _workload(workload_options(workload)) == workload


def test_default_padding_rounds_down():
    workload = _workload("--shape 2,8,9,10 --kernel 4,5 --dilation 1,2")
    assert workload.padding == ((1, 1), (4, 4))


def _workload(options: str) -> Workload:
    parser = arguments.ArgumentParser(prog="test", description="")
    arguments.add_workload_arguments(parser)
    return arguments.workload_from(parser.parse_args(options.split()), "fprop")
