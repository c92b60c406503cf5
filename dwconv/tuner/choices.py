"""The words by which a command line chooses how to tune. This module imports nothing, so that ``--help`` is quick."""

from __future__ import annotations

from typing import Literal, get_args

Search = Literal["evolve", "random", "exhaustive", "analytic"]
SEARCHES: tuple[Search, ...] = get_args(Search)
ENDS_BY_ITSELF: tuple[Search, ...] = ("exhaustive", "analytic")

RunnerKind = Literal["auto", "local", "predict"]
RUNNER_KINDS: tuple[RunnerKind, ...] = get_args(RunnerKind)
