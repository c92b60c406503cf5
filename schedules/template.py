"""ScheduleTemplate: a function from (workload, config, target) to a TVM schedule, and the registry of them.

Templates of one family are a folder of ``schedules/cpu`` or ``schedules/cuda``, whose ``__init__.py`` ends with
``TEMPLATES = (ScheduleTemplate(…), …)``; a folder put there is found, nothing else needs to know it. It imports TVM
inside ``schedule``, so that it stays quick to find which templates fit.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.problems.target import Target
from dwconv.problems.workload import Layout, Pass, Workload
from dwconv.schedules.space import Config, ConfigSpace

if TYPE_CHECKING:
    from tvm import s_tir

    from dwconv.schedules.cuda.gpu.cost import BlockWork

AnyTarget = TypeVar("AnyTarget", bound=Target)


@dataclass(frozen=True, kw_only=True)
class ScheduleTemplate(Generic[AnyTarget]):
    """One way to run one pass on one kind of device, whose targets its functions take.

    The scheduled PrimFunc is called ``main``. Its parameters are, in order, the workload's ``inputs``, its ``results``
    and then the workspaces it needs (``workspace``, ``workspace_1``, …), in the template's ``layout``, with a symbolic
    batch ``n``.
    """

    name: str
    """Unique, ``cpu.fprop_nhwc``: the device, the pass, the layout and perhaps the family. Logs hang on it."""
    device: str
    """``cpu`` or ``cuda``."""
    pass_: Pass
    layout: Layout
    """How the kernel's tensors lie in memory."""
    most_axes: int = 2
    """Three if it also runs 3-D workloads, whose tensors have the depth before the height."""
    activates: bool = False
    """True if it also runs an fprop with an epilogue; other passes have none."""
    any_size: bool = False
    """True if its kernels can take the sizes of images with each call, ``Workload.any_size``."""
    any_channels: bool = False
    """True if they can take the number of channels, too, ``Workload.any_channels``."""
    spreads_nan: bool = False
    """True if its kernels multiply images by zeros beside the weights: NaN and infinity then make NaN of results beside
    those that they contribute to, at most ``problems.right_answers.BESIDE`` columns away."""
    misfit: Callable[[Workload, AnyTarget], str | None] = lambda *_: None
    """Why the template cannot run a workload of its pass and layout on a target of its device; None if it can."""
    space: Callable[[Workload, AnyTarget], ConfigSpace]
    schedule: Callable[[Workload, Config, AnyTarget], s_tir.Schedule]
    estimate_us: Callable[[Workload, Config, AnyTarget], float] | None = None
    """What a legal configuration is estimated to cost, in microseconds, from plain integers: it orders candidates
    before one is built. None: nothing is known of it."""
    works: Callable[[Workload, Config, AnyTarget], Sequence[BlockWork]] | None = None
    """What each kernel of a legal configuration does on a GPU, which the estimate prices."""
    tiling: Callable[[Workload, Config], str] | None = None
    """A picture of how a configuration cuts the workload; None: there is only that of its family."""
    version: int = 1
    """To be raised when the program of some configuration changes so that its speed may change: records of earlier
    versions then are where a search starts, no results."""


@dataclass(frozen=True)
class Candidate:
    """A workload with a config, not yet measured."""

    workload: Workload
    config: Config

    @property
    def template(self) -> ScheduleTemplate[Any]:
        return template(self.config.template)

    def schedule(self, target: Target) -> s_tir.Schedule:
        """The scheduled PrimFunc. Raises InvalidConfig if the config is of a template for something else, or not in
        its space."""
        chosen = fitting(self.config.template, self.workload, target)
        chosen.space(self.workload, target).check(self.config.to_dict())
        return chosen.schedule(self.workload, self.config, target)


@cache
def all_templates() -> dict[str, ScheduleTemplate[Any]]:
    """Every template by name, in the order of their names."""
    return {name: found for name, (found, _) in _families().items()}


def tiling(candidate: Candidate) -> str:
    """How the candidate's configuration cuts its workload, as a picture; or that of its family, with its words."""
    found, family_text = _families()[candidate.config.template]
    return found.tiling(candidate.workload, candidate.config) if found.tiling else family_text


def _families() -> dict[str, tuple[ScheduleTemplate[Any], str]]:
    """Every template by name, and what the module of its family says, in the order of their names."""
    found: dict[str, tuple[ScheduleTemplate[Any], str]] = {}
    for device in ("cpu", "cuda"):
        folder: Any = importlib.import_module(f"dwconv.schedules.{device}")
        for module in pkgutil.iter_modules(folder.__path__):
            family = importlib.import_module(f"{folder.__name__}.{module.name}")
            text = (family.__doc__ or "").strip()
            found.update({each.name: (each, text) for each in getattr(family, "TEMPLATES", ())})
    return dict(sorted(found.items()))


def template(name: str) -> ScheduleTemplate[Any]:
    """The template of that name. Raises InvalidConfig for an unknown one."""
    known = all_templates()
    if name not in known:
        raise InvalidConfig(f"template={name} is unknown; there are {', '.join(known)}")
    return known[name]


def version_of(name: str) -> int:
    """The version of the template of that name; 1 if there is none, so that nothing of it can run."""
    known = all_templates().get(name)
    return known.version if known else 1


def spreads_nan(name: str) -> bool:
    """Whether kernels of the template of that name do; False if there is none, so that nothing of it can run."""
    known = all_templates().get(name)
    return known is not None and known.spreads_nan


def fitting(name: str, workload: Workload, target: Target) -> ScheduleTemplate[Any]:
    """The template of that name. Raises InvalidConfig, saying why, and which do, if it is unknown or cannot run
    ``workload`` on ``target``: its kernels would read and write other tensors than they are given."""
    found = template(name)
    if reason := _why_not_for(found, workload, target) or _why_unfit(found, workload, target):
        others = [other.name for other in all_templates().values() if _fits(other, workload, target)]
        way_out = f"; use {' or '.join(others)}" if others else ""
        raise InvalidConfig(f"template={name} does not run {workload.key} on {target}: {reason}{way_out}")
    return found


def templates_for(workload: Workload, target: Target) -> list[ScheduleTemplate[Any]]:
    """Templates that can run ``workload`` on ``target``; raises NoTemplate, saying why, and in which layout they could,
    if none can."""
    meant = [found for found in all_templates().values() if not _why_not_for(found, workload, target)]
    misfits = {found.name: _why_unfit(found, workload, target) for found in meant}
    if fits := [found for found in meant if not misfits[found.name]]:
        return fits
    reasons = "; ".join(f"{name}: {reason}" for name, reason in misfits.items())
    reasons = reasons or f"no {workload.pass_} template for {target.kind} yet"
    others = {found.layout for found in meant if _fits(found, replace(workload, layout=found.layout), target)}
    way_out = f"; in the other layout it could: --layout {' or '.join(others)}" if others else ""
    raise NoTemplate(f"no template runs {workload.key} on {target}: {reasons}{way_out}")


def can_run(workload: Workload, target: Target) -> bool:
    """Whether a template can run ``workload`` on ``target``."""
    return any(_fits(found, workload, target) for found in all_templates().values())


def _fits(candidate: ScheduleTemplate[Any], workload: Workload, target: Target) -> bool:
    return not (_why_not_for(candidate, workload, target) or _why_unfit(candidate, workload, target))


def _why_not_for(candidate: ScheduleTemplate[Any], workload: Workload, target: Target) -> str | None:
    """Why the template is not for this workload: another device or another pass. None if it is."""
    if candidate.device != target.kind:
        return f"it is for {candidate.device}"
    return None if candidate.pass_ == workload.pass_ else f"it is for {candidate.pass_}"


def _why_unfit(candidate: ScheduleTemplate[Any], workload: Workload, target: Target) -> str | None:
    """Why a template for this device and pass cannot run the workload; None if it can.

    On the CPU a kernel of one layout also runs the other, through a copy; on a GPU the copy costs as much as the
    convolution."""
    if candidate.layout != workload.layout and candidate.device != "cpu":
        return f"it is for {candidate.layout}, the workload is {workload.layout}"
    if workload.axes > candidate.most_axes:
        return f"it is for {candidate.most_axes}-D, the workload is {workload.axes}-D"
    if workload.epilogue != "none" and not candidate.activates:
        return f"it has no epilogue, the workload has epilogue={workload.epilogue}"
    if workload.any_size and not (candidate.any_size and candidate.layout == workload.layout):
        return "its kernels are each built for one size, the workload is of any"
    if workload.any_channels and not candidate.any_channels:
        return "its kernels are each built for a number of channels, the workload is of any"
    return candidate.misfit(workload, target)


def estimated_us(workload: Workload, config: Config, target: Target) -> float:
    """Microseconds of all kernels of a legal configuration; only the order of several configurations means something.
    Infinite where a block does not fit on an SM. Raises InvalidConfig if the template has no estimate."""
    estimate_us = template(config.template).estimate_us
    if estimate_us is None:
        raise InvalidConfig(f"template={config.template} has no estimate; measure its configurations instead")
    return estimate_us(workload, config, target)


def family(
    name: str,
    passes: Iterable[Pass],
    *,
    space: Callable[[str, Workload, Any], ConfigSpace],
    kernel: str | None = None,
    **fields: Any,
) -> tuple[ScheduleTemplate[Any], ...]:
    """A template of each pass, from one description: ``family("cpu.{pass_}_nhwc", GATHERS, …)``. Its functions see from
    the workload which pass it is; ``space`` takes the template's name first. ``kernel``: the module that has
    ``schedule``, which is imported when it is called, and TVM with it."""
    if kernel is not None:
        fields["schedule"] = lambda *given: importlib.import_module(kernel).schedule(*given)

    def template_of(pass_: Pass) -> ScheduleTemplate[Any]:
        named = name.format(pass_=pass_)
        return ScheduleTemplate(
            name=named, device=named.split(".")[0], pass_=pass_, space=partial(space, named), **fields
        )

    return tuple(map(template_of, passes))
