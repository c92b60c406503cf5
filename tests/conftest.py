"""What a run of tests shares, and its options. The process that distributes tests among others needs no PyTorch."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import hypothesis
import platformdirs
import pytest
from hypothesis import HealthCheck
from hypothesis.configuration import set_hypothesis_home_dir

from dwconv import settings
from tests import forked, kept_programs

gc.disable()
"""Until all tests are collected: what imports make stays, and to look through it again and again takes a second."""
_LONGEST = ("tests/standin/", "tests/tuner/test_ray.py", "tests/test_readme.py")
"""Tests of a minute, most of which one core waits for: where one of them comes last, the other cores are idle."""

OF_BUILDS = ("programs", kept_programs.ARTIFACTS, kept_programs.MACHINE_CODE)
COMPILED, MOST_KEPT = ("native", "cubins", *OF_BUILDS, "simulator", "stand-in"), 8000
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
set_hypothesis_home_dir(Path(platformdirs.user_cache_dir("dwconv-tests")) / "hypothesis")
"""It keeps what it finds in each source file, by the file's digest."""


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
            if not config.getoption("collectonly"):
                return
    config.pluginmanager.import_plugin("tests.fixtures")


def _keep_what_is_compiled() -> None:
    """The C++ of calls, kernels for GPUs, what TVM and LLVM make, those of the simulator, and the stand-in for a GPU:
    each is found by all that went into it. Nothing is kept of what was measured, checked or decided."""
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
