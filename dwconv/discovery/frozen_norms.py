"""Frozen norms that are modules of their own, as torchvision's FrozenBatchNorm2d: a scale and a shift of each channel,
from four buffers,

    (x − running_mean) · weight / √(running_var + eps) + bias
"""

from __future__ import annotations

import copy
import itertools
import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dwconv.call.frozen_forward import plain_class
from dwconv.call.signature import Signature
from dwconv.discovery.forward_graph import answering, decided_in, graph_of

_HELD = ("running_mean", "running_var", "weight", "bias")
_known: weakref.WeakKeyDictionary[type, dict[float, bool]] = weakref.WeakKeyDictionary()


def frozen_eps(module: nn.Module) -> float | None:
    """The eps of a module that computes what a frozen norm does, whatever its buffers hold; None for another."""
    held, eps = dict(module.named_buffers(recurse=False)), getattr(module, "eps", None)
    if isinstance(module, _BatchNorm) or any(True for _ in module.children()) or any(True for _ in module.parameters()):
        return None
    if type(eps) is not float or not eps > 0 or not held.keys() >= {*_HELD}:
        return None
    if len({held[name].shape for name in _HELD}) != 1 or held["weight"].dim() != 1:
        return None
    of_class = _known.setdefault(type(module), {})
    if eps not in of_class:
        of_class[eps] = _is_one(module, eps)
    return eps if of_class[eps] else None


def _is_one(module: nn.Module, eps: float) -> bool:
    """By the numbers that it gives for drawn buffers, in both modes, with gradients and without, if no other decision
    of its code depends on tensors."""
    module = copy.deepcopy(module).double()
    generator = torch.Generator().manual_seed(0)
    held = dict(module.named_buffers(recurse=False))
    drawn = {name: torch.rand(held[name].shape, generator=generator, dtype=torch.float64) for name in _HELD}
    x = torch.randn((2, len(drawn["bias"]), 3, 2), generator=generator, dtype=torch.float64)
    x = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        for name in _HELD:
            held[name].copy_(drawn[name] + 0.5)
    mean, var, weight, bias = (held[name] for name in _HELD)
    for training, records in itertools.product((True, False), repeat=2):
        module.train(training)
        given = x.clone().to(mean.device).requires_grad_(records)
        try:
            plain: Any = plain_class(type(module))
            signature = Signature.of(plain.forward)
            with answering(requires_grad=records):
                graph_of(module, {module}, signature)
                if decided_in(module, {module}, signature, doubtful=())[0]:
                    return False
            with torch.set_grad_enabled(records):
                found = module(given)
        except Exception:  # noqa: BLE001  whatever the module's own code raises
            return False
        expected = F.batch_norm(x.to(mean.device), mean, var, weight, bias, False, 0.0, eps)
        same = isinstance(found, torch.Tensor) and found.shape == expected.shape
        same = same and found.is_contiguous(memory_format=torch.channels_last)  # as a block gives it
        if not same or not torch.allclose(found, expected, rtol=1e-9, atol=1e-9) or not torch.equal(given.cpu(), x):
            return False
    return True
