"""``python -m bench convergence``: whether a network learns the same in every form of training.

The command of users, ``dwconv.parallel train``, trains a ResNet on scikit-learn's handwritten digits, from several
seeds: in one process, data-parallel on two ranks, as two stages, and as a hybrid of 2 + 1 ranks. All forms have the
same batches in the same order. Batch normalisation has the images of a microbatch, or of a rank's share: forms differ
in what they compute, and their accuracies must not differ by more than those of seeds do.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from bench.links import LOOPBACK, run_ranks
from bench.models import resnet
from bench.results import add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, whole, writable_file
from dwconv.parallel.planning.pipeline_plan import LayerCost, Link, Plan, Stage, write_plan
from dwconv.problems.target import cpu_target
from dwconv.system.new_file import replace_file

FORMS: Mapping[str, tuple[int, ...]] = {
    "one process": (1,),
    "data parallelism, 2 ranks": (2,),
    "2 stages": (1, 1),
    "hybrid, 2 + 1 ranks": (2, 1),
}
"""By name, the replicas of each stage."""
_BATCH, _MICROBATCHES, _SIZE, _RATE = 48, 2, 8, 0.01
_TIMEOUT_S = 3600.0


def network() -> nn.Module:
    """ResNet-18 for small images."""
    return resnet("ResNet-18", classes=10, small_images=True)


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench convergence", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    parser.add_argument("--epochs", type=whole, default=8, help="of each run, default 8")
    parser.add_argument("--seeds", type=whole, default=3, help="starts, default 3")
    parser.add_argument("--draw", type=writable_file, metavar="FILE", help="write the curves as an SVG")
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    rows = []
    for seed in range(arguments.seeds):
        for form in FORMS:
            epochs = trained(form, seed=seed, epochs=arguments.epochs)
            rows.append({"name": form, "seed": seed, "epochs": epochs})
            last = epochs[-1]
            print(f"seed {seed}  {form:26} loss {last['loss']:.4f}  held out {last['held_out']:6.1%}", flush=True)
    print(summed_up(rows))
    facts = {"network": "ResNet-18", "data": f"digits, {_SIZE}²", "batch": _BATCH, "rate": _RATE}
    write_results("convergence", target=cpu_target(), rows=rows, folder=arguments.out, **facts)
    if arguments.draw:
        replace_file(arguments.draw, [drawn(rows).encode()], durable=False)
    return 0


def trained(form: str, *, seed: int, epochs: int) -> list[dict[str, Any]]:
    """The figures of each epoch, on ranks of one thread each."""
    counts = FORMS[form]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_plan(plan(counts), folder / "plan.json")
        options = ["--model", "bench.convergence:network", "--size", _SIZE, "--batch", _BATCH, "--rate", _RATE]
        options += ["--epochs", epochs, "--seed", seed, "--measure", 0, "--plan", folder / "plan.json"]
        command = ["-m", "dwconv.parallel", "train", *map(str, options), "--json", str(folder / "epochs.json")]
        run_ranks(command, name=form, world=sum(counts), rate=LOOPBACK, timeout_s=_TIMEOUT_S)
        return json.loads((folder / "epochs.json").read_text(encoding="utf-8"))["epochs"]


def plan(counts: Sequence[int]) -> Plan:
    """The network cut in half; one stage takes a rank's share of the batch at once. Times play no part."""
    ends = [_LAYERS] if len(counts) == 1 else [_LAYERS // 2, _LAYERS]
    layer = LayerCost(
        name="layer", forward_us=1, dgrad_us=1, wgrad_us=1, output_bytes=1, saved_bytes=1, parameter_bytes=1
    )
    return Plan(
        layers=(layer,) * _LAYERS,
        stages=tuple(
            Stage(first=first, last=last, replicas=count)
            for first, last, count in zip([0, *ends[:-1]], ends, counts, strict=True)
        ),
        microbatches=1 if len(counts) == 1 else _MICROBATCHES // counts[0],
        schedule="1f1b",
        link=Link(gb_s=1, latency_us=50),
    )


_LAYERS = 14
"""Pieces of the network."""


def summed_up(rows: Sequence[Mapping[str, Any]]) -> str:
    """Each form's accuracy in the end, against how far seeds are apart in one process."""
    by_form: dict[str, list[float]] = {form: [] for form in FORMS}
    for row in rows:
        by_form[row["name"]].append(row["epochs"][-1]["held_out"])
    alone = by_form["one process"]
    lines = [f"one process: held out {statistics.mean(alone):.1%}, {min(alone):.1%} to {max(alone):.1%} by seed"]
    for form, found in list(by_form.items())[1:]:
        apart = statistics.mean(found) - statistics.mean(alone)
        lines.append(f"{form}: held out {statistics.mean(found):.1%}, {100 * apart:+.1f} points from one process")
    return "\n".join(lines)


# -- curves ------------------------------------------------------------------------------------------------------------


_WIDTH, _HEIGHT, _EDGE = 640, 300, 46
_COLOURS = ("#15517f", "#9c1c2e", "#1c6038", "#6e5000")


def drawn(rows: Sequence[Mapping[str, Any]]) -> str:
    """The accuracy on what is held out, by epoch: a line for each seed of a form."""
    epochs = max(len(row["epochs"]) for row in rows)
    low = min(epoch["held_out"] for row in rows for epoch in row["epochs"])
    low = min(0.95, int(10 * low) / 10)

    def at(number: int, accuracy: float) -> str:
        x = _EDGE + (_WIDTH - 2 * _EDGE) * (number - 1) / max(1, epochs - 1)
        return f"{x:.1f},{_HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * (accuracy - low) / (1 - low):.1f}"

    parts = []
    for percent in range(round(100 * low), 101, 10 if low < 0.8 else 5):
        (x, y), (end, _) = at(1, percent / 100).split(","), at(epochs, percent / 100).split(",")
        parts.append(f'<line x1="{x}" x2="{end}" y1="{y}" y2="{y}" stroke="#bbb"/>')
        parts.append(f'<text x="{_EDGE - 6}" y="{y}" text-anchor="end" dominant-baseline="middle">{percent} %</text>')
    for number in range(1, epochs + 1):
        x, _ = at(number, low).split(",")
        parts.append(f'<text x="{x}" y="{_HEIGHT - _EDGE + 18}" text-anchor="middle">{number}</text>')
    for place, (form, colour) in enumerate(zip(FORMS, _COLOURS, strict=True)):
        for row in rows:
            if row["name"] == form:
                points = " ".join(at(each["number"], each["held_out"]) for each in row["epochs"])
                parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{_EDGE + 150 * place}" y="{_EDGE - 22}" fill="{colour}">{form}</text>')
    text = f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">epoch; accuracy on images held out</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">\n'
        '<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join([*parts, text]) + "\n</svg>\n"
    )
