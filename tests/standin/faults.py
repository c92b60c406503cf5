"""Plants faults in candidates, which are counted in the order in which they are first launched, in any process.

A candidate that is launched again, say as a finalist, has the same fault again.
"""

from __future__ import annotations

import fcntl
import json
import os
from functools import cache
from pathlib import Path
from typing import Any, Literal

from dwconv.schedules.space import Config

Fault = Literal["launch", "sticky", "memory", "crowd", "wrong"]
"""launch: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES. sticky: CUDA_ERROR_ILLEGAL_ADDRESS, after which nothing works any more in
the process. memory: PyTorch finds no memory on the device. crowd: the same once, as beside another program. wrong: one
element of the result is wrong."""

VARIABLE, FOLDER_VARIABLE = "STAND_IN_FAULTS", "STAND_IN_FAULTS_FOLDER"
"""Environment variables: the candidate, counted from 0, that has each fault; the folder in which they are counted."""
_FILE = "launched.jsonl"


@cache
def fault_of(config: Config) -> Fault | None:
    """The fault of a candidate when it is launched."""
    told: dict[Fault, int] = json.loads(os.environ.get(VARIABLE, "{}"))
    if not told:
        return None
    with (Path(os.environ[FOLDER_VARIABLE]) / _FILE).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        met, own = file.read().splitlines(), json.dumps(config.to_dict())
        if own not in met:
            file.write(f"{own}\n")
            met.append(own)
    return {number: fault for fault, number in told.items()}.get(met.index(own))


def is_first_time(fault: Fault) -> bool:
    """True once in a run, in whatever process."""
    try:
        (Path(os.environ[FOLDER_VARIABLE]) / f"{fault}.happened").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def config_with(number: int, folder: Path) -> dict[str, Any]:
    """The configuration of that number in a command that has ended."""
    found: dict[str, Any] = json.loads((folder / _FILE).read_text().splitlines()[number])
    return found
