"""Stage ``host``: what a depthwise layer takes of the host, in microseconds, plain and converted, where a GPU computes.

    a chain of 1 layer ──┐ forward, backward: the host's time without waiting for the GPU
    a chain of 11 layers ┘ a layer takes a tenth of the difference

In float16 and under autocast, on the road through C++ and, in a process of its own, on that through Python. Where the
host is the bottleneck of a step, these decide, not the kernels.
"""

from __future__ import annotations

import copy
import gc
import math
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import dwconv
from bench.gpu.plan import Plan
from bench.gpu.run import Ended, Run, has_failed
from bench.gpu.tune import race_untuned
from bench.networks import mixed_precision
from bench.process import in_a_process
from dwconv import native
from dwconv.errors import WorkerDied, WorkerTimeout
from dwconv.measure.clock.timing import Call
from dwconv.measure.step_share import kernels_in
from dwconv.problems.workload import PASSES, DType, Workload
from dwconv.schedules.template import Candidate

FIRST_S = 25.0
"""Expected seconds of a road, until one has been measured."""
_MOST_S = 90.0
ROADS = {"C++": {}, "Python": {"DWCONV_NATIVE": "0"}}
"""Roads of a call, and what is set for each."""
CHANNELS = 192
_LAYERS, _CALLS = 11, 5
DTYPE: DType = "float16"


def host_stage(given: Run, *, batch: int = 64, size: int = 28, rounds: int = 60) -> Ended:
    """The run fails if no road could be measured."""
    race_untuned(_workloads(batch=batch, size=size), given, stage="host", seconds=given.pace.left_s)
    how = {"device": given.target.kind, "batch": batch, "size": size, "rounds": rounds}

    def of_road(road: str) -> dict[str, Any]:
        environment = {**os.environ, "DWCONV_TUNING_LOGS": str(given.log.path), **ROADS[road]}
        limit_s = min(_MOST_S, max(1.0, given.pace.left_s))
        try:
            found: dict[str, Any] = in_a_process(measured, how, environment=environment, timeout_s=limit_s)
        except (WorkerDied, WorkerTimeout) as error:
            return {"failed": str(error)}
        return found

    answers = given.answers("host", ROADS, of_road, in_words=_in_words)
    text = "; ".join(f"{road}: {_in_words(answer)}" for road, answer in answers.items())
    return Ended.of(answers, text or "nothing was measured", count=len(ROADS))


def host_candidates(plan: Plan, *, batch: int = 64, size: int = 28) -> Iterator[Candidate]:
    """Of its layer."""
    return plan.raced(_workloads(batch=batch, size=size))


def _workloads(*, batch: int, size: int) -> list[Workload]:
    first = Workload(
        pass_="fprop", batch=batch, channels=CHANNELS, input_size=(size, size), kernel=(3, 3),
        padding=((1, 1), (1, 1)), dtype=DTYPE, layout="nhwc",
    )  # fmt: skip
    return [first.for_pass(pass_) for pass_ in PASSES]


def _in_words(answer: dict[str, Any]) -> str:
    if has_failed(answer):
        return f"failed: {answer['failed']}"
    text = [f"road {answer['road']}"]
    for precision, of_models in answer["us"].items():
        (plain, ours) = (of_models[name] for name in ("plain", "converted"))
        ratio = (ours["forward"] + ours["backward"]) / max(plain["forward"] + plain["backward"], 1e-9)
        text.append(
            f"{precision} {ours['forward']:.1f} + {ours['backward']:.1f} µs a layer, PyTorch's {plain['forward']:.1f} "
            f"+ {plain['backward']:.1f}: {ratio:.2f}; kernels {ours['kernels']:.1f} µs, PyTorch's "
            f"{plain['kernels']:.1f}"
        )
    return ", ".join(text)


# -- in a process of its own -----------------------------------------------------------------------------------------


def measured(**how: Any) -> dict[str, Any]:
    """The road that calls take, and the times of ``of_models`` by precision."""
    native.native()
    us = {name: of_models(autocast=autocast, **how) for name, autocast in (("float16", None), ("autocast", DTYPE))}
    return {"road": native.why_not or "C++", "us": us}


def of_models(*, device: str, autocast: str | None, batch: int, size: int, rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds of a layer, forward and backward, plain and converted; and of one layer with the call of
    ``backward()``."""
    half = getattr(torch, DTYPE)
    plain = nn.Sequential(
        *(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False) for _ in range(_LAYERS))
    )
    plain.to(device, torch.float32 if autocast else half, memory_format=torch.channels_last)  # type: ignore[call-overload]
    x, dy = (
        torch.randn(batch, CHANNELS, size, size, device=device).to(half, memory_format=torch.channels_last)
        for _ in range(2)
    )
    models = {"plain": plain, "converted": dwconv.convert(copy.deepcopy(plain))}
    return {
        name: _of_model(model, x.requires_grad_(), dy, autocast=autocast, rounds=rounds)
        for name, model in models.items()
    }


def _of_model(model: nn.Sequential, x: Tensor, dy: Tensor, *, autocast: str | None, rounds: int) -> dict[str, float]:
    def forward(layers: nn.Module) -> Tensor:
        with mixed_precision(x.device.type, autocast):
            found: Tensor = layers(x)
        return found

    for _ in range(3):
        forward(model).backward(dy)  # type: ignore[no-untyped-call]
    chains = {count: model[:count] for count in (1, _LAYERS)}
    gc.collect()
    gc.disable()
    try:
        forward_us = {count: host_us(partial(forward, chain), rounds=rounds) for count, chain in chains.items()}
        backward_us = {}
        for count, chain in chains.items():
            gradients = partial(torch.autograd.grad, forward(chain), (x, *chain.parameters()), dy, retain_graph=True)
            backward_us[count] = host_us(gradients, rounds=rounds)
        whole_us = host_us(lambda: forward(chains[1]).backward(dy), rounds=rounds)  # type: ignore[no-untyped-call]
        kernels_us = {count: _kernels_us(partial(_backward_of, forward, chain, dy)) for count, chain in chains.items()}
    finally:
        gc.enable()
    return {
        "kernels": (kernels_us[_LAYERS] - kernels_us[1]) / (_LAYERS - 1),
        "forward": (forward_us[_LAYERS] - forward_us[1]) / (_LAYERS - 1),
        "backward": (backward_us[_LAYERS] - backward_us[1]) / (_LAYERS - 1),
        "one_layer": whole_us,
    }


def _backward_of(forward: Callable[[nn.Module], Tensor], layers: nn.Module, dy: Tensor) -> None:
    forward(layers).backward(dy)  # type: ignore[no-untyped-call]


def _kernels_us(call: Callable[[], object]) -> float:
    """What the kernels of a call take of the GPU; 0 without one."""
    if not torch.cuda.is_available():
        return 0.0
    return float(sum(event.time_range.elapsed_us() for event in kernels_in(call)))


def host_us(call: Call, *, rounds: int) -> float:
    """Microseconds that a call takes on the host, without waiting for the device: the least of several rounds, since
    what is more came from outside."""
    least_s = math.inf
    for _ in range(rounds):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        started_s = time.perf_counter()
        for _ in range(_CALLS):
            call()
        least_s = min(least_s, (time.perf_counter() - started_s) / _CALLS)
    return least_s * 1e6
