"""Stage ``sequences``: depthwise layers of sequences, in turns with PyTorch's op and with the packages for causal
convolutions that are installed: the forward pass, and both gradients, each a CUDA graph, on tensors that are larger
than the cache together.

A way whose results are too far from the exact ones does not race. Its share of the copy bandwidth is that of the least
traffic: x and y once in the forward pass; x, dy and dx once for the gradients.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import dwconv
from bench.blocks import GPU_EFFORT, PLAIN, differences_of
from bench.gpu.limits import MeasureLimits, as_limits, known_limits, limits_of
from bench.gpu.plan import GpuPlan
from bench.gpu.run import Ended, Run, has_failed
from bench.gpu.tune import race_untuned
from bench.gpu.worker import GpuFailure, GpuWorker, Handler
from bench.launched import FIRST_KERNEL, kernels_of
from bench.providers import causal_functions, settings_of_pytorch
from bench.results import read_alone
from dwconv.errors import CannotBeCaptured, one_line
from dwconv.kernels.entry import message
from dwconv.measure.clock.device import Captured, clock_of, synchronize
from dwconv.measure.clock.timing import MOST_TENSORS, TIMES_THE_CACHE, Call, InTurn, rounds_in_turns
from dwconv.measure.requests import MeasureSetup
from dwconv.problems.workload import ITEMSIZE, PASSES, DType, Workload
from dwconv.schedules.template import Candidate

FIRST_S = 15.0
"""Expected seconds of a layer, until one has been measured."""
_MOST_S = 60.0
_TUNING_SHARE = 0.5
"""Of the time, for what is untuned."""
DTYPE: DType = "bfloat16"
OURS = "dwconv"
GOALS = {"forward": 75.0, "backward": 50.0}
"""Per cent of the copy bandwidth."""
_IMAGES = {"forward": 2, "backward": 3}
"""Tensors of the size of x that a pass moves once at least."""
_MOST_OF_A_REASON = 200
_WORST = 3


@message
@dataclass(frozen=True, kw_only=True)
class SequenceLayer:
    """A depthwise Conv1d with a bias, in the type ``DTYPE``. ``causal``: y[t] reads nothing after x[t]; otherwise the
    padding is the same on both sides."""

    network: str
    batch: int
    channels: int
    length: int
    taps: int
    causal: bool = True
    silu: bool = False

    def __str__(self) -> str:
        how = ("" if self.causal else ", same padding") + (", SiLU" if self.silu else "")
        return f"{self.network} {self.batch}×{self.channels}×{self.length} k{self.taps}{how}"

    def workloads(self) -> list[Workload]:
        """What a training step of it may run. Before a SiLU of its own a causal convolution is padded on both sides,
        and what is over is cut off."""
        before = self.taps - 1 if self.causal else self.taps // 2
        after = self.taps - 1 - before
        fprop = Workload(
            pass_="fprop", batch=self.batch, channels=self.channels, input_size=(1, self.length),
            kernel=(1, self.taps), padding=((0, 0), (before, after)), dtype=DTYPE, layout="nchw", bias=True,
        )  # fmt: skip
        own = [fprop.for_pass(pass_) for pass_ in PASSES]
        if not self.silu:
            return own
        alone = dataclasses.replace(fprop, padding=((0, 0), (before, before)))
        activated = [fprop.with_epilogue("silu"), fprop.with_epilogue("silu_gradient")]
        return [*(alone.for_pass(pass_) for pass_ in PASSES), *activated, *own]


LAYERS = (
    SequenceLayer(network="Mamba-130M", batch=4, channels=1536, length=2048, taps=4, silu=True),
    SequenceLayer(network="Mamba-1.4B", batch=4, channels=4096, length=2048, taps=4, silu=True),
    SequenceLayer(network="causal", batch=16, channels=512, length=1600, taps=31),
    SequenceLayer(network="Hyena-MR", batch=4, channels=768, length=2048, taps=128),
    SequenceLayer(network="Conformer-L", batch=16, channels=512, length=1600, taps=31, causal=False),
)


def sequence_candidates(plan: GpuPlan, *, layers: Sequence[SequenceLayer] = LAYERS) -> Iterator[Candidate]:
    """Of the passes that are raced before."""
    return plan.raced(_workloads(layers))


def _workloads(layers: Sequence[SequenceLayer]) -> list[Workload]:
    return [workload for layer in layers for workload in layer.workloads()]


def sequences_stage(run: Run, *, layers: Sequence[SequenceLayer] = LAYERS, sizes: MeasureLimits | None = None) -> Ended:
    """The run fails if no layer that was started could be raced."""
    by_name = {str(layer): layer for layer in layers}
    left = [by_name[name] for name in run.state.left("sequences", by_name)]
    race_untuned(_workloads(left), run, stage="sequences", seconds=_TUNING_SHARE * run.pace.left_s)
    read_alone(run.log.path)
    with GpuWorker("bench.gpu.sequences:SequenceRacer", MeasureSetup(target=run.target)) as racer:
        if left:
            known_limits(run, racer, sizes or MeasureLimits(), stage="sequences")
        limits = as_limits(run.state.of("limits").get("device", {}), run.target)

        def answer(name: str) -> dict[str, Any] | None:
            layer = by_name[name]
            try:
                us, refused, runs = racer.ask(layer, timeout_s=_MOST_S, within_s=run.pace.left_s)
            except GpuFailure as failure:
                return {"failed": str(failure)} if run.pace.left_s > 0 else None
            return {**answer_of(layer, us, refused, gb_per_s=limits.memory_gb_per_s), "runs": runs}

        answers = run.answers("sequences", by_name, answer, in_words=_in_words)
    return Ended.of(answers, _summary(answers), count=len(by_name))


def answer_of(
    layer: SequenceLayer, us: Mapping[str, Mapping[str, float]], refused: Mapping[str, str], *, gb_per_s: float
) -> dict[str, Any]:
    """``us``: by pass and way; ``step`` is their sum. ``ratio`` is over the best other of each."""
    both = [name for name in us["forward"] if name in us["backward"]]
    of_passes = {**us, "step": {name: us["forward"][name] + us["backward"][name] for name in both}}
    if any(OURS not in times for times in of_passes.values()):
        return {"failed": refused.get(OURS, "dwconv did not run")}
    image_bytes = ITEMSIZE[DTYPE] * layer.batch * layer.channels * layer.length
    best = {
        pass_: min((name for name in times if name != OURS), key=times.__getitem__, default=None)
        for pass_, times in of_passes.items()
    }
    return {
        "us": of_passes,
        "best_other": best,
        "ratio": {
            pass_: None if (other := best[pass_]) is None else times[other] / max(times[OURS], 1e-6)
            for pass_, times in of_passes.items()
        },
        "percent_of_copy": {
            pass_: 100 * count * image_bytes / max(of_passes[pass_][OURS], 1e-6) / 1e3 / gb_per_s
            for pass_, count in _IMAGES.items()
        },
        "refused": dict(refused),
    }


# -- in a process with the GPU -----------------------------------------------------------------------------------------


Way = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(x, weight, bias) -> y; x and y are (B, C, L), weight (C, K), bias (C)."""


class SequenceRacer(Handler):
    """MeasureLimits in, limits by name out; SequenceLayer in, microseconds by pass and way out, with the reasons why
    others did not race, and how many kernels of dwconv's each pass of ours launched, where that can be seen."""

    def answer(self, request: Any) -> Any:
        if isinstance(request, MeasureLimits):
            with torch.inference_mode():
                return limits_of(self.target, request)
        layer: SequenceLayer = request
        ways, refused = ways_of(layer)
        self._refuse_wrong_ones(layer, ways, refused)
        sets = self._tensors(layer)
        clock, calls = clock_of(self.target), dict[str, dict[str, Call]](forward={}, backward={})
        for name, way in ways.items():
            settings = settings_of_pytorch()[0]  # as PyTorch is used
            try:
                with settings():
                    calls["forward"][name] = clock.ready(InTurn([partial(way, *each[:3]) for each in sets], held=0))
                    gradients = [partial(_gradients_of(way, *each), retain_graph=True) for each in sets]
                    calls["backward"][name] = clock.ready(InTurn(gradients, held=0))
            except (CannotBeCaptured, RuntimeError, ValueError, TypeError) as error:
                refused[name] = one_line(str(error) or type(error).__name__, most=_MOST_OF_A_REASON)
                synchronize(self.target)  # or the device is gone, and with it the race
        us = {}
        for pass_, of_ways in calls.items():
            taken = rounds_in_turns(of_ways, clock=clock, effort=GPU_EFFORT).measurements if of_ways else {}
            us[pass_] = {name: each.median_us for name, each in taken.items()}
        runs = {pass_: self._own_kernels(of_ways[OURS]) for pass_, of_ways in calls.items() if OURS in of_ways}
        return us, refused, runs

    def _own_kernels(self, call: Call) -> int | None:
        """Of dwconv's first kernels in a call, how many are launched; None where that cannot be seen."""
        launched = kernels_of(call, device=self.target.kind)
        calls = call.count if isinstance(call, Captured) else 1
        return None if launched is None else launched[FIRST_KERNEL] // calls

    def _tensors(self, layer: SequenceLayer) -> list[tuple[Tensor, ...]]:
        """Sets of x, weight, bias and dy, which fill the cache some times over."""
        one_bytes = 2 * ITEMSIZE[DTYPE] * layer.batch * layer.channels * layer.length
        count = math.ceil(TIMES_THE_CACHE * self.target.cache_bytes / one_bytes)
        return [made(layer, device=self.target.kind) for _ in range(max(1, min(MOST_TENSORS, count)))]

    def _refuse_wrong_ones(self, layer: SequenceLayer, ways: dict[str, Way], refused: dict[str, str]) -> None:
        tensors = made(layer, device=self.target.kind)
        exact = _step(ways[PLAIN], *(each.detach().float().requires_grad_(each.requires_grad) for each in tensors))()
        steps: dict[str, Callable[[], tuple[Tensor, ...]]] = {}
        for name, way in ways.items():
            step = _step(way, *tensors)
            try:
                step()
            except Exception as error:  # noqa: BLE001  whatever a package raises, it does not race
                refused[name] = one_line(str(error) or type(error).__name__, most=_MOST_OF_A_REASON)
                synchronize(self.target)
                continue
            steps[name] = step
        refused |= differences_of(steps, exact)[1]
        for name in refused.keys() & ways.keys():
            del ways[name]


def ways_of(layer: SequenceLayer) -> tuple[dict[str, Way], dict[str, str]]:
    """PyTorch's op first, then ours, then the packages; and why others do not race."""
    before = layer.taps - 1 if layer.causal else layer.taps // 2

    def plain(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        y = F.conv1d(x, w.unsqueeze(1), bias, padding=before, groups=layer.channels)[..., : layer.length]
        return F.silu(y) if layer.silu else y

    def ours(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        if layer.causal:
            y = dwconv.causal_conv1d(x, w, bias, activation="silu" if layer.silu else None)
        else:
            y = dwconv.conv1d(x, w.unsqueeze(1), bias, padding=before, groups=layer.channels)
        return y  # type: ignore[return-value]

    ways: dict[str, Way] = {PLAIN: plain, OURS: ours}
    if not layer.causal:
        return ways, {"packages of causal convolutions": "the layer is not causal"}
    found, refused = causal_functions()
    return ways | {name: partial(function, silu=layer.silu) for name, function in found.items()}, refused


def made(layer: SequenceLayer, *, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, weight and bias, which have gradients, and dy."""
    of: dict[str, Any] = {"device": device, "dtype": getattr(torch, DTYPE)}
    shape = (layer.batch, layer.channels, layer.length)
    x, dy = torch.randn(shape, **of), torch.randn(shape, **of)
    w, bias = torch.randn(layer.channels, layer.taps, **of) / math.sqrt(layer.taps), torch.randn(layer.channels, **of)
    return x.requires_grad_(), w.detach().requires_grad_(), bias.requires_grad_(), dy


def _step(way: Way, x: Tensor, w: Tensor, bias: Tensor, dy: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    def step() -> tuple[Tensor, ...]:
        y = way(x, w, bias)
        return (y.detach(), *torch.autograd.grad(y, (x, w, bias), dy))

    return step


def _gradients_of(way: Way, x: Tensor, w: Tensor, bias: Tensor, dy: Tensor) -> Callable[..., tuple[Tensor, ...]]:
    return partial(torch.autograd.grad, way(x, w, bias), (x, w, bias), dy)


# -- in words ----------------------------------------------------------------------------------------------------------


def _in_words(answer: Mapping[str, Any]) -> str:
    if has_failed(answer):
        return f"failed: {answer['failed']}"
    parts = []
    for pass_, times in answer["us"].items():
        other = answer["best_other"][pass_]
        text = f"{pass_} {times[OURS]:.1f} µs"
        text += "" if other is None else f", {answer['ratio'][pass_]:.2f}× {other}"
        percent = answer["percent_of_copy"].get(pass_)
        text += "" if percent is None else f", {percent:.0f} % of copy bandwidth"
        parts.append(text + (", by PyTorch's op" if answer["runs"].get(pass_) == 0 else ""))
    return "; ".join([*parts, *(f"{name}: {why}" for name, why in answer["refused"].items())])


def _summary(answers: Mapping[str, Mapping[str, Any]]) -> str:
    """Losses against the best other first, then what misses the share of bandwidth."""
    good = {name: each for name, each in answers.items() if not has_failed(each)}
    ratios = {
        f"{pass_} of {name}": (ratio, each["best_other"][pass_])
        for name, each in good.items()
        for pass_, ratio in each["ratio"].items()
        if ratio is not None
    }
    parts = []
    if lost := sorted((ratio, what, other) for what, (ratio, other) in ratios.items() if ratio < 1):
        told = ", ".join(f"{what} {ratio:.2f}× {other}" for ratio, what, other in lost[:_WORST])
        parts.append(f"slower than the best other in {len(lost)} of {len(ratios)}: {told}")
    for pass_, goal in GOALS.items():
        shares = {name: each["percent_of_copy"][pass_] for name, each in good.items()}
        if shares:
            worst = min(shares, key=shares.__getitem__)
            below = sum(share < goal for share in shares.values())
            parts.append(
                f"{pass_}: {below} of {len(shares)} below {goal:.0f} % of copy bandwidth, least {shares[worst]:.0f} % "
                f"({worst})"
            )
    if without := [
        f"{pass_} of {name}" for name, each in good.items() for pass_, own in each["runs"].items() if own == 0
    ]:
        parts.append(f"no kernel of dwconv's ran in {', '.join(without)}")
    if steps := [each["ratio"]["step"] for each in good.values() if each["ratio"]["step"] is not None]:
        parts.append(
            f"forward and backward {geometric_mean(steps):.2f} times as fast as the best other, least {min(steps):.2f}"
        )
    if missing := dict.fromkeys(f"{name}: {why}" for each in good.values() for name, why in each["refused"].items()):
        parts.append(f"did not race: {', '.join(missing)}")
    return "; ".join(parts) or "nothing was raced"
