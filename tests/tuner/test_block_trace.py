"""Counting what a block does, on kernels small enough to count by hand; sectors, lines and turns of shared memory, of
addresses that are easy to count.
"""

from __future__ import annotations

import numpy as np
import pytest

from dwconv.kernels.sass import Instruction
from dwconv.kernels.sass_integers import action
from dwconv.kernels.sass_registers import Registers, operand
from dwconv.tuner.gpu_cost import block_trace
from dwconv.tuner.gpu_cost.block_trace import BlockTrace, Untraceable, trace_block
from dwconv.tuner.gpu_cost.transactions import sectors_of, shared_turns
from tests.machine_code import code_of, launch_of
from tests.turns import every, in_turns

ARCHES = ["sm_90", "sm_80", "sm_120", "sm_100"]
TO = "y[threadIdx.x]"


def trace(
    body: str,
    *,
    grid: int = 1,
    block: tuple[int, int, int] = (32, 1, 1),
    scalars: int = 0,
    batch: int = 1,
    arch: str = "sm_90",
    types: tuple[str, str] = ("float", "float"),
) -> BlockTrace:
    """The trace of ``k(y, x, n0…)`` with ``body``."""
    numbers = "".join(f", int n{i}" for i in range(scalars))
    source = f"k({types[0]}* __restrict__ y, const {types[1]}* __restrict__ x{numbers}) {{ {body} }}"
    launch = launch_of("y", "x", grid=grid, block=block, scalars=scalars)
    return trace_block(code_of(source, arch=arch), launch, batch=batch, arch=arch)


@pytest.mark.parametrize("arch", every(2, ARCHES))
def test_neighbours_share_a_line(arch: str) -> None:
    found = trace(f"{TO} = x[threadIdx.x];", block=(64, 1, 1), arch=arch)
    assert found.global_lines == 2 + 2
    assert found.read_bytes == {"x": 256}
    assert found.written_bytes == {"y": 256}
    assert found.sectors == found.ideal_sectors == 16
    assert found.issued["global"] == 2 * 2


@pytest.mark.parametrize("arch", every(2, ARCHES))
def test_strides_spread_over_lines(arch: str) -> None:
    found = trace(f"{TO} = x[threadIdx.x * 32];", arch=arch)
    assert found.global_lines == 32 + 1
    assert found.read_bytes == {"x": 32 * 32}
    assert found.sectors_over_ideal == (32 + 4) / (4 + 4)


STACK = "int a[4]; a[n0] = threadIdx.x * 32; a[n1 + 1] = threadIdx.x;"
"""Words of the stack, since the compiler does not know where they are."""


@pytest.mark.parametrize("arch", every(2, ARCHES))
def test_addresses_are_known_that_were_on_the_stack(arch: str) -> None:
    found = trace(f"{STACK} {TO} = x[a[n0]]; y[1024 + a[n1 + 1]] = 0;", scalars=2, arch=arch)
    assert found.global_lines == 32 + 1 + 1


def test_a_thread_stores_to_its_own_stack() -> None:
    registers = Registers(constants=lambda _: 0, special=lambda _: 0)
    for name, word in (("R1", 0x100), ("R2", 5), ("R3", 6), ("R4", 7)):
        registers.set_word(operand(name), word, True)
    action(Instruction(0, "STL.64", ("[R1+0x8]", "R2")))(registers, True)
    action(Instruction(0, "STL", ("[R1+0xc]", "R4")))(registers, np.array([True, False]))
    action(Instruction(0, "LDL.64", ("R6", "[R1+0x8]")))(registers, True)
    assert registers.word(operand("R6")) == 5
    assert registers.word(operand("R7")).tolist() == [7, 6]


def test_a_store_to_other_words_leaves_a_word_of_the_stack() -> None:
    """Two threads store to one of four words each; a third one, which is not asked, may be anywhere."""
    registers, active = Registers(constants=lambda _: 0, special=lambda _: 0), np.array([True, True, False])
    for name, word in (("R1", 0x100), ("R2", 5), ("R3", np.array([0x200, 0x20C, 0x100], dtype=np.uint64))):
        registers.set_word(operand(name), word, True)
    for address in (0xFC, 0x100, 0x110):
        action(Instruction(0, "STL", (f"[R1+0x{address:x}]", "R2")))(registers, True)
    registers.reading = active
    action(Instruction(0, "STL", ("[R3]", "R2")))(registers, active)
    registers.reading = True
    for address, word in ((0xFC, 5), (0x100, None), (0x110, 5)):
        action(Instruction(0, "LDL", ("R4", f"[R1+0x{address:x}]")))(registers, True)
        assert registers.word(operand("R4")) == word


@pytest.mark.parametrize("index", ["threadIdx.x & 3", "(int)x[0]"])
def test_a_store_to_the_stack_may_be_to_any_word(index: str) -> None:
    with pytest.raises(Untraceable, match="the address is not known"):
        trace(f"{STACK} a[{index}] = 5; {TO} = x[a[n0]];", scalars=2)


def test_vectors_of_sixteen_bytes() -> None:
    found = trace(f"{TO} = x[threadIdx.x];", types=("float4", "float4"))
    assert found.issued["global"] == 2
    assert found.global_lines == 4 + 4
    assert found.read_bytes == {"x": 512} and found.written_bytes == {"y": 512}
    assert found.sectors_over_ideal == 1


def test_a_word_for_all_is_one_sector() -> None:
    found = trace(f"{TO} = x[0];")
    assert found.read_bytes == {"x": 32}
    assert found.sectors == 1 + 4


@pytest.mark.parametrize(
    ("kind", "apart", "turns"),
    [("x1", 8, 1), ("x2", 8, 2), ("x4", 8, 4), ("x4", 24, 4), ("x4", 16, 8), ("x2", 64, 16), ("x4", 0, 4)],
)
def test_rows_of_matrices_meet_in_banks(kind: str, apart: int, turns: int) -> None:
    """``apart``: halves from a row to the next. Addresses of lanes that name no row of a matrix do not count."""
    count = int(kind[1:])
    into = ", ".join(f"%{i}" for i in range(count))
    results = ", ".join(f'"=r"(a[{i}])' for i in range(count))
    found = trace(
        f"""__shared__ alignas(16) unsigned short tile[2048];
        tile[threadIdx.x] = x[threadIdx.x]; __syncwarp(); unsigned a[4] = {{}};
        asm volatile("ldmatrix.sync.aligned.m8n8.{kind}.shared.b16 {{{into}}}, [%{count}];"
          : {results} : "r"((unsigned)__cvta_generic_to_shared(tile + threadIdx.x * {apart} % 2048)) : "memory");
        {TO} = a[0] + a[1] + a[2] + a[3];"""
    )
    assert (found.wavefronts - 1, found.ideal_wavefronts - 1) == (turns, count)


def test_predicates_come_from_the_byte_that_is_named() -> None:
    registers, packed = Registers(constants=lambda _: 0, special=lambda _: 0), 0x00002AFF
    registers.set_word(operand("R5"), packed, True)
    action(Instruction(0, "R2P", ("PR", "R5.B1", "0x7f")))(registers, True)
    assert [registers.truth(operand(f"P{i}")) for i in range(7)] == [bool(packed >> 8 >> i & 1) for i in range(7)]


@pytest.mark.parametrize(("vote", "found"), [("ALL", [True, False, False]), ("ANY", [True, True, False])])
def test_a_warp_votes_with_its_active_threads_and_keeps_what_it_votes_on(vote: str, found: list[bool]) -> None:
    registers, lanes = Registers(constants=lambda _: 0, special=lambda _: 0), np.arange(96)
    truths, active = (lanes < 40) | (lanes == 64), lanes != 64
    registers.set_truth(operand("P5"), truths, True)
    action(Instruction(0, f"VOTEU.{vote}", ("UP0", "P5")))(registers, active)
    assert [bool(registers.truth(operand("UP0"))[lane]) for lane in (0, 32, 65)] == found
    assert (registers.truth(operand("P5")) == truths).all()


def test_the_bits_of_a_vote_are_unknown() -> None:
    registers = Registers(constants=lambda _: 0, special=lambda _: 0)
    registers.set_truth(operand("P1"), True, True)
    action(Instruction(0, "VOTE.ANY", ("R0", "PT", "P1")))(registers, True)
    assert registers.word(operand("R0")) is None and registers.truth(operand("P1")) is True


@pytest.mark.parametrize(("bytes_", "sum_"), [("LO", 3 * 5 + 2 * 7 + 1), ("HI", 3 * 11 + 2 * 13 + 1)])
def test_halves_are_multiplied_by_the_bytes_that_are_named(bytes_: str, sum_: int) -> None:
    registers = Registers(constants=lambda _: 0, special=lambda _: 0)
    for name, word in (("R1", 2 << 16 | 3), ("R2", 13 << 24 | 11 << 16 | 7 << 8 | 5), ("R3", 1)):
        registers.set_word(operand(name), word, True)
    action(Instruction(0, f"IDP.2A.{bytes_}.U16.U8", ("R4", "R1", "R2", "R3")))(registers, True)
    assert registers.word(operand("R4")) == sum_


def test_threads_that_have_parted_use_a_register_each_in_their_own_way() -> None:
    """Those that load data into it take nothing from those that still have an address there."""
    registers, r2 = Registers(constants=lambda _: 0, special=lambda _: 0), operand("R2")
    parted = np.array([True, False])
    registers.set_word(r2, 8, True)
    registers.set_word(r2, None, parted)
    assert registers.word(r2) is None
    registers.reading = ~parted
    assert registers.word(r2) == 8
    registers.reading = parted
    assert registers.word(r2) is None
    registers.set_word(r2, 3, parted)
    registers.reading = True
    assert list(registers.word(r2)) == [3, 8]
    registers.set_word(r2, None, True)
    registers.set_word(r2, 4, parted)
    assert registers.word(r2) is None
    registers.reading = parted
    assert registers.word(r2)[0] == 4


# Neither a constant nor an unrolled loop, so that the machine code indexes as the source does.
STAGED = "__shared__ float tile[2048]; for (int i = threadIdx.x; i < 2048; i += 32) tile[i] = x[i]; __syncthreads();"


@pytest.mark.parametrize(
    ("stride_turns", "arch"), in_turns([(1, 1), (2, 2), (3, 1), (16, 16), (32, 32), (0, 1)], ["sm_80", "sm_90"])
)
def test_bank_conflicts(stride_turns: tuple[int, int], arch: str) -> None:
    stride, turns = stride_turns
    found = trace(f"{STAGED} {TO} = tile[threadIdx.x * {stride}];", arch=arch)
    assert found.wavefronts == 2048 // 32 + turns


def test_wide_words_of_shared_memory() -> None:
    body = "__shared__ float4 tile[64]; tile[threadIdx.x] = x[threadIdx.x]; __syncthreads();"
    side_by_side = trace(f"{body} {TO} = tile[threadIdx.x ^ 1];", types=("float4", "float4"))
    assert side_by_side.wavefronts == side_by_side.ideal_wavefronts == 4 + 4
    the_same = trace(f"{body} {TO} = tile[n0];", types=("float4", "float4"), scalars=1)
    assert the_same.wavefronts == 4 + 1
    apart = trace(f"{body} {TO} = tile[(threadIdx.x * 2) & 63];", types=("float4", "float4"))
    assert apart.conflicts > 1


@pytest.mark.parametrize("arch", every(2, ARCHES))
def test_guards_leave_threads_out(arch: str) -> None:
    assert trace(f"if (threadIdx.x < 8) {TO} = 0;", arch=arch).written_bytes == {"y": 8 * 4}
    inside = "(int)threadIdx.x >= 1 && threadIdx.x < 9"
    both = trace(f"if ({inside}) {TO} = x[threadIdx.x - 1]; else {TO} = 1;", arch=arch)
    assert both.read_bytes == {"x": 32}
    assert sum(both.written_bytes.values()) == 32 * 4


LOOP = f"""float sum = 0;
#pragma unroll 1
for (int i = 0; i < %s; ++i) sum = fmaf(sum, sum, x[i * 32 + threadIdx.x]);
{TO} = sum;"""


@pytest.mark.parametrize(("arch", "times"), in_turns(ARCHES, [1, 3, 70]))
def test_loops_repeat(times: int, arch: str) -> None:
    for bound, scalars in ((str(times), 0), ("n0", 1)):
        found = trace(LOOP % bound, scalars=scalars, batch=times, arch=arch, block=(32, 2, 1))
        assert found.issued["fma"] == times * 2
        assert found.global_lines == (times + 1) * 2
        assert found.read_bytes == {"x": times * 128}


def test_unrolled_loops_with_a_rest_repeat_as_often() -> None:
    body = (LOOP % "n0").replace("unroll 1", "unroll 4")
    for times in (4, 7, 21):
        assert trace(body, scalars=1, batch=times).issued["fma"] == times


def test_loops_within_loops() -> None:
    body = f"""float sum = 0;
    #pragma unroll 1
    for (int i = 0; i < n0; ++i)
      #pragma unroll 1
      for (int j = i; j < 5; ++j) sum = fmaf(sum, sum, x[(i * 5 + j) * 32 + threadIdx.x]);
    {TO} = sum;"""
    assert trace(body, scalars=1, batch=4).issued["fma"] == 5 + 4 + 3 + 2


def test_a_warp_runs_as_long_as_its_slowest_thread() -> None:
    found = trace(LOOP % "(int)threadIdx.x + 1", block=(64, 1, 1))
    assert found.issued["fma"] == 32 + 64


def test_both_sides_of_a_branch_within_a_warp_are_issued() -> None:
    sides = """float a = x[threadIdx.x]; int t = threadIdx.x;
    if (%s) { for (int i = 0; i < n0; ++i) { a = fmaf(a, a, 2.0f); y[i] = a; } }
    else { for (int i = 0; i < n0; ++i) { a = fmaf(a, a, 3.0f); y[i + 99] = a; } }"""
    parted, whole = (trace(sides % guard, scalars=1, batch=6, block=(64, 1, 1)) for guard in ("t % 2", "t / 32"))
    assert parted.issued["fma"] == 2 * whole.issued["fma"]


@pytest.mark.parametrize("arch", every(2, ARCHES))
def test_three_dimensions_of_threads_and_divisions(arch: str) -> None:
    body = """int t = threadIdx.x + 7 * (threadIdx.y + 3 * threadIdx.z) + blockIdx.x * 42;
    y[t / 9 * 9 + t % 9] = x[(t % 5) * 6 + (t / 5) % 6];"""
    found = trace(body, grid=3, block=(7, 3, 2), arch=arch)
    assert found.written_bytes == {"y": 42 * 4}
    assert found.read_bytes == {"x": 128}


def test_blocks_are_averaged() -> None:
    assert trace(f"if (blockIdx.x < 1) {TO} = 0;", grid=2).written_bytes == {"y": 32 * 4 / 2}


def test_many_blocks_are_sampled_with_their_edges() -> None:
    found = trace(f"if (blockIdx.x % 4 == 0) {TO} = 0;", grid=40_000)
    assert found.written_bytes["y"] == pytest.approx(32 * 4 / 4, rel=0.4)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("float a = 1; while (a < x[0]) { a = a * 1.5f; y[1] = a; }", "depends on data"),
        (f"{TO} = x[(int)x[threadIdx.x]];", "address is not known"),
    ],
)
def test_what_depends_on_data_is_refused(body: str, words: str) -> None:
    with pytest.raises(Untraceable, match=words):
        trace(body)


def test_endless_loops_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_trace, "_MOST_STEPS", 20_000)
    with pytest.raises(Untraceable, match="runs more than"):
        trace(LOOP % "10000000")


def test_what_goes_through_local_memory_is_counted_a_line_a_word() -> None:
    found = trace(f"volatile float own[2]; own[n0 & 1] = x[0]; {TO} = own[1 - (n0 & 1)];", scalars=1, block=(64, 1, 1))
    assert found.local_lines == 2 * 2, "two warps store a word and load one"
    assert trace(f"{TO} = x[0];").local_lines == 0


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
    asked = sectors_of(address, active, width=width)
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
