"""A board: a CPU in another machine, which kernels are compiled for here and run on there, such as
``cpu:aarch64,mcpu=cortex-a76,threads=4,name=pi5``."""

from __future__ import annotations

import re

from dwconv.errors import UnknownTarget, one_line
from dwconv.problems.target import FORCED_VECTOR_SETS, CpuTarget, ForcedVectorSet
from dwconv.system.cpu_facts import VECTOR_SETS, MiB

_WORDS: dict[str, ForcedVectorSet] = {
    **dict(zip(FORCED_VECTOR_SETS, FORCED_VECTOR_SETS, strict=True)),
    "aarch64": "neon",
}
"""Vector sets by name; every 64-bit ARM has NEON."""
_OPTIONS = ("mcpu", "threads", "name")
_CACHE_BYTES = MiB
"""What the threads of a board can count on: few have more."""


def parse_board(text: str) -> CpuTarget:
    """``cpu:VECTORS,mcpu=CPU,threads=N,name=NAME``: the vectors, LLVM's name of the CPU (by default the least one with
    these vectors), the threads (by default one), and what records call the device (by default the CPU). All but the
    vectors may be left out. Raises UnknownTarget."""
    vectors, *given = text.removeprefix("cpu:").split(",")
    options = dict(each.partition("=")[::2] for each in given)
    vector_set = _WORDS.get(vectors)
    mcpu, name = options.get("mcpu"), options.get("name")
    threads = options.get("threads", "1")
    if (
        vector_set is None
        or len(options) < len(given)
        or not set(options) <= set(_OPTIONS)
        or not re.fullmatch(r"[1-9][0-9]{0,3}", threads)
        or not all(re.fullmatch(r"[a-z0-9][a-z0-9_.+-]{0,63}", word) for word in (mcpu, name) if word is not None)
    ):
        raise UnknownTarget(
            f"target={one_line(text, most=200)} is no board; use cpu:aarch64,mcpu=cortex-a76,threads=4,name=pi5, or "
            f"one of {', '.join(sorted(_WORDS))} for aarch64; names are of small letters and digits"
        )
    return CpuTarget(
        device=device_of(name or mcpu or vectors, vector_set, threads=int(threads)),
        threads=int(threads),
        vector_bytes=next(each.bytes for each in VECTOR_SETS if each.name == vector_set),
        cache_bytes=_CACHE_BYTES,
        vector_set=vector_set,
        present=False,
        mcpu=mcpu,
        board=name or "",
    )


def device_of(name: str, vector_set: ForcedVectorSet, *, threads: int) -> str:
    """What records call a board."""
    return f"{name}-{vector_set}-{threads}t"
