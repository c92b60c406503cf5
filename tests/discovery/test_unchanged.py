"""A step on an example: nothing that a model holds is changed by it, and nothing in the process."""

from __future__ import annotations

import collections
import functools
import io
import itertools
import sys
import threading
import types
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel
from torch.utils import checkpoint as pytorchs

import dwconv
from dwconv.discovery import discover
from dwconv.discovery.content_kinds import TensorContent
from dwconv.discovery.step import ExampleStep
from dwconv.discovery.unchanged import Contents, unchanged
from dwconv.errors import DwconvWarning
from dwconv.parallel.pipeline.stages import as_on_the_first
from dwconv.problems.workload import PASSES

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op:dwconv.DwconvWarning"),
    pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad"),
]
IMAGE = torch.randn(2, 3, 12, 12)


def depthwise():
    return nn.Conv2d(3, 3, 3, padding=1, groups=3)


# -- memory that is only read ------------------------------------------------------------------------------------------


@pytest.fixture
def mapped(tmp_path):
    """Makes tensors on memory that a write would end the process at."""

    def make(*shape, dtype=np.float32):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npy"
        numbers = np.random.default_rng(0).standard_normal(shape) * 3
        numbers.flat[0] = np.nan if np.issubdtype(dtype, np.inexact) else 1
        np.save(path, numbers.astype(dtype))
        return torch.from_numpy(np.load(path, mmap_mode="r"))

    return make


class OnMappedMemory(nn.Module):
    def __init__(self, mapped) -> None:
        super().__init__()
        self.layer = depthwise()
        self.register_buffer("mean", mapped(3, 1, 1))
        self.frozen = nn.Parameter(mapped(3, 1, 3, 3), requires_grad=False)
        self.tables = {"tables": [mapped(4, dtype=kind) for kind in (np.float16, np.int64, np.complex128, np.bool_)]}
        self.flipped = self.tables["tables"][2].conj()
        self.array = mapped(4).numpy()

    def forward(self, x):
        return F.conv2d(self.layer(x) + self.mean, self.frozen, groups=3)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable", "ignore:The given buffer is not writable")
def test_what_did_not_change_is_not_written_to(mapped, logs):
    model, image = OnMappedMemory(mapped), mapped(2, 3, 12, 12)
    assert len(discover(model, image).layers) == 2
    dwconv.convert(model, image, seconds=0, blocks=True)
    assert "1 depthwise layer" in str(dwconv.report(model, image))
    with torch.no_grad():
        discover(model, torch.frombuffer(bytes(4 * IMAGE.numel()), dtype=torch.float32).view_as(IMAGE))


def test_ranks_with_the_same_numbers_are_not_written_to(mapped, monkeypatch):
    monkeypatch.setattr(dist, "broadcast", lambda tensor, **_: tensor.copy_(tensor.clone()))
    as_on_the_first([mapped(3, 4), mapped(3, 4).t()], types.SimpleNamespace(size=lambda: 2))


ODD = {
    "NaN": lambda: torch.tensor([torch.nan, 1.0, -0.0]),
    "complex": lambda: torch.ones(3, dtype=torch.complex128).conj(),
    "bool": lambda: torch.ones(3, dtype=torch.bool),
    "8 bits": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "expanded": lambda: torch.ones(1).expand(3),
    "a view": lambda: torch.ones(3, 6)[:, ::2].t(),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "meta": lambda: torch.ones(3, device="meta"),
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_tensors_of_any_kind_are_put_back_where_they_changed(make, monkeypatch):
    tensor, writes = make(), []
    monkeypatch.setattr(torch.Tensor, "copy_", lambda to, by, copy=torch.Tensor.copy_: writes.append(1) or copy(to, by))
    kept = TensorContent(tensor)
    assert kept.put_back() and not writes
    before = str(tensor)
    if tensor.layout is torch.strided and tensor.device.type != "meta":
        whole = tensor[:1] if tensor.stride() == (0,) else tensor
        whole.data.copy_(torch.zeros(whole.shape))
        writes.clear()
        assert str(tensor) != before
        assert kept.put_back() and writes
    elif tensor.device.type != "meta":
        tensor.mul_(0).add_(torch.ones(3, 3).to_sparse())
        assert kept.put_back()
    assert str(tensor) == before


def test_a_tensor_that_was_given_other_memory_has_its_own_again():
    weight = nn.Parameter(torch.ones(3))
    address = weight.data_ptr()
    kept = TensorContent(weight)
    weight.data = torch.zeros(5, dtype=torch.float16)
    weight.requires_grad = False
    assert kept.put_back()
    assert weight.data_ptr() == address and weight.tolist() == [1, 1, 1] and weight.requires_grad


# -- state -------------------------------------------------------------------------------------------------------------


@dataclass
class Counts:
    calls: int = 0
    means: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    calls: int = 0


class Own:
    def __init__(self) -> None:
        self.calls, self.tensor, self.lock, self.slotted = 0, torch.zeros(2), threading.Lock(), Slotted()
        self.itself = self


class Remembers(nn.Module):
    """State of every kind, and objects that cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = depthwise()
        self.recent = collections.deque([1, 2], maxlen=3)
        self.nested = {"lists": [[1]], "tensor": torch.zeros(3), (1, 2): {3}}
        self.ordered = collections.OrderedDict(a=[1], b=2)
        self.default, self.counter = collections.defaultdict(list), collections.Counter("ab")
        self.counts, self.own, self.space = Counts(), Own(), types.SimpleNamespace(calls=[0])
        self.arrays = {"numbers": np.zeros(3), "objects": np.array([[1], "a"], dtype=object)}
        self.pair = ([], {"set": {1}})
        self.bytes = bytearray(b"abc")
        self.hidden = [nn.BatchNorm2d(3)]
        self.append = functools.partial(self.pair[0].append, 9)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.1, momentum=0.9)
        self.locks = threading.Lock(), threading.Event(), threading.local()
        self.text = io.StringIO("one\ntwo\n")
        calls = 0

        def count():
            nonlocal calls
            calls += 1
            return calls

        self.count = count

    def forward(self, x):
        self.recent.append(x)
        self.nested["lists"][0].append(3)
        self.nested["tensor"].add_(1)
        self.nested["new"] = self.nested.pop((1, 2))
        self.ordered.move_to_end("a")
        self.ordered["a"].append(1)
        self.default["z"].append(1)
        self.counter["a"] += 1
        self.counts.calls += 1
        self.counts.means.append(x.mean().item())
        self.own.calls += 1
        self.own.tensor += 1
        self.own.slotted.calls += 1
        self.own.late = True
        self.space.calls[0] += 1
        self.arrays["numbers"][0] = np.nan
        self.arrays["objects"][0].append(2)
        self.arrays["objects"][1] = "z"
        self.pair[1]["set"].add(2)
        self.bytes[0] = 0
        self.hidden[0](x)
        self.append()
        self.count()
        return self.layer(x)

    def state(self):
        inside = (self.recent, self.nested, self.ordered, self.default, self.counter, self.counts, vars(self.own))
        more = (self.space, self.arrays, self.pair, self.bytes, self.hidden[0].state_dict())
        return str(inside), str(more), self.count.__closure__[0].cell_contents, id(self.recent)


@pytest.mark.parametrize("use", [discover, dwconv.layers, dwconv.report, functools.partial(dwconv.convert, seconds=0)])
def test_state_in_whatever_holds_it_is_put_back(use, logs):
    model = dwconv.convert(Remembers())
    before = model.state()
    use(model, IMAGE)
    assert model.state() == before
    model(IMAGE)
    assert model.recent[-1] is IMAGE and model.state() != before, "the objects are the same"


class GoesOn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = depthwise()
        self.streams = {"noise": (each for each in range(99))}
        self.numbers = itertools.count()

    def forward(self, x):
        return self.layer(x) + next(self.streams["noise"]) + next(self.numbers)


def test_what_cannot_be_put_back_is_named_once():
    with pytest.warns(
        DwconvWarning, match=r"a step on the example changed numbers, streams\['noise'\] of GoesOn"
    ) as all:
        discover(GoesOn(), IMAGE)
    assert len(all) == 1 and all[0].filename == __file__


class Stubborn(dict):
    def clear(self):
        raise KeyError("not mine")

    keys = values = items = __iter__ = __setitem__ = update = clear


def test_a_class_that_refuses_does_not_keep_others_from_being_put_back():
    model = depthwise()
    model.stubborn, model.list = Stubborn(), []
    with unchanged(model, []):
        dict.__setitem__(model.stubborn, "a", 1)
        model.list.append(1)
    assert not len(model.stubborn) and not model.list


def test_large_state_is_not_copied_but_watched(monkeypatch):
    monkeypatch.setattr(sys.modules[Contents.__module__], "_MOST_BYTES", 100)
    model = depthwise()
    model.images = [torch.zeros(20), torch.zeros(20)]
    before = Contents(model, [])
    model.images[0].add_(1)
    assert before.put_back() == [] and not model.images[0].any()
    model.images[1].add_(1)
    assert before.put_back() == ["images[1]"]


def test_a_search_ends(monkeypatch):
    monkeypatch.setattr(sys.modules[Contents.__module__], "MOST_OBJECTS", 100)
    model = depthwise()
    model.trainer = [[] for _ in range(10_000)]
    assert len(Contents(model, [])._kept) < 300


def test_what_belongs_to_the_process_is_left_alone():
    model, process = depthwise(), threading.Thread(target=print)
    model.thread, process.__dict__["ours"] = process, []
    with unchanged(model, []):
        process.__dict__["ours"].append(1)
    assert process.__dict__["ours"] == [1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_after_an_error_everything_is_put_back(error):
    model = Remembers()
    before = model.state()

    def fail(*_):
        raise error

    model.layer.register_forward_hook(fail)
    with pytest.raises(error):
        dwconv.convert(model, IMAGE, seconds=0)
    assert model.state() == before and type(model.layer) is nn.Conv2d


def test_ctrl_c_while_things_are_put_back_does_not_stop_it(monkeypatch):
    model, calls = depthwise(), []

    def put_back(self, whole=Contents.put_back):
        if not calls:
            calls.append(1)
            raise KeyboardInterrupt
        return whole(self)

    monkeypatch.setattr(Contents, "put_back", put_back)
    with pytest.raises(KeyboardInterrupt), unchanged(model, []):
        model.late = 1
    assert not hasattr(model, "late")


# -- inference tensors, lazy layers, autocast --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_models_and_examples_made_in_inference_mode(mode, logs):
    with torch.inference_mode():
        model, image = nn.Sequential(depthwise(), nn.BatchNorm2d(3)).eval(), IMAGE.clone()
    expected = str(model.state_dict())
    with mode():
        for example in (image, IMAGE):
            dwconv.convert(model, example, seconds=0)
            assert [layer.passes for layer in dwconv.layers(model, example).layers] == [("fprop",)]
        dwconv.report(model, image)
    assert str(model.state_dict()) == expected and model[0].weight.is_inference()
    kept = TensorContent(model[0].weight)
    with torch.inference_mode():
        model[0].weight.zero_()
    assert kept.put_back() and str(model.state_dict()) == expected


def test_a_part_made_in_inference_mode_leaves_the_rest_to_train(logs):
    with torch.inference_mode():
        backbone = depthwise().requires_grad_(False)
    model = nn.Sequential(backbone, depthwise())
    dwconv.convert(model, IMAGE, seconds=0)
    assert [layer.passes for layer in discover(model, IMAGE).layers] == [("fprop",), ("fprop", "wgrad")]
    model(IMAGE).sum().backward()
    assert model[1].weight.grad is not None


def lazy():
    return nn.Sequential(nn.LazyConv2d(3, 1), nn.LazyBatchNorm2d(), nn.LazyConv2d(6, 3, groups=3), nn.LazyLinear(2))


def test_lazy_layers_stay_lazy():
    model = lazy()
    model[2].weight.requires_grad = False
    assert [(each.name, each.passes) for each in discover(model, IMAGE).layers] == [("2", ("fprop", "dgrad"))]
    with pytest.raises(RuntimeError):
        discover(model, IMAGE[..., :2, :])  # fails amidst
    assert [type(module).__name__[:4] for module in model] == ["Lazy"] * 4
    assert all(map(nn.parameter.is_lazy, (model[0].weight, model[1].running_var, model[2].weight, model[3].weight)))
    first = model(IMAGE)
    assert type(model[2]) is nn.Conv2d and not model[2].weight.requires_grad and model[0].weight.requires_grad
    first.sum().backward()
    assert model(IMAGE).shape == first.shape and model[0].weight.grad is not None


@pytest.mark.parametrize("example", [None, IMAGE])
def test_a_lazy_layer_becomes_a_converted_one_if_it_is_depthwise(logs, example):
    seconds = None if example is None else 0
    model = dwconv.convert(nn.Sequential(*lazy()[:3], nn.LazyConv2d(6, 1, groups=3)), example, seconds=seconds)
    converted = dwconv.summary(model).converted
    sizes = [each.text.replace("if its first call has 3 channels, ", "") for each in converted]
    assert sizes == ["kernel 3×3, multiplier 2", "kernel 1×1, multiplier 2"]
    model(IMAGE)
    assert [type(each).__name__ for each in model] == ["Conv2d", "BatchNorm2d", "DepthwiseConv2d", "Conv2d"]
    back = dwconv.convert(lazy())
    dwconv.revert(back)
    assert [type(each) for each in back] == [type(each) for each in lazy()]


def test_a_cast_weight_of_the_example_is_not_used_in_training():
    class Looks(nn.Conv2d):
        seen: ClassVar[list[bool]] = []  # of the class: what instances refer to is put back

        def forward(self, x):
            self.seen.append(torch.is_autocast_cache_enabled())
            return super().forward(x)

    model = Looks(3, 3, 3, groups=3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        discover(model, IMAGE, trains=False)
        assert {*Looks.seen} == {False} and torch.is_autocast_cache_enabled()
        model(IMAGE).sum().backward()
    assert model.weight.grad is not None
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        discover(model, IMAGE)
        assert not torch.is_autocast_cache_enabled()


# -- gradients, and what waits for them --------------------------------------------------------------------------------


class Again(torch.autograd.Function):
    """A checkpoint of its author's own."""

    @staticmethod
    def forward(ctx, x, layer):
        ctx.save_for_backward(x)
        ctx.layer = layer
        return layer(x)

    @staticmethod
    def backward(ctx, dy):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.layer(x)
        torch.autograd.backward(y, dy) if ctx.layer.kernel_size == (3, 3) else y.backward(dy)
        return x.grad, None


class AgainIfValid(Again):
    @staticmethod
    def backward(ctx, dy):
        assert torch.autograd._is_checkpoint_valid()
        return Again.backward(ctx, dy)


class Checkpointed(nn.Module):
    def __init__(self, kind) -> None:
        super().__init__()
        self.layers = nn.ModuleList([depthwise(), depthwise(), nn.Conv2d(3, 3, 5, groups=3)])
        self.kind = kind

    def forward(self, x):
        first, *others = self.layers
        x = first(x)
        for layer in others:
            if self.kind in (True, False):
                x = pytorchs.checkpoint(layer, x, use_reentrant=self.kind)
            else:
                x = self.kind.apply(x, layer) if self.kind else layer(x)
        return x


KINDS = {"none": None, "reentrant": True, "not reentrant": False, "own": Again, "own, which asks": AgainIfValid}


@pytest.mark.parametrize("converts", [False, True])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_nothing_that_waits_for_gradients_runs(kind, converts, logs):
    """As optimizers that step in the backward pass."""
    model, ran = Checkpointed(kind), []
    if converts:
        dwconv.convert(model)
    nodes = []
    for parameter in model.parameters():
        optimizer = torch.optim.Adam([parameter])
        parameter.grad = torch.ones_like(parameter)
        parameter.register_hook(lambda gradient, parameter=parameter: ran.append(parameter.data.zero_()))
        parameter.register_post_accumulate_grad_hook(lambda _, step=optimizer.step: ran.append(step()))
        nodes.append(torch.autograd.graph.get_gradient_edge(parameter).node)
        nodes[-1].register_hook(lambda *_: ran.append("after"))
        nodes[-1].register_prehook(lambda *_: ran.append("before"))
    before = [(id(each.grad), each.grad.tolist(), each.tolist()) for each in model.parameters()]
    found = {layer.name: {*layer.passes} for layer in discover(model, IMAGE.clone().requires_grad_()).layers}
    assert found.keys() == {"layers.0", "layers.1", "layers.2"} and found["layers.0"] == {*PASSES}
    dwconv.convert(model, IMAGE, seconds=0)
    dwconv.report(model, IMAGE)
    assert not ran
    assert [(id(each.grad), each.grad.tolist(), each.tolist()) for each in model.parameters()] == before
    model(IMAGE.clone().requires_grad_()).sum().backward()
    assert len(ran) >= 4 * len(before), "as in every step of a training"


@pytest.mark.parametrize("kind", [True, Again])
def test_parameters_that_are_none_of_the_model_are_left_alone(kind):
    """Also where only a checkpoint uses them."""
    ran, hidden = [], [depthwise()]

    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.hidden = depthwise(), hidden

        def forward(self, x):
            x = self.layer(x)
            return pytorchs.checkpoint(hidden[0], x, use_reentrant=True) if kind is True else kind.apply(x, hidden[0])

    for parameter in hidden[0].parameters():
        parameter.register_post_accumulate_grad_hook(ran.append)
    discover(Hidden(), IMAGE)
    assert not ran and hidden[0].weight.grad is None


def test_a_parameter_that_nothing_of_the_model_refers_to_is_left_alone():
    offset, ran = nn.Parameter(torch.zeros(1)), []

    class Adds(nn.Module):
        def forward(self, x):
            return x + offset

    offset.register_post_accumulate_grad_hook(ran.append)
    discover(nn.Sequential(Adds(), Checkpointed(True)), IMAGE)
    assert not ran and offset.grad is None


def test_a_step_alone_leaves_the_parameters_in_their_places():
    model = Checkpointed(True)
    before = [id(each) for each in model.parameters()]
    step = ExampleStep(model=model, positional=(IMAGE,), keywords={}, trains=None, is_counted=True)
    step()
    assert [id(each) for each in model.parameters()] == before and model.layers[0].weight.grad is None


def test_hooks_that_a_model_registers_in_its_forward_pass_are_gone():
    class Registers(nn.Conv2d):
        def forward(self, x):
            self.weight.register_hook(lambda gradient: gradient)
            return super().forward(x)

    model = Registers(3, 3, 3, groups=3)
    discover(model, IMAGE)
    assert not model.weight._backward_hooks


def test_an_optimizer_that_steps_in_a_hook_of_a_module_is_put_back():
    model = nn.Sequential(depthwise(), depthwise())
    optimizer = torch.optim.Adam(model.parameters())

    def step(*_):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()

    model.register_forward_hook(step)
    before = str((model.state_dict(), optimizer.state_dict()))
    discover(model, IMAGE, trains=False)
    assert str((model.state_dict(), optimizer.state_dict())) == before


def test_nothing_of_the_process_is_swapped_meanwhile():
    """Other threads train as ever, and a library's own checkpoint stays in its place."""
    names = [(pytorchs, "CheckpointFunction"), (torch.autograd, "backward"), (torch.autograd, "_is_checkpoint_valid")]
    names.append((Variable._execution_engine, "run_backward"))
    before, meanwhile = [getattr(*each) for each in names], []
    other = nn.Parameter(torch.ones(3))
    other.register_post_accumulate_grad_hook(meanwhile.append)

    class Looks(nn.Module):
        def forward(self, x):
            thread = threading.Thread(target=lambda: (other * 1).sum().backward())
            thread.start()
            thread.join()
            meanwhile.append([getattr(*each) for each in names])
            return x

    class Replaced(pytorchs.CheckpointFunction):
        pass

    model = nn.Sequential(depthwise(), Looks(), Checkpointed(True))
    discover(model, IMAGE)
    assert meanwhile[0] is other and meanwhile[1] == before and other.grad is not None
    pytorchs.CheckpointFunction = Replaced
    try:
        discover(model, IMAGE)
        assert pytorchs.CheckpointFunction is Replaced
    finally:
        pytorchs.CheckpointFunction = before[0]


def test_a_reducer_that_counts_its_first_step_counts_none_of_the_example(logs):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(Checkpointed(True), static_graph=True)
        sent = []

        def send(_, bucket):
            sent.append(bucket)
            done = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        wrapped.register_comm_hook(None, send)
        weight = wrapped.module.layers[0].weight
        dwconv.convert(wrapped, IMAGE, seconds=0)
        assert wrapped.module.layers[0].weight is weight and weight.grad is None
        for _ in range(3):
            sent.clear()
            wrapped(IMAGE.clone().requires_grad_()).sum().backward()
            assert sent
    finally:
        dist.destroy_process_group()


def test_tied_weights_and_views_of_one_buffer():
    model = nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1, groups=3, bias=False) for _ in range(3)))
    flat = torch.randn(2 * 27)
    model[0].weight = nn.Parameter(flat[:27].view(3, 1, 3, 3))
    model[1].weight = nn.Parameter(flat[27:].view(3, 1, 3, 3))
    model[2].weight, model.flat = model[0].weight, flat
    model[1].register_forward_hook(lambda *_: [None, flat.zero_()][0])
    before = flat.tolist()
    with torch.no_grad():
        discover(model, IMAGE)
    assert flat.tolist() == before and model[2].weight is model[0].weight
    assert model[0].weight.data_ptr() == flat.data_ptr()
