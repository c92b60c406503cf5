"""Sectors and lines that a warp asks for, and turns of shared memory, of addresses that are easy to count."""

from __future__ import annotations

import numpy as np
import pytest

from dwconv.tuner.gpu_cost.transactions import sectors_asked, shared_turns

LANES = np.arange(32, dtype=np.int64)
ALL = np.ones(32, dtype=np.bool_)


@pytest.mark.parametrize(
    ("address", "active", "width", "sectors", "lines", "ideal"),
    [
        (4 * LANES, ALL, 4, 4, 1, 4),
        (4 * LANES + 16, ALL, 4, 5, 2, 4),  # starts in the middle of a sector, and ends in the next line
        (16 * LANES, ALL, 16, 16, 4, 16),
        (32 * LANES, ALL, 4, 32, 8, 4),  # a sector each
        (0 * LANES, ALL, 4, 1, 1, 1),  # all the same word
        (4 * LANES, LANES < 8, 4, 1, 1, 1),
        (4 * LANES, LANES < 9, 4, 2, 1, 2),
        (4 * LANES, LANES < 0, 4, 0, 0, 0),
    ],
)
def test_sectors_and_lines_of_a_warp(address, active, width, sectors, lines, ideal):
    asked = sectors_asked(address, active, width=width)
    assert (asked.sectors, asked.lines, asked.ideal) == (sectors, lines, ideal)


@pytest.mark.parametrize(
    ("address", "active", "turns"),
    [(4 * LANES, ALL, (1, 1)), (8 * LANES, ALL, (2, 1)), (128 * LANES, ALL, (32, 1)), (4 * LANES, LANES < 0, (0, 0))],
)
def test_words_of_one_bank_wait_for_each_other(address, active, turns):
    assert shared_turns(address, active, width=4) == turns
    assert shared_turns(address + 256, active, width=4) == turns


def test_warps_add_up():
    two = np.concatenate([4 * LANES, 128 * LANES])
    assert shared_turns(two, np.ones(64, dtype=np.bool_), width=4) == (33, 2)
