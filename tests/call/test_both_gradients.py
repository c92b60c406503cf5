"""Both gradients of a layer from one kernel: on every road where both are wanted, and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

import dwconv
from bench.launched import passes_of
from dwconv.call import process_kernels
from dwconv.errors import DwconvWarning
from dwconv.reporting.ran import so_far
from tests.native_needed import both_ways
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.usefixtures("threads_as_asked")
SHAPE = (2, 8, 9, 7)


@pytest.fixture(autouse=True)
def tuned(logs):
    plant(logs / "log.jsonl", [workload_of(), workload_of(bias=True)], baseline_us=1e6)
    plant(logs / "log.jsonl", [workload_of(block="none,none")], passes=["backward"], baseline_us=1e6)


@pytest.fixture
def compiled():
    """Runs a function under ``torch.compile``, which keeps what it traced for other tests."""
    torch._dynamo.reset()
    return torch.compile(convolve, backend="aot_eager")


def image(batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, *SHAPE[1:]).to(memory_format=torch.channels_last).requires_grad_()


def weight() -> torch.Tensor:
    return torch.randn(8, 1, 3, 3, requires_grad=True)


def convolve(x, w, bias=None):
    return dwconv.conv2d(x, w, bias, padding=1)


def exact(x, w, bias=None):
    return F.conv2d(x, w, bias, padding=1, groups=8)


def check(ours, reference):
    torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-4)


def gradients(function, *leaves, wanted=None):
    return torch.autograd.grad(function(*leaves).sin().sum(), leaves if wanted is None else wanted)


def ran(call: Callable[[], object]) -> Counter[str]:
    """The kernels of gradients that a call runs, after a first one, which may teach."""
    call()
    return passes_of(call, on_gpu=False) - Counter(fprop=9)


ONE, TWO = Counter(backward=1), Counter(dgrad=1, wgrad=1)


@both_ways
@pytest.mark.parametrize("batch", [2, 5])
def test_where_both_are_wanted_one_kernel_gives_them(way, batch):
    x, w = image(batch), weight()
    assert ran(lambda: gradients(convolve, x, w)) == ONE
    dx, dw = gradients(convolve, x, w)
    check((dx, dw), gradients(exact, x, w))
    assert dx.is_contiguous(memory_format=torch.channels_last) and dw.stride() == w.stride()


@both_ways
@pytest.mark.parametrize("only", ["dgrad", "wgrad"])
def test_where_one_is_wanted_its_own_kernel_runs(way, only):
    """Of the call alone, then of the very call that gave both: a weight may be frozen later, and a pipeline requests
    one after the other."""
    x, w = image(), weight()
    wanted, other = (x, w) if only == "dgrad" else (w, x)
    gradients(convolve, x, w)
    assert ran(lambda: gradients(convolve, x, w, wanted=wanted)) == Counter({only: 1})
    check(gradients(convolve, x, w, wanted=wanted), gradients(exact, x, w, wanted=wanted))
    other.requires_grad_(False)
    assert ran(lambda: gradients(convolve, x, w, wanted=wanted)) == Counter({only: 1})
    other.requires_grad_(True)
    assert ran(lambda: gradients(convolve, x, w)) == ONE


@both_ways
def test_a_bias_takes_wgrad(way):
    x, w, bias = image(), weight(), torch.randn(8, requires_grad=True)
    assert ran(lambda: gradients(convolve, x, w, bias)) == TWO
    check(gradients(convolve, x, w, bias), gradients(exact, x, w, bias))


@both_ways
def test_of_a_slice_of_channels_both_run_apart(way):
    whole, w = torch.randn(2, 12, 9, 7).to(memory_format=torch.channels_last).requires_grad_(), weight()

    def of_slice(function):
        return torch.autograd.grad(function(whole[:, 2:10], w).sin().sum(), (whole, w))

    assert ran(lambda: of_slice(convolve)) == TWO
    check(of_slice(convolve), of_slice(exact))


def test_the_op_is_differentiable_by_itself():
    x, w = image(), weight()
    dy = torch.randn(SHAPE).to(memory_format=torch.channels_last).requires_grad_()

    def second(function):
        dx, dw = function()
        return torch.autograd.grad(dx.sin().sum() + dw.sin().sum(), (x, w, dy))

    ours = second(lambda: torch.ops.dwconv.backward(x, dy, w, (1, 1), (1, 1, 1, 1), (1, 1), "nhwc"))
    check(ours, second(lambda: torch.autograd.grad(exact(x, w), (x, w), dy, create_graph=True)))
    torch.library.opcheck(
        torch.ops.dwconv.backward.default, (x, dy, w, (1, 1), (1, 1, 1, 1), (1, 1), "nhwc"),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_step_has_it(compiled, dynamic):
    x, w = image(), weight()
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    assert ran(lambda: gradients(compiled, x, w)) == ONE
    check(gradients(compiled, x, w), gradients(exact, x, w))
    w.requires_grad_(False)
    assert ran(lambda: gradients(compiled, x, w, wanted=x)) == Counter(dgrad=1)


@both_ways
def test_a_kernel_that_is_wrong_here_makes_way_for_two(way, monkeypatch):
    fault_of = process_kernels.fault_of

    def planted(kernel, *args):
        return "it is off by one" if kernel.workload.pass_ == "backward" else fault_of(kernel, *args)

    monkeypatch.setattr(process_kernels, "fault_of", planted)
    x, w = image(), weight()
    with pytest.warns(DwconvWarning, match=r"none,none runs as dgrad and wgrad: its tuned kernel gave wrong results"):
        gradients(convolve, x, w)
    assert ran(lambda: gradients(convolve, x, w)) == TWO
    check(gradients(convolve, x, w), gradients(exact, x, w))


def test_as_many_operations_are_counted_as_of_pytorchs_op(monkeypatch):
    counts = []
    for function in (convolve, exact):
        with FlopCounterMode(display=False) as counter:
            gradients(function, image(), weight())
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def converted():
    layer = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False).to(memory_format=torch.channels_last)
    return dwconv.convert(torch.nn.Sequential(layer))


@pytest.mark.parametrize(("x", "passes"), [(image(), ["fprop", "backward"]), (image().detach(), ["fprop", "wgrad"])])
def test_the_report_of_an_example_has_what_a_step_runs(x, passes):
    (row,) = dwconv.report(converted(), x).rows
    assert [each.pass_ for each in row.passes] == passes
    assert all(each.provider == "dwconv" and each.per_step == 1 for each in row.passes)
    assert row.passes[-1].ours_us == 50.0


def test_the_report_of_a_layer_that_was_not_converted_has_pytorchs_passes():
    model = converted()
    model.append(torch.nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False))
    (_, row) = dwconv.report(model, image()).rows
    assert [(each.pass_, each.provider) for each in row.passes] == [
        ("fprop", "pytorch"), ("dgrad", "pytorch"), ("wgrad", "pytorch")
    ]  # fmt: skip


@both_ways
def test_the_report_counts_it_in_the_place_of_the_two(way):
    model = converted()
    for _ in range(3):
        model(image()).sum().backward()
    model(image().detach()).sum().backward()
    (row,) = dwconv.report(model).rows
    assert {each.pass_: each.calls for each in row.passes} == {"fprop": 4, "wgrad": 1, "backward": 3}
    assert [each.provider for each in row.passes] == ["dwconv"] * 3
    (layer_ran,) = so_far(model)
    assert layer_ran.calls == {"fprop": 4, "dgrad": 3, "wgrad": 4}, "what was asked for"
