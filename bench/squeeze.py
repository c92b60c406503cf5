"""``python -m bench squeeze``: how much of a training step with fused blocks squeeze-and-excite takes.

    block ─► z ─┬─► mean ─► two small convolutions ─► gate ─┐
                └───────────────────────────────────────────┴─► z · gate ─► the next convolution

A block could give the mean, or store z · gate: then passes over images go. No such block is faster than a step without
squeeze-and-excite, which also leaves out what stays, the small convolutions and one of the passes. Steps are taken in
turns, from the same weights.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from bench.blocks import kept_bytes
from bench.evidence import Control, ratio_of
from bench.models import Network
from bench.networks import add_size_arguments, image_for, memory_format_of, network_of
from bench.paired_steps import converted_copy, lap_of, step_of, take_turns
from bench.results import MachineWatch, add_log_argument, add_out_argument, name_part, read_alone, write_results
from bench.rows_and_volumes import SqueezeExcite
from dwconv import native
from dwconv.commands.command_line import ArgumentParser, whole
from dwconv.errors import InvalidChoice
from dwconv.problems.target import cpu_target

WITH, WITHOUT, AGAIN = "with", "without", "again"
"""Steps with squeeze-and-excite, without it, and with it once more, as a control."""
_WARM_UP = 3


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench squeeze", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="MobileNetV3-Large", help="of bench.models; default MobileNetV3-Large")
    add_size_arguments(parser)
    parser.add_argument("--steps", type=whole, default=20, help="steps whose time counts, default 20")
    add_log_argument(parser)
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    read_alone(arguments.log)
    network = network_of(arguments.model, batch=arguments.batch, image=arguments.image)
    target = cpu_target()
    machine = MachineWatch(threads=target.threads)
    native.native()  # compiled here if need be, not in the middle of what is timed
    row = row_of(network, steps=arguments.steps)
    print(line_of(row))
    facts = {"machine": machine.facts([row])}
    write_results(f"squeeze-{name_part(network.name)}", target=target, rows=[row], folder=arguments.out, **facts)
    return 0


def row_of(network: Network, *, steps: int) -> dict[str, Any]:
    """Raises InvalidChoice for a network without squeeze-and-excite."""
    torch.manual_seed(0)
    image = image_for(network, contiguous=False)
    plain = network.make().train().to(memory_format=memory_format_of(network, contiguous=False))  # type: ignore[call-overload]
    bare = copy.deepcopy(plain)
    if not (count := leave_out(bare)):
        raise InvalidChoice(f"--model {network.name} has no bench.rows_and_volumes.SqueezeExcite; name one that has")
    models = {name: converted_copy(plain, image, blocks=True) for name in (WITH, AGAIN)}
    models[WITHOUT] = converted_copy(bare, image, blocks=True)
    laps_of = {name: lap_of(step_of(model), image) for name, model in models.items()}
    for lap in laps_of.values():
        for _ in range(_WARM_UP):
            lap()
    laps = take_turns(laps_of, count=steps)
    seconds = {name: [lap.seconds for lap in taken] for name, taken in laps.items()}
    control = Control.over([ratio_of(seconds[WITH], over=seconds[AGAIN])])
    at_most = ratio_of(seconds[WITH], over=seconds[WITHOUT])
    return {
        "network": network.name,
        "batch": network.batch,
        "squeeze_excites": count,
        "median_ms": {name: statistics.median(taken) * 1e3 for name, taken in seconds.items()},
        **at_most.as_row("at_most"),
        "verdict": control.verdict(at_most.interval),
        "control": control.as_row(),
        "kept_bytes": {name: kept_bytes(models[name], image) for name in (WITH, WITHOUT)},
        "contention": round(statistics.mean(lap.lost for taken in laps.values() for lap in taken), 3),
    }


def leave_out(model: nn.Module) -> int:
    """Lets each squeeze-and-excite give what it is given; returns how many there are."""
    found = [name for name, module in model.named_modules() if isinstance(module, SqueezeExcite)]
    for name in found:
        model.set_submodule(name, nn.Identity())
    return len(found)


def line_of(row: dict[str, Any]) -> str:
    taken, kept, (low, high) = row["median_ms"], row["kept_bytes"], row["at_most_interval"]
    return (
        f"{row['network']}, batch {row['batch']}, {row['squeeze_excites']} squeeze-and-excites: a step with blocks "
        f"{taken[WITH]:.1f} ms, without them {taken[WITHOUT]:.1f} ms: at most {row['at_most']:.2f} ({low:.2f} to "
        f"{high:.2f}) times as fast, {row['verdict']}; keeps {kept[WITHOUT] / kept[WITH]:.2f} of the memory"
    )
