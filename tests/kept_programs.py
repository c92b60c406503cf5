"""What TVM and LLVM made once is found again, by all that went into it: a generated program by the scheduled one, its
target and the code around TVM; an artifact by its candidate and the code of all schedules; machine code by its IR. They
take most of the time of tests that build kernels."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import is_
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = "DWCONV_TESTS_PROGRAMS"
"""The variable that names the folder of programs, beside which the others are."""
MODULES = ("dwconv.kernels.cpu_build", "dwconv.kernels.cuda_build")
"""Each has a function ``generated``."""
ARTIFACTS, MACHINE_CODE = "artifacts", "machine-code"
_WRITTEN = ("dwconv.schedules", "dwconv.problems", *MODULES)
"""Artifacts come from the code of these."""
_LINK = ("-shared", "-Bsymbolic", "-s")


def keep(module: ModuleType) -> None:
    """Has one of ``MODULES`` keep in the folder what it generates, and ``cpu_build`` what it builds of it."""
    generate = module.generated

    def generated(program: Any, *target: Any) -> Any:
        if FOLDER not in os.environ:
            return generate(program, *target)
        from tvm import ir

        key = "\0".join([_code(Path(str(module.__file__)).parent), ir.save_json(program), *map(str, target)])
        path = Path(os.environ[FOLDER]) / _number(key.encode())
        _used.append(path.name)
        return _found(path, lambda: generate(program, *target))

    module.generated = generated  # type: ignore[attr-defined]
    if hasattr(module, "build_cpu"):
        keep_artifacts(module, "build_cpu")


@cache
def _code(kernels: Path) -> str:
    import tvm

    return tvm.__version__ + "".join(
        (kernels / name).read_text() for name in ("artifact.py", "cpu_build.py", "cuda_build.py")
    )


def _number(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:40]


def _found(path: Path, make: Callable[[], Any]) -> Any:
    """What is kept there, or else is made now."""
    from dwconv.kernels.entry import decode, encode

    with contextlib.suppress(OSError, ValueError, zlib.error):
        found = decode(zlib.decompress(path.read_bytes()))
        path.touch()  # those that were not used for longest go first
        return found
    found = make()
    with contextlib.suppress(OSError):
        path.write_bytes(zlib.compress(encode(found), 1))  # half a file is made again
    return found


# -- artifacts -------------------------------------------------------------------------------------------------------

_used: list[str] = []
"""Programs that were generated or found last."""
_seen: dict[str, dict[str, Any]] = {}


def keep_artifacts(module: ModuleType, name: str) -> None:
    """Has this function of a candidate and a target keep the artifacts that it makes, but for those of a test that has
    replaced what it runs."""
    make = getattr(module, name)

    def kept(candidate: Any, target: Any) -> Any:
        if FOLDER not in os.environ or not is_as_written():
            return make(candidate, target)
        from dwconv.kernels.cpu_build import llvm_target
        from dwconv.kernels.entry import encode

        machine = str(llvm_target(target)) if target.kind == "cpu" else ""
        key = b"\0".join([name.encode(), sources().encode(), machine.encode(), encode((candidate, target))])
        programs = Path(os.environ[FOLDER])

        def made() -> Any:
            _used.clear()
            return make(candidate, target), (*_used,)

        artifact, of = _found(programs.with_name(ARTIFACTS) / _number(key), made)
        for program in of:  # most stay when a schedule changes
            with contextlib.suppress(OSError):
                os.utime(programs / program)
        return artifact

    setattr(module, name, kept)
    _seen.clear()
    is_as_written()


@cache
def sources() -> str:
    """The number of all code that artifacts come from."""
    root = Path(__file__).resolve().parents[1]
    files = sorted(path for room in ("schedules", "dwconv/problems") for path in (root / room).rglob("*.py"))
    return _number("".join([_code(root / "dwconv/kernels"), *(path.read_text() for path in files)]).encode())


def is_as_written() -> bool:
    """Nothing of this code was replaced since a call saw it first."""
    seen = [(now, _seen.get(place) or _seen.setdefault(place, _own(now))) for place, now in _names()]
    return all(all(map(is_, map(now.get, then), then.values())) for now, then in seen)


def _own(names: Mapping[str, Any]) -> dict[str, Any]:
    """Without modules: those of a package come and go."""
    return {name: value for name, value in names.items() if not isinstance(value, ModuleType)}


def _names() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What each module and each class has by name."""
    for place in [name for name in sys.modules if name.startswith(_WRITTEN)]:
        own = vars(sys.modules[place])
        yield place, own
        for each in [*own.values()]:
            if isinstance(each, type) and each.__module__ == place:
                yield f"{place}:{each.__qualname__}", vars(each)


# -- machine code ----------------------------------------------------------------------------------------------------


def keep_machine_code(module: ModuleType) -> None:
    """Has ``load_cpu`` load kernels as libraries; without a linker as the product does. LLVM makes the same code of the
    same IR."""
    compile_here = module.module_of

    def module_of(ir: str) -> Any:
        import tvm

        from dwconv import settings

        linker = settings.program("ld")
        if FOLDER not in os.environ or linker is None:
            return compile_here(ir)
        number = _number("\0".join([tvm.__version__, *_LINK, ir]).encode())
        path = Path(os.environ[FOLDER]).with_name(MACHINE_CODE) / f"{number}.so"
        try:
            os.utime(path) if path.exists() else _link(linker, ir, path)
            return tvm.runtime.load_module(str(path))
        except (OSError, RuntimeError, subprocess.CalledProcessError):
            return compile_here(ir)

    module.module_of = module_of  # type: ignore[attr-defined]


def _link(linker: str, ir: str, path: Path) -> None:
    """The library of this IR. Raises RuntimeError for what LLVM refuses."""
    from dwconv.kernels.llvm import object_of

    new = path.with_suffix(f".{os.getpid()}")
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        file.write(object_of(ir))
        file.flush()
        subprocess.run([linker, *_LINK, file.name, "-o", str(new)], check=True, capture_output=True)
    new.rename(path)  # a process that reads half a file dies
