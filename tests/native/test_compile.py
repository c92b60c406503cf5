"""The C++ of calls is compiled once, by a process of its own: no call blocks on it, and it is loaded only as it was
compiled."""

from __future__ import annotations

import fcntl
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dwconv import native, settings
from dwconv.errors import BuildError, DwconvWarning
from dwconv.native import build_once
from dwconv.native import compile as compiling
from dwconv.native.build_once import Build, NoTimeToCompile, made_once
from dwconv.native.compile import Extension, load_compiled
from dwconv.system import private_files
from tests import forked
from tests.stub_compiler import COPY, StubCompiler
from tests.waiting import eventually


def kept(pattern: str = "dwconv_native-*.sealed") -> Path:
    (found,) = settings.cache_folder().rglob(pattern)
    return found


def loads() -> bool:
    found = load_compiled()
    return found is not None and found.module.run() == 42


def begins(compiler: StubCompiler) -> bool:
    """Once it is certain whether it does."""
    return eventually(lambda: compiler.calls > 0 or native._settled) and compiler.calls == 1


def arrives() -> bool:
    """Likewise."""
    assert eventually(lambda: native._settled)
    return native.module is not None


def test_calls_do_not_block_until_it_is_compiled(compiler: StubCompiler, logged: Callable[[], list[str]]) -> None:
    assert native.native(may_compile=False) is None and "no kernel" in native.why_not
    compiler.waits_and_does(COPY)
    for _ in range(2):
        assert native.soon() is None and native.native(may_compile=False) is None
    assert native.module is None and native.run() is None and native.why_not == "it is being compiled"
    assert begins(compiler)
    assert native.native(limit_s=0.1) is None and native.why_not == "it is being compiled"
    compiler.go.touch()
    assert arrives()
    assert native.soon() is native.native() is native.module and native.run() == 42 and native.why_not == ""
    assert logged() == ["dwconv: compiling the C++ of calls in the background: about half a minute, once"]
    assert loads() and load_compiled(may_compile=False) is not None and compiler.calls == 1
    assert {path.suffix for path in kept().parent.iterdir()} == {".sealed", ".lock"}


def test_a_caller_that_blocked_for_long_enough_goes_on_and_a_later_one_has_it(
    compiler: StubCompiler, recwarn: pytest.WarningsRecorder
) -> None:
    compiler.waits_and_does(COPY)
    assert native.native(limit_s=0.2) is None and not native.is_out() and native.why_not == "it is being compiled"
    assert begins(compiler)
    compiler.go.touch()
    assert native.native() is not None and compiler.calls == 1
    assert not [each for each in recwarn if each.category is DwconvWarning]


def test_a_caller_that_needs_it_blocks_on_the_thread(compiler: StubCompiler) -> None:
    compiler.waits_and_does(COPY)
    assert native.soon() is None
    given = []
    waiting = threading.Thread(target=lambda: given.append(native.native()))
    waiting.start()
    assert begins(compiler) and not given
    compiler.go.touch()
    waiting.join()
    assert given == [native.module] and native.module is not None and compiler.calls == 1


def test_in_the_background_it_takes_the_cpu_that_others_leave(
    compiler: StubCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_once, "_NICENESS", 19)
    compiler.does(f'nice >> "{tmp_path}/nice"\n' + COPY)
    assert native.soon() is None and native.is_expected() and arrives()
    kept().unlink()
    assert loads()
    here = os.nice(0)  # the tests may have another one than 0
    assert (tmp_path / "nice").read_text().split() == [str(min(here + 19, 19)), str(here)]


def test_calls_do_not_block_while_another_thread_loads_it(compiler: StubCompiler) -> None:
    """As with ``native()`` in one thread and a call in another."""
    with native._lock:
        assert native.soon() is None and native.native(may_compile=False) is None
    assert compiler.calls == 0 and native._background is None
    assert native.native() is not None and compiler.calls == 1


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("kill -9 $$", "stub-c++ failed: exit status -9"),
        ("exit 0", "stub-c++ failed: exit status 0"),
        ("echo 'x.cpp:1: error: no' >&2; echo '1 error' >&2; exit 1", "stub-c++ failed: x.cpp:1: error: no"),
        (COPY.replace("{extension}", "/bin/sh"), "dynamic module does not define|cannot dynamically load"),
    ],
    ids=["killed", "nothing made", "an error", "no library of Python"],
)
def test_a_failure_is_logged_once_and_not_repeated_at_once(
    compiler: StubCompiler, monkeypatch: pytest.MonkeyPatch, does: str, told: str
) -> None:
    """In the thread of a call, not in the one that compiles."""
    compiler.does(does)
    assert native.soon() is None and not arrives() and not native.is_expected()
    if "stub" in told:
        assert told in native.why_not and "\n" not in native.why_not
    with pytest.warns(DwconvWarning, match=r"calls go through Python, .*; to leave it at that: DWCONV_NATIVE=0"):
        assert native.soon() is None
    assert native.soon() is None and native.native() is None
    with pytest.raises(BuildError, match=r"s ago\)"):
        load_compiled()
    assert compiler.calls == 1
    compiler.does(COPY)
    monkeypatch.setattr(build_once, "FAILURE_COUNTS_S", 0.0)
    assert loads()


def test_without_a_compiler_no_thread_is_started(compiler: StubCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "nowhere-c++")
    assert not native.is_expected()
    assert native.soon() is None and "there is no C++ compiler nowhere-c++; " in native.why_not
    assert native._background is None


def test_without_a_thread_calls_go_through_python(compiler: StubCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert native.soon() is None and native.why_not == "no thread can compile it: can't start new thread"


def test_a_process_that_left_it_out_does_not_get_it_later(compiler: StubCompiler) -> None:
    compiler.waits_and_does(COPY)
    assert native.soon() is None and native._background is not None
    assert begins(compiler)
    native.leave_out("a race is timed")
    compiler.go.touch()
    native._background.join()
    assert native.module is None and native.why_not == "a race is timed"


# -- what is kept ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["a file", "without a key", "in the way"])
def test_without_a_cache_it_serves_this_process_and_one_line_says_so(
    compiler: StubCompiler, tmp_path: Path, cache: str
) -> None:
    told = rf"cache={tmp_path}/cache/.* cannot be used: .*; name a folder of your own in DWCONV_CACHE, "
    if cache == "a file":
        (tmp_path / "cache").write_text("in the way")
    elif cache == "without a key":
        (tmp_path / "state").write_text("in the way")
        told = rf"state={tmp_path}/state/dwconv cannot be used: .*; name a folder of your own in XDG_STATE_HOME, "
    else:
        (Extension()._path / "folder").mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.soon() is None and arrives()
    with pytest.warns(DwconvWarning) as warned:
        assert native.soon() is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.native() is not None
    (line,) = (str(warning.message) for warning in warned)
    assert re.search(told, line) and line.endswith("or leave it out: DWCONV_NATIVE=0")
    assert compiler.calls == 1 and native.run() == 42 and native.why_not == ""
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".part"]


def test_one_that_is_damaged_or_does_not_load_here_is_compiled_again(compiler: StubCompiler) -> None:
    """As after a change of libstdc++; but what was compiled just now and does not load is not tried again and again. A
    library that was mapped from a file would go with the file."""
    module = load_compiled().module  # type: ignore[union-attr]
    os.truncate(kept(), 4096)
    assert module.run() == 42
    assert loads() and compiler.calls == 2
    private_files.write_sealed(kept(), b"no library", durable=False)
    assert loads() and compiler.calls == 3
    private_files.write_sealed(kept(), b"no library", durable=False)
    compiler.does(COPY.replace("{extension}", str(compiler.path)))
    with pytest.raises(ImportError):
        load_compiled()
    for _ in range(2):
        with pytest.raises(BuildError, match=r"s ago\)"):
            load_compiled()
    assert compiler.calls == 4


BUILT_FOR_CUDA = """
import torch

torch.version.cuda, torch.cuda._is_compiled = "13.0", lambda: True
torch.cuda.is_available = lambda: False
from dwconv.native.compile import load_compiled

print(load_compiled().module.run())
"""


def test_a_pytorch_for_cuda_says_nothing_of_a_gpu_that_is_not_here(compiler: StubCompiler, tmp_path: Path) -> None:
    environment = {**os.environ, "CUDA_HOME": str(tmp_path)}
    done = forked.run([sys.executable, "-c", BUILT_FOR_CUDA], env=environment, text=True, timeout=1200)
    assert (done.returncode, done.stdout.strip()) == (0, "42"), done.stderr
    assert "CUDA" not in done.stderr


@pytest.mark.parametrize("entry", ["", "here"])
def test_no_program_of_the_working_directory_is_run(
    compiler: StubCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    """As where PATH has an empty entry, by a colon too many: what lies in a folder of data may come from anywhere."""
    data, tools = tmp_path / "data", tmp_path / "tools"
    planted = data / entry
    planted.mkdir(parents=True)
    tools.mkdir()
    for name in ("c++", "as", "ld", "cc1plus"):
        (planted / name).write_text(f'#!/bin/sh\necho "$0" >> "{tmp_path}/ran"\nexit 1\n')
        (planted / name).chmod(0o755)
    (tools / "c++").symlink_to(compiler.path)
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", os.pathsep.join([entry, str(tools), os.environ["PATH"]]))
    monkeypatch.chdir(data)
    compiler.does("as\nld\n" + COPY)
    assert loads() and compiler.calls == 1
    assert not (tmp_path / "ran").exists()
    monkeypatch.setenv("PATH", entry)
    assert settings.program("c++") is None
    assert settings.program("./c++") == (str(data / "c++") if entry != "here" else None)


# -- several processes -------------------------------------------------------------------------------------------------

# Each process is forked from one that has imported PyTorch, and has loaded nothing yet.
ENDS = """
import os, signal, sys, time
import torch.utils.cpp_extension
from dwconv import native

assert native.soon() is None
while not os.path.exists(sys.argv[2]):
    assert not native._settled, native.why_not
    time.sleep(0.01)
if sys.argv[1] == "SIGKILL":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "after a child of it":
    if os.fork() == 0:
        assert native.soon() is None and native.native() is None and "forked" in native.why_not
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
"""


@pytest.mark.parametrize(("how", "status"), [("exit", 0), ("SIGKILL", -9), ("after a child of it", 0)])
def test_it_goes_on_when_its_process_ends_and_serves_the_next(
    compiler: StubCompiler, tmp_path: Path, logged: Callable[[], list[str]], how: str, status: int
) -> None:
    compiler.waits_and_does(COPY)
    done = forked.run([sys.executable, "-c", ENDS, how, str(tmp_path / "calls")], text=True, timeout=1200)
    assert done.returncode == status, done.stderr
    assert native.soon() is None
    told = ["dwconv: another process compiles the C++ of calls: used here when it is ready"]
    assert eventually(lambda: native._settled or logged() != [])
    assert not native._settled and logged() == told
    compiler.go.touch()
    assert arrives() and compiler.calls == 1 and logged() == told


@pytest.fixture
def path(compiler: StubCompiler) -> Path:
    """Where it is kept, in a cache that starts empty."""
    return settings.cache_folder() / "native" / "it.sealed"


def of(script: str) -> Build:
    return Build(command=["/bin/sh", "-c", script], sources={"it.txt": "made"}, result="it.txt")


def test_waiting_has_an_end(path: Path) -> None:
    lock = private_files.open_lock(path.with_suffix(".lock"))
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(NoTimeToCompile, match="another process has been compiling it for too long"):
        made_once(path, of("true"), limit_s=0.2)
    os.close(lock)
    assert made_once(path, of("true"), limit_s=100).content == b"made"


@pytest.mark.parametrize("limit_s", [0.0, 0.2])
def test_what_takes_too_long_goes_on_and_is_no_failure_to_remember(path: Path, tmp_path: Path, limit_s: float) -> None:
    """Also where no time is left to begin with."""
    build = of(f'touch "{tmp_path}/began"; while [ ! -e "{tmp_path}/go" ]; do sleep 0.01; done')
    with pytest.raises(NoTimeToCompile, match="takes more than 0 s"):
        made_once(path, build, limit_s=limit_s)
    (tmp_path / "go").touch()
    made = made_once(path, of("exit 1"), limit_s=300)
    assert (made.content, made.not_kept) == (b"made", "") and private_files.read_sealed(path) == b"made"


def test_a_compiler_that_hangs_is_ended_and_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_once, "_LIMIT_S", 0.2)
    answer, _ = build_once.keep(path, of("exec sleep 600"))
    assert "took more than" in answer["failed"] and not path.with_suffix(".failed").exists()


def test_without_locks_each_makes_its_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError("No locks available")

    monkeypatch.setattr(build_once.fcntl, "flock", flock)
    assert made_once(path, of("true"), limit_s=100).content == b"made"


@pytest.mark.parametrize(("executable", "frozen"), [("/opt/app/program", False), (sys.executable, True)])
def test_a_program_with_python_inside_is_not_started_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, executable: str, frozen: bool
) -> None:
    monkeypatch.setattr(build_once, "_BOOT", "raise SystemExit(1)")
    with pytest.raises(BuildError, match="ended without a result"):
        made_once(path, of("true"), limit_s=100)
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    assert made_once(path, of("true"), limit_s=100).content == b"made"


def test_a_process_that_ends_loads_nothing_more(compiler: StubCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_ends", False)
    assert loads()
    compiling._end()
    with pytest.warns(DwconvWarning, match="this process ends"):
        assert native.soon() is None
    compiling._ends = False
    assert loads() and compiler.calls == 1


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
    assert native.soon() is not None and native.run() == 42 and native.why_not == "" and native._background is None
    assert not [*settings.cache_folder().rglob("dwconv_native*")]
    assert compiling.Extension().kept() == prebuilt.read_bytes(), "a pack takes it with it"


def test_one_for_another_pytorch_is_not_taken(prebuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.__version__", "1.0.0")
    assert not native.is_expected() and native.native() is None
    assert "there is no C++ compiler" in native.why_not


def test_one_is_compiled_for_a_pytorch_that_cannot_run_here(
    compiler: StubCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of another machine: its headers are enough."""
    there = tmp_path / "torch"
    there.mkdir()
    (there / "version.py").write_text("__all__ = ['__version__']\n__version__ = '9.9.9+cu130'\n")
    made = compiling.compile_for(there, sys.executable, folder=tmp_path / "prebuilt")
    monkeypatch.setattr(compiling, "PREBUILT", tmp_path / "prebuilt")
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    assert compiling.prebuilt() is None and "9.9.9+cu130" in made.name
    monkeypatch.setattr("torch.__version__", "9.9.9+cu130")
    assert compiling.prebuilt() == made and native.soon() is not None and native.run() == 42
    assert compiler.calls == 1
    (there / "version.py").write_text("")
    with pytest.raises(BuildError, match="is no folder of PyTorch"):
        compiling.compile_for(there, sys.executable, folder=tmp_path)


def test_it_is_compiled_for_another_pytorch_as_for_this_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same command, and the same name."""
    commands: list[Build] = []
    monkeypatch.setattr(Build, "run", lambda build: commands.append(build) or b"")
    here = compiling.compile_into(tmp_path / "here")
    there = compiling.compile_for(Path(torch.__file__).parent, sys.executable, folder=tmp_path / "there")
    assert commands[0].command == commands[1].command and commands[0].sources == commands[1].sources
    assert here.name == there.name


def test_one_that_does_not_load_here_is_compiled_anew(
    prebuilt: Path, compiler: StubCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    prebuilt.write_bytes(b"of another machine")
    monkeypatch.setenv("CXX", str(compiler.path))
    assert native.native() is not None and compiler.calls == 2


def test_no_prebuilt_extension_loads_where_it_is_switched_off(prebuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DWCONV_NATIVE", "0")
    assert native.native() is None and "DWCONV_NATIVE=0" in native.why_not
