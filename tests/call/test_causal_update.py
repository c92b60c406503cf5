"""causal_conv1d_update: what comes next, with a state, as the package causal-conv1d defines it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dwconv
from dwconv.errors import InvalidWorkload

pytestmark = pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")


def by_elements(x, history, weight, bias, activation):
    """y of all elements of x, (B, C, N), that follow ``history``, (B, C, any): sum by sum."""
    z = F.conv1d(F.pad(torch.cat([history, x], 2), (weight.shape[1], 0)), weight[:, None], bias, groups=x.shape[1])
    y = z[..., z.shape[-1] - x.shape[-1] :]
    return F.silu(y) if activation else y


@pytest.mark.parametrize("steps", [(1,) * 6, (3, 1, 2), (1, 40, 2)])
@pytest.mark.parametrize("activation", [None, "silu", "swish"])
@pytest.mark.parametrize(("taps", "size"), [(4, 3), (4, 7), (1, 2), (2, 1)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_steps_are_the_whole_convolution(steps, activation, taps, size, has_bias):
    torch.manual_seed(0)
    x = torch.randn(2, 5, sum(steps))
    weight, bias = torch.randn(5, taps), torch.randn(5) if has_bias else None
    rolled, ring, seen = torch.randn(2, 5, size), torch.zeros(2, 5, size), torch.zeros(2, dtype=torch.int32)
    history = rolled.clone()
    of_state, of_ring = [], []
    for part in x.split(steps, 2):
        given = part.squeeze(-1) if part.shape[-1] == 1 else part
        for results, state, where in ((of_state, rolled, None), (of_ring, ring, seen)):
            y = dwconv.causal_conv1d_update(given, state, weight, bias, activation, where)
            assert y.shape == given.shape
            results.append(y.view_as(part))
        seen += part.shape[-1]
    torch.testing.assert_close(torch.cat(of_state, 2), by_elements(x, history, weight, bias, activation))
    torch.testing.assert_close(torch.cat(of_ring, 2), by_elements(x, x[..., :0], weight, bias, activation))
    assert torch.equal(rolled, torch.cat([history, x], 2)[..., -size:])
    last = torch.arange(max(0, x.shape[2] - size), x.shape[2])
    assert torch.equal(ring[..., last % size], x[..., last])


def test_states_of_other_sequences_stay():
    x, weight = torch.randn(2, 5), torch.randn(5, 4)
    states = torch.randn(7, 5, 3)
    before, chosen = states.clone(), torch.tensor([4, 1], dtype=torch.int32)
    alone = states[chosen.long()].clone()
    y = dwconv.causal_conv1d_update(x, states, weight, conv_state_indices=chosen)
    assert torch.equal(y, dwconv.causal_conv1d_update(x, alone, weight))
    assert torch.equal(states[chosen.long()], alone)
    others = [0, 2, 3, 5, 6]
    assert torch.equal(states[others], before[others])


@pytest.mark.parametrize("chosen", [[-1, 4, -1], [2, -1, 0], [-1, -1, -1]])
@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("length", [0, 1, 20])
def test_padding_changes_no_state(chosen, ring, length):
    x = torch.randn(3, 5, length) if length else torch.randn(3, 5)
    weight, states = torch.randn(5, 4), torch.randn(5, 5, 3)
    before, seen = states.clone(), torch.tensor([1, 5, 2]) if ring else None
    given = {"cache_seqlens": seen, "conv_state_indices": torch.tensor(chosen, dtype=torch.int32)}
    y = dwconv.causal_conv1d_update(x, states, weight, torch.randn(5), "silu", **given)
    for number in range(5):
        assert torch.equal(states[number], before[number]) is (number not in chosen)
    for each, number in enumerate(chosen):
        if number < 0:
            assert not y[each].any()
            continue
        state = before[number][None].clone()
        at = seen[each : each + 1] if ring else None
        dwconv.causal_conv1d_update(x[each : each + 1], state, weight, cache_seqlens=at)
        assert torch.equal(states[number], state[0])
        assert y[each].all()


@pytest.mark.parametrize("length", [3, 20])
@pytest.mark.parametrize("of_weight", [torch.float32, torch.bfloat16])
def test_autocast_and_wide_weights_leave_the_type(length, of_weight):
    x, weight = torch.randn(2, 5, length).bfloat16(), torch.randn(5, 4).to(of_weight)
    states = [torch.randn(2, 5, 3).bfloat16()] * 2
    expected = by_elements(x.double(), states[0].double(), weight.double(), None, None).bfloat16()
    for enabled, state in zip((False, True), states, strict=True):
        with torch.autocast("cpu", torch.float16, enabled=enabled):
            y = dwconv.causal_conv1d_update(x, state.clone(), weight)
        torch.testing.assert_close(y, expected, rtol=0.0079, atol=1e-6)


def test_compiled_code_skips_padding_under_autocast():
    x, weight, chosen = torch.randn(2, 5), torch.randn(5, 4), torch.tensor([3, -1])
    states = [torch.ones(4, 5, 3) for _ in range(2)]
    compiled = torch.compile(dwconv.causal_conv1d_update, backend="aot_eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = compiled(x, states[0], weight, conv_state_indices=chosen)
    assert torch.equal(y, dwconv.causal_conv1d_update(x, states[1], weight, conv_state_indices=chosen))
    assert torch.equal(*states) and y.dtype == x.dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types(dtype):
    x, state, weight = torch.randn(2, 5, dtype=dtype), torch.randn(2, 5, 3, dtype=dtype), torch.randn(5, 4)
    expected = by_elements(x.double()[..., None], state.double(), weight.double(), None, "silu")[..., 0]
    y = dwconv.causal_conv1d_update(x.requires_grad_(), state, weight, activation="silu")
    assert y.dtype == dtype and not y.requires_grad
    torch.testing.assert_close(y, expected.to(dtype))


def test_it_compiles():
    x, weight = torch.randn(2, 5), torch.randn(5, 4)
    states = [torch.zeros(2, 5, 3) for _ in range(2)]
    compiled = torch.compile(dwconv.causal_conv1d_update, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x, states[0], weight), dwconv.causal_conv1d_update(x, states[1], weight))
    assert torch.equal(*states)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"x": torch.randn(5)}, "x of shape 5 is not"),
        ({"weight": torch.randn(4, 4)}, "weight of shape 4×4 is not"),
        ({"bias": torch.randn(4)}, "bias of shape 4 is not"),
        ({"conv_state": torch.randn(2, 5, 2)}, "conv_state of shape 2×5×2 is not .* S ≥ 3"),
        ({"conv_state": torch.randn(3, 5, 3)}, "conv_state of shape 3×5×3 is not"),
        ({"activation": "relu"}, "activation='relu' is unknown"),
        ({"cache_seqlens": torch.zeros(2)}, "cache_seqlens of shape 2 and torch.float32"),
        ({"conv_state_indices": torch.zeros(3, dtype=torch.int32)}, "conv_state_indices of shape 3"),
        ({"x": None}, "x must be a Tensor"),
        ({"bias": 1.0}, "bias must be a Tensor"),
    ],
)
def test_what_does_not_fit(wrong, words):
    good = {"x": torch.randn(2, 5), "conv_state": torch.randn(2, 5, 3), "weight": torch.randn(5, 4)}
    with pytest.raises(InvalidWorkload, match=words):
        dwconv.causal_conv1d_update(**{**good, **wrong})
