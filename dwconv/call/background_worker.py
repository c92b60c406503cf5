"""Inside a process of ``background_process``: predicts gains, builds kernels and checks them. PyTorch is imported with
the first check.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dwconv.dispatch import loaded_packs
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cache import build_linked
from dwconv.kernels.entry import message, read_entry, write_entry
from dwconv.measure.build_worker import import_tvm
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.schedules.template import Candidate
from dwconv.untuned import gain
from dwconv.untuned.gain import Expected

message(Expected)


@message
@dataclass(frozen=True, kw_only=True)
class ExpectRequest:
    workload: Workload
    target: Target
    keep_at: str
    """The file of the cache that keeps the answer."""

    def kept(self) -> dict[str, Expected | None] | None:
        """The answer that is kept, as ``expected``; None if there is none."""
        match read_entry(Path(self.keep_at)):
            case {"expected": (Expected() | None) as found}:
                return {"expected": found}
        return None


@message
@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    candidate: Candidate
    target: Target
    threads: int
    """PyTorch's threads where the kernel will run; it is checked on as many."""
    checks: bool
    """False if the caller checks it itself. A GPU's kernel is checked where it is loaded."""
    links: bool
    """True if the caller can load libraries."""


class BackgroundHandler:
    """Handler: answers an ``ExpectRequest`` with ``gain.expected``; a ``BuildRequest`` with None once the cache has the
    kernel, and its verdict, if it is checked here."""

    def __init__(self, setup: None) -> None:
        self._has_tvm = False

    def __call__(self, request: ExpectRequest | BuildRequest) -> Expected | None:
        if isinstance(request, ExpectRequest):
            found = gain.expected(request.workload, request.target, self._records.bests_of_kind(request.workload))
            write_entry(Path(request.keep_at), {"expected": found})
            return found
        artifact = loaded_packs.kept(request.candidate, request.target, links=request.links)
        if artifact is None:
            if not self._has_tvm:
                import_tvm(request.target)
                self._has_tvm = True
            artifact = build_linked(request.candidate, request.target, links=request.links)
        if request.checks and request.target.kind == "cpu":
            _check(artifact, request.target, threads=request.threads)
        return None

    @cached_property
    def _records(self) -> Database:
        return Database.usual()


def _check(artifact: Artifact, target: Target, *, threads: int) -> None:
    import torch

    from dwconv import native
    from dwconv.call import process_kernels
    from dwconv.kernels.kernel import Kernel

    native.leave_out("no call is timed here")
    torch.set_num_threads(threads)
    process_kernels.fault_of(Kernel.load(artifact), target, torch.device("cpu"))
