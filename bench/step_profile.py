"""Where the time of a training step goes, by kind of work: plain and converted models side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from dwconv.measure.step_share import convolution_kind, is_convolution, profiled

STEPS = 8
"""Profiled steps of each model to compare kinds of work. The profiler slows all models alike."""
Step = Callable[[torch.Tensor, torch.Tensor], float]
"""One step of training on images and labels; returns the loss."""

_KINDS = (
    ("normalisation", ("batch_norm", "layer_norm", "group_norm", "rms_norm")),
    ("activation", ("relu", "hardtanh", "hardswish", "hardsigmoid", "gelu", "silu", "threshold", "clamp")),
    ("pointwise, dense", ("addmm", "aten::mm", "aten::linear", "aten::bmm")),
    ("copies, layouts", ("aten::copy_", "aten::clone", "aten::contiguous", "aten::_to_copy")),
    ("sums, products", ("aten::add", "aten::mul", "aten::mean", "aten::sum", "aten::cumsum", "aten::div", "expand")),
    ("optimizer", ("Optimizer.", "_foreach", "AccumulateGrad")),
    ("autograd", ("autograd::engine", "Backward0", "Backward1", "DwconvConvolution")),
)
"""Each kind, and words in the names of its ops. Convolutions are told apart by their weights."""
_TWO_WAYS = ("normalisation", "activation")


def profiles(
    steps: Mapping[str, Step], image: torch.Tensor, labels: torch.Tensor, *, count: int
) -> dict[str, dict[str, float]]:
    """Milliseconds by kind, with ``step`` for the whole, of each model's fastest step. Several are taken in turn;
    slower ones say more about other work on the machine."""
    fastest: dict[str, dict[str, float]] = {}
    for _ in range(count):
        for name, step in steps.items():
            found = _profile(step, image, labels)
            fastest[name] = min(fastest.get(name, found), found, key=lambda each: each["step"])
    return fastest


def _profile(step: Step, image: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    return profiled(lambda: step(image, labels), kind=_kind, on_gpu=image.device.type == "cuda")


def table(profiles: dict[str, dict[str, float]]) -> str:
    """A table with the models side by side, the plain one first, and what the converted one saves."""
    plain, converted = profiles["plain"], profiles["converted"]
    lines = [f"  {'ms a step, profiled':26} {' '.join(f'{name:>10}' for name in profiles)} {'saved':>8}"]
    kinds = dict.fromkeys(kind for profile in profiles.values() for kind in profile)
    for kind in sorted(kinds, key=lambda kind: kind == "step"):
        taken = " ".join(f"{profile.get(kind, 0.0):10.1f}" for profile in profiles.values())
        lines.append(f"  {kind:26} {taken} {plain.get(kind, 0.0) - converted.get(kind, 0.0):8.1f}")
    return "\n".join(lines)


def _kind(event: Any) -> str | None:
    name: str = event.name
    if is_convolution(event):
        return convolution_kind(event)
    kind = next((kind for kind, parts in _KINDS if any(part in name for part in parts)), None)
    return f"{kind} backward" if kind in _TWO_WAYS and "backward" in name else kind
