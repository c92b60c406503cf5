"""Stage ``train``: training steps of two networks in mixed precision, plain against converted, in turns.

Untuned layers are tuned first, those that move most bytes before the others, in at most half of the time.
Each network then runs in a process of its own.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from bench.gpu.budget import Pace
from bench.gpu.run import Ended, Run, of_all, say
from bench.gpu.state import has_failed
from bench.gpu.tune import BESIDE_S, LEAST_S, tune_all
from bench.models import NETWORKS, Network
from bench.networks import workloads_of
from bench.train import raced, void
from dwconv import settings
from dwconv.errors import WorkerDied
from dwconv.records.database import Database
from dwconv.tuner.expected_gain import with_both_gradients

FIRST_S = 20.0
"""Expected seconds of a network, until one has run."""
_MOST_S = 120.0
_STEPS = 20
_BATCH = 64
_TUNING_SHARE = 0.5

TRAINED = tuple(
    dataclasses.replace(network, batch=_BATCH)
    for name in ("ConvNeXt-like", "MobileNetV2")
    for network in NETWORKS
    if network.name == name
)


def train_stage(
    run: Run, *, networks: Sequence[Network] = TRAINED, autocast: str = "float16", steps: int = _STEPS
) -> Ended:
    """The run fails if no network that was started could be trained."""
    by_name = {f"{network.name} {autocast}": network for network in networks}
    left = run.state.left("train", by_name)
    _tune_what_is_untuned([by_name[name] for name in left], run, autocast=autocast)
    environment = {**os.environ, **settings.PROFILER_ENVIRONMENT, "DWCONV_TUNING_LOGS": str(run.log.path)}
    options = ["--device", run.target.kind, "--autocast", autocast]
    for name in left:
        if not run.pace.fits:
            break
        timeout_s = min(_MOST_S, run.pace.left_s)
        with run.pace.item():
            try:
                answer = raced(by_name[name], options, steps=steps, environment=environment, timeout_s=timeout_s)
            except WorkerDied as error:
                answer = {"failed": str(error)}
            if answer.get("misnamed"):
                answer = {"failed": void(answer["misnamed"])}
        run.state.put("train", name, answer)
        say("train", f"{name}: {_in_words(answer)}")
    answers = {name: run.state.of("train")[name] for name in by_name if name in run.state.of("train")}
    told = "; ".join(f"{name} {_in_words(answer)}" for name, answer in answers.items())
    return Ended(
        line=f"{told or 'no network was trained'}{of_all(len(answers), len(by_name))}",
        failed=bool(answers) and all(map(has_failed, answers.values())),
    )


def _tune_what_is_untuned(networks: Sequence[Network], run: Run, *, autocast: str) -> None:
    known = Database.load([run.log.path])
    wanted = with_both_gradients(
        dict.fromkeys((each for network in networks for each in workloads_of(network, autocast=autocast)), 1),
        run.target,
    )
    untuned = [workload for workload in wanted if not known.at_any_batch(workload, run.target.device)]
    if not untuned:
        return
    say("train", f"{len(untuned)} of {len(wanted)} passes of the networks' layers are untuned")
    to_race_s = len(networks) * run.pace.expected_s
    pace = Pace(min(_TUNING_SHARE * run.pace.left_s, run.pace.left_s - to_race_s), first_s=LEAST_S + BESIDE_S)
    by_traffic = sorted(untuned, key=lambda workload: -workload.bytes)
    tune_all(by_traffic, dataclasses.replace(run, pace=pace), stage="train")


def _in_words(answer: dict[str, Any]) -> str:
    if has_failed(answer):
        return f"failed: {answer['failed']}"
    ratio, (low, high) = answer["ratio"], answer["ratio"]["quartiles"]
    ours = sum(count for who, count in answer["layers"].items() if who.endswith(" dwconv"))
    apart = answer["loss_difference"]
    return (
        f"{answer['median_ms']['converted']:.1f} ms, {ratio['median']:.2f} times as fast ({low:.2f} to {high:.2f}, at "
        f"most {ratio['at_most']:.2f}), {ours} of {sum(answer['layers'].values())} passes by dwconv, losses apart "
        f"{apart['converted']:.1e} (by rounding {apart['rounded']:.1e})"
    )
