"""The command line of ``python -m dwconv.parallel train``."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import get_args

from dwconv.arguments import ArgumentParser
from dwconv.parallel.agreement import ParserOfRanks
from dwconv.parallel.orders import SCHEDULES
from dwconv.parallel.pipeline import TIMEOUT_S, BatchNorm

INTERLEAVED_STAGES = 2
"""Stages a rank has under the interleaved schedule, unless told otherwise."""


def parser_of_train() -> ArgumentParser:
    """The parser of the command."""
    parser = ParserOfRanks(
        prog="python -m dwconv.parallel train",
        description="Train a model on made-up images, its layers spread over pipeline stages and each stage over "
        "replicas: started by torchrun, or alone.",
        epilog="Layers are timed and cut into stages by the first rank, unless --plan says how.",
    )
    _add_model(parser)
    _add_plan(parser)
    training = parser.add_argument_group("training")
    training.add_argument("--steps", type=whole, default=10, metavar="N", help="default 10")
    training.add_argument("--rate", type=positive, default=0.01, metavar="X", help="learning rate of SGD, default 0.01")
    training.add_argument("--seed", type=int, default=0, metavar="N", help="of parameters and images, default 0")
    training.add_argument(
        "--timeout",
        type=positive,
        default=TIMEOUT_S,
        metavar="S",
        help=f"seconds to wait for another rank before all end, default {TIMEOUT_S:g}",
    )
    training.add_argument(
        "--timeline", type=Path, metavar="FILE", help="write the last step, as measured, as a Chrome trace"
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
        "--batch", type=whole, default=32, metavar="N", help="images of a step, on all ranks, default 32"
    )
    model.add_argument("--image", default="3,224,224", metavar="C,H,W", help="shape of an image, default 3,224,224")
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
    plan.add_argument("--plan", type=Path, metavar="FILE", help="as python -m dwconv.parallel plan writes it")
    plan.add_argument("--stages", type=whole, metavar="N", help="default as many as ranks, with one replica each")
    plan.add_argument("--replicas", type=whole, metavar="M", help="of each stage, default ranks over stages")
    plan.add_argument("--schedule", default="1f1b", metavar="|".join(SCHEDULES), help="default 1f1b")
    plan.add_argument(
        "--microbatches",
        type=whole,
        metavar="N",
        help="that a replica's share of the batch is cut into, default twice as many as stages",
    )
    plan.add_argument(
        "--link-gb-s", type=positive, default=1.0, metavar="X", help="10⁹ bytes a second between ranks, default 1"
    )


def whole(text: str) -> int:
    """A number from 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def positive(text: str) -> float:
    """A number above 0."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number
