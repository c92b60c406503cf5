"""What the machine code of a GPU kernel does most of its time: the instructions of its hottest loop, counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

MULTIPLY_ADDS = ("FFMA",)
SHARED_LOADS, SPILLS = ("LDS",), ("LDL", "STL")
_INSTRUCTION = re.compile(r"\s+[0-9a-f]{4,}\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)")
_JUMP = re.compile(r"BRA\S*\s.*?`?\(?(\.L_\w+)")


def hottest(code: str) -> Counter[str]:
    """Instructions by their first word, of the shortest loop with half of the multiply-adds of ``code``, which
    ``dwconv.kernels.sass.disassemble`` made; of all of it, if there is no such loop."""
    lines = code.splitlines()
    whole, parts = _words(lines), list(_loops(lines))
    half = _count(whole, MULTIPLY_ADDS) / 2
    hot = [words for words in map(_words, parts) if 0 < half <= _count(words, MULTIPLY_ADDS)]
    return min(hot, key=Counter.total, default=whole)


def counted(code: str) -> dict[str, int]:
    """Of the hottest loop: ``instructions``, and of them ``multiply_adds``, ``shared_loads`` and ``spills``."""
    words = hottest(code)
    kinds = {"multiply_adds": MULTIPLY_ADDS, "shared_loads": SHARED_LOADS, "spills": SPILLS}
    return {"instructions": words.total(), **{name: _count(words, kind) for name, kind in kinds.items()}}


def _loops(lines: Sequence[str]) -> list[Sequence[str]]:
    """The pieces from a label to a jump back to it."""
    labels = {line.rstrip(":"): at for at, line in enumerate(lines) if line.endswith(":")}
    jumps = ((labels.get(found[1]), at) for at, line in enumerate(lines) if (found := _JUMP.search(line)))
    return [lines[start : end + 1] for start, end in jumps if start is not None and start < end]


def _words(lines: Sequence[str]) -> Counter[str]:
    """NOPs fill up the end."""
    found = (match[1] for line in lines if (match := _INSTRUCTION.match(line)))
    return Counter(word for word in found if word != "NOP")


def _count(words: Counter[str], kinds: Sequence[str]) -> int:
    return sum(words[kind] for kind in kinds)
