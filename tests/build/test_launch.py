"""What would be launched on a GPU: a stand-in for the driver writes down what it is told."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dwconv.build import launch
from dwconv.build.artifact import Argument, Artifact, Extent, Launch, Scalar
from dwconv.errors import BuildError, NoDevice
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from dwconv.workload import Workload

WORKLOAD = Workload(pass_="fprop", batch=3, channels=2, input_size=(4, 4), kernel=(1, 1))
X, W, Y = (
    Argument("x", "float32", (Extent(), 2, 4, 4)),
    Argument("w", "float32", (2, 1, 1)),
    Argument("y", "float32", (Extent(), 2, 4, 4)),
)


def artifact(*, shared_bytes: int = 0) -> Artifact:
    return Artifact(
        candidate=Candidate(WORKLOAD, Config.of("cuda.fprop_nchw", planes=1)),
        kind="cuda",
        source="",
        arguments=(X, W, Y),
        cubin=b"cubin",
        launches=(
            Launch(
                kernel="main_kernel",
                grid=(Extent(times=2), 1, 1),
                block=(8, 4, 1),
                shared_bytes=shared_bytes,
                arguments=(W, X, Y, Scalar("n", Extent())),
            ),
        ),
    )


class StandIn:
    """Answers like cuda.bindings.driver; ``told`` holds what it was asked to do."""

    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared")

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.current = threading.local()
        """Each thread's own context, None at first."""
        self.status = SimpleNamespace(value=0, name="CUDA_SUCCESS")

    def cuDeviceGet(self, ordinal: int | None) -> tuple[Any, Any]:
        return self.status, ordinal

    def cuDevicePrimaryCtxRetain(self, device: int | None) -> tuple[Any, Any]:
        return self.status, "context"

    def cuCtxSetCurrent(self, context: str) -> tuple[Any]:
        self.current.context = context
        return (self.status,)

    def cuModuleLoadData(self, cubin: bytes) -> tuple[Any, Any]:
        self.told.append(("load", cubin))
        return self.status, "module"

    def cuModuleGetFunction(self, module: str, name: bytes) -> tuple[Any, Any]:
        return self.status, name.decode()

    def cuFuncSetAttribute(self, function: str, attribute: str, value: int) -> tuple[Any]:
        self.told.append((attribute, value))
        return (self.status,)

    def cuLaunchKernel(self, function: str, *numbers: int) -> tuple[Any]:
        assert getattr(self.current, "context", None) == "context", "CUDA_ERROR_INVALID_CONTEXT"
        *sizes, stream, parameters, _ = numbers
        pointers = (ctypes.c_void_p * 4).from_address(parameters)
        values = [ctypes.c_uint64.from_address(p or 0).value for p in pointers[:3]]
        values.append(ctypes.c_int32.from_address(pointers[3] or 0).value)
        self.told.append(("launch", function, tuple(sizes), stream, tuple(values)))
        return (self.status,)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    stand_in = StandIn()
    monkeypatch.setattr(launch, "_driver", lambda: stand_in)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: SimpleNamespace(cuda_stream=77))
    yield stand_in


def tensors(batch: int = 3) -> list[torch.Tensor]:
    return [torch.zeros(batch, 2, 4, 4), torch.zeros(2, 1, 1), torch.zeros(batch, 2, 4, 4)]


def test_a_launch_is_told_as_the_artifact_lists_it(driver: StandIn) -> None:
    x, w, y = tensors()
    launch.load_cuda(artifact())(x, w, y)
    assert driver.told == [
        ("load", b"cubin"),
        ("launch", "main_kernel", (6, 1, 1, 8, 4, 1, 0), 77, (w.data_ptr(), x.data_ptr(), y.data_ptr(), 3)),
    ]


def test_any_batch_runs_and_the_module_is_loaded_once(driver: StandIn) -> None:
    call = launch.load_cuda(artifact())
    for batch in (1, 5, 0):
        call(*tensors(batch))
    assert [told[0] for told in driver.told] == ["load", "launch", "launch"]
    assert [told[2][0] for told in driver.told[1:]] == [2, 10]


def test_a_thread_that_never_called_cuda_can_launch(driver: StandIn) -> None:
    """As autograd's threads do, in the backward pass."""
    call = launch.load_cuda(artifact())
    call(*tensors())
    backward = threading.Thread(target=call, args=tensors())
    backward.start()
    backward.join()
    assert [told[0] for told in driver.told] == ["load", "launch", "launch"]


def test_planes_may_be_flattened(driver: StandIn) -> None:
    x, w, y = tensors()
    launch.load_cuda(artifact())(x.flatten(0, 1), w, y.flatten(0, 1))
    assert driver.told[-1][4][-1] == 3


@pytest.mark.parametrize("shared_bytes", [100_000, 40_000])
def test_dynamic_shared_memory_is_asked_for(driver: StandIn, shared_bytes: int) -> None:
    """Any: a kernel may have static shared memory too, and only both together count."""
    launch.load_cuda(artifact(shared_bytes=shared_bytes))(*tensors())
    assert ("shared", shared_bytes) in driver.told
    assert driver.told[-1][2][-1] == shared_bytes


@pytest.mark.parametrize(
    ("position", "tensor", "reason"),
    [
        (2, torch.zeros(2, 2, 4, 4), r"y is \(2, 2, 4, 4\), not a contiguous \(3, 2, 4, 4\)"),
        (0, torch.zeros(3, 2, 4, 8)[..., ::2], "x is"),
        (1, torch.zeros(3)[1:].reshape(2, 1, 1), "w does not start at a multiple of 16 bytes"),
        (1, torch.zeros(2, 1, 1, device="meta"), "w is on meta, not on cpu"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(driver: StandIn, position: int, tensor: torch.Tensor, reason: str) -> None:
    given = tensors()
    given[position] = tensor
    with pytest.raises(BuildError, match=reason):
        launch.load_cuda(artifact())(*given)
    assert not driver.told


def test_what_the_driver_refuses_is_told(driver: StandIn) -> None:
    driver.status = SimpleNamespace(value=701, name="CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
    with pytest.raises(BuildError, match="LAUNCH_OUT_OF_RESOURCES for planes=1"):
        launch.load_cuda(artifact())(*tensors())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_loaded() -> None:
    with pytest.raises(NoDevice, match="no"):
        launch.load_cuda(artifact())
