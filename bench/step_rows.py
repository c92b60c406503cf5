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
    kind = next((kind for kind, parts in _KINDS_OF_WORK if any(part in name for part in parts)), None)
    return f"{kind} backward" if kind in _TWO_WAYS and "backward" in name else kind


PLAIN, CONVERTED, WITH_BLOCKS = "plain", "converted", "blocks"
OTHER_LAYOUT, AGAIN = "plain, other layout", "plain again"
WITH_INDUCTOR = {
    PLAIN: "plain + inductor",
    CONVERTED: "converted + inductor",
    WITH_BLOCKS: "blocks + inductor",
}
"""What the models are called under torch.compile."""
WITH_GRAPHS = {PLAIN: "plain + graphs", CONVERTED: "converted + graphs", WITH_BLOCKS: "blocks + graphs"}
"""What they are called where forward and backward pass are CUDA graphs."""
_WAYS = {"compiled": WITH_INDUCTOR, "graphed": WITH_GRAPHS}
OTHERS = (PLAIN, OTHER_LAYOUT, *(way[PLAIN] for way in _WAYS.values()))
OURS = (CONVERTED, WITH_BLOCKS, *(way[name] for way in _WAYS.values() for name in (CONVERTED, WITH_BLOCKS)))
_KINDS = {"eager": ((CONVERTED, WITH_BLOCKS), (PLAIN, OTHER_LAYOUT))} | {
    kind: ((way[CONVERTED], way[WITH_BLOCKS]), (way[PLAIN],)) for kind, way in _WAYS.items()
}
"""Models with dwconv that run in one way, and those without."""
Turn = dict[str, Lap]


def summary(laps: dict[str, list[Lap]]) -> dict[str, Any]:
    """Medians in milliseconds, ratios of these with their intervals, quartiles of the ratio of steps that were taken in
    turn, and the share of the time that other work took. If it took little in more than half of the turns, only those
    count. ``layouts`` has the ratio of the plain model in the other layout over the plain one. With models under
    torch.compile, ``compiled`` has their ratios over the plain model, and ``inductor`` that of the converted one over
    the plain one, both compiled; ``graphed`` and ``graphs`` have the same of CUDA graphs. With blocks, ``blocks``,
    ``compiled_blocks`` and ``graphed_blocks`` have how many times as fast as each of the others they are. With the
    plain model once more, ``control`` has its ratio, and the row its verdict."""
    turns = [dict(zip(laps, turn, strict=True)) for turn in zip(*laps.values(), strict=True)]
    calm = [turn for turn in turns if max(lap.lost for lap in turn.values()) <= CONTENDED]
    kept = calm if 2 * len(calm) > len(turns) else turns
    ratio = _ratio(kept, CONVERTED, over=PLAIN)
    figures: dict[str, Any] = {
        "median_ms": {name: statistics.median(turn[name].seconds for turn in kept) * 1e3 for name in laps},
        "ratio": ratio,
        "ratio_interval": ratio["interval"],
        **_against_the_best(kept, OURS, OTHERS),
        "kinds": {
            kind: _against_the_best(kept, *names)
            for kind, names in _KINDS.items()
            if all(any(name in laps for name in some) for some in names)
        },
        "steps": len(turns),
        "contention": round(statistics.mean(lap.lost for turn in kept for lap in turn.values()), 3),
    }
    if AGAIN in laps:
        control = Control.over([_ratio_of(kept, AGAIN, over=PLAIN)])
        figures["control"] = control.as_row()
        for each in (figures, *figures["kinds"].values()):
            each["verdict"] = control.verdict(each["over_best_other_interval"])
    rivals = [name for name in laps if name != AGAIN]
    if OTHER_LAYOUT in laps:
        figures["layouts"] = {OTHER_LAYOUT: _ratio(kept, OTHER_LAYOUT, over=PLAIN)}
    for of_each, of_both, way in (("compiled", "inductor", WITH_INDUCTOR), ("graphed", "graphs", WITH_GRAPHS)):
        if raced := [name for name in way.values() if name in laps]:
            figures[of_each] = {name: _ratio(kept, name, over=PLAIN) for name in raced}
        if {way[PLAIN], way[CONVERTED]} <= laps.keys():
            figures[of_both] = _ratio(kept, way[CONVERTED], over=way[PLAIN])
    ours = {"blocks": WITH_BLOCKS, **{f"{key}_blocks": way[WITH_BLOCKS] for key, way in _WAYS.items()}}
    for key, blocks in ours.items():
        if blocks in laps:
            figures[key] = {name: _ratio(kept, blocks, over=name) for name in rivals if name != blocks}
    return figures


def _seconds(turns: Sequence[Turn], name: str) -> list[float]:
    return [turn[name].seconds for turn in turns]


def _ratio_of(turns: Sequence[Turn], name: str, *, over: str) -> Ratio:
    return ratio_of(_seconds(turns, over), over=_seconds(turns, name))


def _ratio(turns: Sequence[Turn], name: str, *, over: str) -> dict[str, Any]:
    """How many times as fast as ``over`` the model is: by the medians, with its interval; and the quartiles of single
    turns."""
    ratio = _ratio_of(turns, name, over=over)
    ratios = [turn[over].seconds / turn[name].seconds for turn in turns]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"median": ratio.value, "interval": list(ratio.interval), "quartiles": [low, high]}


def _against_the_best(turns: Sequence[Turn], ours: Sequence[str], others: Sequence[str]) -> dict[str, Any]:
    """The fastest with dwconv against the fastest without."""
    medians = {name: statistics.median(_seconds(turns, name)) for name in turns[0]}
    best_ours, best_other = (
        min((name for name in names if name in medians), key=lambda name: medians[name]) for names in (ours, others)
    )
    raced = (_seconds(turns, name) for name in others if name in medians)
    over = ratio_of(*raced, over=_seconds(turns, best_ours))
    return {"best_ours": best_ours, "best_other": best_other, **over.as_row("over_best_other")}


# -- what is printed -------------------------------------------------------------------------------------------------


def table_of(row: dict[str, Any]) -> str:
    """The table of one race: every model's step against the plain one, and what it keeps."""
    lines = [
        f"{row['network']}, {row['allocator']}: at most {row['ratio']['at_most']:.2f}, goal {row['goal']:.2f}, "
        f"{row['steps']} steps",
    ]
    if "control" in row:
        (low, high), ratio = row["control"]["interval"], row["control"]["ratio"]
        lines.append(f"  control: plain against itself {ratio:.3f} ({low:.3f} to {high:.3f})")
    lines.append(f"  {'':22} {'ms':>8} {'× plain':>8} {'95 %':>14} {'middle half':>14} {'keeps MiB':>10}")
    over_plain = _over_plain(row)
    for name, ms in row["median_ms"].items():
        if name == AGAIN:
            continue
        kept = row.get("kept_bytes", {}).get(name)
        found = over_plain.get(name)
        ratio = (
            f"{found['median']:8.2f} {_span(found['interval'])} {_span(found['quartiles'])}" if found else f"{'':38}"
        )
        lines.append(f"  {name:22} {ms:8.1f} {ratio} {'' if kept is None else f'{kept / 2**20:10.1f}'}".rstrip())
    lines += [f"  {name:22} did not race: {why}" for name, why in row.get("refused", {}).items()]
    kinds = row.get("kinds", {})
    lines += [f"  {found}" for found in dict.fromkeys(map(_over_best, [row, *kinds.values()]))]
    for key, way in (("inductor", "both compiled"), ("graphs", "both as CUDA graphs")):
        if key in row:
            found = row[key]
            lines.append(f"  converted over plain, {way}: {found['median']:.2f} ({_span(found['interval']).strip()})")
    return "\n".join([*lines, *_on_gpu(row)])


def _over_best(found: dict[str, Any]) -> str:
    low, high = found["over_best_other_interval"]
    over = f"{found['best_ours']} over {found['best_other']}: {found['over_best_other']:.2f} ({low:.2f} to {high:.2f})"
    return over + (f", {found['verdict']}" if "verdict" in found else "")


def _on_gpu(row: dict[str, Any]) -> list[str]:
    """What the forward and backward pass of each model take of the host and of the GPU, and which road calls took."""
    if not row.get("on_gpu"):
        return []
    lines = [
        f"  {'forward + backward':22} {'host ms':>8} {'kernels ms':>10} {'launches':>8} {'busy':>6}  calls of layers"
    ]
    for name, each in row["on_gpu"].items():
        roads = ", ".join(f"{count} {road}" for road, count in each["roads"].items())
        figures = f"{each['host_ms']:8.2f} {each['kernels_ms']:10.2f} {each['launches']:8} {each['busy']:6.0%}"
        lines.append(f"  {name:22} {figures}  {roads}".rstrip())
    return [*lines, f"  calls that C++ can run go through {row['native']}"]


def _span(interval: Sequence[float]) -> str:
    low, high = interval
    return f"{low:6.2f} to {high:<4.2f}"


def _over_plain(row: dict[str, Any]) -> dict[str, Any]:
    """The ratio of each model over the plain one."""
    found = {CONVERTED: row["ratio"], **row.get("layouts", {}), **row.get("compiled", {}), **row.get("graphed", {})}
    return {**found, WITH_BLOCKS: row["blocks"][PLAIN]} if "blocks" in row else found


def losses_of(rows: Sequence[dict[str, Any]]) -> str:
    """Where the depthwise layers ran, and whether the losses agree."""
    lines = ["", "at most: if the depthwise convolutions of the plain step cost nothing"]
    for row in {row["network"]: row for row in rows if "failed" not in row}.values():
        layers = ", ".join(f"{count} {name}" for name, count in row["layers"].items())
        apart = row["loss_difference"]
        lines.append(f"{row['network']}: {layers}")
        others = "".join(f"{name} {value:.1e}, " for name, value in apart.items() if name not in (CONVERTED, "rounded"))
        lines.append(
            f"  largest difference from the plain loss: converted {apart[CONVERTED]:.1e}, {others}"
            f"by one rounding alone {apart['rounded']:.1e}"
        )
    return "\n".join(lines)
