"""Stage ``first_run``: what a user's first run takes: ``convert(model, x)`` of MobileNetV3-Large without any record or
kernel, in a fresh process with empty folders, and the steps after it beside plain ones, in turns.

    without a pack   what is raced is built here
    with a pack      of kernels for every layer, which nothing is built for; ``dwconv.export --generic`` makes it

The pack is made before, unless the folder of the results has it; that takes cores and no GPU.
"""

from __future__ import annotations

import copy
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import dwconv
from bench.evidence import ratio_of
from bench.first_minute import fresh_environment
from bench.gpu.plan import GpuPlan
from bench.gpu.run import Ended, Run, has_failed, say
from bench.models import Network
from bench.networks import image_for, mixed_precision, network_of
from bench.paired_steps import lap_of, step_of, take_turns
from bench.process import in_a_process, said_by
from bench.step_rows import CONVERTED, PLAIN
from dwconv import native
from dwconv.errors import WorkerDied, WorkerTimeout
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.problems.workload import DType
from dwconv.schedules.template import Candidate
from dwconv.untuned.every_layer import candidates

FIRST_S = 45.0
"""Expected seconds of a run, until one has been measured."""
_MOST_S = 180.0
_BESIDE_S = 30.0
"""What a run takes beside ``convert``: starting, and steps. ``convert`` gets no more than what is left then."""
_PACK_S = 300.0
"""With less time the pack is not begun."""
GOALS = {"with a pack": 20.0, "without a pack": 60.0}
"""Seconds of ``convert``, by item."""
WITH, WITHOUT = GOALS
DTYPE: DType = "float16"
TAPS = (3, 5)
"""Of the kernels in the pack: those of the network's layers."""
_BATCH = 64
_WARMUP = 3


def first_run_network() -> Network:
    """MobileNetV3-Large. Its passes are raced, and those of its blocks, in the type ``DTYPE``. Kernels that were built
    before are no part of a first run."""
    return network_of("MobileNetV3-Large", batch=_BATCH)


def first_run_stage(
    run: Run, *, network: Network | None = None, packed: bool = True, seconds: float = 60.0, turns: int = 20
) -> Ended:
    """``packed``: with a pack, too. ``seconds``: of ``convert``. The run fails if no run worked."""
    chosen = network or first_run_network()
    items = [WITHOUT, *([WITH] if packed else [])]
    if packed and pack_folder(run).exists():
        items.reverse()

    def answer(item: str) -> dict[str, Any]:
        how: dict[str, Any] = {
            "network": chosen.name, "batch": chosen.batch, "image": chosen.sample[-1], "device": run.target.kind,
            "turns": turns, "pack": None,
        }  # fmt: skip
        try:
            if item == WITH:
                how["pack"] = str(_pack(run))
            with tempfile.TemporaryDirectory(prefix="dwconv-first-run-") as name:
                environment = fresh_environment(Path(name), Path(name))
                limit_s = max(1.0, min(_MOST_S, run.pace.left_s))
                how["seconds"] = min(seconds, max(1.0, limit_s - _BESIDE_S))
                found: dict[str, Any] = in_a_process(first_run, how, environment=environment, timeout_s=limit_s)
        except (WorkerDied, WorkerTimeout) as error:
            return {"failed": str(error)}
        return found

    answers = run.answers("first_run", items, answer, in_words=_in_words)
    text = "; ".join(f"{item}: {_in_words(each)}{_missed(item, each)}" for item, each in _worst_first(answers))
    return Ended.of(answers, text or "nothing was run", count=len(items))


def first_run_candidates(plan: GpuPlan) -> list[Candidate]:
    """The kernels of its pack. Without a pack it builds in empty folders, whatever is there."""
    target = plan.target
    assert isinstance(target, CudaTarget), "kernels are built ahead for a GPU alone"
    return candidates(parse_target(f"cuda:{target.arch}"), dtype=DTYPE, taps=TAPS)


def pack_folder(run: Run) -> Path:
    """Where the pack is, or will be."""
    return run.state.path.parent / f"pack-{_arch(run)}-{DTYPE}"


def pack_command(arch: str, folder: Path) -> list[str]:
    """What makes the pack: ``python -m dwconv.export …``. Needs no GPU."""
    taps = ",".join(map(str, TAPS))
    command = ["-m", "dwconv.export", "--generic", "--target", f"cuda:{arch}", "--dtype", DTYPE, "--kernel", taps]
    return [*command, "-o", str(folder)]


def _arch(run: Run) -> str:
    return run.target.arch if isinstance(run.target, CudaTarget) else run.target.device


def _pack(run: Run) -> Path:
    """Raises WorkerDied, WorkerTimeout."""
    folder = pack_folder(run)
    if not folder.exists():
        began_s = time.monotonic()
        command = pack_command(_arch(run), folder)
        if run.pace.left_s < _PACK_S:
            raise WorkerTimeout(f"there is no time to make the pack; make it before: python {' '.join(command)}")
        said = said_by(command, environment=os.environ, timeout_s=max(1.0, run.pace.left_s))
        say("first_run", f"the pack took {time.monotonic() - began_s:.0f} s: {(said or ['nothing was printed'])[0]}")
    return folder


# -- in a process of its own -----------------------------------------------------------------------------------------


def first_run(
    *, network: str, batch: int, image: int, device: str, seconds: float, turns: int, pack: str | None
) -> dict[str, Any]:
    """Seconds of ``convert``, with those of loading the pack, and what it was given; what became of the passes that it
    raced; the step over plain's afterwards, in turns."""
    native.native()
    found = network_of(network, batch=batch, image=image)
    torch.manual_seed(0)
    plain = found.make().train().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = image_for(found, contiguous=False, device=device)
    ours = copy.deepcopy(plain)
    _waited_for(x, plain)
    began_s = time.perf_counter()
    if pack:
        dwconv.load_pack(pack)
    loaded_s = time.perf_counter() - began_s
    with mixed_precision(device, DTYPE):
        dwconv.convert(ours, x, seconds=seconds)
    converted_s = time.perf_counter() - began_s
    races = dwconv.summary(ours).races
    models = {PLAIN: plain, CONVERTED: ours}
    laps_of = {name: lap_of(step_of(model, autocast=DTYPE), x) for name, model in models.items()}
    began_s = time.perf_counter()
    laps_of[CONVERTED]()
    first_step_s = time.perf_counter() - began_s
    for _ in range(_WARMUP):
        for lap in laps_of.values():
            lap()
    taken = {name: [each.seconds for each in laps] for name, laps in take_turns(laps_of, count=turns).items()}
    return {
        "seconds": seconds,
        "convert_s": converted_s,
        "loading_s": loaded_s,
        "first_step_s": first_step_s,
        "raced": sum(each.raced for each in races),
        "won": sum(len(each.won) for each in races),
        "left": sum(len(each.left) for each in races),
        "not_needed": sum(len(each.not_needed) for each in races),
        "problem": "; ".join(each.problem for each in races if each.problem),
        "median_ms": {name: statistics.median(each) * 1e3 for name, each in taken.items()},
        **ratio_of(taken[PLAIN], over=taken[CONVERTED]).as_row("ratio"),
    }


def _waited_for(x: torch.Tensor, model: torch.nn.Module) -> None:
    """The first call of a process initialises libraries, whatever the model is."""
    with torch.no_grad(), mixed_precision(x.device.type, DTYPE):
        copy.deepcopy(model)(x)
    if x.is_cuda:
        torch.cuda.synchronize()


# -- in words ----------------------------------------------------------------------------------------------------------


def _worst_first(answers: Mapping[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return sorted(answers.items(), key=lambda each: -1.0 if has_failed(each[1]) else each[1]["ratio"])


def _missed(item: str, answer: Mapping[str, Any]) -> str:
    is_late = not has_failed(answer) and answer["convert_s"] > GOALS[item]
    return f", above the {GOALS[item]:.0f} s that it should take" if is_late else ""


def _in_words(answer: Mapping[str, Any]) -> str:
    if has_failed(answer):
        return f"failed: {answer['failed']}"
    ratio, (low, high) = answer["ratio"], answer["ratio_interval"]
    left = f", {answer['left']} left" if answer["left"] else ""
    told = (
        f"a step then {'slower than plain, ' if ratio < 1 else ''}{ratio:.2f} times as fast as plain ({low:.2f} to "
        f"{high:.2f}), convert {answer['convert_s']:.1f} s, {answer['raced']} passes raced, {answer['won']} won{left}"
    )
    return told + (f", {answer['problem']}" if answer["problem"] else "")
