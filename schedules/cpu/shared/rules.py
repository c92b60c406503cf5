"""Rules that several spaces share: what makes a configuration illegal. No TVM here."""

from __future__ import annotations

from collections.abc import Callable

from dwconv.schedules.cpu.shared.code_size import MOST_CODE
from dwconv.schedules.space import Config, Rule

TILE_WITHIN_BLOCK = Rule("a tile is higher than its block", lambda config: config.tile_h > config.block_h)


def sums_in_registers(sums: Callable[[Config], int], *, registers: int, smallest_tile: int) -> Rule:
    """``sums``: vectors that a tile sums at the same time. The smallest tile is legal whatever it holds."""
    most = max(registers, smallest_tile)
    return Rule(f"more sums in a tile than {registers} registers", lambda config: sums(config) > most)


def code_within_limit(code_size: Callable[[Config], int]) -> Rule:
    """``code_size``: vector instructions in the code of all tiles, about."""
    return Rule("too much code: it takes long to compile", lambda config: code_size(config) > MOST_CODE)
