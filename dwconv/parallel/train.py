"""``torchrun … -m dwconv.parallel train``: trains a model on data, on stages and replicas as a plan has it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import warnings
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from dwconv import convert
from dwconv.commands.command_line import (
    ArgumentParser,
    above_0,
    from_0,
    integers,
    named_path,
    whole,
    whole_from_0,
    writable_file,
)
from dwconv.errors import DwconvWarning, InvalidChoice, NoPlan
from dwconv.model.by_name import load_model
from dwconv.parallel.joining import ParserOfRanks, Rank, agreed, check_same, made_on_all, ranks, run_on_ranks
from dwconv.parallel.pipeline.pipeline import TIMEOUT_S
from dwconv.parallel.plan import add_pipeline, trace_file
from dwconv.parallel.planning.for_ranks import LINK, check_batch, plan_for_ranks
from dwconv.parallel.planning.measured_link import measured_link
from dwconv.parallel.planning.pipeline_plan import Plan, read_plan, write_plan
from dwconv.parallel.planning.simulated_step import simulate_step
from dwconv.parallel.planning.trace_events import write_timeline
from dwconv.parallel.training.batches import Batches
from dwconv.parallel.training.checkpoints import Checkpoints
from dwconv.parallel.training.datasets import DIGITS, Data, load_data
from dwconv.parallel.training.epochs import Epoch, TrainingRun
from dwconv.parallel.training.forms import (
    DataParallelTrainer,
    PipelineTrainer,
    Trainer,
    classes_of,
    is_data_parallel,
)
from dwconv.parallel.training.progress import StepsDone
from dwconv.system.new_file import replace_file

_MADE_UP_BATCHES, _MADE_UP_STEPS = 4, 10
_EPOCHS, _BATCH, _MEASURE_S = 5, 64, 10.0
_WATCHED = 3
"""The step of a timeline, counted from where a run begins or goes on: in the first the order of gradients is learnt."""


def main(argv: Sequence[str]) -> int:
    return run_on_ranks(_train, list(argv))


def _train(argv: list[str] | None) -> int:
    arguments = parser_of_train().parse_args(argv)
    with ranks(timeout_s=arguments.timeout) as rank, warnings.catch_warnings():
        if not rank.is_first:
            warnings.simplefilter("ignore", DwconvWarning)
        run, plan = _prepared(arguments, rank)
        if rank.is_first:
            print(_stages_of(plan), flush=True)
        _run(run, plan, arguments, rank)
    return 0


# -- what is trained -------------------------------------------------------------------------------------------------


def _prepared(arguments: argparse.Namespace, rank: Rank) -> tuple[TrainingRun, Plan]:
    torch.manual_seed(arguments.seed)
    data, size = made_on_all(lambda: _data(arguments))
    held_out = 0 if data.held_out is None else len(data.held_out)
    check_same([f"{len(data.train)} images to train on", f"{held_out} held out"], what="data")
    model = made_on_all(lambda: load_model(arguments.model)).to(rank.device).train()
    if arguments.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    whole_batch = _first_batch(data, size, arguments, rank)
    check_batch(whole_batch, microbatches=arguments.microbatches or 1)
    if arguments.blocks:  # a norm that waits for other ranks is in no block
        model = convert(model, whole_batch[: max(1, size // rank.world)], blocks=False if arguments.sync_bn else None)
    elif arguments.convert:
        model = convert(model)
    checkpoints = None if arguments.checkpoint is None else Checkpoints(arguments.checkpoint, about=_about(arguments))
    plan = _plan(model, whole_batch, arguments)
    check_batch(whole_batch, microbatches=plan.parts)
    classes = classes_of(model, whole_batch[: size // plan.parts])
    if arguments.input:
        data = _with_classes(data, classes)
    trainer = _trainer(model, plan, whole_batch, arguments)
    batches = Batches(
        data.train, size=size, share=trainer.share, device=rank.device, seed=arguments.seed,
        workers=arguments.workers, channels_last=arguments.channels_last,
    )  # fmt: skip
    steps = batches.steps * arguments.epochs
    if arguments.steps or arguments.input:
        steps = arguments.steps or _MADE_UP_STEPS
    run = TrainingRun(
        trainer=trainer, batches=batches, held_out=data.held_out, steps=steps, rate=arguments.rate,
        seed=arguments.seed, checkpoints=checkpoints, save_every=arguments.checkpoint_steps,
        watched=_WATCHED if arguments.timeline else -1,
    )  # fmt: skip
    return run, plan


def _data(arguments: argparse.Namespace) -> tuple[Data, int]:
    """The images, and how many of them are in a batch."""
    if arguments.input is None:
        return load_data(arguments.data or DIGITS, size=arguments.size), arguments.batch or _BATCH
    for name in ("data", "batch", "size"):
        if getattr(arguments, name) is not None:
            raise InvalidChoice(f"--input makes images up, of its sizes; leave out --{name}, or --input")
    shape = integers("input", arguments.input)
    if len(shape) != 4 or min(shape) < 1:
        raise NoPlan(f"input={arguments.input} is not four sizes N,C,H,W from 1")
    images = torch.randn((_MADE_UP_BATCHES * shape[0], *shape[1:]))
    classes = torch.zeros(len(images), dtype=torch.int64)
    return Data(name="made-up images", train=TensorDataset(images, classes), held_out=None), shape[0]


def _with_classes(data: Data, classes: int) -> Data:
    """Made-up images of all the classes, drawn alike on all ranks."""
    numbers = torch.Generator().manual_seed(0)
    images: Tensor = data.train.tensors[0]  # type: ignore[attr-defined]
    drawn = torch.randint(0, classes, (len(images),), generator=numbers)
    return Data(name=data.name, train=TensorDataset(images, drawn), held_out=None)


def _first_batch(data: Data, size: int, arguments: argparse.Namespace, rank: Rank) -> Tensor:
    """Images of a whole batch, as they come; on every rank."""
    batches = Batches(
        data.train, size=size, share=lambda numbers: numbers, device=rank.device, seed=arguments.seed,
        channels_last=arguments.channels_last,
    )  # fmt: skip
    return next(iter(batches.of_epoch(0)))[0]


def _plan(model: nn.Module, batch: Tensor, arguments: argparse.Namespace) -> Plan:
    kept = None if arguments.checkpoint is None else arguments.checkpoint / "plan.json"
    if file := arguments.plan or (kept if kept and agreed(kept.exists) else None):
        return agreed(lambda: read_plan(file))
    link = measured_link(device=batch.device) if dist.get_world_size() > 1 else LINK
    found = plan_for_ranks(
        model, batch, schedule=arguments.schedule, stages=arguments.stages, replicas=arguments.replicas,
        microbatches=arguments.microbatches, link=link, sync_bn=arguments.sync_bn,
    )  # fmt: skip
    if kept is not None:
        agreed(lambda: write_plan(found, kept))
    return found


def _trainer(model: nn.Module, plan: Plan, batch: Tensor, arguments: argparse.Namespace) -> Trainer:
    if is_data_parallel(plan) and plan.world == dist.get_world_size():
        if arguments.timeline:
            raise NoPlan("--timeline shows a step of a pipeline, and the plan is data parallelism; give --stages 2")
        share = batch[: len(batch) // plan.world]
        return DataParallelTrainer(
            model, share, synchronises=arguments.sync_bn, measure_s=arguments.measure if plan.world > 1 else 0.0
        )
    share = batch[: len(batch) // plan.replicas]
    return PipelineTrainer(
        model, plan, share, sync_bn=arguments.sync_bn, measure_s=arguments.measure, timeout_s=arguments.timeout
    )


def _about(arguments: argparse.Namespace) -> dict[str, str]:
    """What must be the same for a run to go on."""
    names = ("model", "data", "input", "batch", "size", "seed", "rate", "sync_bn")
    return {f"--{name.replace('_', '-')}": str(getattr(arguments, name)) for name in names}


# -- steps -----------------------------------------------------------------------------------------------------------


def _run(run: TrainingRun, plan: Plan, arguments: argparse.Namespace, rank: Rank) -> None:
    done = run.resume()
    if rank.is_first and done:
        print(f"goes on after step {done}", flush=True)
    if run.watched > 0:
        run.watched = min(done + _WATCHED, run.steps)

    def on_step(step: int, loss: float) -> None:
        if rank.is_first and arguments.input:
            print(f"step {step:3}   loss {loss:.4f}   {1e3 * run.times_s[-1]:9.1f} ms", flush=True)
        if step == run.watched and isinstance(run.trainer, PipelineTrainer):
            measured = run.trainer.pipeline.timeline()
            if rank.is_first:
                write_timeline({"measured": measured, "simulated": simulate_step(plan).events}, arguments.timeline)
                print(f"timeline: {arguments.timeline}", flush=True)

    epochs = []
    with StepsDone(run.steps, shows=rank.is_first and not arguments.input) as progress:
        for epoch in run.epochs(progress, on_step):
            epochs.append(epoch)
            if rank.is_first and not arguments.input:
                print(_line(epoch, -(-run.steps // run.batches.steps)), flush=True)
            if rank.is_first and arguments.json:
                figures = json.dumps({"epochs": [dataclasses.asdict(each) for each in epochs]}, indent=1)
                replace_file(arguments.json, [figures.encode(), b"\n"], durable=False)
    if rank.is_first and len(run.times_s) > 1:
        print(_summary(run, plan), flush=True)


# -- what is printed -------------------------------------------------------------------------------------------------


def _stages_of(plan: Plan) -> str:
    lines = [
        f"{plan.on} ranks ({'pipeline × data' if plan.is_even else 'of each stage'}), {plan.schedule}, {plan.parts} "
        "microbatches"
    ]
    for number, stage in enumerate(plan.stages):
        ranks = plan.ranks(number % plan.groups)
        on = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
        names = [layer.name for layer in plan.layers[stage.first : stage.last]]
        lines.append(f"stage {number} on {on}: {names[0]}" + (f" to {names[-1]}" if len(names) > 1 else ""))
    return "\n".join(lines)


def _line(epoch: Epoch, epochs: int) -> str:
    held_out = "" if epoch.held_out is None else f"   held out {epoch.held_out:6.1%}"
    return (
        f"epoch {epoch.number:3} of {epochs}   loss {epoch.loss:.4f}   accuracy {epoch.accuracy:6.1%}{held_out}   "
        f"{epoch.seconds:.1f} s"
    )


def _summary(run: TrainingRun, plan: Plan) -> str:
    """Of this rank, without the first step."""
    step_s, simulated_s = statistics.median(run.times_s[1:]), simulate_step(plan).step_us / 1e6
    return (
        f"median of {len(run.times_s) - 1} steps: {1e3 * step_s:.1f} ms, {run.batches.size / step_s:.1f} images a "
        f"second; {run.trainer.summary()}; simulated {1e3 * simulated_s:.1f} ms ({simulated_s / step_s - 1:+.0%})"
    )


# -- the command line --------------------------------------------------------------------------------------------------


def parser_of_train() -> ArgumentParser:
    """The parser of the command."""
    parser = ParserOfRanks(
        prog="python -m dwconv.parallel train",
        description="Train a model from images to (N, classes), its layers spread over pipeline stages and each stage "
        "over replicas, or whole on every rank: started by torchrun, or alone.",
        epilog="Without --plan, --stages and --replicas the ranks time the layers, and the form with the shortest "
        "simulated step is taken.",
    )
    parser.add_argument(
        "--model", required=True, metavar="SPEC",
        help="timm:NAME, torchvision:NAME, transformers:NAME, or package.module:factory; random weights",
    )  # fmt: skip
    parser.add_argument(
        "--data", metavar="SPEC",
        help="digits, the default: handwritten ones of scikit-learn; a folder of folders of images; or "
        "package.module:factory of a Dataset of (image, class), or of a pair: to train on, and held out",
    )  # fmt: skip
    parser.add_argument(
        "--input", metavar="N,C,H,W", help="train on made-up images instead: shape of the whole batch of a step"
    )
    parser.add_argument("--channels-last", action="store_true", help="model and images are channels_last")
    add_pipeline(parser)
    parser.add_argument("--convert", action="store_true", help="convert depthwise layers first")
    parser.add_argument(
        "--blocks", action="store_true",
        help="the same on a first batch: known kernels are raced, a minute at most, and blocks fused where that is "
        "faster",
    )  # fmt: skip
    parser.add_argument(
        "--sync-bn", action="store_true", help="batch normalisation with the statistics of all replicas"
    )
    for name, kind, default, meta, told in (
        ("plan", named_path, None, "FILE", "that python -m dwconv.parallel plan --json wrote"),
        ("replicas", whole, None, "R", "of every stage, default any"),
        ("batch", whole, None, "N", f"images of a step, on all ranks together, default {_BATCH}"),
        ("size", whole, None, "N", "height and width of images, default 32 for digits, 224 for a folder"),
        ("workers", whole_from_0, 0, "N", "processes of a rank that load images, default 0"),
        ("epochs", whole, _EPOCHS, "N", f"default {_EPOCHS}"),
        ("steps", whole, None, "N", f"instead of epochs; default {_MADE_UP_STEPS} on made-up images"),
        ("rate", above_0, 0.01, "X", "learning rate, default 0.01"),
        ("seed", whole_from_0, 0, "N", "of parameters and of the order of images, default 0"),
        ("measure", from_0, _MEASURE_S, "S", "seconds to measure ways to send gradients to replicas, "
                                             f"default {_MEASURE_S:g}; 0 for PyTorch's own"),
        ("checkpoint", named_path, None, "FOLDER", "write checkpoints there, and go on from them"),
        ("checkpoint-steps", whole, 1, "N", "steps between checkpoints, default 1"),
        ("json", writable_file, None, "FILE", "write loss and accuracy of each epoch"),
        ("timeline", trace_file, None, "PREFIX", "write a step, measured and simulated, to PREFIX.json, for Perfetto"),
        ("timeout", above_0, TIMEOUT_S, "S", f"seconds to wait for another rank, default {TIMEOUT_S:g}"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=kind, default=default, metavar=meta, help=told)
    return parser
