"""Legality: which configuration a kernel is built with here.

Records come from other machines and other versions. What is not legal here is not run as it stands, whatever the log
says: a kernel of another pass or device would write where it must not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from dwconv import settings
from dwconv.dispatch import loaded_packs
from dwconv.errors import InvalidConfig
from dwconv.problems.target import CpuTarget
from dwconv.system import versions

if TYPE_CHECKING:
    from dwconv.problems.target import Target
    from dwconv.problems.workload import Workload
    from dwconv.records.record import TuningRecord
    from dwconv.schedules.space import Config, ConfigSpace
    from dwconv.schedules.template import Candidate

Broken = Mapping["Candidate", str]
"""Why kernels are not used in this process, see ``KernelState``."""


def on_all_threads(config: Config, target: Target) -> Config:
    """``config``, if it says how many threads it takes, on all that the target has."""
    if not (isinstance(target, CpuTarget) and "threads" in config.to_dict()):
        return config
    return type(config).of(config.template, **{**dict(config.values), "threads": target.threads})


@lru_cache(maxsize=4096)
def _why_illegal_at_any_size(candidate: Candidate, target: Target) -> str:
    """Empty if it is legal. To make a space takes longer than a look-up should."""
    try:
        _space(candidate.workload, candidate.config, target).check(candidate.config.to_dict())
    except InvalidConfig as error:
        return str(error)
    return ""


def runnable(record: TuningRecord, target: Target, *, adopts: bool, broken: Broken) -> tuple[Config, str]:
    """The configuration to build the record's kernel with: its own; or, with ``adopts``, where that is not legal on
    ``target``, the legal one that is nearest. And what is changed, in words; empty if nothing is.

    A pack's kernel is built already: it was legal where that was done, on the same device.

    Raises InvalidConfig, saying why, if there is none, if the record is damaged, if that is broken, or if the settings
    demand kernels that keep NaN to itself, and it does not."""
    from dwconv.schedules.template import Candidate

    _check_nan(record.config)
    if loaded_packs.has(record.workload, record.config, target):
        _check_not_broken(record.workload, record.config, broken)
        return record.config, ""
    if record.workload.any_size and versions.can_build() and not adopts:
        check(Candidate(record.workload, record.config), target, broken=broken)
        return record.config, ""
    if not versions.can_build():
        raise InvalidConfig(f"no loaded pack has the kernel of {record.config}, and {versions.NO_TVM}")
    space = _space(record.workload, record.config, target)
    fields, changes = record.config.to_dict(), ""
    try:
        config = space.check(fields)
    except InvalidConfig as error:
        if not adopts or space.why_damaged(fields):
            raise
        config = space.nearest(record.config)
        changes = f"with {_changes(space, record.config, config)}, which is not valid here: {error}"
    _check_not_broken(record.workload, config, broken)
    return config, changes


def check(candidate: Candidate, target: Target, *, broken: Broken) -> None:
    """Raises InvalidConfig, saying why, if a candidate that no record names is not legal, or is broken, or spreads NaN
    where the settings permit none that does."""
    _check_nan(candidate.config)
    if not candidate.workload.any_size:
        _space(candidate.workload, candidate.config, target).check(candidate.config.to_dict())
    elif (reason := _why_illegal_at_any_size(candidate, target)) and loaded_packs.general_of(candidate, target) is None:
        raise InvalidConfig(reason)
    _check_not_broken(candidate.workload, candidate.config, broken)


def built_for(candidate: Candidate, target: Target, *, is_shared: bool = False) -> Candidate:
    """What is built for a candidate: itself, or the kernel for every layer that is it at one of them, where several
    layers share that, or where it is not legal for the layer alone."""
    general = loaded_packs.general_of(candidate, target)
    if general is None or not (is_shared or _why_illegal_at_any_size(candidate, target)):
        return candidate
    return general


def _space(workload: Workload, config: Config, target: Target) -> ConfigSpace:
    """Raises InvalidConfig if the configuration's template is for something else."""
    from dwconv.schedules.template import fitting

    return fitting(config.template, workload, target).space(workload, target)


def _check_nan(config: Config) -> None:
    from dwconv.schedules.template import spreads_nan

    if settings.nan() == "exact" and spreads_nan(config.template):
        raise InvalidConfig(f"{config.template} makes NaN of results beside a NaN or an infinity, and DWCONV_NAN=exact")


def _check_not_broken(workload: Workload, config: Config, broken: Broken) -> None:
    from dwconv.schedules.template import Candidate

    if failure := broken.get(Candidate(workload, config)):
        raise InvalidConfig(failure)


def _changes(space: ConfigSpace, recorded: Config, run: Config) -> str:
    """``store=cached instead of streamed``, and the values of knobs that are missing in the record."""
    unsaid = {knob.name: knob.absent for knob in (*space.knobs, *space.fixed) if knob.absent is not None}
    before, after = {**unsaid, **recorded.to_dict()}, {**unsaid, **run.to_dict()}
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    return ", ".join(
        f"{name}={value}" + (f" instead of {before[name]}" if name in before else "") for name, value in changed.items()
    )
