"""``python -m bench NAME …``: one benchmark by name, run with the allocator settings both sides are measured under."""

from __future__ import annotations

import importlib
import os
import sys

from dwconv import settings

BENCHMARKS = {
    "cpu": "tuned kernels against PyTorch's own op, over layers of well-known networks",
    "train": "training steps of four networks, converted and not, interleaved",
    "blocks": "norm, activation, convolution, norm, activation in training, as one and one by one",
    "threads": "our kernels and PyTorch's, one after the other, against each alone",
    "cliffs": "awkward shapes against the nearest even one",
    "compile": "how long candidates for the CPU take to build",
    "search": "the default search against the best of many random candidates",
    "concurrency": "training steps run op by op, by every strategy alone and combined, against one op at a time",
    "coverage": "of well-known models, which depthwise layers are converted, and which run",
    "spaces": "hundreds of configurations of every pass, timed once, for searches to be replayed on",
    "untuned": "layers that nobody tuned for: what is predicted and what a race finds, against a search",
    "instructions": "how lean the CUDA kernels are, counted in their machine code; no GPU needed",
    "parallel": "ResNets as pipelines on 2 and 4 processes, against data parallelism and the simulator",
    "communication": "how gradients get from rank to rank, and how long steps wait for data",
    "report": "one page made from result files: losses first, every layer, rooflines, steps; or pictures",
    "cuda": "on a machine with a GPU, in stages: smoke, verify, tune, race, train, rank",
}
"""Benchmarks by name, with a description."""
_IN_FOLDERS = {
    "communication": "parallel.communication",
    "concurrency": "concurrency.bench",
    "cuda": "gpu.cuda",
    "parallel": "parallel.bench",
    "spaces": "spaces.bench",
}


def module_of(name: str) -> str:
    """The module with the ``main`` of a benchmark: of its own name in this folder, unless it has a folder."""
    return f"bench.{_IN_FOLDERS.get(name, name)}"


def main(argv: list[str]) -> int:
    if not argv or argv[0] not in BENCHMARKS:
        listed = "\n".join(f"  {name:13}  {purpose}" for name, purpose in BENCHMARKS.items())
        print(f"usage: python -m bench NAME …\n\nbenchmarks (each has --help):\n{listed}", file=sys.stderr)
        return 0 if argv and argv[0] in ("-h", "--help") else 2
    return int(importlib.import_module(module_of(argv[0])).main(argv[1:]))


def _with_allocator_settings() -> None:
    """glibc reads them when a process starts, so start again with them."""
    wanted = settings.ALLOCATOR_ENVIRONMENT
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        command = [sys.executable, "-m", "bench", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **wanted})


if __name__ == "__main__":
    _with_allocator_settings()
    sys.exit(main(sys.argv[1:]))
