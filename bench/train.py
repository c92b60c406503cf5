"""Training steps of one model twice: as it is, and converted. Same start, same data, steps taken in turn.

data ──► plain model     ──► loss ──► step        the two losses must agree within rounding;
     ├─► converted model ──► loss ──► step        the two times are compared: medians, and their spread
     └─► rounded model   ──► loss ──► step        how far rounding alone drives models apart: the plain one, with each
                                                  of its first weights moved by one unit in the last place
"""

from __future__ import annotations

import copy
import importlib
import json
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

import dwconv
from dwconv.arguments import ArgumentParser, run
from dwconv.errors import InvalidWorkload


def main(argv: Sequence[str]) -> int:
    return run(_train, list(argv))


def _train(argv: list[str]) -> int:
    parser = ArgumentParser(prog="bench train", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, metavar="MODULE:CLASS", help="a model, made without arguments")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--image", type=int, default=224, help="height and width of the input")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=3, help="first steps, whose time is not counted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--contiguous", action="store_true", help="NCHW in memory instead of channels_last")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args(argv)

    torch.manual_seed(arguments.seed)
    memory_format = torch.contiguous_format if arguments.contiguous else torch.channels_last
    plain = _make(arguments.model).train().to(memory_format=memory_format)
    converted = copy.deepcopy(plain)
    print(dwconv.convert(converted))

    image = torch.randn(arguments.batch, 3, arguments.image, arguments.image).to(memory_format=memory_format)
    print(f"\nwhere the depthwise layers ran:\n{_where_layers_run(converted, image)}\n")
    figures = _race(plain, converted, image, steps=arguments.steps, warmup=arguments.warmup)
    if arguments.out:
        arguments.out.write_text(json.dumps({"command": vars(arguments) | {"out": None}, **figures}, indent=2) + "\n")
    return 0


def _make(name: str) -> nn.Module:
    module, _, maker = name.partition(":")
    try:
        model = getattr(importlib.import_module(module), maker)()
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidWorkload(f"--model {name}: {error}; write MODULE:CLASS") from error
    return model


def _where_layers_run(model: nn.Module, image: torch.Tensor) -> str:
    """How many layers run on each provider, pass by pass."""
    providers: Counter[tuple[str, str]] = Counter()

    def note(layer: nn.Conv2d, inputs: tuple[torch.Tensor, ...]) -> None:
        explained = dwconv.explain(
            inputs[0], layer.weight, stride=layer.stride, padding=layer.padding, dilation=layer.dilation
        )
        for decision in explained.passes:
            providers[decision.pass_, decision.provider] += 1

    layers = [m for m in model.modules() if isinstance(m, dwconv.nn.DepthwiseConv2d | dwconv.nn.DepthwiseConv1d)]
    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    with torch.no_grad():
        copy.deepcopy(model)(image)
    for hook in hooks:
        hook.remove()
    return "\n".join(
        f"  {pass_:6} {provider:8} {count:3} layers" for (pass_, provider), count in sorted(providers.items())
    )


def _race(plain: nn.Module, converted: nn.Module, image: torch.Tensor, *, steps: int, warmup: int) -> dict[str, object]:
    runners = {"plain": plain, "converted": converted, "rounded": _moved_by_one_rounding(plain)}
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9) for name, model in runners.items()}
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    losses: dict[str, list[float]] = {name: [] for name in runners}
    print(f"{'':>4} {'loss':>12} {'':>12} {'difference from plain':>23} {'milliseconds':>19}")
    print(
        f"{'step':>4} {'plain':>12} {'converted':>12} {'converted':>11} {'rounded':>11} {'plain':>9} {'converted':>9}"
    )
    for step in range(steps):
        labels = torch.randint(0, 10, (image.shape[0],))
        batch = torch.randn_like(image)
        for name, model in runners.items():
            started = time.perf_counter()
            optimizers[name].zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(batch), labels)
            loss.backward()
            optimizers[name].step()
            seconds[name].append(time.perf_counter() - started)
            losses[name].append(loss.item())
        a, b, c = (losses[name][-1] for name in ("plain", "converted", "rounded"))
        print(f"{step:4} {a:12.6f} {b:12.6f} {abs(a - b):11.2e} {abs(a - c):11.2e} "
              f"{seconds['plain'][-1] * 1e3:9.1f} {seconds['converted'][-1] * 1e3:9.1f}", flush=True)  # fmt: skip

    medians = {name: statistics.median(times[warmup:]) for name, times in seconds.items()}
    ratios = sorted(a / b for a, b in zip(seconds["plain"][warmup:], seconds["converted"][warmup:], strict=True))
    quartiles = statistics.quantiles(ratios, n=4)
    worst, rounding = (
        max(abs(a - b) for a, b in zip(losses["plain"], losses[name], strict=True)) for name in ("converted", "rounded")
    )
    print(
        f"\nstep: plain {medians['plain'] * 1e3:.1f} ms, converted {medians['converted'] * 1e3:.1f} ms; "
        f"ratio {statistics.median(ratios):.3f}× (middle half {quartiles[0]:.3f} to {quartiles[2]:.3f}, "
        f"{len(ratios)} steps in turn)\n"
        f"largest difference from the plain loss: converted {worst:.2e}, by one rounding alone {rounding:.2e}"
    )
    return {
        "median_s": medians,
        "ratio": {"median": statistics.median(ratios), "quartiles": quartiles},
        "losses": losses,
        "largest_loss_difference": {"converted": worst, "rounded": rounding},
    }


def _moved_by_one_rounding(model: nn.Module) -> nn.Module:
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter.copy_(torch.nextafter(parameter, torch.full_like(parameter, torch.inf)))
    return moved
