"""Locked: what runs in another process, so that this one runs the same.

    dwconv.lock(path) ──► {"made_with": …, "calls": [{"device", "threads", "problem", "passes"}, …]}
    DWCONV_LOCK=path  ──► the decisions of the file; PyTorch's op for calls that it does not name
    agreed            ──► before both: what the ranks of a job agreed on (dwconv/model/ranks_agree.py)

A pass is null where PyTorch's op ran, else the workload, configuration and threads that its kernel was built for, and
the digest of its code.
"""

from __future__ import annotations

import hashlib
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from dwconv import settings
from dwconv.dispatch import legality
from dwconv.dispatch.decision import DispatchDecision
from dwconv.errors import InvalidConfig, InvalidSetting, InvalidWorkload, one_line
from dwconv.problems.problem import Problem
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import Pass, Workload
from dwconv.schedules.space import Config
from dwconv.system import versions
from dwconv.system.new_file import replace_file

if TYPE_CHECKING:
    from dwconv.kernels.artifact import Artifact

_Decisions = dict[Pass, DispatchDecision]
agreed: dict[tuple[Problem, torch.device], _Decisions] = {}
"""By problems of an empty batch, until decisions are forgotten."""


def agree(problem: Problem, device: torch.device, made: _Decisions) -> None:
    """From now on these run the problem on ``device``, at any batch."""
    agreed[_of_any_batch(problem), device] = made


def agreed_on(problem: Problem, device: torch.device) -> _Decisions | None:
    """None where nothing was agreed on."""
    return agreed.get((_of_any_batch(problem), device)) if agreed else None


def _of_any_batch(problem: Problem) -> Problem:
    return replace(problem, input_shape=(0, *problem.input_shape[1:]))


# -- the file ----------------------------------------------------------------------------------------------------------


class LockedKernel(msgspec.Struct, frozen=True):
    """The kernel of a pass, as the file has it."""

    workload: dict[str, Any]
    config: dict[str, int | str]
    threads: int
    """That it was built for; 0 on a GPU."""
    code: str
    """The digest of its code."""


class LockedCall(msgspec.Struct, frozen=True):
    """What ran a problem, as the file has it."""

    device: str
    threads: int
    """PyTorch's; 0 on a GPU."""
    problem: dict[str, Any]
    passes: dict[Pass, LockedKernel | None]


class _File(msgspec.Struct, frozen=True):
    made_with: dict[str, str]
    calls: tuple[LockedCall, ...]


class LockFile:
    """What a file says. ``other_versions``: in words, those that it was made with and that are not installed."""

    def __init__(self, path: Path) -> None:
        """Raises InvalidSetting for a file that is missing or malformed."""
        self.path = path
        try:
            content = msgspec.json.decode(path.read_bytes().removeprefix(BOM_UTF8), type=_File)
            self._calls = [(Problem.of(Workload.from_dict(call.problem)), call) for call in content.calls]
        except OSError as error:
            raise InvalidSetting(f"DWCONV_LOCK={path}: {error.strerror}; dwconv.lock writes it") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidWorkload) as error:
            reason = one_line(str(error), most=200)
            raise InvalidSetting(
                f"DWCONV_LOCK={path} is not what dwconv.lock writes: {reason}; write it anew, or unset the variable"
            ) from None
        made_with = content.made_with
        here = versions.installed()
        changed = [name for name in made_with if made_with[name] != here.get(name)]
        self.other_versions = ", ".join(f"{name} {made_with[name]}" for name in changed)

    def decisions(self, problem: Problem, target: Target, *, broken: legality.Broken) -> dict[Pass, DispatchDecision]:
        _, passes = self._nearest(problem, target)
        if passes is None:
            return dict.fromkeys(problem.passes, _pytorch(f"{self.path} does not name it on {_named(target)}"))
        return {pass_: self._decision(passes.get(pass_), target, broken=broken) for pass_ in (*problem.passes, *passes)}

    def _nearest(self, problem: Problem, target: Target) -> tuple[int, dict[Pass, LockedKernel | None] | None]:
        """The number of PyTorch's threads that the file has the call with, that of ``target`` or the nearest to it, and
        its passes; None where it has none. Kernels give the same bits on any number of threads."""
        here = _threads(target)
        found = {
            call.threads: call.passes
            for known, call in self._calls
            if known == problem and (call.device == target.device or _is_on_other_threads(call.device, target))
        }
        nearest = min(found, key=lambda threads: (abs(threads - here), threads), default=here)
        return nearest, found.get(nearest)

    def other_threads(self, problem: Problem, target: Target) -> int | None:
        """The number of threads that the file has the call with; None if it is that of ``target``."""
        threads, _ = self._nearest(problem, target)
        return None if threads == _threads(target) else threads

    def _decision(self, kernel: LockedKernel | None, target: Target, *, broken: legality.Broken) -> DispatchDecision:
        from dwconv.schedules.template import Candidate

        if kernel is None:
            return _pytorch(f"as in {self.path}", is_locked=True)
        try:
            workload, knobs = Workload.from_dict(kernel.workload), dict(kernel.config)
            candidate = Candidate(workload, Config.of(str(knobs.pop("template", "none")), **knobs))
            target = replace(target, threads=kernel.threads) if isinstance(target, CpuTarget) else target
            legality.check(candidate, target, broken=broken)
        except (TypeError, ValueError, InvalidWorkload, InvalidConfig) as error:
            return _pytorch(f"the kernel in {self.path} cannot run here: {error}")
        return DispatchDecision(
            provider="dwconv",
            reason=f"as in {self.path}",
            workload=workload,
            target=target,
            config=candidate.config,
            code=kernel.code,
        )


def current() -> LockFile | None:
    """The file that ``DWCONV_LOCK`` names; None without one. Raises InvalidSetting."""
    path = settings.lock_path()
    return None if path is None else read(path)


@cache
def read(path: Path) -> LockFile:
    return LockFile(path)


def write(
    path: Path, calls: Mapping[tuple[Problem, Target], Mapping[Pass, tuple[DispatchDecision, str | None]]]
) -> None:
    """Write what runs each pass: a decision, and the digest of its code, None for PyTorch's op. Raises OSError."""
    listed = tuple(
        LockedCall(
            device=target.device,
            threads=_threads(target),
            problem=problem.workload(problem.passes[0]).to_dict(),
            passes={pass_: _kernel(*each) for pass_, each in passes.items()},
        )
        for (problem, target), passes in calls.items()
    )
    content = msgspec.json.encode(_File(made_with=versions.installed(), calls=listed))
    replace_file(path, [msgspec.json.format(content, indent=1), b"\n"], durable=False)


def digest_of(artifact: Artifact) -> str:
    """Of the code of a kernel, whatever its size."""
    return hashlib.sha256(artifact.source.encode() or artifact.library or artifact.cubin).hexdigest()


def _kernel(decision: DispatchDecision, code: str | None) -> LockedKernel | None:
    if code is None or decision.provider == "pytorch":
        return None
    assert decision.workload is not None and decision.config is not None and decision.target is not None
    return LockedKernel(
        workload=decision.workload.to_dict(),
        config=decision.config.to_dict(),
        threads=_threads(decision.target),
        code=code,
    )


def _pytorch(reason: str, *, is_locked: bool = False) -> DispatchDecision:
    return DispatchDecision(provider="pytorch", reason=reason, is_not_as_locked=not is_locked)


def _is_on_other_threads(device: str, target: Target) -> bool:
    """True if ``device`` is the CPU of ``target`` with another number of threads."""
    return isinstance(target, CpuTarget) and target.named(device) is not None


def _threads(target: Target) -> int:
    return target.threads if isinstance(target, CpuTarget) else 0


def _named(target: Target) -> str:
    return f"{target.device} with {target.threads} threads" if isinstance(target, CpuTarget) else target.device
