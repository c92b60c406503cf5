"""Batches get to the device of the step, in containers of the same kinds; streams of a GPU wait where they have to."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from types import MappingProxyType

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from dwconv.parallel import prefetch
from dwconv.parallel.data.copies import Copies, with_tensors

Pair = namedtuple("Pair", ["image", "label"])


@dataclass(frozen=True)
class Sample:
    image: torch.Tensor
    name: str


def halved(value):
    return with_tensors(value, lambda tensor: tensor / 2)


def test_tensors_are_found_in_the_usual_containers_which_are_not_written_to():
    one, half = torch.ones(2), torch.full((2,), 0.5)
    sample = Sample(one, "b")
    found = halved(
        {
            "pair": Pair(one, "a"), "list": [one, 3], "sample": sample, "tuple": (one, (one,)), "none": None,
            "ordered": OrderedDict(x=one), "default": defaultdict(list, x=one),
        }
    )  # fmt: skip
    assert isinstance(found["pair"], Pair) and torch.equal(found["pair"].image, half) and found["pair"].label == "a"
    assert torch.equal(found["list"][0], half) and found["list"][1] == 3
    assert isinstance(found["sample"], Sample) and torch.equal(found["sample"].image, half)
    assert torch.equal(found["tuple"][1][0], half) and found["none"] is None
    assert type(found["ordered"]) is OrderedDict and torch.equal(found["ordered"]["x"], half)
    assert found["default"].default_factory is list and torch.equal(found["default"]["x"], half)
    assert torch.equal(sample.image, torch.ones(2)) and torch.equal(one, torch.ones(2))


def test_a_packed_sequence_keeps_its_sizes():
    """PyTorch demands these on the CPU, wherever the data are."""
    packed = pack_sequence([torch.ones(2), torch.ones(3)], enforce_sorted=False)
    found = with_tensors(packed, lambda tensor: tensor.to("meta"))
    assert isinstance(found, PackedSequence)
    assert {each.device.type for each in (found.data, found.sorted_indices, found.unsorted_indices)} == {"meta"}
    assert found.batch_sizes.device.type == "cpu"


class Own:
    """Equal if class, attributes and items are."""

    def __eq__(self, other):
        items = list(self.items()) == list(other.items()) if hasattr(self, "items") else list(self) == list(other)
        return type(self) is type(other) and vars(self) == vars(other) and items


class OwnTuple(Own, tuple):
    def __new__(cls, first, second, *, note):
        made = super().__new__(cls, (first, second))
        made.note = note
        return made


class OwnPair(Own, Pair):
    def __new__(cls, image):
        return super().__new__(cls, image, "own")


class OwnList(Own, list):
    def __init__(self, first, second, *, note):
        super().__init__((first, second))
        self.note = note


class OwnDict(Own, dict):
    def __init__(self, first, second, *, note):
        super().__init__(first=first, second=second)
        self.note = note


class FrozenDict(OwnDict):
    def __setitem__(self, key, value):
        raise TypeError("frozen")


class OwnMapping(Own, MutableMapping):
    """Its items lie in a dict that a shallow copy has in common with it."""

    def __init__(self, first, second, *, note):
        self.store = {"first": first, "second": second}
        self.note = note

    def __getitem__(self, key):
        return self.store[key]

    def __setitem__(self, key, value):
        self.store[key] = value

    def __delitem__(self, key):
        del self.store[key]

    def __iter__(self):
        return iter(self.store)

    def __len__(self):
        return len(self.store)


class Fixed(Mapping):
    """Without a ``__dict__``."""

    __slots__ = ("kept",)

    def __init__(self, kept):
        self.kept = kept

    def __getitem__(self, key):
        return self.kept[key]

    def __iter__(self):
        return iter(self.kept)

    def __len__(self):
        return len(self.kept)


@dataclass
class Slotted:
    __slots__ = ("image", "name")
    image: object
    name: str


@dataclass(eq=False)
class Unset:
    image: object
    later: object = field(init=False)

    def __eq__(self, other):
        return vars(self) == vars(other)


KINDS = {
    "tuple": lambda x: OwnTuple(x, "a", note="b"),
    "named tuple": OwnPair,
    "list": lambda x: OwnList(x, "a", note="b"),
    "dict": lambda x: OwnDict(x, "a", note="b"),
    "frozen dict": lambda x: FrozenDict(x, "a", note="b"),
    "mapping": lambda x: OwnMapping(x, "a", note="b"),
    "fixed mapping": lambda x: Fixed({"image": x, "name": "a"}),
    "user dict": lambda x: UserDict(image=x, name="a"),
    "user list": lambda x: UserList([x, "a"]),
    "proxy": lambda x: MappingProxyType({"image": x, "name": "a"}),
    "deque": lambda x: deque([x, "a"], maxlen=3),
    "slots": lambda x: Slotted(x, "a"),
    "unset field": Unset,
    "within each other": lambda x: OwnList({"a": OwnTuple(x, [x], note=(1, 2))}, deque([Pair(x, 1)]), note="c"),
}  # fmt: skip


class Marked:
    """In place of a tensor, for it can be compared."""

    def __init__(self, times):
        self.times = times

    def __eq__(self, other):
        return self.times == other.times


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_ones_own_keep_class_and_content(kind, monkeypatch):
    """Also where the class is made from other arguments, and where its copy would share its items."""
    monkeypatch.setattr("dwconv.parallel.data.copies.Tensor", Marked)
    batch = KINDS[kind](Marked(1))
    found = with_tensors(batch, lambda marked: Marked(2 * marked.times))
    assert type(found) is type(batch)
    for given, times in ((found, 2), (batch, 1)):
        expected = KINDS[kind](Marked(times))
        if hasattr(expected, "__dict__"):
            assert vars(given) == vars(expected)
        if kind == "fixed mapping":
            given, expected = given.kept, expected.kept
        assert given == expected
    assert getattr(found, "maxlen", None) == getattr(batch, "maxlen", None)


@pytest.mark.parametrize("kind", [*KINDS, "size", "time", "packed"])
def test_what_holds_no_tensor_that_changes_is_the_same_object(kind):
    kept = {"size": torch.Size([2]), "time": time.localtime(), "packed": pack_sequence([torch.ones(2)])}
    batch = kept[kind] if kind in kept else KINDS[kind](torch.ones(1))
    assert with_tensors(batch, lambda tensor: tensor) is batch


def test_results_of_torch_functions_keep_their_kind():
    found = with_tensors(torch.ones(2, 2).max(0), lambda tensor: tensor.to("meta"))
    assert type(found) is torch.return_types.max and found.values.is_meta and found.indices.is_meta


def test_an_attribute_that_is_an_item_changes_with_it():
    """Outputs of transformers have each item as an attribute, too."""
    batch = OwnDict(torch.ones(2), 1, note=None)
    batch.first = batch["first"]
    found = halved(batch)
    assert found.first is found["first"] and found.first[0] == 0.5


def test_a_tensor_that_is_there_twice_is_changed_once():
    one = torch.ones(2)
    batch = [one, {"a": one}]
    batch.append(batch)
    found = halved(batch)
    assert found[0] is found[1]["a"] and found[2] is batch


class Graph:
    """Has a ``to`` as tensors have."""

    def __init__(self, returns, device="cpu"):
        self.device, self.returns = device, returns

    def to(self, device, non_blocking=False):
        if self.returns == "new":
            return Graph(self.returns, device)
        self.device = device
        return self if self.returns == "itself" else None


class Quantity:
    def to(self, unit, *contexts):
        raise ValueError(f"{unit} is no unit")


@pytest.mark.parametrize("returns", ["new", "itself", "nothing"])
def test_objects_with_a_to_are_moved_by_it(returns):
    graph, quantity, layer = Graph(returns), Quantity(), torch.nn.Linear(2, 2)
    (found,) = prefetch([[graph, quantity, layer, Graph]], "meta")
    assert found[0].device.type == "meta" and graph.device == "cpu", "the loader's own stays"
    assert found[1:] == [quantity, layer, Graph]
    assert next(layer.parameters()).device.type == "cpu"


def test_batches_go_to_the_device():
    (batch,) = prefetch([{"x": torch.ones(2)}], "meta")
    assert batch["x"].device.type == "meta"


class Recorder:
    """A stream, or an event, that notes its calls."""

    def __init__(self, name, notes):
        self.name, self.notes = name, notes

    def record_event(self):
        self.notes.append(f"{self.name} records an event")
        return "event"

    def wait_event(self, event):
        self.notes.append(f"{self.name} waits for the {event}")

    def wait_stream(self, stream):
        self.notes.append(f"{self.name} waits for {stream.name}")


@pytest.fixture
def notes(monkeypatch):
    """The calls in their order, with streams that only take notes; no GPU is there to run them."""
    notes = []
    side, current = Recorder("side", notes), Recorder("current", notes)

    @contextlib.contextmanager
    def on(stream):
        notes.append(f"on {stream.name}")
        yield
        notes.append(f"off {stream.name}")

    def copied(tensor, device, *, non_blocking):
        notes.append(f"copy to {device}, from {'pinned' if tensor.is_pinned() else 'pageable'} memory, {non_blocking}")
        return tensor

    pinned = set()
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: side)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.add(id(tensor)) or tensor)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: id(tensor) in pinned)
    monkeypatch.setattr(torch.Tensor, "to", copied)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: notes.append(f"used on {stream.name}"))
    return notes


KINDS_ON_A_GPU = {
    "dict": lambda x: {"image": x, "name": "a"},
    "mapping": KINDS["mapping"],
    "deque": KINDS["deque"],
    "unset field": Unset,
}


@pytest.mark.parametrize("kind", KINDS_ON_A_GPU)
def test_a_copy_to_a_gpu_is_waited_for_by_the_stream_of_the_step(kind, notes):
    """Wherever the tensor is."""
    copies = Copies(torch.device("cuda:0"))
    begun = copies.begin(KINDS_ON_A_GPU[kind](torch.ones(2)))
    assert notes == ["on side", "copy to cuda:0, from pinned memory, True", "off side", "side records an event"]
    notes.clear()
    assert type(copies.finish(begun)) is type(KINDS_ON_A_GPU[kind](torch.ones(2)))
    assert notes == ["current waits for the event", "used on current"]


@pytest.mark.parametrize("kind", KINDS_ON_A_GPU)
def test_a_batch_made_on_a_gpu_is_copied_once_it_is_there(kind, notes, monkeypatch):
    """The stream that makes it may not be done: the copy's stream waits for it, before the copy."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    Copies(torch.device("cuda:1")).begin(KINDS_ON_A_GPU[kind](torch.ones(2)))
    assert notes == [
        "side waits for current", "on side", "copy to cuda:1, from pinned memory, True", "off side",
        "side records an event",
    ]  # fmt: skip


def test_an_object_with_a_to_is_moved_on_the_stream_of_the_step(notes):
    """Its memory is that stream's, which nothing else could record."""
    copies = Copies(torch.device("cuda:0"))
    graph = Graph("itself")
    begun = copies.begin([graph, torch.ones(2)])
    assert begun[0][0] is graph and graph.device == "cpu"
    notes.clear()
    moved, _ = copies.finish(begun)
    assert moved.device == torch.device("cuda:0") and notes == ["current waits for the event", "used on current"]
