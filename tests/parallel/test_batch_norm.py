"""sync_bn: over two ranks it is what one process does with all images; over one it is PyTorch's."""

from __future__ import annotations

import copy
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dwconv
from dwconv.discovery import discover
from dwconv.errors import DwconvWarning
from dwconv.parallel import Communication, data_parallel, sync_bn
from tests.call.block_parts import CHANNELS, SIZE, Parts, in_double, ran, trace, written
from tests.parallel.ranks import Ranks, needs_gloo
from tests.parallel.small_models import SmallMobileNet
from tests.planted_records import plant, workload_of

pytestmark = [pytest.mark.usefixtures("threads_as_asked"), needs_gloo]
SHARES = (6, 10)
"""Images of each rank."""
KINDS = {
    "1-D": (nn.BatchNorm1d, (16, 6)),
    "1-D, rows": (nn.BatchNorm1d, (16, 6, 5)),
    "2-D": (nn.BatchNorm2d, (16, 6, 5, 4)),
    "2-D, channels_last": (nn.BatchNorm2d, (16, 6, 5, 4)),
    "3-D": (nn.BatchNorm3d, (16, 6, 3, 2, 2)),
    "2-D, float64": (nn.BatchNorm2d, (16, 6, 5, 4)),
    "2-D, bfloat16": (nn.BatchNorm2d, (16, 6, 5, 4)),
    "2-D, no weight, all of the past": (nn.BatchNorm2d, (16, 6, 5, 4)),
    "2-D, no statistics": (nn.BatchNorm2d, (16, 6, 5, 4)),
}


def made(kind: str) -> tuple[nn.Module, Tensor, Tensor]:
    """The norm, its input, far from 0, and the gradient of its output."""
    torch.manual_seed(0)
    norm_class, shape = KINDS[kind]
    norm = norm_class(6, **{
        "affine": "no weight" not in kind, "track_running_stats": "no statistics" not in kind,
        "momentum": None if "past" in kind else 0.3,
    })  # fmt: skip
    x, gradient = 100 + torch.randn(shape), torch.randn(shape)
    if "channels_last" in kind:
        x = x.to(memory_format=torch.channels_last)
    dtype = torch.float64 if "float64" in kind else torch.bfloat16 if "bfloat16" in kind else torch.float32
    if norm.weight is not None:
        nn.init.uniform_(norm.weight)
        nn.init.uniform_(norm.bias)
    return norm.double() if dtype is torch.float64 else norm, x.to(dtype), gradient.to(dtype)


def trained(norm: nn.Module, x: Tensor, gradient: Tensor) -> dict[str, Tensor]:
    """Two passes, and one in evaluation."""
    leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
    norm.train()
    for _ in range(2):
        leaf.grad = None
        norm.zero_grad()
        y = norm(leaf)
        y.backward(gradient)
    found = {"y": y.detach(), "dx": leaf.grad, **{f"d{name}": each.grad for name, each in norm.named_parameters()}}
    return found | {**norm.state_dict(), "evaluated": norm.eval()(x).detach()}


def on_a_rank() -> dict[str, Any]:
    rank = torch.distributed.get_rank()
    share = slice(0, SHARES[0]) if rank == 0 else slice(SHARES[0], None)
    found: dict[str, Any] = {}
    for kind in KINDS:
        norm, x, gradient = made(kind)
        found[kind] = trained(sync_bn(norm), x[share], gradient[share])
    torch.manual_seed(1)
    model = data_parallel(sync_bn(SmallMobileNet()), communication=Communication())
    images = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    model(images.chunk(2)[rank]).square().mean().backward()
    found["model"] = {name: each.grad for name, each in model.module.named_parameters()}
    return found


@pytest.fixture(scope="module")
def found(two_ranks: Ranks) -> list[dict[str, Any]]:
    return two_ranks.run(on_a_rank)


@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_normalise_as_one_process_with_shares_that_differ(found, kind):
    norm, x, gradient = made(kind)
    expected = trained(norm, x, gradient)
    coarse = {"rtol": 2e-2, "atol": 4e-2} if "bfloat16" in kind else {"rtol": 1e-4, "atol": 1e-4}
    for rank, each in enumerate(found):
        share = slice(0, SHARES[0]) if rank == 0 else slice(SHARES[0], None)
        assert each[kind].keys() == expected.keys()
        for name, tensor in each[kind].items():
            if name in ("dweight", "dbias"):  # of each rank's own images, as data parallelism sums
                continue
            if name == "evaluated" and "no statistics" in kind:  # by those of the images at hand, as PyTorch has it
                continue
            whole = expected[name][share] if name in ("y", "dx", "evaluated") else expected[name]
            assert tensor.dtype == whole.dtype
            torch.testing.assert_close(tensor, whole, **coarse, msg=lambda said, name=name: f"{name}: {said}")
    for name in ("dweight", "dbias"):
        if name in expected:
            torch.testing.assert_close(sum(each[kind][name] for each in found), expected[name], **coarse)


def test_data_parallel_training_has_the_gradients_of_one_process(found):
    torch.manual_seed(1)
    model = SmallMobileNet()
    model(torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(2))).square().mean().backward()
    for rank in found:
        for name, each in model.named_parameters():
            torch.testing.assert_close(rank["model"][name], each.grad, rtol=1e-4, atol=1e-5, msg=name)


def test_a_layer_stays_what_it_was(one_rank):
    """And can be copied and kept, which a group of ranks cannot."""
    model = nn.Sequential(nn.BatchNorm2d(6), nn.LayerNorm(5), nn.BatchNorm2d(6, momentum=None, affine=False))
    twin, parameters = copy.deepcopy(model), [*model.parameters()]
    assert sync_bn(model) is model
    assert isinstance(model[0], nn.BatchNorm2d) and type(model[1]) is nn.LayerNorm
    assert all(one is other for one, other in zip(model.parameters(), parameters, strict=True))
    x = 3 + torch.randn(4, 6, 5, 5)
    torch.testing.assert_close(model(x), twin(x))
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    torch.testing.assert_close(copy.deepcopy(model)(x), copy.deepcopy(twin)(x))
    with pytest.raises(ValueError, match="expected 4D input"):
        model[0](x[0, 0])


@pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op")
def test_a_model_converts(one_rank):
    model, x = sync_bn(SmallMobileNet()), torch.randn(4, 3, 8, 8)
    twin = SmallMobileNet()
    twin.load_state_dict(model.state_dict())
    torch.testing.assert_close(dwconv.convert(model, x, blocks=True, seconds=0.1)(x), twin(x), rtol=1e-4, atol=1e-5)


# -- in fused blocks ---------------------------------------------------------------------------------------------------

BLOCKS: dict[str, dict[str, Any]] = {
    "": {},
    "no second norm": {"block": "bn+silu,none"},
    "no activation, no weight, all of the past": {"block": "bn,bn", "affine": False, "momentum": None},
    "bfloat16": {"block": "bn+silu,none", "dtype": torch.bfloat16},
    "another activation after": {"block": "bn+silu,bn+hardswish"},
    "SiLU after": {"block": "bn+relu6,bn+silu", "momentum": None},
    "bfloat16 after": {"block": "bn+silu,bn+silu", "dtype": torch.bfloat16},
}


def made_block(block: str = "bn+relu6,bn+relu6", *, dtype: torch.dtype = torch.float32, **options: Any) -> Parts:
    model = Parts(block)
    for name in ("bn1", "bn2"):
        if options and isinstance(getattr(model, name), nn.BatchNorm2d):
            setattr(model, name, nn.BatchNorm2d(CHANNELS, **options))
    model.conv.to(dtype)
    return model


def images(kind: str) -> tuple[Tensor, Tensor]:
    """x, far from 0, and the gradient of the result."""
    numbers = torch.Generator().manual_seed(5)
    x, gradient = (torch.randn((sum(SHARES), *SIZE[1:]), generator=numbers) for _ in range(2))
    dtype = BLOCKS[kind].get("dtype", torch.float32)
    return tuple(each.to(dtype, memory_format=torch.channels_last) for each in (3 + x, gradient))


def as_one_on_a_rank(folder: Path, *, only_first: bool = False) -> dict[str, Any]:
    """What a rank finds in each case, and how often it ran a block as one. ``only_first``: the other has no records."""
    rank = torch.distributed.get_rank()
    share = slice(0, SHARES[0]) if rank == 0 else slice(SHARES[0], None)
    logs = folder / f"logs-{rank}"
    logs.mkdir()
    if rank == 0 or not only_first:
        blocks = {(each.get("block", "bn+relu6,").partition(",")[0], each.get("dtype")) for each in BLOCKS.values()}
        for before, dtype in blocks:
            name = str(dtype or torch.float32).removeprefix("torch.")
            plant(
                logs / "log.jsonl",
                [workload_of(shape=SIZE, block=f"{before},none".replace("bn", "frozen"), dtype=name)],
            )
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore", DwconvWarning)
        patched.setenv("DWCONV_TUNING_LOGS", str(logs))
        dwconv.reset()
        for kind, options in BLOCKS.items():
            model = sync_bn(made_block(**options))
            trace(model)
            x, gradient = images(kind)
            found[kind] = trained(model, x[share], gradient[share])
        found["ran"] = ran()
    dwconv.reset()
    return found


@pytest.mark.parametrize("only_first", [False, True], ids=["both ranks", "one rank"])
def test_a_block_has_the_statistics_of_all_ranks(two_ranks, tmp_path, only_first):
    """As one process has them with all images; also where a rank runs the parts."""
    ranks = two_ranks.run(partial(as_one_on_a_rank, only_first=only_first), tmp_path)
    steps = 2 * len(BLOCKS)
    often = steps + 2, steps  # the blocks without a second norm are one in evaluation, too
    assert [rank["ran"] for rank in ranks] == [often, (0, 0) if only_first else often]
    for kind, options in BLOCKS.items():
        x, gradient = images(kind)
        model = in_double(made_block(**options))
        expected = trained(model, x.double(), gradient.double())
        allowed = 3e-2 if options.get("dtype") else 1e-4
        for number, rank in enumerate(ranks):
            share = slice(0, SHARES[0]) if number == 0 else slice(SHARES[0], None)
            for name, tensor in rank[kind].items():
                is_summed = name.startswith("d") and name != "dx"
                got = sum(each[kind][name].double() for each in ranks) if is_summed else tensor.double()
                whole = expected[name][share] if name in ("y", "dx", "evaluated") else expected[name].double()
                assert float((got - whole).norm()) <= allowed * (1 + float(whole.norm())), f"{kind}: {name}"


def test_a_block_over_ranks_is_listed(one_rank):
    model = sync_bn(made_block()).to(memory_format=torch.channels_last)
    (block,) = discover(model, images("")[0]).blocks
    assert str(block.problem.block) == "frozen+relu6,none" and not block.why_not
    model.bn1 = nn.Identity()
    (block,) = discover(model, images("")[0]).blocks
    assert block.problem is None and block.why_not == "of bn2, there is no norm before the convolution"


AFTER = ("identity", "relu", "relu6", "hardswish", "silu")
untuned = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")


@untuned
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("activation", AFTER)
def test_a_norm_behind_a_block_is_one_op_with_its_activation(one_rank, activation, inplace):
    """It keeps what it is given alone, and gives what its parts do, wherever they lie."""
    block = f"bn+relu,bn+{activation}"
    model = sync_bn(Parts(block, inplace=inplace))
    exact, (x, gradient) = copy.deepcopy(model), images("")
    trace(model)
    found = []
    for each in (model, exact):
        kept: list[int] = []
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(partial(noted, kept), lambda tensor: tensor):
            z = each(leaf)
        z.backward(gradient)
        found.append((z, leaf.grad, *(parameter.grad for parameter in each.parameters()), *each.buffers()))
        assert ("_ActivatedBackward" in names_of(z)) == (each is model)
        if each is model:
            behind = sum(size == x.numel() for size in kept)
    assert z.stride() == found[0][0].stride() and behind <= sum(size == x.numel() for size in kept)
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)


def noted(kept: list[int], tensor: Tensor) -> Tensor:
    kept.append(tensor.numel())
    return tensor


def names_of(z: Tensor) -> set[str]:
    """Of all nodes of the graph that computed z."""
    names, left = set(), [z.grad_fn]
    while left:
        if (node := left.pop()) is not None:
            names.add(node.name())
            left += [before for before, _ in node.next_functions]
    return names


@untuned
@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.bn2.register_forward_hook(lambda norm, given, z: z * 2),
        lambda model: setattr(model, "act2", nn.Tanh()),
        lambda model: model.bn2.eval(),
    ],
    ids=["a hook", "another activation", "frozen"],
)
def test_a_norm_behind_a_block_may_be_another_later(one_rank, change):
    model = sync_bn(made_block())
    trace(model)
    exact, x = in_double(model), images("")[0]
    model(x)
    exact(x.double())
    for each in (model, exact):
        change(each)
    torch.testing.assert_close(model(x).double(), exact(x.double()), rtol=1e-4, atol=1e-4)


@untuned
def test_norms_that_share_their_statistics_later_are_no_block_in_compiled_code(one_rank, logs):
    plant(logs / "log.jsonl", [workload_of(shape=(16, *SIZE[1:]), block="bn+relu6,bn+relu6")])
    block, x = written(made_block()), images("")[0].requires_grad_()
    torch._dynamo.reset()
    torch.compile(block, backend="aot_eager")(x).sum().backward()
    assert ran() == (1, 1)
    exact = copy.deepcopy(sync_bn(block))
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(block, backend="aot_eager")(x), exact(x), rtol=1e-4, atol=1e-4)
    assert ran() == (1, 1)
