"""The compiled extension in the cache: loaded only as it was compiled, compiled again whenever it is not that.

The compiler is a script that counts its calls and copies a small extension, in place of half a minute of C++.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dwconv import native, private_files, settings
from dwconv.errors import BuildError, DwconvWarning
from dwconv.native import compile as compiling
from dwconv.native.compile import load_compiled
from dwconv.native.once import OutOfTime

EXTENSION = """
#include <Python.h>
static PyObject* give(PyObject* self, PyObject* arguments) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {
  {"convolve", give, METH_VARARGS, ""}, {"learn", give, METH_VARARGS, ""}, {"forget", give, METH_VARARGS, ""},
  {"run", give, METH_VARARGS, ""}, {0}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "dwconv_native", "", -1, methods};
PyMODINIT_FUNC PyInit_dwconv_native(void) { return PyModule_Create(&definition); }
"""
COPY = 'shift_to_o() { while [ "$1" != -o ]; do shift; done; echo "$2"; }; cp "{extension}" "$(shift_to_o "$@")"'


@pytest.fixture(scope="session")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small one with the names of ours."""
    compiler = settings.cpp_compiler() or ""
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C++ compiler {compiler}")
    folder = tmp_path_factory.mktemp("extension")
    (folder / "small.c").write_text(EXTENSION)
    include = sysconfig.get_path("include")
    command = [compiler, "-x", "c", "-shared", "-fPIC", "-w", f"-I{include}", "small.c", "-o", "small.so"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "small.so"


class Compiler:
    """A script in place of the compiler. ``does``: what it runs, after noting that it was called."""

    def __init__(self, folder: Path, extension: Path) -> None:
        self.path, self._calls, self._extension = folder / "stub-c++", folder / "calls", extension
        self.does(COPY)

    def does(self, script: str) -> None:
        script = script.replace("{extension}", str(self._extension))
        self.path.write_text(f'#!/bin/sh\necho called >> "{self._calls}"\n{script}\n')
        self.path.chmod(0o755)

    @property
    def calls(self) -> int:
        return len(self._calls.read_text().split()) if self._calls.exists() else 0


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: Path) -> Compiler:
    """In use, with a cache that starts empty, in a process that has not asked for the extension yet."""
    stub = Compiler(tmp_path, extension)
    monkeypatch.setenv("CXX", str(stub.path))
    monkeypatch.delenv("DWCONV_NATIVE", raising=False)
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("convolve", "learn", "forget", "run", "why_not"):
        monkeypatch.setattr(native, name, getattr(native, name))
    monkeypatch.setattr(native, "_module", None)
    monkeypatch.setattr(native, "_tried", False)
    return stub


def kept(pattern: str = "dwconv_native-*.s*") -> Path:
    (found,) = settings.cache_folder().rglob(pattern)
    return found


def loads() -> bool:
    found = load_compiled()
    return found is not None and found.module.run() == 42


def test_it_is_compiled_once(compiler: Compiler) -> None:
    assert native.native(may_compile=False) is None and "no kernel" in native.why_not
    assert compiler.calls == 0
    assert native.native() is not None and native.why_not == "" and native.run() == 42
    assert loads() and load_compiled(may_compile=False) is not None
    assert compiler.calls == 1
    assert {path.suffix for path in kept().parent.iterdir()} == {".sealed", ".lock"}


DAMAGED = """
import os, sys
from pathlib import Path
import torch.utils.cpp_extension
from dwconv.native.compile import load_compiled

def load():
    child = os.fork()
    if child == 0:
        found = load_compiled()
        os._exit(getattr(found, "module", found).run())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print(load())
for damage in (
    lambda whole: whole[: len(whole) // 2], lambda whole: whole[:4096], lambda whole: whole[:100],
    lambda whole: b"", lambda whole: b"\\0" * len(whole), lambda whole: whole[:4096] + b"\\0" * (len(whole) - 4096),
):
    (path,) = Path(sys.argv[1]).rglob("dwconv_native-*.s*")
    changed = path.with_name("changed")
    changed.write_bytes(damage(path.read_bytes()))
    changed.replace(path)
    print(load())
"""


def test_a_damaged_one_is_never_loaded_but_compiled_again(compiler: Compiler, tmp_path: Path) -> None:
    """In processes of their own: to load half a library is SIGBUS."""
    done = subprocess.run(
        [sys.executable, "-c", DAMAGED, str(tmp_path / "cache")], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout.split()) == (0, ["42"] * 7), done.stderr
    assert compiler.calls == 7


def test_what_cuts_the_file_short_later_does_not_reach_the_process(compiler: Compiler) -> None:
    """A library that is mapped from a file goes with the file."""
    module = load_compiled().module  # type: ignore[union-attr]
    os.truncate(kept(), 0)
    assert module.run() == 42
    assert str(settings.cache_folder()) not in Path("/proc/self/maps").read_text()


def test_one_of_another_user_is_not_loaded(compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_compiled()
    private_files._key_at.cache_clear()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))  # as another user has another key
    assert load_compiled(may_compile=False) is None
    assert loads() and compiler.calls == 2


def test_one_that_does_not_load_here_is_compiled_again(compiler: Compiler) -> None:
    """As after a change of libstdc++; but what was compiled just now and does not load is not tried again and again."""
    load_compiled()
    private_files.write_sealed(kept(), b"no library", durable=False)
    assert loads() and compiler.calls == 2
    private_files.write_sealed(kept(), b"no library", durable=False)
    compiler.does(COPY.replace("{extension}", str(compiler.path)))
    with pytest.raises(ImportError):
        load_compiled()
    for _ in range(2):
        with pytest.raises(BuildError, match=r"s ago\)"):
            load_compiled()
    assert compiler.calls == 3


# -- a cache that cannot be written ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["a file", "without a key", "full"])
def test_without_a_cache_it_serves_this_process_and_one_line_says_so(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    told = rf"cache={tmp_path}/cache/.* cannot be used: .*; name a folder of your own in DWCONV_CACHE, "
    if cache == "a file":
        (tmp_path / "cache").write_text("in the way")
    elif cache == "without a key":
        (tmp_path / "state").write_text("in the way")
        told = rf"state={tmp_path}/state/dwconv cannot be used: .*; name a folder of your own in XDG_STATE_HOME, "
    else:
        native_folder, new_file = settings.cache_folder() / "native", private_files.new_file

        def fill(path: Path, *rest: object, **named: bool):  # type: ignore[no-untyped-def]
            if path.name.startswith("dwconv_native"):
                raise OSError(28, "No space left on device", str(native_folder / path))
            return new_file(path, *rest, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(private_files, "new_file", fill)
    with pytest.warns(DwconvWarning) as warned:
        assert native.native() is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.native() is not None
    (line,) = (str(warning.message) for warning in warned)
    assert re.search(told, line) and line.endswith("or do without it: DWCONV_NATIVE=0")
    assert compiler.calls == 1 and native.run() == 42 and native.why_not == ""
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".part", ".sealed")]


# -- a compiler that fails -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("kill -9 $$", "stub-c++ failed: exit status -9"),
        ("exit 0", "stub-c++ failed: exit status 0"),
        ("echo 'x.cpp:1: error: no' >&2; echo '1 error' >&2; exit 1", "stub-c++ failed: x.cpp:1: error: no"),
    ],
)
def test_a_failure_is_one_line_and_is_not_repeated_at_once(compiler: Compiler, does: str, told: str) -> None:
    compiler.does(does)
    assert native.native() is None and told in native.why_not and "\n" not in native.why_not
    with pytest.raises(BuildError, match=r"s ago\)"):
        load_compiled()
    assert compiler.calls == 1
    assert not [path for path in kept("native").iterdir() if path.suffix not in (".lock", ".failed")]


def test_what_takes_too_long_ends_with_all_its_children(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler's work is done by its children, which hold its output open."""
    child = tmp_path / "child"
    compiler.does(f'sleep 600 & echo $! > "{child}.new"; mv "{child}.new" "{child}"; wait')

    def time_is_up(process: subprocess.Popen[str], timeout: float) -> None:
        assert eventually(child.exists)
        raise subprocess.TimeoutExpired(process.args, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "communicate", time_is_up)
        with pytest.raises(OutOfTime, match="took more than 300 s"):
            load_compiled()
    assert gone(int(child.read_text()))
    compiler.does(COPY)
    assert loads()  # it was no failure to remember


def gone(number: int) -> bool:
    return eventually(lambda: not psutil.pid_exists(number) or psutil.Process(number).status() == psutil.STATUS_ZOMBIE)


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_missing_compiler_is_not_waited_for(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "nowhere-c++")
    monkeypatch.setattr(compiling, "made_once", None)
    with pytest.raises(BuildError, match=r"there is no C\+\+ compiler nowhere-c\+\+; "):
        load_compiled()
