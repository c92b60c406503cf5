"""``python -m dwconv.tune``: find the fastest configuration of a depthwise convolution on a device.

``dwconv.tune(model, example_inputs)`` does the same for the layers of a model: this module can be called.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dwconv.commands.command_line import INTERRUPTED_EXIT_CODE, run
from dwconv.commands.tune_arguments import (
    asks_for_both_gradients,
    at_any_size,
    check_together,
    cores,
    input_shapes,
    model_input,
    parser_of_tune,
    workloads_from,
)
from dwconv.commands.workload_arguments import with_arithmetic
from dwconv.errors import InvalidArgument, say
from dwconv.system import given
from dwconv.system.versions import check_can_build

if TYPE_CHECKING:
    from torch import nn

    from dwconv.problems.target import Target
    from dwconv.problems.workload import Workload
    from dwconv.tuner.campaign_result import Tuned, TunedDevices
    from dwconv.tuner.user_choices import UserChoices

NOTHING_WORKED_EXIT_CODE = 1
NO_NODE_EXIT_CODE = 1


def tune(
    model: nn.Module,
    example_inputs: Any,
    *,
    minutes: float | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    until: float | None = None,
    trains: bool | None = None,
    log: Path | str | None = None,
    ray: bool | str = False,
) -> Tuned | TunedDevices:
    """Tune every pass of every depthwise layer that ``model`` runs on an example, on the device that it is on.

    ``example_inputs`` and ``trains`` are those of ``dwconv.discovery.discover``: a tensor, a tuple of arguments or a
    dict of keyword arguments; the backward pass is tuned if the model trains. The model is not changed. ``minutes`` are
    for all layers: each gets a share by its expected gain, and confirmed passes are left out. ``trials`` and
    ``seconds`` are for each pass. A pass is over, too, at the share ``until`` of the device's limit, or where further
    trials are expected to gain less than 1 % of a step and 1 − ``until`` of the pass. ``log`` is written instead of the
    user's own. Progress goes to stderr.

    ``ray``: on all devices of the Ray cluster at this address; True for the one that this machine belongs to, or for
    the devices of this machine. Devices of each name are tuned separately.

    Calls in this process use the kernels found. The result prints as the table of the command. Ctrl-C raises
    KeyboardInterrupt; what was measured is kept, and the same call goes on from there.

    Raises InvalidArgument and InvalidChoice for arguments that make no sense, InvalidWorkload if no depthwise
    convolution ran, BrokenInstallation without TVM, or without Ray where that is
    requested, NoDevice if no node of it can tune.
    """
    check_can_build()  # first: what is imported next may be missing, too
    from dwconv.call.process_decisions import reset
    from dwconv.commands.tune_model import counts_and_target
    from dwconv.records.log import TuningLog
    from dwconv.tuner.campaign import tune_all
    from dwconv.tuner.cluster.on_ray import check_ray_is_here
    from dwconv.tuner.user_choices import UserChoices

    path = None if log is None else given.path("log", log)
    if not isinstance(ray, (str, bool)):
        raise InvalidArgument(f"ray={given.shown(ray)} is not an address; give a str such as 10.0.0.1:6379, or True")
    choices = UserChoices(minutes=minutes, trials=trials, seconds=seconds, until=until, jobs=cores(), log=path)
    if path is not None:
        TuningLog(path)  # checked first: a step of the model may take long
    if ray is not False:
        check_ray_is_here()
    counts, target = counts_and_target(model, example_inputs, trains=trains)
    if ray is not False:
        tuned: Tuned | TunedDevices = _on_ray(counts, ray, target="auto", choices=choices, network=True)
    else:
        tuned = tune_all(counts, target, choices, network=True)
    reset()
    if tuned.interrupted:
        raise KeyboardInterrupt
    if ray is False:
        _build_fastest(counts, target, log=path)
    return tuned


def _build_fastest(workloads: Iterable[Workload], target: Target, *, log: Path | None) -> None:
    """Calls have what was found from the first, here and in the next process that reads the ``log``."""
    from dwconv.call.background_builds import build_fastest
    from dwconv.problems.target import CpuTarget
    from dwconv.records.database import Database

    if isinstance(target, CpuTarget) and target.present:
        known = Database.behind_log(log, alone=True) if log else None
        build_fastest(workloads, target, threads=target.threads, known=known)


class _CallableModule(ModuleType):
    """``dwconv.tune`` is the name of the command's module and of the function: importing the one would hide the
    other. So the module is both."""

    __call__ = staticmethod(tune)


sys.modules[__name__].__class__ = _CallableModule


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0, 1 if no candidate of any pass worked, 2 for bad input, 130 after ctrl-C."""
    return run(_tune, argv)


def _tune(argv: list[str] | None) -> int:
    parser = parser_of_tune()
    args = parser.parse_args(argv)
    check_together(parser, args)
    check_can_build()
    input_shape = model_input(parser, args)
    counts: Mapping[Workload, int] = {} if input_shape else workloads_from(parser, args)

    from dwconv.records.log import TuningLog

    if args.log:
        TuningLog(args.log)  # checked first: the target needs an import of PyTorch
    if args.ray is not None:
        from dwconv.tuner.cluster.on_ray import check_ray_is_here

        check_ray_is_here()

    from dwconv.problems.target import parse_target

    # On a cluster the target is that of the nodes; this machine only runs the model.
    target = parse_target("auto") if args.ray is not None else with_arithmetic(args, parse_target(args.target))
    choices = _choices(args)
    if input_shape:
        from dwconv.commands.tune_model import counts_of

        of_sizes = [counts_of(args, target, shape) for shape in input_shapes(input_shape, args.sizes)]
        counts = at_any_size(of_sizes) if args.sizes else of_sizes[0]

    network = bool(args.network or args.layers or args.model)
    if args.ray is None:
        from dwconv.tuner.campaign import tune_all

        tuned: Tuned | TunedDevices = tune_all(counts, target, choices, network=network)
    else:
        tuned = _on_ray(
            counts, args.ray or True, target=args.target, fast_math=args.fast_math, choices=choices, network=network
        )
    _print(args, tuned)
    if args.ray is None and not tuned.interrupted:
        from dwconv.call.process_decisions import reset

        reset()
        _build_fastest(counts, target, log=args.log)
    if tuned.interrupted:
        say("interrupted: run the same command to continue")
        return INTERRUPTED_EXIT_CODE
    if tuned.lost:
        return NO_NODE_EXIT_CODE
    if tuned.left:
        say(f"time is up, {tuned.left} passes are left: run the same command to continue")
    return 0 if tuned.worked else NOTHING_WORKED_EXIT_CODE


def _on_ray(
    counts: Mapping[Workload, int],
    address: str | bool,
    *,
    target: str,
    choices: UserChoices,
    network: bool,
    fast_math: bool = False,
) -> TunedDevices:
    """Tune on the devices of a cluster. Builds take the cores of a node, not as many as there are here."""
    from dwconv.tuner.cluster.driver import tune_on
    from dwconv.tuner.cluster.node import Setup
    from dwconv.tuner.cluster.on_ray import RayCluster

    jobs = None if choices.jobs == cores() else choices.jobs
    setup = Setup(target=target, fast_math=fast_math, choices=choices, jobs=jobs)
    with RayCluster(None if address is True else str(address), kind=target.partition(":")[0]) as cluster:
        return tune_on(cluster, counts, setup, network=network)


def _choices(args: argparse.Namespace) -> UserChoices:
    from dwconv.tuner.user_choices import UserChoices

    return UserChoices(
        search=args.search,
        trials=args.trials,
        seconds=args.seconds,
        minutes=args.minutes,
        patience=args.patience,
        until=args.until,
        seed=args.seed,
        jobs=args.jobs,
        caches=args.caches,
        both_gradients=asks_for_both_gradients(args),
        log=args.log,
        resume=not args.no_resume,
    )


def _print(args: argparse.Namespace, tuned: Tuned | TunedDevices) -> None:
    from dwconv.tuner.campaign_result import busy_note

    print(json.dumps(tuned.as_data()) if args.json else tuned)
    if note := busy_note(tuned.outcomes):
        say(note)


if __name__ == "__main__":
    sys.exit(main())
