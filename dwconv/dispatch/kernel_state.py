"""KernelState: what a process has learnt of its kernels, which its next decisions heed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dwconv.problems.target import Target
    from dwconv.problems.workload import Sizes, Workload
    from dwconv.schedules.template import Candidate
    from dwconv.untuned.gain import Expected

MOST_SIZES = 8
"""Sizes of one layer that predictions are made for in a process. To decide and build takes up to seconds for each; a
run whose sizes never repeat would do nothing else."""


@dataclass(frozen=True, kw_only=True)
class OfAnySize:
    """What was predicted for a layer at one size, with a kernel that runs it at every size."""

    candidate: Candidate
    """The kernel; its workload has the size that the prediction was made for."""
    expected: Expected


@dataclass
class KernelState:
    """Kept, and cleared, where kernels are built: by ``dwconv.call.process_kernels`` for calls."""

    broken: dict[Candidate, str] = field(default_factory=dict)
    """Why kernels are not used: they could not be built, or were wrong when they were checked."""
    predicted: dict[tuple[str, str], Candidate] = field(default_factory=dict)
    """The predicted kernels, by ``Workload.batchless_key`` and device. Each runs at other batch sizes, too: the
    last, smaller batch of an epoch needs no build."""
    any_size: dict[tuple[str, str], list[OfAnySize]] = field(default_factory=lambda: defaultdict(list))
    """Of a layer, by ``Workload.layer`` and device, the kernels of any size, each of which serves the sizes near to its
    own."""
    changes: int = 0
    """How often a kernel of any size was added."""
    cleared: int = 0
    """How often all was forgotten."""
    sizes: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    """The sizes, as ``Workload.batchless_key``, that a prediction of a kernel for one size was made for, by layer and
    device."""
    met: dict[str, set[Sizes]] = field(default_factory=lambda: defaultdict(set))
    """The sizes of images that calls came with, by ``Workload.layer``."""
    shared_kinds: set[str] = field(default_factory=set)
    """``Workload.layer_kind`` of what several layers of a converted model are: one build may serve them all."""
    expect: Callable[[Workload, Target], Expected | None] | None = None
    """``untuned.gain.expected`` in another process; None to compute it here, which takes some 40 ms."""

    def note_prediction(self, workload: Workload, target: Target) -> None:
        """A prediction is made for ``workload``."""
        self.sizes[workload.layer, target.device].add(workload.batchless_key)

    def meet(self, workload: Workload) -> None:
        """A call came with this size."""
        self.met[workload.layer].add(workload.input_size)

    def meets_several_sizes(self, workload: Workload) -> bool:
        """True if one kernel for all sizes of the layer saves builds."""
        return len(self.met.get(workload.layer, ())) > 1

    def has_too_many_sizes(self, workload: Workload, target: Target) -> bool:
        """True if predictions were made for as many other sizes of the layer as may be."""
        sizes = self.sizes.get((workload.layer, target.device), set())
        return len(sizes) >= MOST_SIZES and workload.batchless_key not in sizes

    def clear(self) -> None:
        for learnt in (self.broken, self.predicted, self.any_size, self.sizes, self.met, self.shared_kinds):
            learnt.clear()
        self.cleared += 1
