"""Counting what a block does, on kernels small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dwconv.errors import BuildError
from dwconv.tuner.block_trace import BlockTrace, evaluate, trace_block

HEAD = 'extern "C" __global__ void __launch_bounds__(64) k(float* __restrict__ x_ptr, float* __restrict__ y_ptr) {\n'


def trace(*lines: str, threads: int = 32, grid: int = 1) -> BlockTrace:
    source = HEAD + "\n".join(f"  {line}" for line in lines) + "\n}\n"
    return trace_block(source, "k", grid=(grid, 1, 1), block=(threads, 1, 1))


def test_neighbours_share_a_line() -> None:
    found = trace("y_ptr[((int)threadIdx.x)] = x_ptr[((int)threadIdx.x)];", threads=64)
    assert found.global_lines == 2 + 2
    assert found.read_bytes == {"x": 256}
    assert found.written_bytes == 256
    assert found.loads_per_thread == 1


def test_strides_spread_over_lines() -> None:
    found = trace("y_ptr[((int)threadIdx.x)] = x_ptr[(((int)threadIdx.x) * 32)];")
    assert found.global_lines == 32 + 1
    assert found.read_bytes == {"x": 32 * 32}


@pytest.mark.parametrize(("stride", "wavefronts"), [(1, 1), (2, 2), (3, 1), (16, 16), (32, 32), (0, 1)])
def test_bank_conflicts(stride: int, wavefronts: int) -> None:
    found = trace(f"sum_local_ptr[0] = staged_shared_ptr[(((int)threadIdx.x) * {stride})];")
    assert found.shared_wavefronts == wavefronts


def test_guards_leave_threads_out() -> None:
    found = trace("if (((int)threadIdx.x) < 8) {", "y_ptr[((int)threadIdx.x)] = 0x0p+0f;", "}")
    assert found.written_bytes == 8 * 4


def test_the_other_branch_is_the_rest() -> None:
    found = trace(
        "float condval;",
        "if ((1 <= ((int)threadIdx.x)) && (((int)threadIdx.x) < 9)) {",
        "condval = x_ptr[(((int)threadIdx.x) - 1)];",
        "} else {",
        "y_ptr[((int)threadIdx.x)] = 0x0p+0f;",
        "}",
    )
    assert found.read_bytes == {"x": 32}
    assert found.written_bytes == 24 * 4


@pytest.mark.parametrize("extent", [3, 500])
def test_loops_repeat(extent: int) -> None:
    found = trace(
        f"for (int i = 0; i < {extent}; ++i) {{",
        "sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((i * 32) + ((int)threadIdx.x))] * x_ptr[i]));",
        "}",
    )
    assert found.fmas == extent * 32
    assert found.shared_wavefronts == found.global_lines == extent


def test_a_value_that_was_loaded_is_kept() -> None:
    line = "sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((int)threadIdx.x)] * x_ptr[0]));"
    assert trace(line, line).shared_wavefronts == 1
    assert trace(line, line).fmas == 64


def test_blocks_are_averaged() -> None:
    found = trace("if (((int)blockIdx.x) < 1) {", "y_ptr[((int)threadIdx.x)] = 0x0p+0f;", "}", grid=2)
    assert found.written_bytes == 32 * 4 / 2


def test_expressions_of_c() -> None:
    numbers = {"threadIdx_x": np.arange(10), "blockIdx_x": np.array(7)}
    text = "(((((int)blockIdx.x) % 4) * 3) + min((((int)threadIdx.x) >> 1), 2))"
    assert evaluate(text, numbers).tolist() == [9 + min(i >> 1, 2) for i in range(10)]
    assert evaluate("(((int)threadIdx.x) / 3) != 2 && !(((int)threadIdx.x) == 0)", numbers).sum() == 6


@pytest.mark.parametrize("line", ["while (true) {", "y_ptr[unknown] = 0x0p+0f;", "y_ptr[exit()] = 0x0p+0f;"])
def test_other_source_is_refused(line: str) -> None:
    with pytest.raises(BuildError):
        trace(line)
