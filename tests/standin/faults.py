"""Faults of candidates, chosen by their configuration: the same in every run and in every process."""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from dwconv.schedules.space import Config

Fault = Literal["launch", "sticky", "memory", "wrong", "slow build", "hang"]
"""launch: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES. sticky: CUDA_ERROR_ILLEGAL_ADDRESS, after which nothing works any more in
the process. memory: PyTorch finds no memory on the device. wrong: one element of the result. slow build, hang: longer
than anybody waits."""

FAULTS: tuple[Fault, ...] = get_args(Fault)
VARIABLE = "STAND_IN_FAULTS"
OF = 8
"""Configurations fall into so many classes, of which one is given to a fault."""
FOREVER_S = 3600.0


def fault_of(config: Config, faults: Mapping[Fault, int] | None = None) -> Fault | None:
    """What a configuration suffers from. ``faults``: its class, by fault; by default what this process was told."""
    told = json.loads(os.environ.get(VARIABLE, "{}")) if faults is None else faults
    own = class_of(config)
    return next((fault for fault, chosen in told.items() if chosen == own), None)


def class_of(config: Config) -> int:
    return zlib.crc32(json.dumps([config.template, sorted(config.values)]).encode()) % OF


def slow(build: Callable[..., Any]) -> Callable[..., Any]:
    """``dwconv.build.build`` of candidates some of which take forever."""

    def built(candidate: Any, *others: Any, **named: Any) -> Any:
        if fault_of(candidate.config) == "slow build":
            time.sleep(FOREVER_S)
        return build(candidate, *others, **named)

    return built
