"""``python -m bench.paired_steps``: training steps of one model, as it is and converted, in a process of its own.

Same start, same data, steps taken in turns. ``bench train`` starts one for each network and each way of allocating.

data ──► plain model     ──► loss ──► step        the two losses must agree within rounding;
     ├─► converted model ──► loss ──► step        the two times are compared: medians, and their spread
     └─► rounded model   ──► loss ──► step        how far rounding alone drives models apart: the plain one, with each
                                                  of its first weights moved by one unit in the last place

In the same turns, where they are asked for: the plain model in the other layout (``--both-layouts``), the plain model
once more, as a control (``--control``), the converted one with its blocks as one (``--blocks``), and all of them under
torch.compile, with inductor (``--compile``). What torch.compile cannot run does not race, and the reason is kept. A
race in which the converted model does not run the kernels that it is said to run is void (``misnamed``).
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import dwconv
from bench.blocks import kept_bytes
from bench.launched import why_misnamed
from bench.networks import (
    add_device_arguments,
    add_network_arguments,
    image_for,
    memory_format_of,
    mixed_precision,
    network_from,
    where_layers_run,
)
from bench.step_profile import STEPS, Step, profiles
from bench.step_rows import AGAIN, CONVERTED, OTHER_LAYOUT, PLAIN, WITH_BLOCKS, WITH_INDUCTOR, summary
from dwconv import native
from dwconv.commands.command_line import ArgumentParser, run
from dwconv.errors import one_line
from dwconv.measure.clock.timing import CpuClock, Lap
from dwconv.measure.step_share import FEW_STEPS, ratio_at_most
from dwconv.problems.target import parse_target


def main(argv: Sequence[str]) -> int:
    return run(_race, list(argv))


def _race(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench.paired_steps", description=(__doc__ or "").partition("\n")[0])
    add_network_arguments(parser)
    add_device_arguments(parser)
    parser.add_argument("--steps", type=int, default=20, help="steps whose time counts, default 20")
    parser.add_argument("--warmup", type=int, default=5, help="steps before, whose losses are compared, default 5")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profile", action="store_true", help="say where the time of a step goes, too")
    parser.add_argument("--compile", action="store_true", help="the models under torch.compile as well")
    parser.add_argument("--blocks", action="store_true", help="a converted model with its blocks as one as well")
    parser.add_argument("--both-layouts", action="store_true", help="the plain model in the other layout as well")
    parser.add_argument("--control", action="store_true", help="the plain model once more, against itself")
    parser.add_argument("--out", type=Path, required=True, help="write the figures there, as JSON")
    arguments = parser.parse_args(argv)

    native.native()  # compiled here if need be, so that it does not come in the middle of what is timed
    torch.manual_seed(arguments.seed)
    network = network_from(arguments)
    on_gpu = arguments.device == "cuda"
    if on_gpu:
        parse_target("cuda")  # raises NoDevice without one
    image = image_for(network, contiguous=arguments.contiguous, device=arguments.device)
    plain = network.make().train().to(arguments.device)
    plain.to(memory_format=memory_format_of(network, contiguous=arguments.contiguous))  # type: ignore[call-overload]
    converted = converted_copy(plain, image, autocast=arguments.autocast)
    raced = {PLAIN: plain, CONVERTED: converted}
    if arguments.blocks:
        raced[WITH_BLOCKS] = converted_copy(plain, image, autocast=arguments.autocast, blocks=True)
    eager = dict(raced)
    lies: dict[str, torch.memory_format] = {}
    other = memory_format_of(network, contiguous=not arguments.contiguous)
    if arguments.both_layouts and other != memory_format_of(network, contiguous=arguments.contiguous):
        lies[OTHER_LAYOUT] = other
        raced[OTHER_LAYOUT] = copy.deepcopy(plain).to(memory_format=other)  # type: ignore[call-overload]
    if arguments.control:
        raced[AGAIN] = copy.deepcopy(plain)
    refused: dict[str, str] = {}
    if arguments.compile:
        compiled = {under: _under_inductor(eager[name]) for name, under in WITH_INDUCTOR.items() if name in eager}
        refused = not_trainable(compiled, image, autocast=arguments.autocast)
        raced |= {name: model for name, model in compiled.items() if name not in refused}
    models = {**raced, "rounded": _moved_by_one_rounding(plain, arguments.autocast)}
    steps = {name: step_of(model, autocast=arguments.autocast) for name, model in models.items()}

    losses = compare_losses(steps, image, count=arguments.warmup)
    layers = where_layers_run(converted, image, autocast=arguments.autocast)
    misnamed = {}
    for name in (CONVERTED, WITH_INDUCTOR[CONVERTED]):
        if name in raced and (why := why_misnamed(partial(steps[name], *made_up(image)), layers, on_gpu=on_gpu)):
            misnamed[name] = why
    laps = _take_turns({name: steps[name] for name in raced}, image, count=arguments.steps, lies=lies)
    figures: dict[str, Any] = {
        "layers": layers,
        "misnamed": misnamed,
        **summary(laps),
        "threads": torch.get_num_threads(),
        "loss_difference": losses,
        "refused": refused,
    }
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


CLASSES = 2
"""Classes of the made-up labels: any model has as many."""


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
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

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


def _under_inductor(model: nn.Module) -> nn.Module:
    """A copy of the model under torch.compile as it is by default."""
    compiled: nn.Module = torch.compile(copy.deepcopy(model))  # type: ignore[assignment]
    return compiled


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


def _take_turns(
    steps: dict[str, Step], image: torch.Tensor, *, count: int, lies: Mapping[str, torch.memory_format] | None = None
) -> dict[str, list[Lap]]:
    """``count`` steps of each. Every second turn is the one before backwards, A B B A, and each comes first in time.
    ``lies``: whose images lie otherwise than ``image``; nobody pays for a copy."""
    clock = CpuClock()
    laps: dict[str, list[Lap]] = {name: [] for name in steps}
    names = sorted(steps)
    for turn in range(count):
        images, labels = made_up(image)
        given = {name: images.to(memory_format=lie) for name, lie in (lies or {}).items()}
        first = turn // 2 % len(names)
        order = names[first:] + names[:first]
        for name in order[::-1] if turn % 2 else order:
            laps[name].append(clock.lap(partial(steps[name], given.get(name, images), labels), times=1))
    return laps


def _moved_by_one_rounding(model: nn.Module, autocast: str | None = None) -> nn.Module:
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
