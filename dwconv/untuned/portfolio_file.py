"""The portfolio: a few configurations for each regime that together come close to the best over all records, and what
was learnt of the gain over PyTorch's op. ``python -m dwconv.portfolio`` makes the file from the tuning logs.

A regime is a set of workloads that run best on the same configurations. Its name is made of a template, the sort of
workload, and a few classes of sizes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from dwconv.errors import BrokenInstallation
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.untuned.trees import Trees, as_lists, from_lists

PATH = Path(__file__).with_name("portfolio.json")
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Errors:
    """The real gain of the configuration to start from over the predicted gain, as powers of two."""

    middle: float
    least: float
    """95 of 100 workloads are above."""
    workloads: int
    """How many were predicted without being known."""


@dataclass(frozen=True, kw_only=True)
class GainModel:
    """The gain over PyTorch's op in the same layout, predicted from the sizes of a workload."""

    trees: Trees
    """Predicts the gain of the best configuration, as a power of two, from ``features.of_workload``: of float32 in 1-D
    and 2-D."""
    known_device: dict[str, Errors]
    """Errors on networks that the trees did not know, by ``kinds``: ``wgrad nhwc``, ``wgrad nhwc bfloat16``, …"""
    other_device: dict[str, Errors]
    """Errors on a device that they did not know."""
    other_size: dict[str, Errors] = field(default_factory=dict)
    """Errors on float32 layers that were measured on the same device at another size, by how far that is at most: ``1
    octave``. The trees did not know the layer."""
    other_size_other_device: dict[str, Errors] = field(default_factory=dict)
    """The same, where the trees did not know the device either."""
    others: dict[str, Trees] = field(default_factory=dict)
    """The trees of other sorts of workloads, by ``sort_of``: ``16-bit``, ``3-D``, …"""

    def trees_of(self, workload: Workload) -> Trees | None:
        """Those that know its sort; None if nothing is known of it."""
        return self.trees if not (sort := sort_of(workload)) else self.others.get(sort)


def kinds(workload: Workload) -> tuple[str, str]:
    """What a prediction is judged by: pass, layout, axes and type, or if too few of these are known the last two alone.
    Nothing is said of float32, and of 1-D and 2-D."""
    words = ["3-D"] * (workload.axes == 3) + [workload.dtype] * (workload.dtype != "float32")
    return " ".join([workload.pass_, workload.layout, *words]), " ".join(words)


@dataclass(frozen=True, kw_only=True)
class Portfolio:
    """What is known of untuned workloads."""

    devices: tuple[str, ...]
    """Devices whose records it was made from."""
    workloads: int
    """How many workloads those records have."""
    configs: dict[str, tuple[Config, ...]]
    """By regime, the one that covers most first."""
    gain: GainModel | None
    """None if there was nothing to learn from."""

    def configs_for(self, template: str, workload: Workload) -> tuple[Config, ...]:
        """The configurations of the narrowest regime that is known."""
        return next((self.configs[name] for name in regimes(template, workload) if name in self.configs), ())


NOTHING = Portfolio(devices=(), workloads=0, configs={}, gain=None)
"""Nothing is known."""


@cache
def shipped() -> Portfolio:
    """The portfolio that ships with the package. Raises BrokenInstallation if it cannot be read."""
    try:
        return decode(PATH.read_text())
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise BrokenInstallation(f"{PATH} cannot be read: {error}; install dwconv again") from None


def encode(portfolio: Portfolio) -> str:
    """The file's text: a line for each configuration and each tree, so that a change shows as a diff."""
    gain = portfolio.gain
    facts = {"format": FORMAT, "devices": portfolio.devices, "workloads": portfolio.workloads}
    parts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in facts.items()]
    if gain is not None:
        for name in _ERRORS:
            rows = (f"{json.dumps(of)}: {json.dumps(asdict(errors))}" for of, errors in getattr(gain, name).items())
            parts.append(f"{json.dumps(name)}: {_block('{}', rows)}")
        for of, grown in {"": gain.trees, **{f" {sort}": trees for sort, trees in gain.others.items()}}.items():
            parts.append(f'"base{of}": {grown.base}')
            trees = (json.dumps(as_lists(tree), separators=(",", ":")) for tree in grown.trees)
            parts.append(f'"trees{of}": {_block("[]", trees)}')
    regimes_of = (
        f"{json.dumps(name)}: {_block('[]', (json.dumps(config.to_dict()) for config in configs))}"
        for name, configs in sorted(portfolio.configs.items())
    )
    parts.append(f'"configs": {_block("{}", regimes_of)}')
    return _block("{}", parts) + "\n"


def decode(text: str) -> Portfolio:
    """Raises ValueError, KeyError, TypeError or IndexError for what is no portfolio."""
    file: dict[str, Any] = json.loads(text)
    if file["format"] != FORMAT:
        raise ValueError(f"format {file['format']} is not {FORMAT}")
    gain = None
    if "trees" in file:
        errors = {name: {of: Errors(**fields) for of, fields in file.get(name, {}).items()} for name in _ERRORS}
        sorts = [name.removeprefix("trees ") for name in file if name.startswith("trees ")]
        gain = GainModel(trees=_trees(file), others={sort: _trees(file, f" {sort}") for sort in sorts}, **errors)
    return Portfolio(
        devices=tuple(file["devices"]),
        workloads=int(file["workloads"]),
        configs={name: tuple(map(_config, listed)) for name, listed in file["configs"].items()},
        gain=gain,
    )


_ERRORS = ("known_device", "other_device", "other_size", "other_size_other_device")


def _trees(file: dict[str, Any], of: str = "") -> Trees:
    return Trees(base=float(file[f"base{of}"]), trees=tuple(map(from_lists, file[f"trees{of}"])))


def _block(brackets: str, lines: Iterable[str]) -> str:
    """An object or a list of JSON with a line for each entry."""
    return brackets[0] + "\n" + ",\n".join(lines) + "\n" + brackets[1]


def _config(fields: dict[str, Any]) -> Config:
    values = {name: value for name, value in fields.items() if name != "template"}
    return Config.of(fields["template"], **values)


# -- regimes -------------------------------------------------------------------------------------------------------

_SMALL_FLOPS = 4_000_000
"""A pass of fewer takes some tens of microseconds: how many threads run it is a question."""
_LARGE_BYTES = 16 << 20
"""A pass of more waits for memory, or for the last level of the caches."""


def regimes(template: str, workload: Workload) -> tuple[str, ...]:
    """The regimes of a template that a workload belongs to, the narrowest first; the last is the whole of the
    template, for workloads of that sort. What is best for images is not for single rows; an epilogue changes
    nothing."""
    sort = sort_of(workload.with_epilogue("none"))
    whole = " ".join([template, *["1-D"] * workload.is_row, *sort.split()])
    kernel = f"{whole} kernel {_kernel(workload)}"
    strided = f"{kernel} {'dense' if set(workload.stride) == {1} else 'strided'}"
    return f"{strided} {_size(workload)}", strided, kernel, whole


def sort_of(workload: Workload) -> str:
    """What is learnt apart from the rest: ``3-D``, ``16-bit``, ``3-D 16-bit``, each perhaps with an epilogue; empty for
    float32 in 1-D and 2-D without one."""
    words = ["3-D"] * (workload.axes == 3) + ["16-bit"] * (workload.dtype != "float32")
    return " ".join(words + [workload.epilogue] * (workload.epilogue != "none"))


def _kernel(workload: Workload) -> str:
    *depth, height, width = workload.kernel
    deep = "deep " if math.prod(depth) > 1 else ""
    if min(height, width) == 1:
        return f"{deep}row" if height == 1 else f"{deep}column"
    largest = max(height, width)
    return deep + next((f"to {most}" for most in (3, 5, 7, 15) if largest <= most), "large")


def _size(workload: Workload) -> str:
    if workload.flops <= _SMALL_FLOPS:
        return "small"
    return "large" if workload.bytes > _LARGE_BYTES else "medium"
