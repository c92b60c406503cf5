"""``python -m bench.paired_steps``: training steps of one model, as it is and converted, in a process of its own.

Same start, same data, steps taken in turns. ``bench train`` starts one for each network and each way of allocating.

data ──► plain model     ──► loss ──► step        the two losses must agree within rounding;
     ├─► converted model ──► loss ──► step        the two times are compared: medians, and their spread
     └─► rounded model   ──► loss ──► step        how far rounding alone drives models apart: the plain one, with each
                                                  of its first weights moved by one unit in the last place

In the same turns, by option: the plain model in the other layout (``--both-layouts``), the plain model
once more, as a control (``--control``), the converted one with its blocks as one (``--blocks``), and all of them under
torch.compile, with inductor (``--compile``), and as CUDA graphs (``--graphs``), which ``dwconv.graphed`` captures, the
plain one too. A model that cannot run so does not race, and the reason is kept. A race is void (``misnamed``) if the
converted model runs other kernels than its row names. On a GPU the figures also say what each model takes of
the host and of the GPU, and which roads the calls of its layers took.

With ``--apart`` each model has a process of its own, as a user's has, and the processes take the turns. In one process
the models share a heap, and what one gives back another takes: no model pays for memory that its steps give back to the
system and fetch again.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import nn

import dwconv
from bench.blocks import kept_bytes
from bench.launched import roads_of, why_misnamed
from bench.models import Network
from bench.networks import (
    add_device_arguments,
    add_network_arguments,
    image_for,
    memory_format_of,
    mixed_precision,
    network_from,
    where_layers_run,
)
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
    summary,
)
from dwconv import native
from dwconv.commands.command_line import ArgumentParser, run, writable_file
from dwconv.errors import one_line
from dwconv.measure.clock.timing import CpuClock, Lap
from dwconv.measure.step_share import FEW_STEPS, ratio_at_most, timed_on_gpu
from dwconv.problems.target import parse_target


def main(argv: Sequence[str]) -> int:
    return run(_race, list(argv))


def _race(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench.paired_steps", description=(__doc__ or "").partition("\n")[0])
    add_network_arguments(parser)
    add_device_arguments(parser)
    parser.add_argument("--steps", type=int, default=20, help="steps whose time counts, default 20")
    parser.add_argument(
        "--warmup", type=int, default=5, help="steps before these, whose losses are compared, default 5"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profile", action="store_true", help="also print where the time of a step goes")
    parser.add_argument("--compile", action="store_true", help="the models under torch.compile as well")
    parser.add_argument("--graphs", action="store_true", help="the models as CUDA graphs as well")
    parser.add_argument("--blocks", action="store_true", help="a converted model with its blocks as one as well")
    parser.add_argument("--both-layouts", action="store_true", help="the plain model in the other layout as well")
    parser.add_argument("--control", action="store_true", help="the plain model once more, against itself")
    parser.add_argument("--apart", action="store_true", help="each model in a process of its own")
    parser.add_argument("--out", type=writable_file, required=True, help="write the figures there, as JSON")
    arguments = parser.parse_args(argv)

    native.native()  # compiled here if need be, so that it does not come in the middle of what is timed
    network = network_from(arguments)
    is_gpu = arguments.device == "cuda"
    if is_gpu:
        parse_target("cuda")  # raises NoDevice without one
    makers = makers_of(network, arguments)
    raced: dict[str, nn.Module] = {}
    refused: dict[str, str] = {}
    for name, make in makers.items():
        try:
            raced[name] = make()
        except Exception as error:  # whatever a capture raises, the model does not race
            if name not in WITH_GRAPHS.values():
                raise
            refused[name] = one_line(f"{type(error).__name__}: {error}", most=200)
    image = image_for(network, contiguous=arguments.contiguous, device=arguments.device)
    plain, converted = raced[PLAIN], raced[CONVERTED]
    unsure = {name: raced[name] for way in (WITH_INDUCTOR, WITH_GRAPHS) for name in way.values() if name in raced}
    refused |= not_trainable(unsure, image, autocast=arguments.autocast)
    raced = {name: model for name, model in raced.items() if name not in refused}
    models = {**raced, "rounded": moved_by_one_rounding(plain, arguments.autocast)}
    steps = {name: step_of(model, autocast=arguments.autocast) for name, model in models.items()}

    losses = compare_losses(steps, image, count=arguments.warmup)
    layers = where_layers_run(converted, image, autocast=arguments.autocast)
    misnamed = {}
    for name in (CONVERTED, WITH_INDUCTOR[CONVERTED]):
        if name in raced and (why := why_misnamed(partial(steps[name], *made_up(image)), layers, on_gpu=is_gpu)):
            misnamed[name] = why
    gpu_steps = {name: _on_gpu(model, image, autocast=arguments.autocast) for name, model in raced.items() if is_gpu}
    if arguments.apart:
        laps = _take_turns_apart(list(raced), arguments)
    else:
        laps = take_turns(
            {name: lap_of(steps[name], _image_of(name, network, arguments)) for name in raced}, count=arguments.steps
        )
    figures: dict[str, Any] = {
        "layers": layers,
        "misnamed": misnamed,
        **summary(laps),
        "threads": torch.get_num_threads(),
        "loss_difference": losses,
        "refused": refused,
        "native": native.why_not or "C++",
        "on_gpu": gpu_steps,
    }
    eager = {name: raced[name] for name in WITH_INDUCTOR if name in raced}
    with mixed_precision(arguments.device, arguments.autocast):
        figures["kept_bytes"] = {name: kept_bytes(model, image) for name, model in eager.items()}
    if arguments.profile:
        of_eager = {name: steps[name] for name in eager}
        figures["profile_ms"] = profiled = profiles(of_eager, *made_up(image), count=STEPS)
    else:
        profiled = profiles({PLAIN: steps[PLAIN]}, *made_up(image), count=FEW_STEPS)
    figures["ratio"]["at_most"] = ratio_at_most(profiled[PLAIN])
    arguments.out.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


_THREADS_SLEEP_AFTER_S = 0.05
"""OpenMP's threads wait for work on a core of theirs for some milliseconds, and occupy it."""
_RATE = 0.01
CLASSES = 2
"""Classes of the made-up labels: any model has as many."""


def makers_of(network: Network, arguments: argparse.Namespace) -> dict[str, Callable[[], nn.Module]]:
    """How to make each requested model, by name: all from the same weights, before any of them takes a step."""
    torch.manual_seed(arguments.seed)
    image = image_for(network, contiguous=arguments.contiguous, device=arguments.device)
    plain = network.make().train().to(arguments.device)
    plain.to(memory_format=memory_format_of(network, contiguous=arguments.contiguous))  # type: ignore[call-overload]
    convert = partial(converted_copy, plain, image, autocast=arguments.autocast)
    makers: dict[str, Callable[[], nn.Module]] = {PLAIN: lambda: plain, CONVERTED: convert}
    if arguments.blocks:
        makers[WITH_BLOCKS] = partial(convert, blocks=True)
    other = memory_format_of(network, contiguous=not arguments.contiguous)
    if arguments.both_layouts and other != memory_format_of(network, contiguous=arguments.contiguous):
        makers[OTHER_LAYOUT] = lambda: copy.deepcopy(plain).to(memory_format=other)  # type: ignore[call-overload]
    if arguments.control:
        makers[AGAIN] = partial(copy.deepcopy, plain)
    if arguments.compile:
        eager = {name: make for name, make in makers.items() if name in WITH_INDUCTOR}
        makers |= {WITH_INDUCTOR[name]: partial(_under_inductor, make) for name, make in eager.items()}
    if arguments.graphs:
        eager = {name: make for name, make in makers.items() if name in WITH_GRAPHS}
        graphed = partial(_as_graphs, image=image, autocast=arguments.autocast)
        makers |= {WITH_GRAPHS[name]: partial(graphed, make) for name, make in eager.items()}
    return makers


def _image_of(name: str, network: Network, arguments: argparse.Namespace) -> torch.Tensor:
    """The input of the model of that name, in its layout: no step pays for a copy."""
    contiguous = arguments.contiguous != (name == OTHER_LAYOUT)
    return image_for(network, contiguous=contiguous, device=arguments.device)


def converted_copy(
    model: nn.Module, image: torch.Tensor, *, autocast: str | None = None, blocks: bool = False
) -> nn.Module:
    """The model converted with an example, so that functional calls, and SiLU where it comes next, are seen. Nothing is
    raced: what there is to tune was tuned before."""
    copied = copy.deepcopy(model)
    with mixed_precision(image.device.type, autocast):
        return dwconv.convert(copied, image, seconds=0, blocks=blocks)


def step_of(model: nn.Module, *, autocast: str | None = None) -> Step:
    """A step of SGD with momentum. In float16 the loss is scaled, or small gradients would be lost. A step ends when
    the device is done, since its loss is read last."""
    device = next(model.parameters()).device.type
    scaler = torch.amp.GradScaler(device, enabled=autocast == "float16")
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE, momentum=0.9)

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
            refused[name] = one_line(f"{type(error).__name__}: {error}", most=200)
        model.zero_grad(set_to_none=True)
    return refused


def compare_losses(steps: dict[str, Step], image: torch.Tensor, *, count: int) -> dict[str, float]:
    """The largest difference from the plain loss: of the converted model, of the one that was only rounded, and of
    whichever else there is. All drop the same, if they drop anything; but torch.compile draws in its own way."""
    worst = dict.fromkeys((name for name in steps if name != PLAIN), 0.0)
    for _ in range(count):
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


def take_turns(laps_of: Mapping[str, Callable[[], Lap]], *, count: int) -> dict[str, list[Lap]]:
    """``count`` laps of each. Every second turn is the one before backwards, A B B A, and each comes first in time."""
    laps: dict[str, list[Lap]] = {name: [] for name in laps_of}
    names = sorted(laps_of)
    for turn in range(count):
        first = turn // 2 % len(names)
        order = names[first:] + names[:first]
        for name in order[::-1] if turn % 2 else order:
            laps[name].append(laps_of[name]())
    return laps


# -- models in processes of their own --------------------------------------------------------------------------------


def _take_turns_apart(names: Sequence[str], arguments: argparse.Namespace) -> dict[str, list[Lap]]:
    """``take_turns``, each model in a process of its own, which takes its first steps before the next one starts."""
    spawn = multiprocessing.get_context("spawn")
    with ExitStack() as processes:
        ours: dict[str, Connection] = {}
        for name in names:
            ours[name], theirs = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(theirs, name, arguments), daemon=True)
            process.start()
            theirs.close()
            processes.callback(process.kill)
            ours[name].recv()  # EOFError if it ended
        return take_turns({name: partial(_ask, connection) for name, connection in ours.items()}, count=arguments.steps)


def _serve(connection: Connection, name: str, arguments: argparse.Namespace) -> None:
    """Takes a step for each message."""
    network = network_from(arguments)
    step = step_of(makers_of(network, arguments)[name](), autocast=arguments.autocast)
    lap = lap_of(step, _image_of(name, network, arguments))
    for _ in range(arguments.warmup):
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
