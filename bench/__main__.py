"""``python -m bench NAME …``: one benchmark by name, run with the allocator settings both sides are measured under."""

from __future__ import annotations

import importlib
import os
import sys

from dwconv import settings
from dwconv.commands.command_line import run
from dwconv.errors import say

GROUPS = {
    "layers": {
        "cpu": "tuned kernels against all other providers, over layers of well-known networks",
        "blocks": "norm, activation, convolution, norm, activation in training, as one and one by one",
        "search": "the default search of a few trials against the best of many random ones",
        "cliffs": "awkward shapes against the nearest even one, each tuned for the same few seconds",
        "untuned": "untuned layers: what is predicted and what a race finds, against a search",
    },
    "steps": {
        "train": "training steps of four networks, converted and not, eager and compiled, in turns",
        "losses": "whether a model learns the same with its blocks as one",
        "squeeze": "how much of a step with fused blocks squeeze-and-excite takes, at most",
        "first_minute": "training from its start, summed, with and without records and kernels, over plain training",
        "coverage": "of well-known models, which depthwise layers are converted, and which run",
    },
    "systems": {
        "concurrency": "training steps run op by op, by every strategy, against settings by hand, eager and inductor",
        "communication": "ways to send gradients, on links of several rates, and how long steps wait for data",
        "parallel": "ResNets as pipelines on 2 to 4 processes, against data parallelism and the simulator",
        "convergence": "whether a network learns the same in one process, data-parallel, in stages, and as a hybrid",
    },
    "gpu": {
        "cuda": "on a machine with a GPU, in stages: kernels, steps, sizes, sequences, the host, its cores",
        "partition": "the two-level partition taken apart: levels, virtual threads, padding; no GPU is needed",
    },
}
"""Benchmarks by group and name, with a description."""
BENCHMARKS = {name: purpose for group in GROUPS.values() for name, purpose in group.items()}
READERS = {
    "compare": "what got faster or slower from one result of a benchmark to another",
    "report": "one page made from result files: headlines, losses, every layer, rooflines, steps; or pictures",
}
"""What reads results that benchmarks wrote."""
_IN_FOLDERS = {
    "concurrency": "concurrency.bench",
    "cuda": "gpu.cuda",
}


def module_of(name: str) -> str:
    """The module with the ``command`` of a benchmark: of its own name in this folder, unless it has a folder."""
    return f"bench.{_IN_FOLDERS.get(name, name)}"


def main(argv: list[str]) -> int:
    os.environ.setdefault("DWCONV_UNTUNED", "wait")  # kernels that arrive in the middle would be timed as well
    name = argv[0] if argv else ""
    if name in BENCHMARKS or name in READERS:
        return run(importlib.import_module(module_of(name)).command, argv[1:])
    return run(_usage, argv)


def _usage(argv: list[str] | None) -> int:
    asked = bool(argv and argv[0] in ("-h", "--help"))
    lines = ["usage: python -m bench NAME …; each has --help"]
    for group, names in (*GROUPS.items(), ("results", READERS)):
        lines += [f"\n{group}:", *(f"  {each:13}  {purpose}" for each, purpose in names.items())]
    (print if asked else say)("\n".join(lines))
    return 0 if asked else 2


def _with_allocator_settings() -> None:
    """glibc reads them when a process starts, so start again with them."""
    wanted = settings.ALLOCATOR_ENVIRONMENT
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        command = [sys.executable, "-m", "bench", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **wanted})


if __name__ == "__main__":
    _with_allocator_settings()
    sys.exit(main(sys.argv[1:]))
