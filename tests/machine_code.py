"""What a kernel's machine code, as ``dwconv.kernels.sass`` gives it, is made of."""

from __future__ import annotations

import re


def instructions(code: str) -> list[str]:
    """Without labels, and without those that only fill."""
    return [line for line in code.splitlines() if not line.endswith(":") and " NOP" not in line]


def count(code: str, opcodes: str) -> int:
    """How many instructions there are of ``A|B``."""
    return len(re.findall(rf" (?:{opcodes})\b", code))


def loops(code: str) -> list[list[str]]:
    """The instructions of each loop: from a label to a jump back to it. A jump to itself, at the end, is none."""
    found, after = [], dict[str, int]()
    lines = code.splitlines()
    for number, line in enumerate(lines):
        if line.endswith(":"):
            after[line[:-1]] = number
        jump = re.search(r" BRA.*`\((\.L_\w+)\)", line)
        if jump and jump[1] in after and after[jump[1]] < number - 1:
            found.append(instructions("\n".join(lines[after[jump[1]] : number])))
    return found
