"""Training steps of one model, as it is and converted: ``bench train`` runs this in a process of its own, for each
network and each way of allocating.

Same start, same data, steps taken in turns.

data ──► plain model     ──► loss ──► step        the two losses must agree within rounding;
     ├─► converted model ──► loss ──► step        the two times are compared: medians, and their spread
     └─► rounded model   ──► loss ──► step        how far rounding alone drives models apart: the plain one, with each
                                                  of its first weights moved by one unit in the last place

A model that cannot run does not race, and the reason is kept. A race is void (``misnamed``) if the converted model runs
other kernels than its row names. On a GPU the figures also say what each model takes of the host and of the GPU, which
roads the calls of its layers took, and how much memory its steps need.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import torch
from torch import nn

import dwconv
from bench.blocks import kept_bytes
from bench.launched import roads_of, why_misnamed
from bench.models import Network
from bench.networks import image_for, memory_format_of, mixed_precision, network_of, where_layers_run
from bench.step_memory import held_bytes, peak_bytes, ran_out_of_memory
from bench.step_rows import (
    AGAIN,
    CONVERTED,
    OTHER_LAYOUT,
    PLAIN,
    STEPS,
    WITH_BLOCKS,
    WITH_GRAPHS,
    WITH_INDUCTOR,
    Step,
    profiles,
    samples_per_s,
    summary,
)
from dwconv import native
from dwconv.errors import one_line
from dwconv.measure.clock.timing import CpuClock, Lap
from dwconv.measure.step_share import FEW_STEPS, ratio_at_most, timed_on_gpu
from dwconv.problems.target import parse_target

_THREADS_SLEEP_AFTER_S = 0.05
"""OpenMP's threads wait for work on a core of theirs for some milliseconds, and occupy it."""
_RATE = 0.01
_LEAST_TURNS = 6
CLASSES = 2
"""Classes of the made-up labels: any model has as many."""
_AnyLap = TypeVar("_AnyLap")


@dataclass(frozen=True, kw_only=True)
class PairedTraining:
    """What is trained, and which models take turns beside the plain and the converted one."""

    model: str
    batch: int | None = None
    image: int | None = None
    contiguous: bool = False
    device: str = "cpu"
    autocast: str | None = None
    steps: int = 20
    """Steps whose time counts."""
    seconds: float = math.inf
    """After as long no further turn of them begins, once there were a few; and none of the steps before them after half
    of that, once there were two."""
    warmup: int = 5
    """Steps before these, whose losses are compared."""
    both_layouts: bool = False
    """The plain model in the other layout."""
    control: bool = False
    """The plain model once more."""
    blocks: bool = False
    """A converted model with its blocks as one."""
    compile: bool = False
    """All but these two under torch.compile, with inductor."""
    graphs: bool = False
    """The steps as CUDA graphs, which ``dwconv.graphed`` captures."""
    profile: bool = False
    """Say where the time of a step goes."""
    apart: bool = False
    """Each model in a process of its own, as a user's has, and the processes take the turns. In one process the models
    share a heap, and what one gives back another takes: no model pays for memory that its steps give back to the system
    and fetch again."""

    @property
    def network(self) -> Network:
        return network_of(self.model, batch=self.batch, image=self.image)

    def image_of(self, name: str = PLAIN) -> torch.Tensor:
        """The input of the model of that name, in its layout: no step pays for a copy."""
        return image_for(self.network, contiguous=self.contiguous != (name == OTHER_LAYOUT), device=self.device)


def race(**given: Any) -> dict[str, Any]:
    """The figures of ``PairedTraining(**given)``; if the GPU's memory is too small for its batch, only the reason, as
    ``out_of_memory``. Raises NoDevice."""
    training = PairedTraining(**given)
    try:
        return _raced(training)
    except Exception as error:
        if not ran_out_of_memory(error):
            raise
        return {"out_of_memory": _in_a_line(error)}


def _raced(training: PairedTraining) -> dict[str, Any]:
    autocast, is_gpu = training.autocast, training.device == "cuda"
    native.native()  # compiled here if need be, so that it does not come in the middle of what is timed
    if is_gpu:
        parse_target("cuda")  # raises NoDevice without one
    raced: dict[str, nn.Module] = {}
    refused: dict[str, str] = {}
    of_graphs: dict[str, int] = {}
    for name, make in makers_of(training).items():
        if name not in WITH_GRAPHS.values():
            raced[name] = make()
            continue
        before = held_bytes() if is_gpu else 0
        try:
            raced[name] = make()
        except Exception as error:  # noqa: BLE001  whatever a capture raises, the model does not race
            refused[name] = _why_refused(error)
        else:
            of_graphs[name] = held_bytes() - before if is_gpu else 0
    image = training.image_of()
    unsure = {name: raced[name] for way in (WITH_INDUCTOR, WITH_GRAPHS) for name in way.values() if name in raced}
    refused |= not_trainable(unsure, image, autocast=autocast)
    raced = {name: model for name, model in raced.items() if name not in refused}
    models = {**raced, "rounded": moved_by_one_rounding(raced[PLAIN], autocast)}
    steps = {name: step_of(model, autocast=autocast) for name, model in models.items()}

    losses = compare_losses(steps, image, count=training.warmup, seconds=training.seconds / 2)
    layers = where_layers_run(raced[CONVERTED], image, autocast=autocast)
    misnamed = {}
    for name in (CONVERTED, WITH_INDUCTOR[CONVERTED]):
        if name in raced and (why := why_misnamed(partial(steps[name], *made_up(image)), layers, on_gpu=is_gpu)):
            misnamed[name] = why
    gpu_steps = {name: _on_gpu(model, image, autocast=autocast) for name, model in raced.items() if is_gpu}
    if training.apart:
        laps = _take_turns_apart(list(raced), training)
    else:
        laps_of = {name: lap_of(steps[name], training.image_of(name)) for name in raced}
        laps = take_turns(laps_of, count=training.steps, seconds=training.seconds)
    peaks = {
        name: peak_bytes(model, partial(steps[name], *made_up(image)), of_graphs=of_graphs.get(name))
        for name, model in raced.items()
        if is_gpu
    }
    eager = {name: raced[name] for name in WITH_INDUCTOR if name in raced}
    with mixed_precision(training.device, autocast):
        kept = {name: kept_bytes(model, image) for name, model in eager.items()}
    summed = summary(laps)
    figures: dict[str, Any] = {
        "layers": layers,
        "misnamed": misnamed,
        **summed,
        "samples_per_s": samples_per_s(summed["median_ms"], batch=image.shape[0]),
        "threads": torch.get_num_threads(),
        "loss_difference": losses,
        "refused": refused,
        "native": native.why_not or "C++",
        "on_gpu": gpu_steps,
        "peak_bytes": peaks,
        "kept_bytes": kept,
    }
    count = STEPS if training.profile and not is_gpu else FEW_STEPS  # kernels take as long each time
    wanted = eager if training.profile else [PLAIN]
    profiled = profiles({name: steps[name] for name in wanted}, *made_up(image), count=count)
    if training.profile:
        figures["profile_ms"] = profiled
    figures["ratio"]["at_most"] = ratio_at_most(profiled[PLAIN])
    return figures


def _why_refused(error: Exception) -> str:
    """The reason why a model does not race. Raises the error if a smaller batch could."""
    if ran_out_of_memory(error):
        raise error
    return _in_a_line(error)


def _in_a_line(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}", most=200)


def makers_of(training: PairedTraining) -> dict[str, Callable[[], nn.Module]]:
    """How to make each requested model, by name: all from the same weights, before any of them takes a step."""
    torch.manual_seed(0)
    network, image = training.network, training.image_of()
    plain = network.make().train().to(training.device)
    lies, other = (memory_format_of(network, contiguous=training.contiguous != turned) for turned in (False, True))
    plain.to(memory_format=lies)  # type: ignore[call-overload]
    convert = partial(converted_copy, plain, image, autocast=training.autocast)
    eager: dict[str, Callable[[], nn.Module]] = {PLAIN: lambda: plain, CONVERTED: convert}
    if training.blocks:
        eager[WITH_BLOCKS] = partial(convert, blocks=True)
    makers = dict(eager)
    if training.both_layouts and other != lies:
        makers[OTHER_LAYOUT] = lambda: copy.deepcopy(plain).to(memory_format=other)  # type: ignore[call-overload]
    if training.control:
        makers[AGAIN] = partial(copy.deepcopy, plain)
    if training.compile:
        makers |= {WITH_INDUCTOR[name]: partial(_under_inductor, make) for name, make in eager.items()}
    if training.graphs:
        graphed = partial(_as_graphs, image=image, autocast=training.autocast)
        makers |= {WITH_GRAPHS[name]: partial(graphed, make) for name, make in eager.items()}
    return makers


def converted_copy(
    model: nn.Module, image: torch.Tensor, *, autocast: str | None = None, blocks: bool = False
) -> nn.Module:
    """The model converted with an example, so that functional calls, and SiLU where it comes next, are seen. Nothing is
    raced: what there is to tune was tuned before."""
    copied = copy.deepcopy(model)
    with mixed_precision(image.device.type, autocast):
        return dwconv.convert(copied, image, seconds=0, blocks=blocks)


def step_of(model: nn.Module, *, autocast: str | None = None, rate: float = _RATE) -> Step:
    """A step of SGD with momentum. In float16 the loss is scaled, or small gradients would be lost. A step ends when
    the device is done, since its loss is read last."""
    device = next(model.parameters()).device.type
    scaler = torch.amp.GradScaler(device, enabled=autocast == "float16")
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)

    def step(images: torch.Tensor, labels: torch.Tensor) -> float:
        optimizer.zero_grad(set_to_none=True)
        with mixed_precision(device, autocast):
            loss = nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    return step


def made_up(image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images and labels."""
    return torch.randn_like(image), torch.randint(0, CLASSES, (image.shape[0],), device=image.device)


def _under_inductor(make: Callable[[], nn.Module]) -> nn.Module:
    """The model under torch.compile as it is by default."""
    return torch.compile(copy.deepcopy(make()))  # type: ignore[return-value]


def _as_graphs(make: Callable[[], nn.Module], *, image: torch.Tensor, autocast: str | None) -> nn.Module:
    """The model whose forward and backward pass are CUDA graphs."""
    with mixed_precision(image.device.type, autocast):
        return dwconv.graphed(copy.deepcopy(make()), image, seconds=0)


def _on_gpu(model: nn.Module, image: torch.Tensor, *, autocast: str | None) -> dict[str, Any]:
    """What a forward and a backward pass take of the host and of the GPU, and which roads the calls of layers took."""

    def loss() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        with mixed_precision(image.device.type, autocast):
            y: torch.Tensor = model(image).sum()
        return y

    found = timed_on_gpu(lambda: loss().backward())  # type: ignore[no-untyped-call]
    roads = dict(roads_of(loss()))
    model.zero_grad(set_to_none=True)
    return {**dataclasses.asdict(found), "busy": found.busy, "roads": roads}


def not_trainable(models: Mapping[str, nn.Module], image: torch.Tensor, *, autocast: str | None) -> dict[str, str]:
    """Of those that cannot run forward and backward pass, why not. Their weights stay as they are."""
    refused = {}
    for name, model in models.items():
        images, labels = made_up(image)
        try:
            with mixed_precision(image.device.type, autocast):
                loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001  whatever a compiler raises, it does not race
            refused[name] = _why_refused(error)
        model.zero_grad(set_to_none=True)
    return refused


def compare_losses(
    steps: dict[str, Step], image: torch.Tensor, *, count: int, seconds: float = math.inf
) -> dict[str, float]:
    """The largest difference from the plain loss: of the converted model, of the one that was only rounded, and of
    whichever else there is, in ``count`` steps; after ``seconds`` none begins, once there were two. All drop the same,
    if they drop anything; but torch.compile draws in its own way."""
    worst = dict.fromkeys((name for name in steps if name != PLAIN), 0.0)
    ends_s = time.monotonic() + seconds
    for number in range(count):
        if number >= 2 and time.monotonic() >= ends_s:
            break
        data = made_up(image)
        losses = {}
        for name, step in steps.items():
            with torch.random.fork_rng():  # the next one draws the same
                losses[name] = step(*data)
        worst = {name: max(before, abs(losses[name] - losses[PLAIN])) for name, before in worst.items()}
    return worst


def lap_of(step: Step, image: torch.Tensor) -> Callable[[], Lap]:
    """Takes one step, on made-up data that is there before."""
    clock = CpuClock()
    return lambda: clock.lap(partial(step, *made_up(image)), times=1)


def take_turns(
    laps_of: Mapping[str, Callable[[], _AnyLap]], *, count: int, seconds: float = math.inf
) -> dict[str, list[_AnyLap]]:
    """``count`` laps of each; after ``seconds`` no further turn begins, once there were a few. Every second turn is the
    one before backwards, A B B A, and each comes first in time."""
    laps: dict[str, list[_AnyLap]] = {name: [] for name in laps_of}
    names = sorted(laps_of)
    ends_s = time.monotonic() + seconds
    for turn in range(count):
        if turn >= _LEAST_TURNS and time.monotonic() >= ends_s:
            break
        first = turn // 2 % len(names)
        order = names[first:] + names[:first]
        for name in order[::-1] if turn % 2 else order:
            laps[name].append(laps_of[name]())
    return laps


# -- models in processes of their own --------------------------------------------------------------------------------


def _take_turns_apart(names: Sequence[str], training: PairedTraining) -> dict[str, list[Lap]]:
    """``take_turns``, each model in a process of its own, which takes its first steps before the next one starts."""
    spawn = multiprocessing.get_context("spawn")
    with ExitStack() as processes:
        ours: dict[str, Connection] = {}
        for name in names:
            ours[name], theirs = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(theirs, name, training), daemon=True)
            process.start()
            theirs.close()
            processes.callback(process.kill)
            ours[name].recv()  # EOFError if it ended
        return take_turns({name: partial(_ask, connection) for name, connection in ours.items()}, count=training.steps)


def _serve(connection: Connection, name: str, training: PairedTraining) -> None:
    """Takes a step for each message."""
    lap = lap_of(step_of(makers_of(training)[name](), autocast=training.autocast), training.image_of(name))
    for _ in range(training.warmup):
        lap()
    connection.send("ready")
    while True:
        connection.recv()
        connection.send(lap())


def _ask(connection: Connection) -> Lap:
    time.sleep(_THREADS_SLEEP_AFTER_S)
    connection.send("step")
    return connection.recv()


def moved_by_one_rounding(model: nn.Module, autocast: str | None = None) -> nn.Module:
    """The model with each weight moved by one unit in the last place, in the precision that convolutions run in."""
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in moved.parameters():
            if autocast:
                parameter.mul_(1 + torch.finfo(getattr(torch, autocast)).eps)
            else:
                parameter.copy_(torch.nextafter(parameter, torch.full_like(parameter, torch.inf)))
    return moved
