"""The constants of the cost model of GPUs: computed from published figures, or fitted to measurements on a device.

``python -m bench cuda fit`` writes those of a device to a file beside its tuning log, with the device's name. They are
read wherever tuning logs are; without such a file the computed ones count.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwconv import settings
from dwconv.errors import one_line, warn

FORMAT = 2
MOST_NOT_HIDDEN = 0.5


@dataclass(frozen=True, kw_only=True)
class CostConstants:
    """``schedules/cuda/gpu/cost.py`` explains each of them."""

    memory_gb_per_s: float
    cache_gb_per_s: float
    clock_ghz: float
    launch_us: float
    dram_latency_cycles: float
    bytes_in_flight_per_sm: float
    not_hidden: float
    alone: float


NAMES = tuple(field.name for field in dataclasses.fields(CostConstants))


def constants_file(device: str) -> str:
    """The name of the file with the constants of a device."""
    return f"{device}.costs.json"


def write_constants(path: Path, constants: CostConstants, *, device: str, candidates: int, workloads: int) -> None:
    """Write the constants, with the numbers of measured candidates and workloads of the fit. Raises OSError."""
    fitted_to = {"candidates": candidates, "workloads": workloads}
    data = {"format": FORMAT, "device": device, "fitted_to": fitted_to, "constants": dataclasses.asdict(constants)}
    path.write_text(json.dumps(data, indent=1) + "\n")


def fitted_constants(device: str) -> CostConstants | None:
    """Those in the first of the places of tuning logs that has any for ``device``; None if there are none. A file that
    cannot be read is named in a warning, and counts as none."""
    for place in settings.tuning_log_paths():
        folder = place.parent if place.suffix == ".jsonl" else place
        path = folder / constants_file(device)
        try:
            text = path.read_text()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            _pass_over(path, error)
            continue
        try:
            return _read(json.loads(text), device=device)
        except (ValueError, TypeError) as error:
            _pass_over(path, error)
    return None


def _read(data: Any, *, device: str) -> CostConstants:
    """Raises ValueError or TypeError for anything else than what ``write_constants`` writes for this device."""
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("constants"), dict):
        raise ValueError(f"it holds no constants in format {FORMAT}")
    if data.get("device") != device:
        raise ValueError(f"it is of {data.get('device')}")
    for name, value in data["constants"].items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 < value < math.inf or (name == "not_hidden" and value > MOST_NOT_HIDDEN):
            raise ValueError(f"{name}={value} cannot be")
    return CostConstants(**data["constants"])


def _pass_over(path: Path, error: Exception) -> None:
    why = one_line(str(error), most=200)
    warn(f"{path}: {why}; costs are computed without it: remove it, or fit again with python -m bench cuda fit")
