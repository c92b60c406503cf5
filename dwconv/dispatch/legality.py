"""Legality: which configuration a kernel is built with here.

Records come from other machines and other versions. What is not legal here is not run as it stands, whatever the log
says: a kernel of another pass or device would write where it must not.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from dwconv.dispatch import packed
from dwconv.errors import InvalidConfig

if TYPE_CHECKING:
    from dwconv.problems.target import Target
    from dwconv.problems.workload import Workload
    from dwconv.records.record import TuningRecord
    from dwconv.schedules.space import Config, ConfigSpace
    from dwconv.schedules.template import Candidate

broken: dict[Candidate, str] = {}
"""Why kernels are not used in this process: they could not be built, or were wrong when they were checked."""
predicted: dict[tuple[str, str], Candidate] = {}
"""The predicted kernels of this process, by family of workloads and device. Each runs at other batch sizes too: nobody
should wait for another build at the last, smaller batch of an epoch."""

foreseen_sizes: dict[tuple[str, str], set[str]] = defaultdict(set)
"""The families of workloads that a prediction was made for in this process, by layer and device."""
MOST_SIZES = 8
"""Sizes of one layer that predictions are made for in a process. To decide and build takes up to seconds for each; a
run whose sizes never repeat would do nothing else."""


def foresee(workload: Workload, target: Target) -> None:
    """Note that a prediction is made for ``workload``."""
    foreseen_sizes[workload.layer, target.device].add(workload.family)


def is_crowded(workload: Workload, target: Target) -> bool:
    """True if predictions were made for as many other sizes of the layer as may be."""
    sizes = foreseen_sizes.get((workload.layer, target.device), set())
    return len(sizes) >= MOST_SIZES and workload.family not in sizes


def runnable(record: TuningRecord, target: Target, *, adopts: bool) -> tuple[Config, str]:
    """The configuration to build the record's kernel with: its own; or, with ``adopts``, where that is not legal on
    ``target``, the legal one that is nearest. And what is changed, in words; empty if nothing is.

    A pack's kernel is built already: it was legal where that was done, on the same device.

    Raises InvalidConfig, saying why, if there is none, if the record is damaged, or if that is broken."""
    if packed.has(record.workload, record.config, target):
        _check_not_broken(record.workload, record.config)
        return record.config, ""
    space = _space(record.workload, record.config, target)
    fields, changes = record.config.to_dict(), ""
    try:
        config = space.check(fields)
    except InvalidConfig as error:
        if not adopts or space.why_damaged(fields):
            raise
        config = space.nearest(record.config)
        changes = f"with {_changes(space, record.config, config)}, which is not legal here: {error}"
    _check_not_broken(record.workload, config)
    return config, changes


def check(candidate: Candidate, target: Target) -> None:
    """Raises InvalidConfig, saying why, if a candidate that no record names is not legal, or is broken."""
    _space(candidate.workload, candidate.config, target).check(candidate.config.to_dict())
    _check_not_broken(candidate.workload, candidate.config)


def _space(workload: Workload, config: Config, target: Target) -> ConfigSpace:
    """Raises InvalidConfig if the configuration's template is for something else."""
    from dwconv.schedules.template import fitting

    return fitting(config.template, workload, target).space(workload, target)


def _check_not_broken(workload: Workload, config: Config) -> None:
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
