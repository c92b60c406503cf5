"""Kernels under every OpenMP setting: with fewer threads than were requested, all is computed, to the same bits."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cache import build_cached
from dwconv.kernels.kernel import Kernel
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import LAYOUTS, PASSES, Workload
from dwconv.schedules.template import Candidate, templates_for
from dwconv.system import openmp
from dwconv.system.threads import on_threads

ASKED = (os.cpu_count() or 1) + 3
"""More threads than there are processors: with OMP_DYNAMIC they are never granted."""
PROBLEM = Workload(pass_="fprop", batch=8, channels=32, input_size=(28, 28), kernel=(3, 3), padding=((1, 1), (1, 1)))
"""Large enough for no configuration to use fewer threads."""
OPENMP = ctypes.CDLL(None)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

pytestmark = pytest.mark.skipif(not hasattr(OPENMP, "GOMP_parallel"), reason="PyTorch brought no GNU OpenMP")


class Case:
    """A kernel, its inputs, and the bits that it gives on one thread."""

    def __init__(self, artifact: Artifact) -> None:
        self._kernel = Kernel.load(artifact)
        batch = PROBLEM.batch
        drawn = torch.Generator().manual_seed(0)
        self._inputs = [torch.randn(each.shape_at(batch), generator=drawn) for each in artifact.inputs]
        self.name = artifact.candidate.config.template
        with on_threads(1):
            self._exact = self._run()
        assert all(result.isfinite().all() for result in self._exact)

    def is_right(self) -> bool:
        """On as many threads as this thread of Python is granted now."""
        return all(map(torch.equal, self._run(), self._exact))

    def _run(self) -> list[torch.Tensor]:
        """The results, in memory that held NaN: what is not computed shows."""
        artifact, batch = self._kernel.artifact, PROBLEM.batch
        results, workspaces = (
            [torch.full(each.shape_at(batch), torch.nan) for each in tensors]
            for tensors in (artifact.results, artifact.workspaces)
        )
        self._kernel.run_into(self._inputs, results, workspaces)
        return results


def all_cases() -> list[Case]:
    """Every template that fits a pass in a layout."""
    target = cpu_target(threads=2)
    cases = []
    for pass_ in PASSES:
        for layout in LAYOUTS:
            workload = Workload(**{**vars(PROBLEM), "pass_": pass_, "layout": layout})
            for template in templates_for(workload, target):
                if template.layout == layout:
                    config = template.space(workload, target).default
                    cases.append(Case(build_cached(Candidate(workload, config), target)))
    return cases


def granted() -> int:
    """How many threads a region gets that requests as many as PyTorch uses."""
    counts: list[int] = []
    count = CALLBACK(lambda _: counts.append(OPENMP.omp_get_num_threads()))
    OPENMP.GOMP_parallel(count, None, ASKED, 0)
    return max(counts)


def wrong(cases: list[Case]) -> list[str]:
    """Names of the kernels that give other bits than on one thread, where fewer are granted than are requested."""
    with on_threads(ASKED):
        assert OPENMP.omp_get_max_threads() == ASKED > granted()
        return [case.name for case in cases if not case.is_right()]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return all_cases()


@pytest.mark.parametrize(("setting", "value"), [("dynamic", 1), ("max_active_levels", 0)])
def test_the_environment_or_a_library_may_set_openmp_as_it_likes(cases: list[Case], setting: str, value: int) -> None:
    get, put = getattr(OPENMP, f"omp_get_{setting}"), getattr(OPENMP, f"omp_set_{setting}")
    before = get()
    put(value)
    try:
        assert wrong(cases) == []
    finally:
        put(before)


@pytest.mark.parametrize("levels", [1, 3])
def test_inside_a_parallel_region_of_other_code(cases: list[Case], levels: int) -> None:
    found: list[list[str]] = []
    before = OPENMP.omp_get_max_active_levels()
    region = CALLBACK(lambda _: found.append([case.name for case in cases if not case.is_right()]))
    OPENMP.omp_set_max_active_levels(levels)
    try:
        with on_threads(ASKED):
            for team in (1, 3):
                OPENMP.GOMP_parallel(region, None, team, 0)
    finally:
        OPENMP.omp_set_max_active_levels(before)
    assert found
    assert all(names == [] for names in found)


def test_several_threads_of_python_at_once(cases: list[Case]) -> None:
    found: list[list[str]] = []

    def call() -> None:
        torch.set_num_threads(ASKED)
        found.append([case.name for case in cases if not case.is_right()])

    callers = [threading.Thread(target=call) for _ in range(4)]
    before = torch.get_num_threads()
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    torch.set_num_threads(before)
    assert found == [[]] * 4


@pytest.mark.slow
def test_a_limit_from_the_environment(cases: list[Case]) -> None:
    """The only one of OpenMP's settings that cannot be changed in a process."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    ran = subprocess.run(
        [sys.executable, "-c", "from tests.kernels import test_openmp as it; print(it.wrong(it.all_cases()))"],
        env={**usual, "OMP_THREAD_LIMIT": "1", "DWCONV_NATIVE": "0"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "[]\n", ran.stdout + ran.stderr


@pytest.mark.skipif(not hasattr(os, "RTLD_NOLOAD"), reason="the system cannot tell what is loaded")
def test_the_runtime_that_pytorch_has_loaded_is_found() -> None:
    """Its wheel for Arm keeps it to itself, and another library may have brought one of its own."""
    path = openmp._openmp_of_pytorch()
    assert path is not None and "gomp" in Path(path).name
    runtime = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        assert runtime.omp_get_max_threads() == before + 1
    finally:
        torch.set_num_threads(before)
