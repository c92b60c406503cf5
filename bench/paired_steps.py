"""``python -m bench.paired_steps``: training steps of one model twice, as it is and converted, in a process of its own.

Same start, same data, steps taken in turn. ``bench train`` starts one for each network and each way of allocating.

data ──► plain model     ──► loss ──► step        the two losses must agree within rounding;
     ├─► converted model ──► loss ──► step        the two times are compared: medians, and their spread
     └─► rounded model   ──► loss ──► step        how far rounding alone drives models apart: the plain one, with each
                                                  of its first weights moved by one unit in the last place

``--compile``: they take turns with themselves under torch.compile, with inductor, too.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import dwconv
from bench.blocks import kept_bytes
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
from dwconv import native
from dwconv.commands.command_line import ArgumentParser, run
from dwconv.measure.clock.timing import CpuClock, Lap
from dwconv.measure.step_share import FEW_STEPS, ratio_at_most
from dwconv.problems.target import parse_target
from dwconv.records.record import CONTENDED


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
    parser.add_argument("--compile", action="store_true", help="both models under torch.compile as well")
    parser.add_argument("--blocks", action="store_true", help="a converted model with its blocks as one as well")
    parser.add_argument("--out", type=Path, required=True, help="write the figures there, as JSON")
    arguments = parser.parse_args(argv)

    native.native()  # compiled here if need be, so that it does not come in the middle of what is timed
    torch.manual_seed(arguments.seed)
    network = network_from(arguments)
    if arguments.device == "cuda":
        parse_target("cuda")  # raises NoDevice without one
    image = image_for(network, contiguous=arguments.contiguous, device=arguments.device)
    plain = network.make().train().to(arguments.device)
    plain.to(memory_format=memory_format_of(network, contiguous=arguments.contiguous))  # type: ignore[call-overload]
    converted = converted_copy(plain, image, autocast=arguments.autocast)
    raced = {"plain": plain, "converted": converted}
    if arguments.blocks:
        raced[WITH_BLOCKS] = converted_copy(plain, image, autocast=arguments.autocast, blocks=True)
    if arguments.compile:
        raced |= {under: _under_inductor(raced[name]) for name, under in WITH_INDUCTOR.items() if name in raced}
    models = {**raced, "rounded": _moved_by_one_rounding(plain, arguments.autocast)}
    steps = {name: step_of(model, autocast=arguments.autocast) for name, model in models.items()}

    losses = compare_losses(steps, image, count=arguments.warmup)
    laps = _take_turns({name: steps[name] for name in raced}, image, count=arguments.steps)
    figures: dict[str, Any] = {
        "layers": where_layers_run(converted, image, autocast=arguments.autocast),
        **summary(laps),
        "threads": torch.get_num_threads(),
        "loss_difference": losses,
    }
    if arguments.blocks:
        figures["kept_bytes"] = {name: kept_bytes(raced[name], image) for name in ("plain", "converted", WITH_BLOCKS)}
    if arguments.profile:
        both = {name: steps[name] for name in ("plain", "converted")}
        figures["profile_ms"] = profiled = profiles(both, *made_up(image), count=STEPS)
    else:
        profiled = profiles({"plain": steps["plain"]}, *made_up(image), count=FEW_STEPS)
    figures["ratio"]["at_most"] = ratio_at_most(profiled["plain"])
    arguments.out.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


CLASSES = 2
"""Classes of the made-up labels: any model has as many."""
WITH_BLOCKS = "blocks"
WITH_INDUCTOR = {
    "plain": "plain + inductor",
    "converted": "converted + inductor",
    WITH_BLOCKS: "blocks + inductor",
}
"""What the models are called under torch.compile."""


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


def compare_losses(steps: dict[str, Step], image: torch.Tensor, *, count: int) -> dict[str, float]:
    """The largest difference from the plain loss: of the converted model, of the one that was only rounded, and of
    whichever else there is."""
    worst = dict.fromkeys((name for name in steps if name != "plain"), 0.0)
    for _ in range(count):
        data = made_up(image)
        losses = {name: step(*data) for name, step in steps.items()}
        worst = {name: max(before, abs(losses[name] - losses["plain"])) for name, before in worst.items()}
    return worst


def _take_turns(steps: dict[str, Step], image: torch.Tensor, *, count: int) -> dict[str, list[Lap]]:
    """``count`` steps of each; each comes first in its turn."""
    clock = CpuClock()
    laps: dict[str, list[Lap]] = {name: [] for name in steps}
    names = sorted(steps)
    for turn in range(count):
        data = made_up(image)
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            laps[name].append(clock.lap(partial(steps[name], *data), times=1))
    return laps


def summary(laps: dict[str, list[Lap]]) -> dict[str, Any]:
    """Medians in milliseconds, quartiles of the ratio of steps that were taken in turn, and the share of the time that
    other work took. If it took little in more than half of the turns, only those count. With models under
    torch.compile, ``compiled`` has their ratios over the plain model, and ``inductor`` that of the converted one over
    the plain one, both compiled; with blocks, ``blocks`` and ``compiled_blocks`` have how many times as fast as each of
    the others they are, eager and compiled."""
    turns = [dict(zip(laps, turn, strict=True)) for turn in zip(*laps.values(), strict=True)]
    calm = [turn for turn in turns if max(lap.lost for lap in turn.values()) <= CONTENDED]
    kept = calm if 2 * len(calm) > len(turns) else turns
    figures = {
        "median_ms": {name: statistics.median(turn[name].seconds for turn in kept) * 1e3 for name in laps},
        "ratio": _ratio(kept, "converted", over="plain"),
        "steps": len(turns),
        "contention": round(statistics.mean(lap.lost for turn in kept for lap in turn.values()), 3),
    }
    if compiled := [name for name in WITH_INDUCTOR.values() if name in laps]:
        figures["compiled"] = {name: _ratio(kept, name, over="plain") for name in compiled}
        figures["inductor"] = _ratio(kept, WITH_INDUCTOR["converted"], over=WITH_INDUCTOR["plain"])
    for key, blocks in (("blocks", WITH_BLOCKS), ("compiled_blocks", WITH_INDUCTOR[WITH_BLOCKS])):
        if blocks in laps:
            figures[key] = {name: _ratio(kept, blocks, over=name) for name in laps if name != blocks}
    return figures


def _ratio(turns: Sequence[dict[str, Lap]], name: str, *, over: str) -> dict[str, Any]:
    """How many times as fast as ``over`` the model is."""
    ratios = [turn[over].seconds / turn[name].seconds for turn in turns]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"median": statistics.median(ratios), "quartiles": [low, high]}


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
