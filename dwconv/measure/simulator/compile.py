"""CUDA C++ -> a shared object that runs it on the CPU, with g++ and the runtime beside this file.

Each shared object carries its own runtime, so that no state of one kernel's run is left for the next. They are loaded
by path, so they are kept only in a folder in which nobody else can write.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from dwconv import settings
from dwconv.errors import BrokenInstallation, BuildError
from dwconv.kernels.artifact import Launch
from dwconv.measure.simulator.translate import translate
from dwconv.system.private_files import check_private

_HERE = Path(__file__).parent
_OLDEST = 12  # g++ that fills local variables with a pattern

# Without -fno-gnu-unique all shared objects of a process would share one runtime, and none could be unloaded.
_COMMON = ("-std=c++17", "-fPIC", "-w", "-fno-exceptions", "-U_FORTIFY_SOURCE", "-fno-gnu-unique")
_KERNEL = (
    "-O1",
    "-g1",  # source lines for faults
    "-fsanitize=thread",  # a hook before every access
    "--param=tsan-distinguish-volatile=1",
    "-fsanitize=bounds",
    "-ftrivial-auto-var-init=pattern",  # a variable used before it is set must not look right
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fwrapv",
    # One access in the source is one in the machine code, at one place.
    *("-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-fno-store-merging"),
    *("-fno-thread-jumps", "-fno-crossjumping", "-fno-tree-sra"),
)
_RUNTIME = ("-O2", "-fcf-protection=none")


def available() -> bool:
    """True if there is a g++ that can compile for the simulator."""
    return _version() >= _OLDEST


def compile_kernels(source: str, launches: Sequence[Launch], *, folder: Path) -> Path:
    """A shared object with the kernels of ``launches`` and their own runtime, in ``folder``; compiled only if it is not
    there yet. Raises BrokenInstallation without g++, BuildError for a source that it does not understand, NotKept if
    others can write in ``folder``."""
    check_compiler()
    check_private(folder)
    code = translate(source, [launch.kernel for launch in launches])
    key = hashlib.sha256("\0".join([code, _runtime_text(), *_COMMON, *_KERNEL]).encode()).hexdigest()[:32]
    finished = folder / f"{key}.so"
    if finished.exists():
        return finished
    runtime = compile_runtime(folder)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        work = Path(name)
        (work / "kernel.cc").write_text(code)
        _run("g++", *_COMMON, *_KERNEL, "-I", str(_HERE), "-c", "kernel.cc", "-o", "kernel.o", folder=work)
        _run("g++", "-shared", "-Wl,-Bsymbolic", "kernel.o", str(runtime), "-o", "kernel.so", folder=work)
        _finish(work / "kernel.so", finished)
    return finished


def source_lines(library: Path, offsets: Sequence[int]) -> list[int]:
    """The line of the CUDA source that each of these places in ``library`` was compiled from; 0 if unknown."""
    reader = settings.program("addr2line")
    if not offsets or reader is None:
        return [0] * len(offsets)
    # A hook knows its return address: the call is just before it.
    places = [hex(max(offset - 1, 0)) for offset in offsets]
    found: list[int] = []
    for place in places:  # one by one: an answer has as many lines as functions were inlined
        done = subprocess.run([reader, "-i", "-e", str(library), place], capture_output=True, text=True)
        line = re.search(r"kernel\.cc:(\d+)", done.stdout)
        found.append(int(line[1]) if line else 0)
    return found


def compile_runtime(folder: Path) -> Path:
    """The runtime's object file, the same for all kernels. Raises NotKept if others can write in ``folder``."""
    check_private(folder)
    finished = folder / f"runtime-{hashlib.sha256(_runtime_text().encode()).hexdigest()[:32]}.o"
    if not finished.exists():
        with tempfile.TemporaryDirectory(dir=folder) as name:
            work = Path(name)
            _run("g++", *_COMMON, *_RUNTIME, "-c", str(_HERE / "runtime.cc"), "-o", "r.o", folder=work)
            _finish(work / "r.o", finished)
    return finished


def _finish(built: Path, finished: Path) -> None:
    """Rename a built file once all of it is on disk: loading half a file would end the process."""
    with built.open("rb") as file:
        os.fsync(file.fileno())
    built.replace(finished)


@cache
def _runtime_text() -> str:
    files = sorted([*_HERE.glob("*.h"), *_HERE.glob("*.cc")])
    return "".join(file.read_text() for file in files) + str(_version())


def _run(*command: str, folder: Path) -> None:
    done = subprocess.run(["env", "LC_ALL=C", *command], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        complaint = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
        raise BuildError(f"g++ for the simulator: {complaint.strip()}")


def check_compiler() -> None:
    """Raises BrokenInstallation without a g++ that is new enough."""
    if not available():
        found = f"there is version {_version()}" if _version() else "there is none"
        raise BrokenInstallation(f"the simulator needs g++ {_OLDEST} or newer, {found}; install it (apt install g++)")


@cache
def _version() -> int:
    """Major version of g++; 0 without one."""
    if (compiler := settings.program("g++")) is None:
        return 0
    done = subprocess.run([compiler, "-dumpfullversion"], capture_output=True, text=True)
    number = done.stdout.partition(".")[0]
    return int(number) if number.isdecimal() else 0
