"""The fixtures of all tests, and how pinned programs are compared. Only processes that run tests import this."""

from __future__ import annotations

import ctypes
import functools
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from hashlib import sha256
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import dwconv
from dwconv import settings
from dwconv.dispatch import loaded_packs
from dwconv.errors import DwconvWarning
from dwconv.kernels import base_pack, load_cpu
from dwconv.measure.processes import started_process
from dwconv.measure.simulator import simulate
from dwconv.measure.simulator.host_compile import available
from dwconv.schedules.template import all_templates
from dwconv.tuner.search import search_strategies
from dwconv.tuner.search import space_union as search_spaces
from tests import forked, kept_programs
from tests.native_needed import go_through_python, needs_native, wait_for_native

for _name in kept_programs.MODULES:
    kept_programs.keep(import_module(_name))
kept_programs.keep_artifacts(simulate, "source_only")  # before tests import it

Golden = Callable[[str, str], None]
GOLDEN = Path(__file__).parent / "schedules" / "golden"


@pytest.fixture(scope="session", autouse=True)
def calls_as_they_stay() -> Iterator[None]:
    """Calls take the way that they have once the C++ is compiled. Tests of how it comes to be there say so."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        wait_for_native(monkeypatch)
        yield


@pytest.fixture(scope="session", autouse=True)
def kernels_load_once() -> Iterator[None]:
    """LLVM takes up to a seventh of a second to load one, and most calls in tests run the same few. In worker processes
    and in ``tests/kernels`` they load as the product loads them."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(load_cpu, "module_of", load_cpu.module_of)  # which ends what follows
        kept_programs.keep_machine_code(load_cpu)
        monkeypatch.setattr(load_cpu, "load_ir", functools.cache(load_cpu.load_ir))
        yield


@pytest.fixture(scope="session", autouse=True)
def the_package_brings_no_kernels() -> Iterator[None]:
    """Also where ``make dist`` has put some into this checkout."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(base_pack, "BASE", base_pack.BASE.with_name("no-base"))
        yield


@pytest.fixture(scope="session", autouse=True)
def templates_are_seen_as_written() -> None:
    """Before a test replaces parts of them."""
    all_templates()
    assert kept_programs.is_as_written()


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


def draw_anew() -> None:
    """Random numbers are the same from now on, whatever was drawn before."""
    random.seed(0)
    np.random.seed(0)
    torch.default_generator.manual_seed(0)  # ``torch.manual_seed`` formats a traceback, for GPUs


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """What fixtures draw depends on no test before, nor on the order of tests."""
    draw_anew()


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    """Nor does what a test draws depend on whether it is the first that has a fixture of its module."""
    draw_anew()


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
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """What dwconv has warned of so far. The layers of earlier tests' models are not counted."""
    monkeypatch.setattr("dwconv.call.untuned_warnings._examples", [])
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
    monkeypatch.setattr(search_strategies, "LISTED", 300)


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
