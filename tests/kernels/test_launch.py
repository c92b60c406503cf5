"""What would be launched on a GPU: a stand-in for the driver writes down what it is told."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dwconv.errors import BuildError, NoDevice
from dwconv.kernels import launch
from dwconv.kernels.artifact import Argument, Artifact, Extent, Launch, Scalar
from dwconv.kernels.cpu_build import describe
from dwconv.kernels.cuda_build import lower
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, templates_for
from tests.standin import compiled

WORKLOAD = Workload(pass_="fprop", batch=3, channels=2, input_size=(4, 4), kernel=(1, 1))
X, W, Y = (
    Argument("x", "float32", (Extent(), 2, 4, 4)),
    Argument("w", "float32", (2, 1, 1)),
    Argument("y", "float32", (Extent(), 2, 4, 4)),
)
PARTS = Argument("workspace0", "float32", (Extent(over=2), 2))
SUM = Launch(kernel="sum_kernel", grid=(1, 1, 1), block=(32, 1, 1), shared_bytes=0, arguments=(Y, PARTS))


def artifact(*, shared_bytes: int = 0, second: Launch | None = None) -> Artifact:
    first = Launch(
        kernel="main_kernel",
        grid=(Extent(times=2), 1, 1),
        block=(8, 4, 1),
        shared_bytes=shared_bytes,
        arguments=(W, X, Y, Scalar("n", Extent()), Scalar("half", Extent(over=2))),
    )
    return Artifact(
        candidate=Candidate(WORKLOAD, Config.of("cuda.fprop_nchw", planes=1)),
        kind="cuda",
        source="",
        arguments=(X, W, Y, *([PARTS] if second else [])),
        cubin=b"cubin",
        launches=(first, second) if second else (first,),
    )


class StandIn:
    """Answers like cuda.bindings.driver, and like the two entries of the driver itself; ``told`` holds the calls
    that it got."""

    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared")
    CONTEXT = 0xC0
    CUDA_VERSION = 13050

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.current = threading.local()
        """Each thread's own context, None at first."""
        self.device = 0
        self.refuses = 0
        self.refuses_cubins = 0
        self.version = 13000
        self._names: dict[int, str] = {}

    def CUresult(self, value: int) -> SimpleNamespace:
        return SimpleNamespace(value=value, name="CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" if value else "CUDA_SUCCESS")

    def cuDeviceGet(self, ordinal: int) -> tuple[Any, Any]:
        return self.CUresult(0), ordinal

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, Any]:
        return self.CUresult(0), self.CONTEXT + device

    def cuCtxSetCurrent(self, context: int) -> tuple[Any]:
        self.current.context = context
        return (self.CUresult(0),)

    def cuModuleLoadData(self, cubin: bytes) -> tuple[Any, Any]:
        self.told.append(("load", cubin))
        return (self.CUresult(self.refuses_cubins), *([] if self.refuses_cubins else ["module"]))

    def cuDriverGetVersion(self) -> tuple[Any, Any]:
        return self.CUresult(0), self.version

    def cuModuleGetFunction(self, module: str, name: bytes) -> tuple[Any, Any]:
        self._names[len(self._names) + 1] = name.decode()
        return self.CUresult(0), len(self._names)

    def cuFuncSetAttribute(self, function: int, attribute: str, value: int) -> tuple[Any]:
        self.told.append((attribute, value))
        return (self.CUresult(0),)

    def set_context(self, context: ctypes.c_void_p) -> int:
        self.current.context = context.value
        return 0

    def launch(self, function: ctypes.c_void_p, *given: Any) -> int:
        assert getattr(self.current, "context", None) == self.CONTEXT + self.device, "CUDA_ERROR_INVALID_CONTEXT"
        assert function.value
        *sizes, stream, parameters, extra = given
        assert extra is None
        values = [ctypes.c_uint64.from_address(place).value for place in parameters]
        self.told.append((self._names[function.value], tuple(sizes), stream.value, tuple(values)))
        return self.refuses


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    stand_in = StandIn()
    monkeypatch.setattr(launch, "_driver", lambda: stand_in)
    monkeypatch.setattr(launch, "_entries", lambda: (None, stand_in.set_context, stand_in.launch))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: stand_in.device)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77 + device, raising=False)
    yield stand_in


def test_launches_are_as_the_artifact_lists_them_and_find_their_workspaces(driver: StandIn) -> None:
    launch.load_cuda(artifact(second=SUM))(3, 1024, 2048, 4096, 8192)
    assert driver.told == [
        ("load", b"cubin"),
        ("main_kernel", (6, 1, 1, 8, 4, 1, 0), 77, (2048, 1024, 4096, 3, 2)),
        ("sum_kernel", (1, 1, 1, 32, 1, 1, 0), 77, (4096, 8192)),
    ]


def test_any_batch_runs_and_the_module_is_loaded_once(driver: StandIn) -> None:
    call = launch.load_cuda(artifact())
    for batch in (1, 5, 0, 1):
        call(batch, 1024 * (batch + 1), 2048, 4096)
    assert [told[0] for told in driver.told] == ["load", *["main_kernel"] * 3]
    assert [told[1][0] for told in driver.told[1:]] == [2, 10, 2]
    assert [told[-1][1] for told in driver.told[1:]] == [2048, 6144, 2048]


def test_each_thread_and_each_device_has_its_own(driver: StandIn) -> None:
    """As autograd's threads, which never called CUDA, have in the backward pass."""
    call = launch.load_cuda(artifact())
    call(3, 1024, 2048, 4096)
    backward = threading.Thread(target=call, args=(3, 1, 2, 3))
    backward.start()
    backward.join()
    assert [told[0] for told in driver.told] == ["load", "main_kernel", "main_kernel"]
    assert driver.told[-1][-1][:3] == (2, 1, 3)
    driver.device = 1
    call(3, 1024, 2048, 4096)
    assert [(told[0], *told[2:3]) for told in driver.told[3:]] == [("load",), ("main_kernel", 78)]


def test_dynamic_shared_memory_is_requested(driver: StandIn) -> None:
    """Any: a kernel may have static shared memory too, and only both together count."""
    launch.load_cuda(artifact(shared_bytes=40_000))(3, 1024, 2048, 4096)
    assert ("shared", 40_000) in driver.told
    assert driver.told[-1][1][-1] == 40_000


def test_a_refusal_of_the_driver_is_an_error_and_nothing_is_launched_after_it(driver: StandIn) -> None:
    driver.refuses = 701
    with pytest.raises(BuildError, match="LAUNCH_OUT_OF_RESOURCES for planes=1"):
        launch.load_cuda(artifact(second=SUM))(3, 1024, 2048, 4096, 8192)
    assert [told[0] for told in driver.told] == ["load", "main_kernel"]


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (
            12080,
            "; the driver is for CUDA 12, kernels are compiled for CUDA 13: update the driver, or install PyTorch for "
            "CUDA 12, then 'dwconv[cuda12]'",
        ),
        (13000, ""),
        (14000, ""),
    ],
)
def test_the_error_of_an_old_driver_names_the_way_out(driver: StandIn, version: int, told: str) -> None:
    driver.refuses_cubins, driver.version = 209, version
    with pytest.raises(BuildError) as raised:
        launch.load_cuda(artifact())
    assert str(raised.value).endswith(f" for planes=1{told}")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_loaded() -> None:
    with pytest.raises(NoDevice, match="no"):
        launch.load_cuda(artifact())


# -- where there is a driver -------------------------------------------------------------------------------------------


LOWERED = """
import tvm_ffi
from tests.kernels.test_launch import lowered
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
def with_driver(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that finds a driver."""
    if reason := compiled.why_not():
        pytest.skip(reason)
    compiled.driver(tmp_path)
    root = Path(__file__).resolve().parents[2]
    return os.environ | {"LD_LIBRARY_PATH": compiled.library_path(tmp_path), "PYTHONPATH": str(root)}


@pytest.mark.slow
def test_a_candidate_is_lowered_to_the_same_source_and_not_compiled_by_tvm(with_driver: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", LOWERED], env=with_driver, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", lowered(), lowered(), "True"]
