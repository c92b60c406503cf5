"""The portfolio: what was learnt of the gain over PyTorch's op, as a file. ``python -m dwconv.portfolio`` makes it from
tuning logs."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import msgspec

from dwconv.errors import BrokenInstallation
from dwconv.problems.workload import Workload
from dwconv.untuned.trees import Trees

PATH = Path(__file__).with_name("portfolio.json")


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """The real gain of the configuration to start from over the predicted gain, as powers of two."""

    middle: float
    least: float
    """95 of 100 workloads are above."""
    workloads: int
    """How many were predicted without being known."""


class Portfolio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gain over PyTorch's op in the same layout, predicted from the sizes of a workload."""

    devices: tuple[str, ...] = ()
    """Devices whose records it was made from."""
    workloads: int = 0
    """How many workloads those records have."""
    trees: dict[str, Trees] = {}
    """They predict the gain of the best configuration, as a power of two, from ``evidence.of_workload``, by
    ``sort_of``."""
    known_device: dict[str, Errors] = {}
    """Errors on networks that the trees did not know, by ``kinds``: ``wgrad nhwc``, ``wgrad nhwc bfloat16``, …"""
    other_device: dict[str, Errors] = {}
    """Errors on a device that they did not know."""
    other_size: dict[str, Errors] = {}
    """Errors on float32 layers that were measured on the same device at another size, by how far that is at most: ``1
    octave``. The trees did not know the layer."""
    other_size_other_device: dict[str, Errors] = {}
    """Errors where the trees did not know the device either."""


@cache
def shipped() -> Portfolio:
    """The portfolio that ships with the package. Raises BrokenInstallation if it cannot be read."""
    try:
        return msgspec.json.decode(PATH.read_bytes(), type=Portfolio)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BrokenInstallation(f"{PATH} cannot be read: {error}; install dwconv again") from None


def encode(portfolio: Portfolio) -> str:
    """The file's text, a line for each field."""
    fields = msgspec.to_builtins(portfolio)
    lines = (f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in fields.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def kinds(workload: Workload) -> tuple[str, str]:
    """What a prediction is judged by: pass, layout, axes and type, or if too few of these are known the last two alone.
    Nothing is said of float32, and of 1-D and 2-D."""
    words = ["3-D"] * (workload.axes == 3) + [workload.dtype] * (workload.dtype != "float32")
    return " ".join([workload.pass_, workload.layout, *words]), " ".join(words)


def sort_of(workload: Workload) -> str:
    """What is learnt apart from the rest: ``3-D``, ``16-bit``, ``3-D 16-bit``, each perhaps with an epilogue; empty for
    float32 in 1-D and 2-D without one."""
    words = ["3-D"] * (workload.axes == 3) + ["16-bit"] * (workload.dtype != "float32")
    return " ".join(words + [workload.epilogue] * (workload.epilogue != "none"))
