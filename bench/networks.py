"""From the command line to a network, and from a network to the calls of its depthwise layers."""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
from contextlib import AbstractContextManager

import torch
from torch import nn

import dwconv
from bench.models import NETWORKS, Network
from dwconv.errors import InvalidWorkload
from dwconv.reporting.explanation import Explanation


def add_network_arguments(parser: argparse.ArgumentParser) -> None:
    """``--model`` … ``--contiguous``; ``network_from`` reads them."""
    names = ", ".join(network.name for network in NETWORKS)
    parser.add_argument("--model", metavar="NAME|MODULE:CLASS", help=f"{names}, or a class, made without arguments")
    parser.add_argument("--batch", type=int, help="default 8, or what suits the network")
    parser.add_argument("--image", type=int, help="height and width of the input; default 224, or what suits")
    parser.add_argument("--contiguous", action="store_true", help="NCHW in memory instead of channels_last")


def network_from(arguments: argparse.Namespace) -> Network:
    """The network that is asked for. Raises InvalidWorkload."""
    name: str = arguments.model
    known = {network.name: network for network in NETWORKS}
    network = known[name] if name in known else _made_by(name)
    return Network(
        name=network.name,
        make=network.make,
        batch=arguments.batch or network.batch,
        image=arguments.image or network.image,
        goal=network.goal,
    )


def _made_by(name: str) -> Network:
    module, _, maker = name.partition(":")
    try:
        return Network(name=name, make=getattr(importlib.import_module(module), maker))
    except (ImportError, AttributeError, ValueError) as error:
        known = ", ".join(network.name for network in NETWORKS)
        raise InvalidWorkload(f"--model {name}: {error}; write one of {known}, or MODULE:CLASS") from error


def add_device_arguments(parser: argparse.ArgumentParser) -> None:
    """``--device`` and ``--autocast``."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default cpu")
    parser.add_argument("--autocast", choices=("float16", "bfloat16"), help="train in mixed precision")


def mixed_precision(device: str, autocast: str | None) -> AbstractContextManager[object]:
    """A context in which a forward pass runs in the type ``autocast``; None changes nothing."""
    return torch.autocast(device, dtype=getattr(torch, autocast)) if autocast else contextlib.nullcontext()


def image_for(network: Network, *, contiguous: bool, device: str = "cpu") -> torch.Tensor:
    """A batch of made-up images."""
    image = torch.randn(network.batch, 3, network.image, network.image, device=device)
    return image.to(memory_format=torch.contiguous_format if contiguous else torch.channels_last)


def explain_layers(model: nn.Module, image: torch.Tensor, *, autocast: str | None = None) -> list[Explanation]:
    """Explain every depthwise layer of a converted model: which kernel would run it, and why."""
    explained: list[Explanation] = []

    def note(layer: nn.Conv2d, inputs: tuple[torch.Tensor, ...]) -> None:
        explained.append(
            dwconv.explain(
                inputs[0],
                layer.weight,
                layer.bias,
                stride=layer.stride,
                padding=layer.padding,
                dilation=layer.dilation,
            )
        )

    looked_at = copy.deepcopy(model)
    for layer in looked_at.modules():
        if isinstance(layer, dwconv.nn.DepthwiseConv2d | dwconv.nn.DepthwiseConv1d):
            layer.register_forward_pre_hook(note)
    with torch.no_grad(), mixed_precision(image.device.type, autocast):
        looked_at(image)
    return explained
