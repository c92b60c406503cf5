"""Tensors that are not just numbers in memory, and memory that is gone: what PyTorch's op makes of them, or its type of
error. Nothing is read where nothing is."""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

import dwconv
from dwconv.problems.workload import PASSES
from tests.native_needed import go_through_python, needs_native
from tests.planted_records import plant, workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning", "ignore::UserWarning"),
]
X, W, B = torch.randn(2, 8, 9, 7), torch.randn(8, 1, 3, 3), torch.randn(8)


class Wrapper(torch.Tensor):
    """It has no numbers of its own."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = torch.utils._pytree.tree_map_only(cls, lambda each: each.inner, (args, kwargs or {}))
        return torch.utils._pytree.tree_map_only(torch.Tensor, cls, func(*args, **kwargs))


class Subclass(torch.Tensor):
    pass


KINDS = {
    "plain": torch.clone,
    "mkldnn": torch.Tensor.to_mkldnn,
    "zero": lambda each: torch._efficientzerotensor(each.shape),
    "sparse": torch.Tensor.to_sparse,
    "quantized": lambda each: torch.quantize_per_tensor(each, 0.1, 0, torch.quint8),
    "meta": lambda each: each.to("meta"),
    "nested": lambda each: torch.nested.nested_tensor(list(each)) if each.dim() > 1 else each.to_sparse(),
    "ragged": lambda each: torch.nested.nested_tensor([*each[1:], each[0, ..., 1:]]) if each.dim() > 1 else each,
    "complex": lambda each: torch.complex(each, each),
    "conjugate": lambda each: torch.complex(each, each).conj(),
    "imaginary": lambda each: torch.complex(each, each).conj().imag,
    "negative": torch._neg_view,
    "subclass": lambda each: each.as_subclass(Subclass),
    "wrapper": Wrapper,
    "0-d": lambda each: torch.tensor(1.0),
    "expanded": lambda each: each[:1].expand(each.shape),
    "strided": lambda each: torch.stack([each, each], -1)[..., 1],
    "lazy": torch._lazy_clone,
    "integers": torch.Tensor.int,
    "bool": torch.Tensor.bool,
    "float8": lambda each: each.to(torch.float8_e4m3fn),
    "empty": lambda each: each[:0],
}
PLACES = {"x": (0,), "w": (1,), "bias": (2,), "all": (0, 1, 2)}
REFUSED = {("meta", "w"), ("meta", "bias")}
"""Tensors of sizes alone beside others: of some, PyTorch's result is memory as it was."""


@pytest.fixture(params=["untuned", "compiled", "in part", "interpreted"])
def way(request, logs, monkeypatch):
    for pass_ in PASSES if request.param != "untuned" else ():
        is_slow = request.param == "in part" and pass_ != "fprop"  # then PyTorch's op runs the gradients
        sizes, baseline_us = [workload_of(layout="nchw", bias=True)], 1e-3 if is_slow else 1e6
        plant(logs / "log.jsonl", sizes, passes=[pass_], template_layout="nchw", baseline_us=baseline_us)
    if request.param == "interpreted":
        go_through_python(monkeypatch)
    else:
        needs_native()
    for _ in range(2):  # the first of its kind teaches
        y = ours(X, W, B.clone().requires_grad_(), 1, 1)
        assert ("Dwconv" in y.grad_fn.name()) == (request.param != "untuned")
    ours(X, W, B, 1, 1)
    return request.param


ours = dwconv.conv2d


def theirs(x, w, bias, stride, padding):
    return F.conv2d(x, w, bias, stride, padding, groups=8)


def by_active(*given):
    with dwconv.active():
        return theirs(*given)


def by_layer(*given):
    layer = dwconv.convert(torch.nn.Conv2d(8, 8, 3, padding=1, groups=8))
    return layer._conv_forward(*given[:3])


def outcome(convolve, kind, places, *, trains):
    """What comes out, with the gradients; or the error."""
    given = [KINDS[kind](each) if place in places else each.clone() for place, each in enumerate((X, W, B))]
    try:
        if trains:
            given = [each.requires_grad_() for each in given]
        y = convolve(*given, 1, 1)
        found = [y, *(torch.autograd.grad(y.abs().sum(), given) if trains else ())]
    except Exception as error:  # noqa: BLE001  whatever PyTorch raises
        return error
    return [(type(each), each.device, each.layout, plain(each)) for each in found]


def plain(tensor):
    tensor = (tensor.inner if isinstance(tensor, Wrapper) else tensor).detach()
    return tensor if tensor.is_meta else tensor.to_dense() if tensor.layout != torch.strided else tensor


def agrees(expected, actual):
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        return isinstance(actual, type(expected))
    if [each[:3] for each in expected] != [each[:3] for each in actual]:
        return False
    pairs = [(theirs[3], ours[3]) for theirs, ours in zip(expected, actual, strict=True)]
    return all(
        one.shape == other.shape
        and one.dtype == other.dtype
        and (one.is_meta or torch.allclose(one, other, rtol=1e-4, atol=1e-4))
        for one, other in pairs
    )


@pytest.mark.parametrize("convolve", [ours, by_layer, by_active])
def test_the_result_or_the_error_is_pytorchs(way, convolve):
    wrong, ran = {}, 0
    for kind in KINDS:
        for where, places in PLACES.items():
            for trains in (False, True):
                with warnings.catch_warnings(action="ignore"):
                    expected, actual = (outcome(each, kind, places, trains=trains) for each in (theirs, convolve))
                if (kind, where) in REFUSED and convolve is not by_active:
                    expected = RuntimeError()
                elif (kind, where) in REFUSED:
                    continue
                ran += not isinstance(actual, Exception)
                if not agrees(expected, actual):
                    wrong[kind, where, trains] = (expected, actual)
    assert not wrong
    assert ran >= 50


@pytest.mark.parametrize("convolve", [ours, by_active])
def test_a_gradient_of_any_kind(way, convolve):
    for kind in ("zero", "mkldnn", "sparse", "negative", "expanded", "wrapper", "meta", "integers"):
        found = []
        for each in (theirs, convolve):
            leaves = [tensor.clone().requires_grad_() for tensor in (X, W, B)]
            y = each(*leaves, 1, 1)
            dy = KINDS[kind](torch.ones_like(y))
            try:
                found.append([(type(dx), dx.device, dx.layout, plain(dx)) for dx in torch.autograd.grad(y, leaves, dy)])
            except Exception as error:  # noqa: BLE001
                found.append(error)
        assert agrees(*found), (kind, found)


# -- memory that is gone ----------------------------------------------------------------------------------------------


def without_memory(each, how):
    """A tensor whose storage was freed: as it lies, further on in it, with gaps, or otherwise."""
    if how == "offset":
        each = torch.stack([each, each])[1]
    elif how == "gaps":
        each = torch.stack([each, each], -1)[..., 1]
    elif how == "transposed" and each.dim() == 4:
        each = each.clone(memory_format=torch.channels_last)
    else:
        each = each.clone()
    each.untyped_storage().resize_(each.nbytes // 2 if how == "half" else 0)
    return each


@pytest.mark.parametrize("how", ["whole", "offset", "gaps", "transposed", "half"])
def test_freed_memory_is_not_read(way, how):
    if way == "untuned" and how not in ("whole", "offset"):
        pytest.skip("PyTorch's own op dies of some of them, and reads what lies behind others")
    for place in range(3):
        for trains in (False, True):
            given = [X, W, B]
            if trains:
                given = [each.clone().requires_grad_() for each in given]
            given[place] = without_memory((X, W, B)[place], how)
            with pytest.raises(RuntimeError, match=r"memory|allocated"):
                ours(*given, 1, 1)
    expected = theirs(X, W, B, 1, 1)
    torch.testing.assert_close(ours(X, W, B, 1, 1), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("left", [0, 0.5])
@pytest.mark.parametrize("place", [0, 1])
def test_nor_what_was_freed_before_the_backward_pass(way, place, left):
    if left and way == "untuned":
        pytest.skip("PyTorch's own op reads what lies behind")
    leaves = [each.clone().requires_grad_() for each in (X, W, B)]
    y = ours(*leaves, 1, 1)
    storage = leaves[place].untyped_storage()
    size = storage.nbytes()
    storage.resize_(int(left * size))
    with pytest.raises(RuntimeError, match=r"memory|allocated"):
        torch.autograd.grad(y.sum(), leaves, retain_graph=True)
    storage.resize_(size)
    leaves[place].data.copy_((X, W)[place])  # as FSDP brings it back
    gradients = torch.autograd.grad(y.sum(), leaves)
    leaves = [each.clone().requires_grad_() for each in (X, W, B)]
    expected = torch.autograd.grad(theirs(*leaves, 1, 1).sum(), leaves)
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("how", ["whole", "offset", "gaps"])
def test_nor_a_gradient_that_was_freed(way, how):
    if way == "untuned":
        pytest.skip("PyTorch's own op dies of gaps")
    leaves = [each.clone().requires_grad_() for each in (X, W, B)]
    y = ours(*leaves, 1, 1)
    with pytest.raises(RuntimeError, match=r"memory|allocated"):
        torch.autograd.grad(y, leaves, without_memory(torch.ones_like(y), how))


# -- what hooks of saved tensors bring back ---------------------------------------------------------------------------


def unaligned(saved):
    """At an odd address, as it may lie in a file or a buffer of a network."""
    memory = bytearray(1 + saved.nbytes)
    copy = torch.frombuffer(memory, dtype=saved.dtype, offset=1, count=saved.numel()).view(saved.shape)
    return copy.copy_(saved.detach())


@contextlib.contextmanager
def watched():
    """On the road through PyTorch's dispatcher."""
    with FlopCounterMode(display=False):
        yield


def brought_back(as_what, *, place, around):
    """Gradients, where a hook makes another of x or of w."""
    leaves = [each.clone().requires_grad_() for each in (X, W, B)]

    def unpacked(saved):
        return as_what(saved) if saved.shape == leaves[place].shape else saved

    with around(), torch.autograd.graph.saved_tensors_hooks(torch.clone, unpacked):
        return torch.autograd.grad(ours(*leaves, 1, 1).sin().sum(), leaves)


OTHERS = {
    "half": torch.Tensor.half,
    "double": torch.Tensor.double,
    "int": torch.Tensor.int,
    "one image": lambda each: each[:1],
    "turned": lambda each: each.mT.contiguous() if each.shape == X.shape else each.movedim(1, 0).contiguous(),
}


@pytest.mark.parametrize("around", [contextlib.nullcontext, watched])
@pytest.mark.parametrize("other", OTHERS)
def test_another_type_or_size_than_was_saved_is_an_error(way, other, around):
    if way == "untuned":
        pytest.skip("of some, PyTorch's own op makes the gradient of what was saved")
    for place in range(2):
        if (way, other, place, around) == ("in part", "half", 1, watched):
            continue  # that op again
        with pytest.raises(RuntimeError):
            brought_back(OTHERS[other], place=place, around=around)


@pytest.mark.parametrize("around", [contextlib.nullcontext, watched])
@pytest.mark.parametrize("place", range(2))
def test_what_is_unaligned_or_a_subclass_is_read_as_it_is(way, place, around):
    if way == "untuned":
        pytest.skip("PyTorch's own op decides")
    leaves = [each.clone().requires_grad_() for each in (X, W, B)]
    expected = list(torch.autograd.grad(theirs(*leaves, 1, 1).sin().sum(), leaves))
    for as_what in (unaligned, Wrapper, torch._neg_view):
        if as_what is torch._neg_view:  # of x the gradient of w is made, and of w that of x
            expected[1 - place].neg_()
        found = [plain(each) for each in brought_back(as_what, place=place, around=around)]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
