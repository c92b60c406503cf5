"""Where there is a driver, TVM loads a CUDA runtime, which would compile what it generates: it must not."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dwconv.kernels.cpu import describe
from dwconv.kernels.cuda import lower
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.problems.workload import Workload
from dwconv.schedules.template import Candidate, templates_for
from tests.standin import compiled

LOWERED = """
import tvm_ffi
from tests.kernels.test_driver_present import lowered
from tvm.base import _LOADED_LIBS

name = "tvm_callback_cuda_compile"
before = tvm_ffi.get_global_func(name)
print("tvm_runtime_cuda" in _LOADED_LIBS, lowered(), lowered(), tvm_ffi.get_global_func(name).same_as(before))
"""


def lowered() -> str:
    """The digest of a source."""
    target = parse_target("cuda:sm_90")
    assert isinstance(target, CudaTarget)
    workload = Workload(pass_="fprop", batch=2, channels=8, input_size=(9, 9), kernel=(3, 3))
    template = templates_for(workload, target)[0]
    function = Candidate(workload, template.space(workload, target).default).schedule(target).mod["main"]
    source, _ = lower(function, tuple(describe(buffer) for buffer in function.params), arch=target.arch)
    return hashlib.sha256(source.encode()).hexdigest()


@pytest.fixture
def driver(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that finds a driver."""
    if reason := compiled.why_not():
        pytest.skip(reason)
    compiled.driver(tmp_path)
    root = Path(__file__).resolve().parents[2]
    return os.environ | {"LD_LIBRARY_PATH": compiled.library_path(tmp_path), "PYTHONPATH": str(root)}


def test_a_candidate_is_lowered_to_the_same_source_and_not_compiled_by_tvm(driver: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", LOWERED], env=driver, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", lowered(), lowered(), "True"]
