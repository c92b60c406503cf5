"""The compiled extension in the cache: loaded only as it was compiled, compiled again whenever it is not that."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from dwconv import native, settings
from dwconv.errors import BuildError, DwconvWarning
from dwconv.native import compile as compiling
from dwconv.native.attempt import OutOfTime
from dwconv.native.compile import load_compiled
from dwconv.system import private_files
from tests import forked
from tests.stub_compiler import COPY, StubCompiler
from tests.waiting import eventually, gone


def kept(pattern: str = "dwconv_native-*.s*") -> Path:
    (found,) = settings.cache_folder().rglob(pattern)
    return found


def loads() -> bool:
    found = load_compiled()
    return found is not None and found.module.run() == 42


def test_it_is_compiled_once(compiler: StubCompiler) -> None:
    assert native.native(may_compile=False) is None and "no kernel" in native.why_not
    assert compiler.calls == 0
    assert native.native() is not None and native.why_not == "" and native.run() == 42
    assert loads() and load_compiled(may_compile=False) is not None
    assert compiler.calls == 1
    assert {path.suffix for path in kept().parent.iterdir()} == {".sealed", ".lock"}


BUILT_FOR_CUDA = """
import torch

torch.version.cuda, torch.cuda._is_compiled = "13.0", lambda: True
torch.cuda.is_available = lambda: False
from dwconv.native.compile import load_compiled

print(load_compiled().module.run())
"""


def test_a_pytorch_for_cuda_says_nothing_of_a_gpu_that_is_not_here(compiler: StubCompiler, tmp_path: Path) -> None:
    environment = {**os.environ, "CUDA_HOME": str(tmp_path)}
    done = forked.run([sys.executable, "-c", BUILT_FOR_CUDA], env=environment, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, "42"), done.stderr
    assert "CUDA" not in done.stderr


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


def test_a_damaged_one_is_never_loaded_but_compiled_again(compiler: StubCompiler, tmp_path: Path) -> None:
    """In processes of their own: to load half a library is SIGBUS."""
    done = forked.run([sys.executable, "-c", DAMAGED, str(tmp_path / "cache")], text=True, timeout=300)
    assert (done.returncode, done.stdout.split()) == (0, ["42"] * 7), done.stderr
    assert compiler.calls == 7


def test_what_cuts_the_file_short_later_does_not_reach_the_process(compiler: StubCompiler) -> None:
    """A library that is mapped from a file goes with the file."""
    module = load_compiled().module  # type: ignore[union-attr]
    os.truncate(kept(), 0)
    assert module.run() == 42
    assert str(settings.cache_folder()) not in Path("/proc/self/maps").read_text()


def test_one_of_another_user_is_not_loaded(
    compiler: StubCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_compiled()
    private_files._key_at.cache_clear()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))  # as another user has another key
    assert load_compiled(may_compile=False) is None
    assert loads() and compiler.calls == 2


def test_one_that_does_not_load_here_is_compiled_again(compiler: StubCompiler) -> None:
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
    compiler: StubCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
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
    assert re.search(told, line) and line.endswith("or leave it out: DWCONV_NATIVE=0")
    assert compiler.calls == 1 and native.run() == 42 and native.why_not == ""
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".part", ".sealed")]


# -- a compiler that fails -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("kill -9 $$", "stub-c++ failed: exit status 137"),
        ("exit 0", "stub-c++ failed: exit status 0"),
        ("echo 'x.cpp:1: error: no' >&2; echo '1 error' >&2; exit 1", "stub-c++ failed: x.cpp:1: error: no"),
    ],
)
def test_a_failure_is_one_line_and_is_not_repeated_at_once(compiler: StubCompiler, does: str, told: str) -> None:
    compiler.does(does)
    with pytest.warns(DwconvWarning, match=re.escape(told)):
        assert native.native() is None and told in native.why_not and "\n" not in native.why_not
    with pytest.raises(BuildError, match=r"s ago\)"):
        load_compiled()
    assert compiler.calls == 1
    assert not [path for path in kept("native").iterdir() if path.suffix not in (".lock", ".failed")]


def test_what_takes_too_long_ends_with_all_its_children(
    compiler: StubCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.parametrize("entry", ["", ".", "here"])
def test_no_program_of_the_working_directory_is_run(
    compiler: StubCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    """As where PATH has an empty entry, by a colon too many: what lies in a folder of data may be anybody's."""
    data, tools = tmp_path / "data", tmp_path / "tools"
    planted = data / entry
    planted.mkdir(parents=True)
    tools.mkdir()
    for name in ("c++", "nice", "rm", "as", "ld", "cc1plus"):
        (planted / name).write_text(f'#!/bin/sh\necho "$0" >> "{tmp_path}/ran"\nexit 1\n')
        (planted / name).chmod(0o755)
    (tools / "c++").symlink_to(compiler.path)
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", os.pathsep.join([entry, str(tools), os.environ["PATH"]]))
    monkeypatch.chdir(data)
    assert loads() and compiler.calls == 1
    assert not (tmp_path / "ran").exists()
    monkeypatch.setenv("PATH", entry)
    assert settings.program("c++") is None
    assert settings.program("./c++") == (str(data / "c++") if entry != "here" else None)


def test_a_missing_compiler_is_not_waited_for(compiler: StubCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "nowhere-c++")
    monkeypatch.setattr(compiling, "made_once", None)
    with pytest.raises(BuildError, match=r"there is no C\+\+ compiler nowhere-c\+\+; "):
        load_compiled()


# -- compiled before ---------------------------------------------------------------------------------------------------


@pytest.fixture
def prebuilt(compiler: StubCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that came with the package, where there is no compiler and nothing is in the cache."""
    monkeypatch.setattr(compiling, "PREBUILT", tmp_path / "prebuilt")
    path = compiling.compile_into(tmp_path / "prebuilt")
    assert compiler.calls == 1
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    return path


def test_a_module_that_came_with_the_package_needs_no_compiler(prebuilt: Path) -> None:
    assert native.is_expected()
    assert native.soon() is not None and native.run() == 42 and native.why_not == ""
    assert not [*settings.cache_folder().rglob("dwconv_native*")]
    assert compiling.Extension().kept() == prebuilt.read_bytes(), "a pack takes it with it"


def test_one_for_another_pytorch_is_not_taken(prebuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.__version__", "1.0.0")
    assert not native.is_expected() and native.native() is None
    assert "there is no C++ compiler" in native.why_not


def test_one_that_does_not_load_here_is_compiled_anew(
    prebuilt: Path, compiler: StubCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    prebuilt.write_bytes(b"of another machine")
    monkeypatch.setenv("CXX", str(compiler.path))
    assert native.native() is not None and compiler.calls == 2


def test_no_prebuilt_extension_loads_where_it_is_switched_off(prebuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DWCONV_NATIVE", "0")
    assert native.native() is None and "DWCONV_NATIVE=0" in native.why_not
