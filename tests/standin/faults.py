"""Plants faults in candidates, which are counted in the order in which they are first met, in any process.

A candidate that is met again, say as a finalist, has the same fault again.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

from dwconv.schedules.space import Config

Fault = Literal["slow build", "launch", "sticky", "memory", "crowd", "wrong", "hang"]
"""launch: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES. sticky: CUDA_ERROR_ILLEGAL_ADDRESS, after which nothing works any more in
the process. memory: PyTorch finds no memory on the device. crowd: the same once, as beside another program. wrong: one
element of the result is wrong. slow build, hang: they take longer than any time limit."""
Stage = Literal["built", "launched"]

VARIABLE, FOLDER_VARIABLE = "STAND_IN_FAULTS", "STAND_IN_FAULTS_FOLDER"
"""Environment variables: the candidate, counted from 0, that has each fault; the folder in which they are counted."""
FOREVER_S = 3600.0


@cache
def fault_of(config: Config, stage: Stage) -> Fault | None:
    """The fault of a candidate when it is built, or launched."""
    told: dict[Fault, int] = json.loads(os.environ.get(VARIABLE, "{}"))
    at_this_stage = {number: fault for fault, number in told.items() if (fault == "slow build") == (stage == "built")}
    if not at_this_stage:
        return None
    with (Path(os.environ[FOLDER_VARIABLE]) / f"{stage}.jsonl").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        met, own = file.read().splitlines(), json.dumps(config.to_dict())
        if own not in met:
            file.write(f"{own}\n")
            met.append(own)
    return at_this_stage.get(met.index(own))


def is_first_time(fault: Fault) -> bool:
    """True once in a run, in whatever process."""
    try:
        (Path(os.environ[FOLDER_VARIABLE]) / f"{fault}.happened").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def config_with(fault: Fault, number: int, folder: Path) -> dict[str, Any] | None:
    """The configuration that had a fault in a command that has ended; None if the command did not get that far."""
    path = folder / f"{'built' if fault == 'slow build' else 'launched'}.jsonl"
    met = path.read_text().splitlines() if path.exists() else []
    found: dict[str, Any] | None = json.loads(met[number]) if number < len(met) else None
    return found


def slow(build: Callable[..., Any]) -> Callable[..., Any]:
    """A ``build`` that takes forever for some candidates."""

    def built(candidate: Any, *others: Any, **named: Any) -> Any:
        if fault_of(candidate.config, "built") == "slow build":
            time.sleep(FOREVER_S)
        return build(candidate, *others, **named)

    return built
