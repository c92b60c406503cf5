"""WorkloadCut: a workload, and a configuration for it in numbers: each knob is a field. No TVM here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeVar

from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.schedules.taps import HEIGHT, WIDTH, Axis

Cut = TypeVar("Cut", bound="WorkloadCut")


@dataclass(frozen=True, kw_only=True)
class WorkloadCut:
    axis_of: ClassVar[Callable[[Workload, int], Axis]] = Axis.of_convolution
    """From the tensor that has the tiles to the one that they meet: from dy to x, unless a family says otherwise."""

    workload: Workload

    @classmethod
    def of(cls: type[Cut], workload: Workload, config: Config) -> Cut:
        return cls(workload=workload, **dict(config.values))

    @cached_property
    def rows(self) -> Axis:
        return type(self).axis_of(self.workload, HEIGHT)

    @cached_property
    def columns(self) -> Axis:
        return type(self).axis_of(self.workload, WIDTH)
