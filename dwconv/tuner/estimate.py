"""The estimated cost of a CUDA configuration, from plain integers. Building a candidate takes a second: the estimate
picks those that are worth building, and the machine code decides."""

from __future__ import annotations

from dwconv.schedules.cuda.gpu.cost import price
from dwconv.schedules.space import Config
from dwconv.schedules.template import template
from dwconv.target import CudaTarget
from dwconv.workload import Workload


def estimated_us(workload: Workload, config: Config, target: CudaTarget) -> float:
    """Microseconds of all kernels; only the order of several configurations means something. Infinite where a block
    does not fit on an SM."""
    works = template(config.template).work
    assert works is not None, f"{config.template} is no template for a GPU"
    return sum(price(work, target).microseconds for work in works(workload, config, target))
