"""Stage ``sizes``: layers at sizes that were never tuned.

    first call   what the host takes beyond the next call when a layer meets a size, beside PyTorch's op, which also may
                 search with cudnn.benchmark
    steps        of a network as detectors are, at ten sizes of images, one of which is the example of ``convert``
    kernels      of any size, as dispatch predicts them from another size, in turns with the kernels tuned for the size

The first two have a process of their own each.
"""

from __future__ import annotations

import copy
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import geometric_mean
from typing import Any

import torch
from torch import Tensor, nn

import dwconv
from bench.cases import GPU_LAYERS, OWN, BenchLayer, square
from bench.cpu import best_of
from bench.evidence import ratio_of
from bench.gpu.plan import GpuPlan, found_in
from bench.gpu.race import EFFORT
from bench.gpu.run import Ended, Run, has_failed
from bench.gpu.tune import race_untuned
from bench.gpu.worker import GpuFailure, GpuWorker
from bench.models import MobileNetV2, Network
from bench.networks import image_for, network_of, where_layers_run, workloads_of
from bench.paired_steps import compare_losses, converted_copy, lap_of, made_up, step_of, take_turns
from bench.process import in_a_process
from bench.race import ANY_SIZE, OURS, Race, Raced
from bench.rows_and_volumes import convolved
from bench.step_rows import CONVERTED, PLAIN
from dwconv import native
from dwconv.dispatch.at_any_size import of_any_size
from dwconv.errors import DwconvError, WorkerDied, WorkerTimeout
from dwconv.measure.requests import MeasureSetup
from dwconv.problems.target import Target
from dwconv.problems.workload import DType, Workload
from dwconv.records.database import Database
from dwconv.records.record import TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.untuned.other_size import expected_from

FIRST_S = 12.0
"""Expected seconds of an item, until one has been measured."""
_MOST_S = 120.0
_KERNEL_S = 60.0
_LAYERS_SHARE, _NETWORK_SHARE = 0.15, 0.4
"""Of the time, for what is untuned of the layers, and of the network before its steps."""
GOAL, GOAL_MS = 0.9, 0.2
"""Of the speed of a tuned kernel; and for the first call of a size."""
_LARGEST = 13
LAYERS: tuple[BenchLayer, ...] = (
    *(layer for layer in GPU_LAYERS if layer.kernel <= _LARGEST),
    square("k 9", batch=64, channels=192, size=28, kernel=9),
    square("k 11", batch=64, channels=192, size=28, kernel=11),
)
EXAMPLE = 448
"""Height and width of the example."""
SIZES = tuple(range(320, 640, 32))
DTYPE: DType = "float16"
_PYTORCH, _SEARCHING, _CONVERTED = WAYS = ("PyTorch", "PyTorch with cudnn.benchmark", "dwconv")
_STEPS, _FIRST = "steps", "first call"
_WORST = 3


class Detector(nn.Module):
    """(N, 3, H, W) -> (N, classes): MobileNetV2's features at two scales, a depthwise head for each, as SSDLite has
    them; the scores of all places, averaged."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        backbone = MobileNetV2()
        blocks = [*backbone.blocks]
        self.fine = nn.Sequential(backbone.stem, *blocks[:13])
        self.coarse = nn.Sequential(*blocks[13:], backbone.last)
        self.heads = nn.ModuleList(
            nn.Sequential(
                *convolved(channels, channels, 3, groups=channels, act=nn.ReLU6), nn.Conv2d(channels, classes, 1)
            )
            for channels in (96, 1280)
        )

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(x)
        of_fine, of_coarse = self.heads
        scores: Tensor = of_fine(fine).mean((2, 3)) + of_coarse(self.coarse(fine)).mean((2, 3))
        return scores


DETECTOR = Network(name="bench.gpu.sizes:DETECTOR", make=Detector, batch=16, sample=(3, EXAMPLE, EXAMPLE))


def workloads() -> list[Workload]:
    """The layers whose kernels of any size are compared: all kernels and passes in float16 in channels_last come before
    contiguous float32."""
    return [
        workload
        for dtype, layout in OWN
        for layer in LAYERS
        for workload in layer.workloads(dtype=dtype, layout=layout)
    ]


def size_candidates(
    plan: GpuPlan, *, wanted: Sequence[Workload] | None = None, network: Network = DETECTOR
) -> Iterator[Candidate]:
    """The tuned kernel and the one of any size of each workload that is tuned; what is raced of the others, and of the
    network at the size of its example."""
    of_layers = workloads() if wanted is None else wanted
    for workload in of_layers:
        if record := best_of(workload, plan.target, known=plan.known):
            yield Candidate(record.workload, record.config)
            if other := predicted_at_another_size(record, plan.target):
                yield other
    yield from plan.raced(of_layers)
    for found in found_in([network], partial(workloads_of, autocast=DTYPE), stage="sizes"):
        yield from plan.raced(found)


def sizes_stage(
    run: Run,
    *,
    wanted: Sequence[Workload] | None = None,
    network: Network = DETECTOR,
    sizes: Sequence[int] = SIZES,
    turns: int = 10,
    calling: Mapping[str, Any] | None = None,
) -> Ended:
    """``wanted``: other workloads than ``workloads()``. ``network`` takes images of ``sizes``, and of its own for the
    example. ``calling``: arguments of ``first_calls``. The run fails if all that was started failed."""
    by_key = {each.key: each for each in (workloads() if wanted is None else wanted)}
    items = _in_order(by_key)
    if left := [by_key[key] for key in run.state.left("sizes", by_key)]:
        race_untuned(left, run, stage="sizes", seconds=_LAYERS_SHARE * run.pace.left_s)
    known = Database.load([run.log.path])
    with GpuWorker("bench.gpu.race:GpuRacer", MeasureSetup(target=run.target)) as racer:

        def answer(item: str) -> dict[str, Any] | None:
            try:
                if item == _FIRST:
                    return _apart(first_calls, {"device": run.target.kind, **(calling or {})}, run)
                if item == _STEPS:
                    found = workloads_of(network, autocast=DTYPE, device=run.target.kind)
                    race_untuned(found, run, stage="sizes", seconds=_NETWORK_SHARE * run.pace.left_s)
                    how = {"batch": network.batch, "example": network.sample[-1], "sizes": list(sizes), "turns": turns}
                    return _apart(steps_at_sizes, {"network": network.name, "device": run.target.kind, **how}, run)
                return _raced(best_of(by_key[item], run.target, known=known), run, racer)
            except GpuFailure as failure:
                return {"failed": str(failure)} if run.pace.left_s > 0 else None
            except DwconvError as error:
                return {"failed": str(error)}

        answers = run.answers("sizes", items, answer, in_words=_in_words)
    return Ended.of(answers, _summary(answers), count=len(items))


def _in_order(by_key: Mapping[str, Workload]) -> list[str]:
    """Kernels of one type and layout before the steps, those of the others after them."""
    first = next(iter(by_key.values()), None)
    own = [key for key, each in by_key.items() if first and (each.dtype, each.layout) == (first.dtype, first.layout)]
    return [_FIRST, *own, _STEPS, *(key for key in by_key if key not in own)]


def _apart(function: Any, how: dict[str, Any], run: Run) -> dict[str, Any]:
    environment = {**os.environ, "DWCONV_TUNING_LOGS": str(run.log.path)}
    limit_s = max(1.0, min(_MOST_S, run.pace.left_s))
    try:
        found: dict[str, Any] = in_a_process(function, how, environment=environment, timeout_s=limit_s)
    except (WorkerDied, WorkerTimeout) as error:
        return {"failed": str(error)}
    return found


# -- kernels -----------------------------------------------------------------------------------------------------------


def _raced(record: TuningRecord | None, run: Run, racer: GpuWorker) -> dict[str, Any]:
    """Microseconds of the tuned kernel and of the one of any size, with warm and with cold caches, and the share of the
    tuned one's speed. Raises GpuFailure."""
    if record is None:
        return {"none": "it is untuned"}
    other = predicted_at_another_size(record, run.target)
    if other is None:
        return {"none": "no kernel of any size is predicted from it"}
    race = Race(
        candidate=Candidate(record.workload, record.config), caches=("warm", "cold"), alone=True,
        beside={ANY_SIZE: other}, effort=EFFORT,
    )  # fmt: skip
    raced: Raced = racer.ask(race, timeout_s=_KERNEL_S, within_s=run.pace.left_s)
    if ANY_SIZE in raced.refused:
        return {"failed": raced.refused[ANY_SIZE]}
    us = {
        caches: {name: each.median_us for name, each in taken.measurements.items()}
        for caches, taken in raced.times.items()
    }
    return {
        "us": us,
        "share": {caches: each[OURS] / max(each[ANY_SIZE], 1e-6) for caches, each in us.items()},
        "config": record.config.to_dict(),
        "any_size_config": other.config.to_dict(),
    }


def predicted_at_another_size(record: TuningRecord, target: Target) -> Candidate | None:
    """The kernel of any size that a call would run which knows ``record`` alone, of another size; cut for the size of
    the record. None if there is none."""
    expected = expected_from(record, record.workload, target)
    return None if expected is None else of_any_size(record.workload, expected.config, target)


# -- steps, in a process of their own ----------------------------------------------------------------------------------


def steps_at_sizes(
    *, network: str, batch: int, example: int, sizes: Sequence[int], device: str, turns: int
) -> dict[str, Any]:
    """Milliseconds of steps of the plain and the converted network at each size, in turns, once both have met all sizes
    twice; where the layers run at the example's size and at the largest; and how far the losses are apart."""
    native.native()
    found = network_of(network, batch=batch, image=example)
    torch.manual_seed(0)
    images = {size: image_for(found.resized(size), contiguous=False, device=device) for size in {*sizes, example}}
    plain = found.make().train().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    models = {PLAIN: plain, CONVERTED: converted_copy(plain, images[example], autocast=DTYPE)}
    steps = {name: step_of(model, autocast=DTYPE) for name, model in models.items()}
    for image in [images[example], *(images[size] for size in sizes)] * 2:
        for step in steps.values():
            step(*made_up(image))
    of_sizes: dict[str, Any] = {}
    for size in sizes:
        laps = take_turns({name: lap_of(step, images[size]) for name, step in steps.items()}, count=turns)
        seconds = {name: [lap.seconds for lap in taken] for name, taken in laps.items()}
        of_sizes[str(size)] = {
            "median_ms": {name: statistics.median(taken) * 1e3 for name, taken in seconds.items()},
            **ratio_of(seconds[PLAIN], over=seconds[CONVERTED]).as_row("ratio"),
        }
    return {
        "sizes": of_sizes,
        "layers": {
            str(size): where_layers_run(models[CONVERTED], images[size], autocast=DTYPE)
            for size in (example, max(sizes))
        },
        "loss_difference": compare_losses(steps, images[max(sizes)], count=2)[CONVERTED],
    }


# -- first calls, in a process of their own ----------------------------------------------------------------------------


def first_calls(
    *, device: str, batch: int = 64, channels: int = 144, kernel: int = 3, example: int = 56, count: int = 10
) -> dict[str, Any]:
    """Milliseconds of the host for the first call of a layer at ``count`` new sizes, forward and backward, and for the
    next one, by way. The ways take turns with the sizes, so that none meets one that another has met: cuDNN keeps what
    it found in either way."""
    native.native()
    torch.manual_seed(0)
    of_layer: dict[str, Any] = {"device": device, "dtype": getattr(torch, DTYPE)}
    plain = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False, **of_layer)
    plain.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def images(size: int) -> Tensor:
        x = torch.randn(batch, channels, size, size, **of_layer)
        return x.to(memory_format=torch.channels_last).requires_grad_()

    ours = dwconv.convert(copy.deepcopy(plain), images(example).detach(), seconds=0)
    layers = {_PYTORCH: plain, _SEARCHING: copy.deepcopy(plain), _CONVERTED: ours}
    fresh = [size for size in range(example // 2, example // 2 + 2 * (len(WAYS) * count + 3), 2) if size != example]
    known = (example, fresh.pop())
    _fill_the_allocator(images(max(example, *fresh)))
    taken: dict[str, dict[str, list[float]]] = {}
    for turn, (way, layer) in enumerate(layers.items()):
        with torch.backends.cudnn.flags(enabled=True, benchmark=way == _SEARCHING, allow_tf32=False):
            for size in (*known, *known):
                _host_ms(layer, images(size))
            times = [[_host_ms(layer, x) for _ in range(4)] for x in map(images, fresh[turn :: len(WAYS)][:count])]
        taken[way] = {"first_ms": [first for first, *_ in times], "next_ms": [min(after) for _, *after in times]}
    return {
        "ways": taken,
        "beyond_ms": {
            way: statistics.median(
                first - after for first, after in zip(each["first_ms"], each["next_ms"], strict=True)
            )
            for way, each in taken.items()
        },
        "layers": where_layers_run(ours, images(fresh[-1]).detach()),
    }


def _fill_the_allocator(largest: Tensor) -> None:
    """PyTorch keeps the memory, so that no call has to get it from the driver."""
    kept = [torch.empty_like(largest) for _ in range(8)]
    del kept


def _host_ms(layer: nn.Module, x: Tensor) -> float:
    """Of a forward and a backward pass, without waiting for the device at the end."""
    dy = torch.ones_like(x)
    if x.is_cuda:
        torch.cuda.synchronize()
    began_s = time.perf_counter()
    torch.autograd.grad(layer(x), (x, *layer.parameters()), dy)
    return (time.perf_counter() - began_s) * 1e3


# -- in words ----------------------------------------------------------------------------------------------------------


def _in_words(answer: Mapping[str, Any]) -> str:
    if has_failed(answer):
        return f"failed: {answer['failed']}"
    if "none" in answer:
        return str(answer["none"])
    if "share" in answer:
        warm = answer["us"]["warm"]
        return (
            f"{answer['share']['warm']:.2f} of the tuned kernel's speed ({warm[ANY_SIZE]:.1f} and {warm[OURS]:.1f} "
            f"µs), cold {answer['share']['cold']:.2f}"
        )
    return _of_steps(answer) if "sizes" in answer else _of_first_calls(answer)


def _of_steps(answer: Mapping[str, Any]) -> str:
    ratios = {int(size): each["ratio"] for size, each in answer["sizes"].items()}
    lost = sorted((ratio, size) for size, ratio in ratios.items() if ratio < 1)
    told = f", slower at {', '.join(f'{size}² ({ratio:.2f})' for ratio, size in lost)}" if lost else ""
    return (
        f"steps at {len(ratios)} sizes {geometric_mean(ratios.values()):.2f} times as fast as plain{told}, least "
        f"{min(ratios.values()):.2f}"
    )


def _of_first_calls(answer: Mapping[str, Any]) -> str:
    beyond = answer["beyond_ms"]
    missed = f", above {GOAL_MS} ms" if beyond[_CONVERTED] > GOAL_MS else ""
    return (
        f"the first call of a size takes {beyond[_CONVERTED]:.2f} ms more of the host than the next{missed}; PyTorch's "
        f"{beyond[_PYTORCH]:.2f}, with cudnn.benchmark {beyond[_SEARCHING]:.2f}"
    )


def _summary(answers: Mapping[str, Mapping[str, Any]]) -> str:
    """Kernels below the goal first."""
    shares = {key: min(each["share"].values()) for key, each in answers.items() if "share" in each}
    parts = []
    if below := sorted((share, key) for key, share in shares.items() if share < GOAL):
        told = ", ".join(f"{key} {share:.2f}" for share, key in below[:_WORST])
        parts.append(f"{len(below)} of {len(shares)} kernels of any size below {GOAL} of the tuned one's speed: {told}")
    if shares:
        found = list(shares.values())
        parts.append(
            f"kernels of any size reach {geometric_mean(found):.2f} of the speed of tuned ones, least {min(found):.2f}"
        )
    parts += [_in_words(answers[item]) for item in (_STEPS, _FIRST) if item in answers]
    if without := sum("none" in each for each in answers.values()):
        parts.append(f"{without} without a kernel of any size or a tuned one")
    return "; ".join(parts) or "nothing was measured"
