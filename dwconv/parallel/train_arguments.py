"""The command line of ``python -m dwconv.parallel train``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from dwconv.commands.command_line import ArgumentParser, above_0, whole
from dwconv.parallel.agreement import ParserOfRanks
from dwconv.parallel.pipeline.pipeline import TIMEOUT_S, BatchNorm
from dwconv.parallel.pipeline.ranks_plan import LINK, MICROBATCHES_A_RANK
from dwconv.parallel.planning.orders import SCHEDULES


def parser_of_train() -> ArgumentParser:
    """The parser of the command."""
    parser = ParserOfRanks(
        prog="python -m dwconv.parallel train",
        description="Train a model on made-up images, its layers spread over pipeline stages and each stage over "
        "replicas: started by torchrun, or alone.",
        epilog="Without --plan the first rank times the layers and cuts them into stages.",
    )
    _add_model(parser)
    _add_plan(parser)
    training = parser.add_argument_group("training")
    training.add_argument("--steps", type=whole, default=10, metavar="N", help="default 10")
    training.add_argument("--rate", type=above_0, default=0.01, metavar="X", help="learning rate, default 0.01")
    training.add_argument("--seed", type=int, default=0, metavar="N", help="of parameters and images, default 0")
    training.add_argument(
        "--timeout",
        type=above_0,
        default=TIMEOUT_S,
        metavar="S",
        help=f"seconds to wait for another rank before all end, default {TIMEOUT_S:g}",
    )
    training.add_argument(
        "--timeline",
        type=Path,
        metavar="PREFIX",
        help="draw the last step, as measured: PREFIX.json for chrome://tracing or Perfetto, PREFIX.png",
    )
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("model and images")
    model.add_argument(
        "--model",
        required=True,
        metavar="SPEC",
        help="timm:NAME, torchvision:NAME, transformers:NAME, or package.module:factory; random weights; from (N, C, "
        "H, W) to (N, classes)",
    )
    model.add_argument(
        "--input", required=True, metavar="N,C,H,W", help="shape of the whole batch of a step, of all ranks together"
    )
    model.add_argument("--channels-last", action="store_true", help="model and images lie channels_last")
    model.add_argument(
        "--convert", action="store_true", help="convert depthwise layers first; run what is tuned or predicted for them"
    )
    model.add_argument(
        "--batch-norm",
        choices=get_args(BatchNorm),
        default="microbatch",
        help="statistics of each microbatch alone (the default), or of it on all replicas together",
    )


def _add_plan(parser: argparse.ArgumentParser) -> None:
    plan = parser.add_argument_group("plan")
    plan.add_argument("--plan", type=Path, metavar="FILE", help="that python -m dwconv.parallel plan --json wrote")
    plan.add_argument("--stages", type=whole, metavar="N", help="default one for each rank of a pipeline")
    plan.add_argument("--replicas", type=whole, metavar="R", help="of each stage, default as many as ranks allow")
    plan.add_argument("--schedule", default="1f1b", metavar="|".join(SCHEDULES), help="default 1f1b")
    plan.add_argument(
        "--microbatches",
        type=whole,
        metavar="M",
        help=f"that the whole batch is cut into, default {MICROBATCHES_A_RANK} for each rank",
    )
    plan.add_argument(
        "--link-gb-s",
        type=above_0,
        default=LINK.gb_s,
        metavar="GB",
        help=f"10⁹ bytes a second from one rank to another, to cut by; default {LINK.gb_s:g}",
    )
