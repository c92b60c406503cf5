"""``causal_conv1d``: what it computes, with every argument, on kernels and without."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import dwconv
from dwconv.call import silu_ops
from dwconv.call.call_plan import plans
from dwconv.errors import InvalidCall
from dwconv.problems.problem import Problem
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import Workload
from dwconv.records.log import TuningLog
from dwconv.schedules.template import templates_for
from tests.planted_records import plant, record_of
from tests.turns import slow

CHANNELS, TAPS = 8, 4
SEQUENCES = [[0, 0, 0, 1, 1, 1, 1, 2, 0, -1, -1], [5, 5, 5, 5, 5, 5, 4, 5, 5, 5, 5]]
"""Of one element, come back to, and padding."""


def one_by_one(x, weight, bias, seq_idx, states, activation):
    """The definition, element by element."""
    batch, channels, length = x.shape
    before = weight.shape[1] - 1
    known = torch.cat([x.new_zeros(batch, channels, before) if states is None else states, x], 2)
    images = []
    for image in range(batch):
        elements = []
        for t in range(length):
            z = x.new_zeros(channels) if bias is None else bias
            for k in range(before + 1):
                at = max(0, t - before + k)
                if seq_idx is None or seq_idx[image, at] == seq_idx[image, t]:
                    z = z + weight[:, k] * known[image, :, t + k]
            y = F.silu(z) if activation else z
            elements.append(y * 0 if seq_idx is not None and seq_idx[image, t] < 0 else y)
        images.append(torch.stack(elements, 1))
    return torch.stack(images)


def drawn(*sizes: int, dtype=torch.float64) -> Tensor:
    return torch.randn(*sizes, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("activation", [None, "swish"])
@pytest.mark.parametrize("packed", [False, True], ids=["one sequence", "packed"])
@pytest.mark.parametrize("continued", [False, True], ids=["from zeros", "continued"])
@pytest.mark.parametrize("length", [11, 2])
def test_it_computes_what_it_says(activation, packed, continued, length):
    torch.manual_seed(0)
    x, weight, bias = drawn(2, CHANNELS, length), drawn(CHANNELS, TAPS), drawn(CHANNELS)
    seq_idx = torch.tensor(SEQUENCES, dtype=torch.int32)[:, :length] if packed else None
    states = drawn(2, CHANNELS, TAPS - 1) if continued else None
    y, last = dwconv.causal_conv1d(x, weight, bias, seq_idx, states, return_final_states=True, activation=activation)
    expected = one_by_one(x, weight, bias, seq_idx, states, activation)
    torch.testing.assert_close(y, expected)
    before = torch.zeros(2, CHANNELS, TAPS - 1, dtype=x.dtype) if states is None else states
    assert torch.equal(last, torch.cat([before, x], 2)[:, :, 1 - TAPS :])
    leaves = [x, weight, bias] + [states] * continued
    dy = torch.randn_like(y)
    for got, wanted in zip(torch.autograd.grad(y, leaves, dy), torch.autograd.grad(expected, leaves, dy), strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("packed", [False, True], ids=["one sequence", "packed"])
def test_it_can_be_mapped_and_differentiated_by_functions(packed):
    many, states, weight = torch.randn(3, 2, CHANNELS, 11), torch.randn(3, 2, CHANNELS, TAPS - 1), drawn(CHANNELS, TAPS)
    many, states = many.double(), states.double()
    seq_idx = torch.tensor(SEQUENCES, dtype=torch.int32)[:, :11] if packed else None

    def run(x, states):
        return dwconv.causal_conv1d(x, weight, None, seq_idx, states, activation="silu")

    def gradient(x, states):
        return torch.func.grad(lambda x: run(x, states).pow(2).sum())(x)

    for function in (run, gradient):
        alone = torch.stack([function(*each) for each in zip(many, states, strict=True)])
        torch.testing.assert_close(torch.func.vmap(function)(many, states), alone)
    x = many[0].detach().requires_grad_()
    (expected,) = torch.autograd.grad(run(x, states[0]).pow(2).sum(), x)
    torch.testing.assert_close(gradient(many[0], states[0]), expected)


def test_a_call_goes_on_where_the_last_one_ended():
    x, weight = drawn(2, CHANNELS, 20), drawn(CHANNELS, TAPS)
    whole = dwconv.causal_conv1d(x, weight, activation="silu")
    states, parts = None, []
    for part in x.split([1, 2, 9, 8], 2):
        y, states = dwconv.causal_conv1d(part, weight, None, None, states, True, None, "silu")
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 2), whole)


@pytest.mark.parametrize("compiled", [False, True])
def test_what_the_next_call_begins_with_is_written_where_the_caller_has_room(compiled):
    """Also where that held what this call began with, and as the package has it: only where it is wanted."""
    x, weight, room = drawn(2, CHANNELS, 9), drawn(CHANNELS, TAPS), torch.randn(2, CHANNELS, TAPS - 1).double()
    call = dwconv.causal_conv1d
    call = torch.compile(call, backend="eager", fullgraph=True) if compiled else call
    wanted = dwconv.causal_conv1d(x, weight, None, None, room.clone(), True)
    y, last = call(x, weight, None, None, room, True, room, "silu")
    assert last is room and torch.equal(room, wanted[1])
    torch.testing.assert_close(y, torch.nn.functional.silu(wanted[0]))
    (dx,) = torch.autograd.grad(last.sum(), x)
    assert torch.equal(dx[..., 1 - TAPS :], torch.ones_like(room)) and not dx[..., : 1 - TAPS].any()
    room = torch.zeros(2, CHANNELS, TAPS - 1)
    call(x, weight, final_states_out=room)
    assert not room.any()


def test_nan_stays_in_its_sequence():
    x, weight = torch.randn(1, CHANNELS, 11, dtype=torch.float64), drawn(CHANNELS, TAPS)
    x[:, :, 2] = float("nan")
    y = dwconv.causal_conv1d(x, weight, seq_idx=torch.tensor(SEQUENCES[:1]))
    assert y[:, :, 2].isnan().all() and y[:, :, [0, 1, *range(3, 11)]].isfinite().all()


# -- on kernels ------------------------------------------------------------------------------------------------------


def problem_of(*, layout="nhwc", dtype="float32", bias=True, length=37) -> Workload:
    return Workload(
        pass_="fprop",
        batch=2,
        channels=CHANNELS,
        input_size=(1, length),
        kernel=(1, TAPS),
        padding=((0, 0), (TAPS - 1, 0)),
        dtype=dtype,
        layout=layout,
        bias=bias,
    )


def plant_all(logs, problem: Workload) -> None:
    """Kernels for all that a training step with an activation runs."""
    plant(logs / "cpu.jsonl", [problem], template_layout=problem.layout)
    ways = [problem.with_epilogue(epilogue) for epilogue in ("silu", "silu_gradient")]
    plant(logs / "cpu.jsonl", ways, passes=["fprop"], template_layout=problem.layout)


def kernels_that_ran() -> set[tuple[str, str]]:
    """(pass, epilogue)"""
    kernels = [kernel for plan in plans() for kernel in plan.kernels.values() if kernel is not None]
    return {(kernel.workload.pass_, kernel.workload.epilogue) for kernel in kernels}


ALL_AT_ONCE = {("fprop", "silu"), ("fprop", "silu_gradient"), ("dgrad", "none"), ("wgrad", "none")}
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}


def inputs_of(problem: Workload, dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    shape = (problem.batch, problem.channels, problem.input_size[1])
    x = torch.randn(shape)
    x = x.transpose(1, 2).contiguous().transpose(1, 2) if problem.layout == "nhwc" else x
    weight, bias = torch.randn(CHANNELS, TAPS), torch.randn(CHANNELS)
    return [each.to(dtype).requires_grad_() for each in (x, weight, bias)]


def in_double(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_step_runs_on_kernels_that_hold_the_activation(logs, layout, dtype):
    problem = problem_of(layout=layout, dtype=dtype)
    plant_all(logs, problem)
    given = inputs_of(problem, getattr(torch, dtype))
    exact = in_double(*given)
    y, expected = dwconv.causal_conv1d(*given, activation="silu"), one_by_one(*exact, None, None, "silu")
    dy = torch.randn_like(y)
    gradients = torch.autograd.grad(y, given, dy)
    assert kernels_that_ran() == ALL_AT_ONCE
    assert y.stride() == given[0].stride()
    bound = {"rtol": TOLERANCE[dtype], "atol": 4 * TOLERANCE[dtype]}  # gradients of weights sum what was rounded before
    torch.testing.assert_close(y.double(), expected, **bound)
    for got, wanted in zip(gradients, torch.autograd.grad(expected, exact, dy.double()), strict=True):
        torch.testing.assert_close(got.double(), wanted, **bound)


def test_it_can_be_differentiated_twice(logs):
    problem = problem_of()
    plant_all(logs, problem)
    given = inputs_of(problem, torch.float32)
    exact = in_double(*given)

    def second(y, leaves):
        first = torch.autograd.grad(y.pow(2).sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(each.pow(2).sum() for each in first), leaves)

    found = second(dwconv.causal_conv1d(*given, activation="silu"), given)
    wanted = second(one_by_one(*exact, None, None, "silu"), exact)
    assert ("fprop", "silu") in kernels_that_ran()
    for got, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("tuned", "dynamic"), [(True, False), (True, True), (False, False)])
def test_what_is_compiled_has_one_op_where_it_is_known_to_be_faster(logs, tuned, dynamic):
    problem = problem_of()
    plant_one(logs, problem)
    if tuned:
        plant_all(logs, problem)
    given, seen = inputs_of(problem, torch.float32), []

    def backend(graph, _):
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    torch._dynamo.reset()
    if dynamic:
        torch._dynamo.mark_dynamic(given[0], 2)
    compiled = torch.compile(lambda *tensors: dwconv.causal_conv1d(*tensors, activation="silu"), fullgraph=True,
                             backend=backend)  # fmt: skip
    y, plain = compiled(*given), dwconv.causal_conv1d(*given, activation="silu")
    found, wanted = (torch.autograd.grad(each.sum(), given) for each in (y, plain))
    torch.testing.assert_close([y, *found], [plain, *wanted])
    at_once = tuned and not dynamic
    assert any("fprop_silu" in target for target in seen) is at_once
    assert any("dwconv.fprop.default" in target for target in seen) is not at_once


def plant_one(logs, problem: Workload) -> None:
    """Kernels without the activation, which pad both sides."""
    both = dataclasses.replace(problem, padding=((0, 0), (TAPS - 1, TAPS - 1)))
    plant(logs / "cpu.jsonl", [both], template_layout=problem.layout)


def test_without_a_kernel_one_op_runs_after_the_other(logs):
    problem = problem_of()
    plant_one(logs, problem)
    plant(logs / "cpu.jsonl", [problem])  # for what is compiled
    given = inputs_of(problem, torch.float32)
    y = dwconv.causal_conv1d(*given, activation="silu")
    torch.testing.assert_close(y.double(), one_by_one(*in_double(*given), None, None, "silu"), rtol=1e-5, atol=1e-5)
    assert {epilogue for _, epilogue in kernels_that_ran()} == {"none"}
    # Compiled code has the ops all the same.
    z = F.conv1d(given[0], given[1].unsqueeze(1), given[2], padding=TAPS - 1, groups=CHANNELS)[..., :37]
    geometry = ((1, 1), (0, 0, TAPS - 1, 0), (1, 1), "nhwc")
    image, weight = given[0].unsqueeze(2).detach(), given[1].reshape(CHANNELS, 1, 1, TAPS).detach()
    dz = silu_ops.silu_gradient(image, weight, given[2].detach(), torch.ones_like(image), *geometry)
    (expected,) = torch.autograd.grad(F.silu(z).sum(), z)
    torch.testing.assert_close(dz.squeeze(2), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("forward_us", "gradient_us", "trains", "at_once"),
    [
        (500, 1100, True, True),  # the gradient alone is slower than PyTorch's, which has kept z
        (500, 1600, True, False),
        (500, 1600, False, True),
        (1100, 100, True, False),  # it has no kernel: PyTorch's op is faster
        (900, None, True, False),
        (900, None, False, True),
    ],
)
def test_activation_and_gradient_are_judged_together(logs, forward_us, gradient_us, trains, at_once):
    log, problem, target = TuningLog(logs / "cpu.jsonl"), problem_of(), cpu_target()
    for epilogue, median_us in (("silu", forward_us), ("silu_gradient", gradient_us)):
        if median_us is not None:
            workload = problem.with_epilogue(epilogue)
            (template,) = (each for each in templates_for(workload, target) if each.layout == "nhwc")
            config = template.space(workload, target).default
            log.append(record_of(workload, config=config, median_us=median_us, baseline_us=1000))
    assert silu_ops.is_at_once(Problem.of(problem), torch.device("cpu"), trains=trains) is at_once


@pytest.mark.parametrize(
    ("way", "activation", "dtype"),
    [
        ("eager", None, torch.float16),
        ("eager", "silu", torch.bfloat16),
        slow("compiled", "silu", torch.float16),
    ],
)
def test_autocast_lowers_what_meets_states_and_other_sequences(logs, way, activation, dtype):
    plant_all(logs, problem_of(dtype=str(dtype)[6:], length=11))
    torch._dynamo.reset()
    x, weight, bias = inputs_of(problem_of(length=11), torch.float32)
    states = torch.randn(2, CHANNELS, TAPS - 1, requires_grad=True)
    call = torch.compile(dwconv.causal_conv1d, backend="aot_eager") if way == "compiled" else dwconv.causal_conv1d
    for seq_idx, of_before in ((None, states), (torch.tensor(SEQUENCES), None), (torch.tensor(SEQUENCES), states)):
        leaves = [x, weight, bias] + [states] * (of_before is not None)
        with torch.autocast("cpu", dtype=dtype):
            y, last = call(x, weight, bias, seq_idx, of_before, return_final_states=True, activation=activation)
        exact = in_double(x, weight, bias, states)
        expected = one_by_one(*exact[:3], seq_idx, None if of_before is None else exact[3], activation)
        assert y.dtype is dtype and last.dtype is torch.float32
        torch.testing.assert_close(y.double(), expected, rtol=3e-2, atol=6e-2)
        found, wanted = (
            torch.autograd.grad(each.double().sum(), given)
            for each, given in ((y, leaves), (expected, exact[: len(leaves)]))
        )
        for got, right in zip(found, wanted, strict=True):
            assert got.dtype is torch.float32
            torch.testing.assert_close(got.double(), right, rtol=5e-2, atol=0.3)


# -- what does not fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"activation": "relu"}, "activation='relu' is unknown; use None, 'silu' or 'swish'"),
        ({"x": torch.zeros(8, 5)}, "x of shape 8×5 is not (B, C, L)"),
        ({"weight": torch.zeros(7, 4)}, "weight of shape 7×4 is not (C, K) with C=8 channels"),
        ({"weight": torch.zeros(8, 1, 4)}, "weight of shape 8×1×4 is not (C, K) with C=8 channels"),
        ({"bias": torch.zeros(9)}, "bias of shape 9 does not fit 8 output channels"),
        ({"seq_idx": torch.zeros(2, 4, dtype=torch.int32)}, "seq_idx of shape 2×4"),
        ({"seq_idx": torch.zeros(2, 5)}, "is not (B, L) whole numbers with B=2, L=5"),
        ({"initial_states": torch.zeros(2, 8, 4)}, "initial_states of shape 2×8×4 is not (B, C, K − 1), 2×8×3"),
        ({"final_states_out": torch.zeros(2, 8)}, "final_states_out of shape 2×8 is not (B, C, K − 1), 2×8×3"),
    ],
)
def test_what_does_not_fit_is_named(changed, said):
    given = {"x": torch.zeros(2, 8, 5), "weight": torch.zeros(8, 4)} | changed
    with pytest.raises(InvalidCall) as raised:
        dwconv.causal_conv1d(**given)
    assert said in str(raised.value)


def test_weights_of_another_type_are_used_in_that_of_x(logs):
    plant_one(logs, problem_of(layout="nchw", dtype="bfloat16", bias=False))
    x, weight = torch.randn(2, CHANNELS, 37, dtype=torch.bfloat16), drawn(CHANNELS, TAPS, dtype=torch.float32)
    y = dwconv.causal_conv1d(x, weight, activation="silu")
    y.sum().backward()
    assert y.dtype is torch.bfloat16 and weight.grad.dtype is torch.float32
