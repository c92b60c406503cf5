"""The rows of ``bench train``: from steps taken in turns to ratios with their intervals, and the table of a network.

``ratio`` is the plain step over the converted one, ``over_best_other`` the fastest step that does without dwconv over
the fastest with it; the verdict is on the latter. ``kinds`` has the same of steps of one kind alone: eager over eager,
compiled over compiled, graphs over graphs. Before them, where the time of a step goes, by kind of work.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from bench.evidence import Control, Ratio, ratio_of
from dwconv.measure.clock.timing import Lap
from dwconv.measure.step_share import convolution_kind, is_convolution, profiled
from dwconv.records.record import CONTENDED

STEPS = 8
"""Profiled steps of each model to compare kinds of work. The profiler slows all models alike."""
Step = Callable[[torch.Tensor, torch.Tensor], float]
"""One step of training on images and labels; returns the loss."""

_KINDS_OF_WORK = (
    ("normalisation", ("batch_norm", "layer_norm", "group_norm", "rms_norm")),
    ("activation", ("relu", "hardtanh", "hardswish", "hardsigmoid", "gelu", "silu", "threshold", "clamp")),
    ("pointwise, dense", ("addmm", "aten::mm", "aten::linear", "aten::bmm")),
    ("copies, layouts", ("aten::copy_", "aten::clone", "aten::contiguous", "aten::_to_copy")),
    ("sums, products", ("aten::add", "aten::mul", "aten::mean", "aten::sum", "aten::cumsum", "aten::div", "expand")),
    ("optimizer", ("Optimizer.", "_foreach", "AccumulateGrad")),
    ("autograd", ("autograd::engine", "Backward0", "Backward1", "DwconvConvolution")),
)
"""Each kind, and words in the names of its ops. Convolutions are distinguished by their weights."""
_TWO_WAYS = ("normalisation", "activation")


def profiles(
    steps: Mapping[str, Step], image: torch.Tensor, labels: torch.Tensor, *, count: int
) -> dict[str, dict[str, float]]:
    """Milliseconds by kind, with ``step`` for the whole, of each model's fastest step. Several are taken in turn;
    slower ones say more about other work on the machine."""
    on_gpu = image.device.type == "cuda"
    fastest: dict[str, dict[str, float]] = {}
    for _ in range(count):
        for name, step in steps.items():
            found = profiled(lambda step=step: step(image, labels), kind=_kind, on_gpu=on_gpu)  # type: ignore[misc]
            fastest[name] = min(fastest.get(name, found), found, key=lambda each: each["step"])
    return fastest


def _kind(event: Any) -> str | None:
    name: str = event.name
    if is_convolution(event):
        return convolution_kind(event)
    kind = next((kind for kind, parts in _KINDS_OF_WORK if any(part in name for part in parts)), None)
    return f"{kind} backward" if kind in _TWO_WAYS and "backward" in name else kind


PLAIN, CONVERTED, WITH_BLOCKS = "plain", "converted", "blocks"
OTHER_LAYOUT, AGAIN = "plain, other layout", "plain again"
WITH_INDUCTOR = {name: f"{name} + inductor" for name in (PLAIN, CONVERTED, WITH_BLOCKS)}
"""What the models are called under torch.compile."""
WITH_GRAPHS = {name: f"{name} + graphs" for name in (PLAIN, CONVERTED, WITH_BLOCKS)}
"""What they are called where forward and backward pass are CUDA graphs."""
_WAYS = {"compiled": WITH_INDUCTOR, "graphed": WITH_GRAPHS}
_KINDS = {"eager": ((CONVERTED, WITH_BLOCKS), (PLAIN, OTHER_LAYOUT))} | {
    kind: ((way[CONVERTED], way[WITH_BLOCKS]), (way[PLAIN],)) for kind, way in _WAYS.items()
}
"""Models with dwconv that run in one way, and those without."""
Seconds = Mapping[str, Sequence[float]]


def summary(laps: dict[str, list[Lap]]) -> dict[str, Any]:
    """Medians in milliseconds, ratios of these with their intervals, quartiles of the ratio of steps that were taken in
    turn, and the share of the time that other work took. If it took little in more than half of the turns, only those
    count. ``layouts``, ``compiled`` and ``graphed`` have ratios over the plain model, ``inductor`` and ``graphs`` those
    of the converted model over the plain one that runs in the same way; ``blocks``, ``compiled_blocks`` and
    ``graphed_blocks`` how many times as fast as each of the others a model with blocks is. With the plain model once
    more, ``control`` has its ratio, and the row its verdict."""
    turns = list(zip(*laps.values(), strict=True))
    uncontended = [turn for turn in turns if max(lap.lost for lap in turn) <= CONTENDED]
    kept = uncontended if 2 * len(uncontended) > len(turns) else turns
    seconds = {name: [turn[place].seconds for turn in kept] for place, name in enumerate(laps)}
    ratio = _ratio(seconds, CONVERTED, over=PLAIN)
    kinds = {kind: names for kind, names in _KINDS.items() if all(any(each in laps for each in some) for some in names)}
    ours, others = (tuple(name for names in _KINDS.values() for name in names[side]) for side in (0, 1))
    figures: dict[str, Any] = {
        "median_ms": {name: statistics.median(taken) * 1e3 for name, taken in seconds.items()},
        "ratio": ratio,
        "ratio_interval": ratio["interval"],
        **_against_the_best(seconds, ours, others),
        "kinds": {kind: _against_the_best(seconds, *names) for kind, names in kinds.items()},
        "steps": len(turns),
        "contention": round(statistics.mean(lap.lost for turn in kept for lap in turn), 3),
    }
    if AGAIN in laps:
        control = Control.over([ratio_of(seconds[PLAIN], over=seconds[AGAIN])])
        figures["control"] = control.as_row()
        for each in (figures, *figures["kinds"].values()):
            each["verdict"] = control.verdict(each["over_best_other_interval"])
    over_plain = {"layouts": [OTHER_LAYOUT], **{kind: list(way.values()) for kind, way in _WAYS.items()}}
    for key, names in over_plain.items():
        if raced := [name for name in names if name in laps]:
            figures[key] = {name: _ratio(seconds, name, over=PLAIN) for name in raced}
    for key, way in (("inductor", WITH_INDUCTOR), ("graphs", WITH_GRAPHS)):
        if {way[PLAIN], way[CONVERTED]} <= laps.keys():
            figures[key] = _ratio(seconds, way[CONVERTED], over=way[PLAIN])
    for key, name in {
        "blocks": WITH_BLOCKS,
        **{f"{kind}_blocks": way[WITH_BLOCKS] for kind, way in _WAYS.items()},
    }.items():
        if name in laps:
            figures[key] = {each: _ratio(seconds, name, over=each) for each in laps if each not in (name, AGAIN)}
    return figures


def samples_per_s(median_ms: Mapping[str, float], *, batch: int) -> dict[str, float]:
    """How many images, volumes or sequences each model trains on in a second."""
    return {name: batch / ms * 1e3 for name, ms in median_ms.items()}


def _ratio(seconds: Seconds, name: str, *, over: str) -> dict[str, Any]:
    """How many times as fast as ``over`` the model is: by the medians, with its interval; and the quartiles of single
    turns."""
    ratio = ratio_of(seconds[over], over=seconds[name])
    in_turn = [slow / fast for slow, fast in zip(seconds[over], seconds[name], strict=True)]
    low, _, high = statistics.quantiles(in_turn, n=4, method="inclusive")
    return {"median": ratio.value, "interval": list(ratio.interval), "quartiles": [low, high]}


def _against_the_best(seconds: Seconds, ours: Sequence[str], others: Sequence[str]) -> dict[str, Any]:
    """The fastest with dwconv against the fastest without."""
    raced = [[name for name in names if name in seconds] for names in (ours, others)]
    best_ours, best_other = (min(names, key=lambda name: statistics.median(seconds[name])) for names in raced)
    over = ratio_of(*(seconds[name] for name in raced[1]), over=seconds[best_ours])
    return {"best_ours": best_ours, "best_other": best_other, **over.as_row("over_best_other")}


# -- what is printed -------------------------------------------------------------------------------------------------


def table_of(row: dict[str, Any]) -> str:
    """The table of one race: every model's step against the plain one, and what it keeps."""
    head = f"{row['network']}, {row['allocator']}: at most {row['ratio']['at_most']:.2f}"
    over_plain = {CONVERTED: row["ratio"], **row.get("layouts", {}), **row.get("compiled", {})}
    if WITH_BLOCKS in row:
        over_plain[WITH_BLOCKS] = row["blocks"][PLAIN]
    lines = [f"{head}, {row['steps']} steps", f"  {'':22} {'ms':>8}  {'× plain':22} {'keeps MiB':>10}"]
    for name, ms in row["median_ms"].items():
        found, kept = over_plain.get(name), row.get("kept_bytes", {}).get(name)
        ratio = str(Ratio(value=found["median"], interval=found["interval"])) if found else ""
        lines.append(f"  {name:22} {ms:8.1f}  {ratio:22} {'' if kept is None else f'{kept / 2**20:10.1f}'}".rstrip())
    lines += [f"  {name:22} did not race: {why}" for name, why in row.get("refused", {}).items()]
    for each in (row, *row["kinds"].values()):
        over = Ratio(value=each["over_best_other"], interval=each["over_best_other_interval"])
        line = f"  {each['best_ours']} over {each['best_other']}: {over}, {each.get('verdict', 'without a control')}"
        lines += [line] if line not in lines else []
    return "\n".join(lines)


def losses_of(rows: Sequence[dict[str, Any]]) -> str:
    """Where the depthwise layers ran, and whether the losses agree."""
    lines = ["", "at most: if the depthwise convolutions of the plain step cost nothing"]
    for row in {row["network"]: row for row in rows if "failed" not in row}.values():
        lines.append(f"{row['network']}: {', '.join(f'{count} {name}' for name, count in row['layers'].items())}")
        apart = ", ".join(f"{name} {value:.1e}" for name, value in row["loss_difference"].items())
        lines.append(f"  largest difference from the plain loss (rounded: by one rounding alone): {apart}")
    return "\n".join(lines)
