"""What all tests share."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from importlib import import_module
from pathlib import Path

import hypothesis
import platformdirs
import pytest
import torch
from hypothesis import HealthCheck

import dwconv
from dwconv import settings
from dwconv.dispatch import loaded_packs
from dwconv.errors import DwconvWarning
from dwconv.kernels import base_pack, load
from dwconv.measure.processes import started_process
from dwconv.measure.simulator.host_compile import available
from dwconv.tuner.search import spaces as search_spaces
from dwconv.tuner.search import strategies
from tests import forked, kept_programs
from tests.native_needed import go_through_python, needs_native, wait_for_native

gc.disable()
"""Until all tests are collected: what imports make stays, and to look through it again and again takes a second."""
Golden = Callable[[str, str], None]
GOLDEN = Path(__file__).parent / "schedules" / "golden"
_LONGEST = ("tests/standin/", "tests/tuner/test_ray.py", "tests/test_readme.py")
"""Tests of a minute, most of which one core waits for: where one of them comes last, the other cores are idle."""

COMPILED, MOST_KEPT = ("native", "cubins", "programs", "simulator", "stand-in"), 4000
"""Folders of the cache that stay for the next run, and the most files of each."""

# How fast this machine is, and how lucky it is in drawing, says nothing about a change: every run draws the same. To
# look for more: `--hypothesis-profile=lucky`. What failed is printed in a form that can be pasted into the test, and
# kept nowhere: the checkout may be read-only.
hypothesis.settings.register_profile(
    "dwconv",
    parent=hypothesis.settings.default,
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
hypothesis.settings.register_profile("lucky", parent=hypothesis.settings.get_profile("dwconv"), derandomize=False)
hypothesis.settings.load_profile("dwconv")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite pinned programs and figures instead of comparing"
    )


def pytest_configure(config: pytest.Config) -> None:
    """What dwconv keeps for the user goes to a folder of this run, which its processes share: a clean checkout and a
    used one behave alike, and neither the home folder nor the checkout has to be writable. What compilers made stays
    for the next run. Ctrl-C works, for the tests of it, where a shell that runs the tests in the background ignores
    it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):  # the processes of pytest-xdist inherit the environment
        # Otherwise every process that a test starts would compile all of the product's Python again.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ.pop("DWCONV_SHARED_RECORDS", None)  # of the user's environment
        if os.environ.get(forked.FOLDER) is None:  # tests that a test runs use what is compiled already
            folder = os.environ[forked.FOLDER] = tempfile.mkdtemp(prefix="dwconv-tests-")
            os.environ |= {"DWCONV_CACHE": f"{folder}/cache"}
            os.environ[kept_programs.FOLDER] = str(settings.cache_folder() / "programs")
            os.environ |= {f"XDG_{kind.upper()}_HOME": f"{folder}/{kind}" for kind in ("data", "state")}
            # What is predicted differs from device to device, and with every portfolio: tests of it ask for it.
            os.environ |= {"DWCONV_UNTUNED": "pytorch"}
            _keep_what_is_compiled()
            config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        if config.getoption("numprocesses", None):
            _compile_beside_the_tests(config)


def _keep_what_is_compiled() -> None:
    """The C++ of calls, kernels for GPUs, what TVM generates, those of the simulator, and the stand-in for a GPU: each
    is found by all that went into it. Nothing is kept of what was measured, checked or decided."""
    kept, cache = Path(platformdirs.user_cache_dir("dwconv-tests")), settings.cache_folder()
    with contextlib.suppress(OSError):  # the home folder is not writable
        for name in COMPILED:
            (kept / name).mkdir(0o700, parents=True, exist_ok=True)
            by_age = sorted((kept / name).iterdir(), key=lambda file: file.stat().st_mtime)
            for file in [*by_age[:-MOST_KEPT], *(kept / name).glob("*.failed")]:
                file.unlink(missing_ok=True)
            cache.mkdir(0o700, parents=True, exist_ok=True)
            (cache / name).symlink_to(kept / name)
        os.environ["XDG_STATE_HOME"] = str(kept / "state")  # with the key that signs them


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest come first; all others stay as they are."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


def pytest_collection_finish() -> None:
    """What imports and the tests themselves left stays to the end: no garbage collection need look through it."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What did not run here, and why, in every run: a skip that nobody sees is a test that nobody has."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    if reasons:
        terminalreporter.section("did not run here", yellow=True, bold=True)
        for reason, count in sorted(reasons.items()):
            terminalreporter.line(f"{count} × {reason}", yellow=True)


def _compile_beside_the_tests(config: pytest.Config) -> None:
    """Of many tests, one would compile the C++ while those of other processes wait for it. By itself, as where Python
    cannot be started: it ends with the tests."""
    program = "import sys; sys.executable = ''; from dwconv import native; native.native()"
    command = [sys.executable, "-c", program]
    compiling = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)

    def end() -> None:
        with contextlib.suppress(OSError):
            os.killpg(compiling.pid, signal.SIGINT)
        compiling.wait()

    config.add_cleanup(end)  # before the folder is removed


@pytest.fixture(scope="session", autouse=True)
def calls_as_they_stay() -> Iterator[None]:
    """Calls take the way that they have once the C++ is compiled. Tests of how it comes to be there say so."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        wait_for_native(monkeypatch)
        yield


@pytest.fixture(scope="session", autouse=True)
def kernels_load_once() -> Iterator[None]:
    """LLVM takes a fifth of a second to load one, and most calls in tests run the same few."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(load, "load_ir", functools.cache(load.load_ir))
        yield


@pytest.fixture(scope="session", autouse=True)
def the_package_brings_no_kernels() -> Iterator[None]:
    """Also where ``make dist`` has put some into this checkout."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(base_pack, "BASE", base_pack.BASE.with_name("no-base"))
        yield


@pytest.fixture(scope="session", autouse=True)
def programs_are_kept() -> None:
    for name in kept_programs.MODULES:
        kept_programs.keep(import_module(name))


@pytest.fixture(scope="session", autouse=True)
def nothing_has_to_outlive_the_power() -> Iterator[None]:
    """The disk takes milliseconds to say that it has a line of a log, and tests write thousands."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def workers_are_forked() -> Iterator[None]:
    """Each worker process would import PyTorch and TVM for three seconds."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if sys.platform == "linux":
            monkeypatch.setattr(started_process, "subprocess", forked.shim())
        yield


@pytest.fixture
def started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes start as the product starts them."""
    monkeypatch.setattr(started_process, "subprocess", subprocess)


@pytest.fixture(scope="module", autouse=True)
def threads_as_before() -> Iterator[None]:
    """What a module leaves changed, the next one would take for the machine's number."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def digests(texts: dict[str, str]) -> str:
    """A line of each, for ``golden``: of programs that are not there to be read."""
    return "".join(f"{sha256(text.encode()).hexdigest()[:16]} {name}\n" for name, text in texts.items())


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a program with the one pinned in a file of that name; with ``--update-golden`` writes it there."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; make it with --update-golden"
        assert text == path.read_text(), f"{path.name} changed; if it was meant, rewrite it with --update-golden"

    return check


@pytest.fixture(scope="session")
def objects() -> Path:
    """What g++ makes for the simulator of GPUs: all tests of a run, whatever their process, share it."""
    if not available():
        pytest.skip("the simulator needs g++ 12 or newer")
    folder = settings.cache_folder() / "simulator"
    folder.mkdir(0o700, parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def one_thread() -> None:
    """Small tensors only: more threads would wait for each other. Results are then the same bit by bit."""
    torch.set_num_threads(1)  # ``threads_as_before`` ends it


@pytest.fixture
def threads_as_asked() -> Iterator[None]:
    """For tests that compare with PyTorch's own operator: where OpenMP grants fewer threads than it asks for, as with
    ``OMP_DYNAMIC=true`` on a busy machine, the weight gradient of PyTorch 2.13 on a CPU is wrong. dwconv's is not: see
    ``tests/kernels/test_openmp.py``."""
    openmp = ctypes.CDLL(None)
    if not hasattr(openmp, "omp_set_dynamic"):
        yield
        return
    before = openmp.omp_get_dynamic()
    openmp.omp_set_dynamic(0)
    yield
    openmp.omp_set_dynamic(before)


@pytest.fixture
def through_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls take the way through Python."""
    go_through_python(monkeypatch)


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What runs deferred calls, and gives them a place in autograd's graph."""
    if request.param == "interpreted":
        go_through_python(monkeypatch)
    else:
        needs_native()
    return str(request.param)


@pytest.fixture
def said() -> Iterator[Callable[[], list[str]]]:
    """What dwconv has warned of so far."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: [str(each.message) for each in caught if each.category is DwconvWarning]


@pytest.fixture
def no_packs(logs: Path) -> Iterator[None]:
    """No pack is loaded, and no tuning log is read; in the end, too."""
    loaded_packs.forget()
    yield
    loaded_packs.forget()


@pytest.fixture
def short_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large space a few hundred configurations are estimated, instead of thousands."""
    monkeypatch.setattr(search_spaces, "ENUMERABLE", 300)
    monkeypatch.setattr(strategies, "LISTED", 300)


@pytest.fixture
def brief_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers time kernels for a glance: see ``tests/brief_timing.py``."""
    path, then = started_process._BOOT.rsplit("from ", 1)
    monkeypatch.setattr(started_process, "_BOOT", f"{path}import tests.brief_timing; from {then}")


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only folder where dispatch looks for tuning logs; empty at first. Nothing of other tests is remembered."""
    folder = tmp_path / "logs"
    folder.mkdir()
    monkeypatch.setenv("DWCONV_TUNING_LOGS", str(folder))
    dwconv.reset()
    yield folder
    dwconv.reset()
