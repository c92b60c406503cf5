"""``python -m dwconv.parallel plan``: stages and replicas for a model, by the times of its layers on this machine."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor, nn

from dwconv.commands.command_line import run
from dwconv.errors import DwconvWarning, NoDevice
from dwconv.model.by_name import load_model
from dwconv.parallel.plan_arguments import PlanRequest, parser_of_plan, request_from
from dwconv.parallel.planning.compare import Candidate, Proposal, propose
from dwconv.parallel.planning.costs import layer_costs
from dwconv.parallel.planning.pieces import pieces
from dwconv.parallel.planning.plan import LayerCost
from dwconv.parallel.planning.plan_files import write_plan
from dwconv.parallel.planning.plan_text import print_proposal
from dwconv.parallel.planning.timeline import draw_timeline, timeline_files, write_chrome_trace
from dwconv.system.threads import on_threads

_WIDTH = 120
"""Columns where no terminal says how many there are."""


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0, 2 for bad input, 130 after ctrl-C."""
    return run(_plan, argv)


def _plan(argv: list[str] | None) -> int:
    request = request_from(parser_of_plan().parse_args(argv))
    timeline = timeline_files(request.timeline) if request.timeline else None
    with on_threads(request.threads or torch.get_num_threads()):
        proposal = _measured(request)
    width = None if sys.stdout.isatty() else _WIDTH
    print_proposal(proposal, Console(highlight=False, width=width))
    if request.json:
        _write(proposal, request, request.json)
    if timeline:
        _draw(_asked_for(proposal, request), *timeline)
    return 0


def _measured(request: PlanRequest) -> Proposal:
    device = _device(request.device)
    model = load_model(request.model).train().to(device)
    if request.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    cut = pieces(model, _made_up(request, request.microbatch_shape, device))
    share_shape = request.share_shape
    is_apart = share_shape is not None and share_shape != request.microbatch_shape
    seconds = request.seconds / 2 if is_apart else request.seconds
    layers = _costs(request, cut, request.microbatch_shape, device=device, seconds=seconds)
    on_whole_share = None
    if share_shape is not None:
        on_whole_share = _costs(request, cut, share_shape, device=device, seconds=seconds) if is_apart else layers
    return propose(layers, request.cluster, request.shape, on_whole_share=on_whole_share)


def _costs(
    request: PlanRequest, cut: nn.Sequential, shape: tuple[int, ...], *, device: torch.device, seconds: float
) -> tuple[LayerCost, ...]:
    sizes = "×".join(map(str, shape))
    print(f"note: timing {len(cut)} layers on {sizes}, on {device.type}, for {seconds:g} s", file=sys.stderr)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", DwconvWarning)
        costs = layer_costs(cut, _made_up(request, shape, device), seconds=seconds)
    for each in said:
        print(f"note: {each.message}", file=sys.stderr)
    return costs


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise NoDevice("device=cuda: PyTorch finds no GPU here; use --device cpu, or run it where there is one")
    return torch.device("cuda" if torch.cuda.is_available() and name != "cpu" else "cpu")


def _made_up(request: PlanRequest, shape: tuple[int, ...], device: torch.device) -> Tensor:
    images = torch.randn(shape, device=device)
    return images.to(memory_format=torch.channels_last) if request.channels_last else images


def _write(proposal: Proposal, request: PlanRequest, path: Path) -> None:
    """Write the best plan that can be run: of the pipelines, if their stages were asked for."""
    can_run = [each for each in proposal.candidates if each.plan.is_even]
    if wanted := [each for each in can_run if request.shape.stages == len(each.plan.stages)]:
        can_run = wanted
    if not can_run:
        print(f"note: {path} is not written: no plan here can be run", file=sys.stderr)
        return
    write_plan(can_run[0].plan, path)
    print(f"plan: {can_run[0].name}: {path}")


def _asked_for(proposal: Proposal, request: PlanRequest) -> Candidate:
    """The best of so many stages as were asked for; else the best of all."""
    wanted = [each for each in proposal.candidates if request.shape.stages == len(each.plan.stages)]
    return wanted[0] if wanted else proposal.best


def _draw(candidate: Candidate, trace: Path, picture: Path) -> None:
    write_chrome_trace(candidate.step.events, trace)
    print(f"timeline: {trace}")
    draw_timeline(candidate.step.events, picture, title=f"One step of {candidate.name}, simulated")
    print(f"timeline: {picture}")


if __name__ == "__main__":
    sys.exit(main())
