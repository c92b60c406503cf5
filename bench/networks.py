"""From a name to a network, and from a network to what it is trained on and the passes of its layers."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
from collections import Counter
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import nn

from bench.full_size import FULL_SIZE
from bench.models import NETWORKS, Network
from dwconv.call.call_plan import decisions_for
from dwconv.commands.command_line import whole
from dwconv.discovery import discover
from dwconv.errors import InvalidWorkload
from dwconv.model.by_name import load_model
from dwconv.problems.workload import Workload
from dwconv.reporting.ran import in_an_example

OURS = {network.name: network for network in (*NETWORKS, *FULL_SIZE)}
"""Networks that are written here, by their names."""
_LIBRARIES = ("timm", "torchvision")
"""Of models that take images and return a score for each class."""


def network_of(name: str, *, batch: int | None = None, image: int | None = None) -> Network:
    """The network of that name, ``timm:NAME``, ``torchvision:NAME``, or ``MODULE:NAME`` of a class that is made without
    arguments, or of a Network; with another batch, or inputs of another height and width. Raises InvalidWorkload."""
    network = OURS[name] if name in OURS else _made_by(name)
    network = dataclasses.replace(network, batch=batch or network.batch)
    return network.resized(image) if image else network


def add_size_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--batch`` and ``--image``, the keyword arguments of ``network_of``."""
    parser.add_argument("--batch", type=whole, help="default 8, or what suits the network")
    parser.add_argument("--image", type=whole, help="height and width of the input; default 224, or what suits")


def _made_by(name: str) -> Network:
    module, _, maker = name.partition(":")
    if module in _LIBRARIES:
        sample = getattr(load_model(name), "default_cfg", {}).get("input_size", (3, 224, 224))  # timm says which
        return Network(name=name, make=partial(load_model, name), sample=tuple(sample))
    try:
        found = getattr(importlib.import_module(module), maker)
    except (ImportError, AttributeError, ValueError) as error:
        known = ", ".join(OURS)
        raise InvalidWorkload(f"--model {name}: {error}; write one of {known}, timm:NAME or MODULE:CLASS") from error
    return dataclasses.replace(found, name=name) if isinstance(found, Network) else Network(name=name, make=found)


def mixed_precision(device: str, autocast: str | None) -> AbstractContextManager[object]:
    """A context in which a forward pass runs in the type ``autocast``; None changes nothing."""
    if not autocast:
        return contextlib.nullcontext()
    return torch.autocast(device, dtype=getattr(torch, autocast))


_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def memory_format_of(network: Network, *, contiguous: bool) -> torch.memory_format:
    """How the tensors of the network lie. Those of sequences have no format of their own."""
    return torch.contiguous_format if contiguous else _CHANNELS_LAST.get(network.dims, torch.contiguous_format)


def image_for(network: Network, *, contiguous: bool, device: str = "cpu") -> torch.Tensor:
    """A batch of made-up images, volumes or sequences."""
    image = torch.randn(network.batch, *network.sample, device=device)
    return image.to(memory_format=memory_format_of(network, contiguous=contiguous))


_FEW = {1: 1, 2: 2, 3: 1}
"""Images, of which small maps need two; and sequences and volumes, by their dimensions."""


def workloads_of(
    network: Network,
    *,
    contiguous: bool = False,
    autocast: str | None = None,
    blocks: bool = False,
    device: str = "cpu",
) -> list[Workload]:
    """The passes of a network's depthwise layers, each once, those with SiLU where it comes next and, with ``blocks``,
    those of the blocks around them. They are found with few images, since the batch changes nothing else."""
    image = image_for(dataclasses.replace(network, batch=_FEW[network.dims]), contiguous=contiguous, device=device)
    model = network.make().train().to(device)
    model.to(memory_format=memory_format_of(network, contiguous=contiguous))  # type: ignore[call-overload]
    with mixed_precision(device, autocast):
        discovered = discover(model, image)
        found = (discovered.with_blocks(all_of_them=True) if blocks else discovered).counts()
    if device == "cuda":
        del model, image, discovered
        torch.cuda.empty_cache()  # the processes that time kernels and steps need all of it
    return [workload.with_batch(network.batch) for workload in found]


def where_layers_run(model: nn.Module, image: torch.Tensor, *, autocast: str | None = None) -> dict[str, int]:
    """How often a step runs each pass on each provider: ``{"fprop dwconv": 15}``. Where SiLU is part of a kernel the
    pass says so: ``{"fprop silu dwconv": 4}``."""
    providers: Counter[str] = Counter()
    with mixed_precision(image.device.type, autocast):
        ran = in_an_example(model, image)
    for each in ran:
        decisions, _ = decisions_for(each.problem, each.device)
        each = each.as_decided(decisions)
        epilogue = "" if each.problem.epilogue == "none" else f" {each.problem.epilogue}"
        for pass_, times in each.per_step.items():
            providers[f"{pass_}{epilogue} {'pytorch' if each.why_pytorch else decisions[pass_].provider}"] += int(times)
    return dict(sorted(providers.items()))
