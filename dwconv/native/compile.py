"""Compile the C++ next to this file for the PyTorch and the Python that run it, once; and load it.

A wheel may bring it compiled, in the folder ``prebuilt``: then no compiler is needed. ``make dist`` puts it there, with
``compile_into``.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

from dwconv import settings
from dwconv.errors import BuildError
from dwconv.native.build_once import Build, made_once, note_failure
from dwconv.system import forks, private_files
from dwconv.system.bytes_as_file import bytes_as_file

_NAME = "dwconv_native"
_SOURCES = (
    "convolve.cpp", "program.cpp", "guarded_forward.h", "block.h", "statistics.h", "ops.h", "calls.h", "kernel.h",
    "code.h", "watchers.h", "execution.h", "instructions.h", "lanes.h", "ready.h",
)  # fmt: skip
_COMPILED = tuple(name for name in _SOURCES if name.endswith(".cpp"))
"""One after the other, so that memory is needed for one only."""
_FLAGS = ("-std=c++20", "-O1", "-fvisibility=hidden", "-shared", "-fPIC", "-w", "-DAT_PER_OPERATOR_HEADERS")
"""With the last one PyTorch's headers include no ops that are not named."""
_LIBRARIES = ("c10", "torch_cpu", "torch", "torch_python")
LIMIT_S = 300.0
"""For compiling it, or for waiting until another process has: half a minute is enough on a quiet machine."""


@dataclass(frozen=True, kw_only=True)
class LoadedModule:
    module: Any
    not_kept: str = ""
    """Why the next process has to compile it again; empty if it is in the cache."""


def load_compiled(*, may_compile: bool = True, limit_s: float = LIMIT_S) -> LoadedModule | None:
    """The module, from the cache or compiled now; None if that may not be. Raises BuildError if it cannot be compiled,
    ImportError if it cannot be loaded."""
    extension = Extension()
    cached = extension.load_cached()
    if cached is not None or not may_compile:
        return cached
    return extension.compile(extension.build(), limit_s=limit_s)


class Extension:
    """The module as this process would have it compiled. Raises BuildError where it is not to be compiled at all."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise BuildError(f"it is compiled on Linux only, not on {sys.platform}")
        compiler = settings.cpp_compiler()
        if compiler is None:
            raise BuildError("DWCONV_NATIVE=0 is set")
        self._compiler = compiler
        self._sources = {name: _text(name) for name in _SOURCES}
        name = f"{_NAME}-{_key(compiler, self._sources)}.sealed"
        self._path = (settings.cache_folder() / "native" / name).absolute()
        self._useless: bytes | None = None
        """What is in the cache, and cannot be loaded."""

    def load_cached(self) -> LoadedModule | None:
        """The module, if the package brings it, or if it is in the cache."""
        if (brought := prebuilt()) is not None:
            try:
                return LoadedModule(module=load(brought.read_bytes()))
            except (ImportError, OSError):  # such as of a newer libstdc++: compile it for what is here
                pass
        found = private_files.read_sealed(self._path)
        if found is None:
            return None
        try:
            return LoadedModule(module=load(found))
        except ImportError:  # such as of another libstdc++: compile it for what is here
            self._useless = found
            return None

    def kept(self) -> bytes | None:
        """The library in the cache, or that of the package, to be shared; None if there is none."""
        found, brought = private_files.read_sealed(self._path), prebuilt()
        return brought.read_bytes() if found is None and brought is not None else found

    def build(self) -> Build:
        """How it is compiled. Imports all that ``compile`` uses, which may then run in another thread: if the process
        is forked meanwhile, no module is left half imported. Raises BuildError without a compiler."""
        compiler = settings.program(self._compiler)
        if compiler is None:
            raise BuildError(f"there is no C++ compiler {self._compiler}; install one, or name it in CXX")
        import torch

        with settings.quiet_logger("torch.utils.cpp_extension"):  # builds for CUDA name it, where there is no GPU
            from torch.utils.cpp_extension import include_paths, library_paths
        includes = [*include_paths(), sysconfig.get_path("include")]
        command = _command(compiler, includes, library_paths(), cxx11_abi=torch._C._GLIBCXX_USE_CXX11_ABI)
        return Build(command=command, sources=self._sources, result=f"{_NAME}.so")

    def compile(self, build: Build, *, limit_s: float = LIMIT_S, in_background: bool = False) -> LoadedModule:
        """The module, compiled for this process or, meanwhile, for another. Raises BuildError, ImportError."""
        made = made_once(self._path, build, limit_s=limit_s, in_background=in_background, instead_of=self._useless)
        try:
            return LoadedModule(module=load(made.content), not_kept=made.not_kept)
        except ImportError as error:
            note_failure(self._path, error)
            raise


def _command(compiler: str, includes: Iterable[str], libraries: Iterable[str], *, cxx11_abi: bool) -> list[str]:
    return [
        compiler, *_FLAGS, *(f"-I{include}" for include in includes), f"-D_GLIBCXX_USE_CXX11_ABI={int(cxx11_abi)}",
        *(f"-L{library}" for library in libraries), *_COMPILED, "-o", f"{_NAME}.so",
        *(f"-l{name}" for name in _LIBRARIES),
    ]  # fmt: skip


def bound_to() -> dict[str, str]:
    """What a compiled module can be loaded into: the PyTorch, the Python, and the sources, which define how it is
    called."""
    import torch

    return _bound_to(torch=str(torch.__version__), python=str(sysconfig.get_config_var("SOABI")))


def _bound_to(*, torch: str, python: str) -> dict[str, str]:
    sources = "\0".join(_text(name) for name in _SOURCES)
    return {"torch": torch, "python": python, "sources": hashlib.sha256(sources.encode()).hexdigest()}


PREBUILT = Path(__file__).parent / "prebuilt"
"""Modules that came with the package."""


def prebuilt() -> Path | None:
    """The module that came with the package for this PyTorch, Python and kind of CPU; None if there is none."""
    if not PREBUILT.is_dir():
        return None
    path = PREBUILT / _prebuilt_name(bound_to())
    return path if path.exists() else None


def _prebuilt_name(bound_to: Mapping[str, str]) -> str:
    bound = {**bound_to, "machine": platform.machine()}
    digest = hashlib.sha256("\0".join(bound.values()).encode()).hexdigest()[:16]
    return f"{_NAME}-{bound['torch']}-{bound['python']}-{digest}.so"


def compile_into(folder: Path) -> Path:
    """The module, compiled for others to load as ``prebuilt``. Raises BuildError, OSError."""
    return _put(Extension().build().run(), folder / _prebuilt_name(bound_to()))


def compile_for(torch: Path, python: str, *, folder: Path = PREBUILT) -> Path:
    """The module for others to load as ``prebuilt`` that have the PyTorch in the folder ``torch`` and a Python like the
    interpreter ``python``. The two need not fit together: only headers are read. Raises BuildError, OSError."""
    asks = "import sysconfig; print(sysconfig.get_config_var('SOABI'), sysconfig.get_path('include'), sep='\\n')"
    said = subprocess.run([python, "-c", asks], capture_output=True, encoding="utf-8", check=True, timeout=LIMIT_S)
    soabi, include = said.stdout.splitlines()
    version = re.search(r"^__version__ = '([^']+)'", (torch / "version.py").read_text(encoding="utf-8"), re.MULTILINE)
    if version is None:
        raise BuildError(f"{torch} is no folder of PyTorch: its version.py names no version")
    compiler = settings.program(settings.linker())
    if compiler is None:
        raise BuildError(f"there is no C++ compiler {settings.linker()}; install one, or name it in CXX")
    headers = torch / "include"
    includes = map(str, (headers, headers / "torch" / "csrc" / "api" / "include", include))
    command = _command(compiler, includes, [str(torch / "lib")], cxx11_abi=True)
    build = Build(command=command, sources={name: _text(name) for name in _SOURCES}, result=f"{_NAME}.so")
    return _put(build.run(), folder / _prebuilt_name(_bound_to(torch=version[1], python=soabi)))


def _put(content: bytes, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _key(compiler: str, sources: Mapping[str, str]) -> str:
    """The sources, and everything beside them that decides what they compile to."""
    import torch

    told = (*sources.values(), torch.__version__, sys.version, platform.machine(), compiler, *_FLAGS)
    return hashlib.sha256("\0".join(told).encode(errors="surrogateescape")).hexdigest()[:16]


_loading = forks.Lock()
_ends = False
"""True once this process ends: then no thread begins to load the library."""
_END_S = 5.0


def load(content: bytes) -> Any:
    """Raises ImportError if it cannot be loaded, BuildError at the end of the process."""
    with _loading, bytes_as_file(content, name=_NAME) as path:
        if _ends:
            raise BuildError("this process ends")
        spec = importlib.util.spec_from_file_location(_NAME, path, loader=ExtensionFileLoader(_NAME, path))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


@atexit.register
def _end() -> None:
    """A process does not end while a thread of it is loading the library."""
    global _ends
    _ends = True
    if _loading.acquire(timeout=_END_S):
        _loading.release()


def _text(name: str) -> str:
    return resources.files("dwconv.native").joinpath(name).read_text(encoding="utf-8")
