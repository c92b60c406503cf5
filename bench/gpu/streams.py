"""Stage ``streams``: what runs beside a step's kernels on streams of its own.

    prefetch      epochs on a loader: batches copied when the step needs them, and loaded ahead, in turns. The batches
                  must be the loader's
    a network     steps under torch.compile with ``dwconv_concurrent``: plain, by schedules on streams, and as the
                  backend chooses, in turns with eager ones. Losses must be the eager ones within rounding

Each in a process of its own.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from bench.communication import Pictures
from bench.concurrency.models import NETWORKS, TrainedNetwork, images_of
from bench.concurrency.steps import BACKEND, EAGER, ChosenStep, SgdSteps, loss_differences
from bench.evidence import ratio_of
from bench.gpu.run import Ended, Run, has_failed
from bench.networks import network_of
from bench.paired_steps import step_of, take_turns
from bench.process import in_a_process
from dwconv import native
from dwconv.concurrency.backend import dwconv_concurrent, graphs
from dwconv.concurrency.explain_schedules import explain
from dwconv.concurrency.options import PLAIN as PLAIN_SCHEDULE
from dwconv.errors import DwconvWarning, WorkerDied, WorkerTimeout
from dwconv.measure.clock.timing import CpuClock
from dwconv.measure.processes.worker import locate
from dwconv.parallel import prefetch

_MOST_S = 150.0
PREFETCH_S, NETWORK_S = 20.0, 60.0
"""An item is not started with less time left."""
PREFETCH = "prefetch"
_ON_REQUEST, _AHEAD = "on request", "ahead"
NAMES = ("Inception-v2", "InceptionNeXt", "LSTM")
"""Networks of ``bench concurrency``, those of images on batches for a GPU."""
_BATCH, _IMAGE = 64, 224
_LOADED_IMAGE, _COMPARED = 112, 4
"""Of the epochs: an image that eight processes load as fast as a step takes; and batches whose bits are compared."""
ON_STREAMS = ("S3", "random:0")
"""Numbers of threads are nothing on a GPU: of the strategies, co-running is left. One drawn by chance has several
streams in any case."""


def streams_stage(
    run: Run,
    *,
    names: Sequence[str] = NAMES,
    loading: Mapping[str, Any] | None = None,
    stepping: Mapping[str, Any] | None = None,
) -> Ended:
    """``loading`` and ``stepping``: other arguments of ``epochs`` and of ``steps_on_streams``. The run fails if all
    items failed."""
    device, needed_s = {"device": run.target.kind}, dict.fromkeys(names, NETWORK_S) | {PREFETCH: PREFETCH_S}
    items: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {PREFETCH: (epochs, {**device, **(loading or {})})}
    items |= {name: (steps_on_streams, {"network": name, **device, **(stepping or {})}) for name in names}

    def answer(item: str) -> dict[str, Any]:
        function, how = items[item]
        environment = {**os.environ, "DWCONV_TUNING_LOGS": str(run.log.path)}
        limit_s = max(1.0, min(_MOST_S, run.pace.left_s))
        try:
            found: dict[str, Any] = in_a_process(function, how, environment=environment, timeout_s=limit_s)
        except (WorkerDied, WorkerTimeout) as error:
            return {"failed": str(error)}
        if why := _why_void(found):
            return {"failed": why, **found}
        return found

    left = (item for item in run.state.left("streams", items) if run.pace.left_s >= needed_s[item])
    answers = run.answers("streams", items, answer, in_words=_in_words, left=left)
    order = sorted(answers.items(), key=lambda each: -1.0 if has_failed(each[1]) else each[1]["ratio"])
    text = "; ".join(f"{name}: {_in_words(each)}" for name, each in order)
    return Ended.of(answers, text or "nothing was measured", count=len(items))


def _why_void(found: Mapping[str, Any]) -> str:
    """Why times do not count: other results; empty if they do."""
    if "same_batches" in found:
        return "" if found["same_batches"] else "batches that were loaded ahead are not the loader's"
    apart = {name: value for name, value in found["loss_difference"].items() if not value <= found["permitted"]}
    told = ", ".join(f"{name} by {value:.1e}" for name, value in apart.items())
    return (
        f"losses differ from the eager ones by more than rounding ({found['permitted']:.1e}): {told}" if apart else ""
    )


# -- prefetch, in a process of its own ---------------------------------------------------------------------------------


def epochs(
    *,
    device: str,
    network: str = "MobileNetV2",
    batch: int = _BATCH,
    image: int = _LOADED_IMAGE,
    steps: int = 30,
    turns: int = 3,
    workers: int = 8,
) -> dict[str, Any]:
    """Milliseconds of a step by the way in which batches come, from epochs in turns, without the first batch of each;
    what ``prefetch`` reports; and whether batches are the same bits."""
    native.native()
    found = network_of(network, batch=batch, image=image)
    torch.manual_seed(0)
    model = found.make().train().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    step = step_of(model, autocast="float16")
    how: dict[str, Any] = {"num_workers": workers, "persistent_workers": bool(workers)}
    loader = DataLoader(Pictures(steps * batch, size=image), batch_size=batch, **how)
    ours, theirs = (_first_of(batches) for batches in (prefetch(loader, device), loader))
    ahead = prefetch(loader, device)
    ways: dict[str, Callable[[], Iterable[Sequence[Tensor]]]] = {
        _ON_REQUEST: lambda: ([each.to(device) for each in of_batch] for of_batch in loader),
        _AHEAD: lambda: ahead,
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    _one_epoch(ways[_ON_REQUEST](), step)  # its libraries are loaded, its memory is there
    for _ in range(turns):
        for name, batches in ways.items():
            taken[name] += _one_epoch(batches(), step)
    return {
        "same_batches": len(ours) == len(theirs) and all(map(torch.equal, ours, theirs)),
        "median_ms": {name: statistics.median(each) * 1e3 for name, each in taken.items()},
        "mean_ms": {name: statistics.fmean(each) * 1e3 for name, each in taken.items()},
        **ratio_of(taken[_ON_REQUEST], over=taken[_AHEAD]).as_row("ratio"),
        "report": {**asdict(ahead.report()), "told": str(ahead.report())},
    }


def _first_of(batches: Iterable[Sequence[Tensor]]) -> list[Tensor]:
    """The tensors of the first batches, on the CPU."""
    return [each.cpu() for of_batch in itertools.islice(batches, _COMPARED) for each in of_batch]


def _one_epoch(batches: Iterable[Sequence[Tensor]], step: Callable[[Tensor, Tensor], float]) -> list[float]:
    """Seconds from one step's end to the next's."""
    ends_s = []
    for images, labels in batches:
        step(images, labels)
        ends_s.append(time.perf_counter())
    return [after - before for before, after in itertools.pairwise(ends_s)]


# -- steps by schedules, in a process of their own ---------------------------------------------------------------------


def network_for_gpu(name: str, *, batch: int, image: int) -> TrainedNetwork:
    """One of ``bench concurrency``, those of images on larger batches of larger ones; or ``MODULE:NAME`` as it is."""
    if ":" in name:
        found: TrainedNetwork = locate(name)
        return found
    (network,) = (each for each in NETWORKS if each.name == name)
    first, *_ = network.data()
    return replace(network, data=images_of(batch, image)) if first.dim() == 4 else network


def steps_on_streams(
    *, network: str, device: str, batch: int = _BATCH, image: int = _IMAGE, seconds: float = 10.0, turns: int = 12
) -> dict[str, Any]:
    """Milliseconds of a step by each way, in turns; ``ratio``: the plain schedule over the fastest on streams. What the
    backend chose, with its reason; and the schedules that ran, with theirs. ``seconds``: for its choice."""
    native.native()
    warnings.simplefilter("ignore", DwconvWarning)  # of what is untuned
    found = network_for_gpu(network, batch=batch, image=image)
    eager = SgdSteps(found, seed=0, device=device)
    calls: dict[str, SgdSteps | ChosenStep] = {
        name: SgdSteps(
            found, seed=0, backend=dwconv_concurrent, options={"schedule": name, "log": False}, device=device
        )
        for name in (PLAIN_SCHEDULE, *ON_STREAMS)
    }
    calls[BACKEND] = ChosenStep(found, seed=0, seconds=seconds, device=device)
    calls[EAGER] = eager
    differences, permitted = loss_differences(calls, eager)
    clock = CpuClock()
    laps = take_turns({name: _lap_of(call, clock) for name, call in calls.items()}, count=turns)
    taken = {name: [lap.seconds for lap in each] for name, each in laps.items()}
    return {
        "median_ms": {name: statistics.median(each) * 1e3 for name, each in taken.items()},
        **ratio_of(taken[PLAIN_SCHEDULE], over=min((taken[name] for name in ON_STREAMS), key=statistics.median)).as_row(
            "ratio"
        ),
        "loss_difference": differences,
        "permitted": permitted,
        "streams": {name: _streams_of(calls[name]) for name in ON_STREAMS},
        "runs": {
            name: [f"{graph.runs}: {graph.reason}" for graph in explain(_trained_by(call)).graphs]
            for name, call in calls.items()
            if name != EAGER
        },
    }


def _streams_of(call: SgdSteps | ChosenStep) -> int:
    """The most that a graph of the step runs on."""
    mine = {id(parameter) for parameter in _trained_by(call).parameters()}
    of_model = [graph for graph in graphs if not mine.isdisjoint(graph.parameters)]
    engines = [each.engine for graph in of_model for each in (graph.forward, graph.backward) if each and each.engine]
    return max((len({placed.worker for placed in engine.schedule.placements}) for engine in engines), default=1)


def _trained_by(call: SgdSteps | ChosenStep) -> torch.nn.Module:
    return call.model if isinstance(call, SgdSteps) else call.training.model


def _lap_of(call: Callable[[], object], clock: CpuClock) -> Callable[[], Any]:
    return lambda: clock.lap(call, times=1)


# -- in words ----------------------------------------------------------------------------------------------------------


def _in_words(answer: Mapping[str, Any]) -> str:
    if has_failed(answer):
        return f"failed: {answer['failed']}"
    ratio, (low, high) = answer["ratio"], answer["ratio_interval"]
    of = f"{'slower, ' if ratio < 1 else ''}{ratio:.2f} times as fast ({low:.2f} to {high:.2f})"
    ms = answer["median_ms"]
    if "same_batches" in answer:
        return (
            f"steps on batches that are loaded ahead {of} as on those copied when needed, {ms[_AHEAD]:.1f} and "
            f"{ms[_ON_REQUEST]:.1f} ms, the batches are the same"
        )
    others = ", ".join(f"{name} {each:.1f} ms" for name, each in ms.items())
    streams = " and ".join(f"{count}" for count in answer["streams"].values())
    return f"the faster schedule, on {streams} streams, {of} as the plain one, losses as eager ones; {others}"
