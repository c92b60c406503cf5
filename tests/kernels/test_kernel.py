"""Kernel: PyTorch tensors of any strides, layout, alignment and batch go in; the right answer comes out."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from dwconv.errors import InvalidCall
from dwconv.kernels import build
from dwconv.kernels.kernel import Kernel
from dwconv.kernels.operand import alignment_bytes
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import PASSES, Pass, Workload
from dwconv.schedules.template import Candidate, templates_for
from tests import forked

TARGET = cpu_target()
PROBLEM = Workload(
    pass_="fprop", batch=2, channels=20, input_size=(9, 7), kernel=(3, 3), stride=(2, 1), padding=((1, 1), (1, 1))
)


def default_candidate(workload: Workload) -> Candidate:
    template = templates_for(workload, TARGET)[0]
    return Candidate(workload, template.space(workload, TARGET).default)


@pytest.fixture(scope="module")
def kernels() -> dict[tuple[Pass, str], Kernel]:
    """One kernel for every pass and layout of the problem."""
    made = {}
    for pass_ in PASSES:
        for layout in ("nchw", "nhwc"):
            workload = dataclasses.replace(PROBLEM, pass_=pass_, layout=layout)
            made[pass_, layout] = Kernel.load(build(default_candidate(workload), TARGET))
    return made


def tensors(batch: int) -> dict[str, torch.Tensor]:
    """x, w, dy and what PyTorch computes from them in float64: y, dx, dw."""
    x = torch.randn(batch, *PROBLEM.input_shape[1:], dtype=torch.float64, requires_grad=True)
    w = torch.randn(PROBLEM.out_channels, 1, *PROBLEM.kernel, dtype=torch.float64, requires_grad=True)
    y = F.conv2d(x, w, None, PROBLEM.stride, 1, 1, PROBLEM.channels)
    dy = torch.randn_like(y)
    dx, dw = torch.autograd.grad(y, (x, w), dy)
    return {"x": x.detach(), "w": w.detach(), "dy": dy, "y": y.detach(), "dx": dx, "dw": dw}


def check(kernel: Kernel, exact: dict[str, torch.Tensor], *, prepare=lambda tensor: tensor) -> torch.Tensor:
    (out,) = kernel.workload.results
    result = kernel(*(prepare(exact[name].float()) for name in kernel.workload.inputs))
    torch.testing.assert_close(result, exact[out].float(), rtol=1e-5, atol=1e-4)
    return result


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_any_batch_and_the_layout_of_the_workload(kernels, pass_, layout, batch):
    result = check(kernels[pass_, layout], tensors(batch))
    wanted = torch.channels_last if layout == "nhwc" and pass_ != "wgrad" else torch.contiguous_format
    assert result.is_contiguous(memory_format=wanted)


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """Vectors of it lie across cache lines."""
    room = torch.empty(tensor.numel() + 1)[1:]
    assert room.data_ptr() % 64
    return room.copy_(tensor.flatten()).view(tensor.shape)


def off_by_a_byte(tensor: torch.Tensor) -> torch.Tensor:
    """Where no float should start: a buffer of bytes, read as floats."""
    room = bytearray(4 * tensor.numel() + 8)
    shifted = torch.frombuffer(room, dtype=torch.float32, offset=1, count=tensor.numel())
    assert shifted.data_ptr() % alignment_bytes("cpu", "float32")
    return shifted.copy_(tensor.flatten()).view(tensor.shape)


def sliced(tensor: torch.Tensor) -> torch.Tensor:
    room = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1])
    room[..., ::2] = tensor
    return room[..., ::2]


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(memory_format=torch.channels_last)


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(2, 3).contiguous().transpose(2, 3)


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("prepare", [misaligned, off_by_a_byte, sliced, channels_last, transposed])
def test_any_strides_and_alignment(kernels, pass_, prepare):
    for layout in ("nchw", "nhwc"):
        check(kernels[pass_, layout], tensors(2), prepare=prepare)


def test_expanded_input_is_read_as_what_it_shows(kernels):
    kernel = kernels["fprop", "nhwc"]
    one, weight = torch.randn(1, *PROBLEM.input_shape[1:]), torch.randn(PROBLEM.out_channels, 1, *PROBLEM.kernel)
    result = kernel(one.expand(4, -1, -1, -1), weight)
    assert torch.equal(result, kernel(one, weight).expand(4, -1, -1, -1))


def test_the_same_call_gives_the_same_bits_for_every_number_of_threads(kernels):
    exact = tensors(3)
    kernel = kernels["wgrad", "nhwc"]
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (2, 1, 3):
            torch.set_num_threads(threads)
            results += [kernel(exact["x"].float(), exact["dy"].float()) for _ in range(2)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(results[0], result) for result in results)


@pytest.mark.slow
def test_a_config_says_how_many_threads_it_takes_at_most():
    """Seen in a process of its own: this one has started its threads already."""
    code = """
import dataclasses, psutil, torch
from tests.kernels.test_kernel import PROBLEM, TARGET, default_candidate
from dwconv.kernels import build
from dwconv.kernels.kernel import Kernel
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
torch.set_num_threads(5)
PROBLEM = dataclasses.replace(PROBLEM, layout="nhwc")
target = dataclasses.replace(TARGET, threads=8)
config = dict(default_candidate(PROBLEM).config.values)
x, w = torch.zeros(PROBLEM.input_shape), torch.zeros(20, 1, 3, 3)
x[:] = 1  # whatever starts with the first use of PyTorch has started
counts, results = [], []
for threads in (1, 2, 4, 8):
    candidate = Candidate(PROBLEM, Config.of("cpu.fprop_nhwc", **{**config, "threads": threads}))
    kernel = Kernel.load(build(candidate, target))
    before = psutil.Process().num_threads() if not counts else before
    results.append(kernel(x, w))
    counts.append(psutil.Process().num_threads() - before)
assert all(torch.equal(result, results[0]) for result in results)
print(counts)
"""
    usual = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}  # which grants them all
    ran = forked.run([sys.executable, "-c", code], env=usual, cwd=Path(__file__).parents[2], text=True)
    assert ran.stdout == "[0, 1, 3, 4]\n", ran.stdout + ran.stderr


def test_too_many_elements_are_refused_before_the_call(kernels):
    huge = torch.empty(1).expand(2**31, 1, 1, 1)
    with pytest.raises(InvalidCall, match="elements"):
        kernels["fprop", "nhwc"](huge, huge)


def test_common_subexpressions_are_left_to_llvm(kernels):
    """TVM's own pass for them makes longer code, of NCHW's weight gradient half as long again."""
    assert not [key for key, kernel in kernels.items() if "cse" in kernel.artifact.source]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_its_code_has_what_runs_alone(dtype):
    """No checks of tensors that are described right, nothing for debuggers; what converts float16 only where it is."""
    source = build(default_candidate(dataclasses.replace(PROBLEM, dtype=dtype)), TARGET).source
    assert "@__tvm_ffi_main(" in source and "dbg" not in source and "TVMFFIErrorSetRaised" not in source
    assert [f"@{name}(" in source for name in ("__truncsfhf2", "__extendhfsf2")] == [dtype == "float16"] * 2
