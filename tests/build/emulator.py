"""Runs generated CUDA C++ on the CPU, launched exactly as its artifact says: g++ and one fiber a thread.

Threads of a block run one after the other up to each barrier, in an order that turns round every time, so that a
missing barrier gives wrong numbers. Tensors lie between guard bands; results and shared memory start as NaN.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dwconv.build.artifact import Artifact, Extent, Launch, Scalar

GUARD_WORDS = 1024
PARAMETER = re.compile(r"^(?P<type>float ?\*|int)(?: __restrict__)? (?P<name>\w+)$")


@dataclass
class Run:
    """What a launch left behind."""

    tensors: dict[str, np.ndarray]
    guards_intact: bool


def available() -> bool:
    return shutil.which("g++") is not None


def signature(source: str, kernel: str) -> list[tuple[str, str]]:
    """(type, name) of every parameter of ``kernel``, read from the source."""
    text = re.search(rf"\b{kernel}\(([^)]*)\) \{{", source)
    assert text, f"no kernel {kernel} in the source"
    found = [PARAMETER.match(parameter.strip()) for parameter in text[1].split(",")]
    assert all(found), text[1]
    return [(match["type"].replace(" ", ""), match["name"]) for match in found if match]


def run(artifact: Artifact, tensors: dict[str, np.ndarray], *, batch: int, folder: Path) -> Run:
    """Launch every kernel of ``artifact`` on ``tensors`` (inputs; the rest is allocated and starts as NaN)."""
    library = _compile(artifact, folder)
    padded: dict[str, np.ndarray] = {}
    inside: dict[str, np.ndarray] = {}
    for argument in artifact.arguments:
        shape = argument.shape_at(batch)
        size = int(np.prod(shape))
        padded[argument.name] = np.full(size + 2 * GUARD_WORDS, np.nan, np.float32)
        inside[argument.name] = padded[argument.name][GUARD_WORDS : GUARD_WORDS + size].reshape(shape)
        if argument.name in tensors:
            inside[argument.name][...] = tensors[argument.name].reshape(shape)
    for launch in artifact.launches:
        _launch(library, launch, inside, batch=batch)
    edges = [np.concatenate([array[:GUARD_WORDS], array[-GUARD_WORDS:]]) for array in padded.values()]
    intact = all(np.isnan(edge).all() for edge in edges)
    intact &= all(np.array_equal(inside[name], given.reshape(inside[name].shape)) for name, given in tensors.items())
    return Run(inside, intact)


def _launch(library: ctypes.CDLL, launch: Launch, tensors: dict[str, np.ndarray], *, batch: int) -> None:
    values = (ctypes.c_uint64 * len(launch.arguments))()
    for position, argument in enumerate(launch.arguments):
        scalar = isinstance(argument, Scalar)
        values[position] = argument.value.at(batch) if scalar else tensors[argument.name].ctypes.data
    grid = (ctypes.c_int * 3)(*(size.at(batch) if isinstance(size, Extent) else size for size in launch.grid))
    status = library[f"run_{launch.kernel}"](values, grid, (ctypes.c_int * 3)(*launch.block), launch.shared_bytes)
    assert status == 0, f"{launch.kernel}: some threads of a block ended before a barrier that others wait at"


def _compile(artifact: Artifact, folder: Path) -> ctypes.CDLL:
    poison: list[str] = []

    def make_static(match: re.Match[str]) -> str:
        poison.append(match["name"])
        return f"{match['type']} {match['name']}[{match['size']}];"

    # Shared memory becomes global: there is one block at a time. Dynamic shared memory is one big buffer.
    source = re.sub(
        r"extern __shared__ (?:alignas\(\d+\) |__align__\(\d+\) )*(?P<type>\w+) (?P<name>\w+)\[\];",
        r"\g<type>* \g<name> = (\g<type>*)dynamic_shared;",
        artifact.source,
    )
    statics = re.compile(r"__shared__ (?:alignas\(\d+\) )?(?P<type>\w+) (?P<name>\w+)\[(?P<size>\d+)\];")
    declared = "".join(f"static {make_static(match)}\n" for match in statics.finditer(source))
    source = statics.sub("", source)
    wrappers = ""
    for launch in artifact.launches:
        passed = [
            f"(float*)arguments[{i}]" if kind == "float*" else f"(int)arguments[{i}]"
            for i, (kind, _) in enumerate(signature(artifact.source, launch.kernel))
        ]
        wrappers += (
            f"static void call_{launch.kernel}() {{ {launch.kernel}({', '.join(passed)}); }}\n"
            f'extern "C" int run_{launch.kernel}(const u64* a, const int* g, const int* b, int bytes)'
            f" {{ return launch(call_{launch.kernel}, a, g, b, bytes); }}\n"
        )
    fill = "".join(f"memset({name}, 0xFF, sizeof({name}));" for name in poison)
    code = _RUNTIME.replace("/*declared*/", declared).replace("/*fill*/", fill) + source + wrappers
    path = folder / "kernel.cc"
    path.write_text(code)
    command = ["g++", "-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-ffp-contract=off", str(path)]
    subprocess.run([*command, "-o", str(path.with_suffix(".so"))], check=True)
    return ctypes.CDLL(str(path.with_suffix(".so")))


_RUNTIME = r"""
#include <cstring>
#include <ucontext.h>
#include <vector>
typedef unsigned long long u64;
struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx;
static const u64* arguments;
static std::vector<unsigned char> dynamic_memory;
static unsigned char* dynamic_shared;
static ucontext_t scheduler;
struct Fiber { ucontext_t context; std::vector<char> stack = std::vector<char>(1 << 16); bool ended; };
static std::vector<Fiber> fibers;
static int current;
static void (*entry)();
static void start() { entry(); fibers[current].ended = true; }
static void __syncthreads() { swapcontext(&fibers[current].context, &scheduler); }
static int min(int a, int b) { return a < b ? a : b; }
static int max(int a, int b) { return a > b ? a : b; }
/*declared*/
static int launch(void (*kernel)(), const u64* given, const int* grid, const int* block, int bytes) {
  entry = kernel;
  arguments = given;
  dynamic_memory.resize(bytes + 64);
  dynamic_shared = (unsigned char*)((u64)(dynamic_memory.data() + 63) / 64 * 64);
  const int threads = block[0] * block[1] * block[2];
  if ((int)fibers.size() < threads) fibers.resize(threads);
  for (long at = 0; at < (long)grid[0] * grid[1] * grid[2]; ++at) {
    blockIdx = {unsigned(at % grid[0]), unsigned(at / grid[0] % grid[1]), unsigned(at / grid[0] / grid[1])};
    memset(dynamic_shared, 0xFF, bytes);
    /*fill*/
    for (int t = 0; t < threads; ++t) {
      Fiber& fiber = fibers[t];
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.data();
      fiber.context.uc_stack.ss_size = fiber.stack.size();
      fiber.context.uc_link = &scheduler;
      fiber.ended = false;
      makecontext(&fiber.context, start, 0);
    }
    for (int phase = 0, ended = 0; ended < threads; ++phase) {
      for (int i = 0; i < threads; ++i) {
        current = phase % 2 ? threads - 1 - i : i;
        threadIdx = {unsigned(current % block[0]), unsigned(current / block[0] % block[1]),
                     unsigned(current / block[0] / block[1])};
        swapcontext(&scheduler, &fibers[current].context);
        ended += fibers[current].ended;
      }
      if (ended && ended < threads) return 1;
    }
  }
  return 0;
}
#define __global__
#define __restrict__
#define __launch_bounds__(...)
"""
