"""Stage ``train``: training steps of networks in mixed precision, plain and converted, in turns: op by op and as CUDA
graphs; the first network under torch.compile, too.

Before that it races the few likely configurations of each untuned pass, blocks included.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from bench.gpu.plan import Plan, found_in
from bench.gpu.run import Ended, Run, has_failed, say
from bench.gpu.tune import race_untuned
from bench.models import NETWORKS, Network
from bench.networks import workloads_of
from bench.step_rows import CONVERTED, PLAIN, WITH_BLOCKS, WITH_GRAPHS, WITH_INDUCTOR
from bench.train import raced, void
from dwconv import settings
from dwconv.errors import DwconvError, WorkerDied
from dwconv.model.by_name import load_model
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.schedules.template import Candidate, can_run
from dwconv.tuner.step_time import with_both_gradients

FIRST_S = 30.0
"""Expected seconds of a network, until one has run."""
_MOST_S = 120.0
_COMPILING_S = 180.0
"""What torch.compile may take longer for the models of a network."""
_STEPS = 20
_BATCH = 64
_TUNING_SHARE, _SHARING = 0.6, 3
"""Of the time, for what is untuned in this network and in the next ones."""
TYPES = ("float16", "bfloat16")
_OURS = {network.name: network for network in NETWORKS}
TRAINED = tuple(
    dataclasses.replace(_OURS.get(name) or Network(name=name, make=partial(load_model, name)), batch=_BATCH)
    for name in ("MobileNetV2", "MobileNetV3-Large", "timm:efficientnet_b0", "timm:convnext_tiny")
)


def train_stage(
    run: Run,
    *,
    networks: Sequence[Network] = TRAINED,
    types: Sequence[str] = TYPES,
    steps: int = _STEPS,
    compiled: bool = True,
) -> Ended:
    """All networks in the first type come before the next, what torch.compile does with the first at last. The run
    fails if no network that was started could be trained."""
    items = {f"{network.name} {dtype}": (network, dtype, False) for dtype in types for network in networks}
    if compiled:
        items[f"{networks[0].name} {types[0]} compiled"] = (networks[0], types[0], True)
    left = run.state.left("train", items)

    def answer(name: str) -> dict[str, Any]:
        network, dtype, compiles = items[name]
        try:
            _tune_what_is_untuned(network, run, autocast=dtype, items=len(left) - left.index(name))
            return _trained(network, run, autocast=dtype, steps=steps, compiles=compiles)
        except DwconvError as error:
            return {"failed": str(error)}

    answers = run.answers("train", items, answer, in_words=_in_words)
    text = "; ".join(f"{name} {_in_words(answer)}" for name, answer in answers.items())
    return Ended.of(answers, text or "no network was trained", count=len(items))


def _trained(network: Network, run: Run, *, autocast: str, steps: int, compiles: bool) -> dict[str, Any]:
    """Raises WorkerDied. A model that cannot be captured may break the process: then none is captured."""
    environment = {**os.environ, **settings.PROFILER_ENVIRONMENT, "DWCONV_TUNING_LOGS": str(run.log.path)}
    how = {"device": run.target.kind, "autocast": autocast, "steps": steps}
    how |= dict.fromkeys(("blocks", "control", "profile"), True)

    def tried(**more: bool) -> dict[str, Any]:
        limit_s = max(1.0, min(_MOST_S + _COMPILING_S * compiles, run.pace.left_s))
        return raced(network, {**how, **more}, environment=environment, timeout_s=limit_s)

    try:
        answer = tried(compile=compiles, graphs=not compiles)
    except WorkerDied as error:
        if compiles or run.pace.left_s < FIRST_S:
            raise
        say("train", f"{network.name} {autocast}, with graphs: {error}")
        answer = tried()
    return {"failed": void(answer["misnamed"])} if answer.get("misnamed") else answer


def _tune_what_is_untuned(network: Network, run: Run, *, autocast: str, items: int) -> None:
    """``items``: how many networks are left."""
    wanted = _workloads(network, target=run.target, autocast=autocast, device=run.target.kind)
    seconds = min(_TUNING_SHARE * run.pace.left_s / min(items, _SHARING), run.pace.left_s - run.pace.expected_s)
    race_untuned(wanted, run, stage="train", seconds=max(0.0, seconds))


def train_candidates(
    plan: Plan, *, networks: Sequence[Network] = TRAINED, types: Sequence[str] = TYPES
) -> Iterator[Candidate]:
    """Of the passes that are raced before."""
    for dtype in types:
        find = partial(_workloads, target=plan.target, autocast=dtype, device="cpu")
        for workloads in found_in(networks, find, stage="train"):
            yield from plan.raced(workloads)


def _workloads(network: Network, *, target: Target, autocast: str, device: str) -> list[Workload]:
    """The passes of a network, blocks included, and both gradients at once."""
    found = workloads_of(network, autocast=autocast, blocks=True, device=device)
    return list(with_both_gradients(dict.fromkeys((each for each in found if can_run(each, target)), 1), target))


def _in_words(answer: dict[str, Any]) -> str:
    if has_failed(answer):
        return f"failed: {answer['failed']}"
    ratio, (low, high), apart = answer["ratio"], answer["ratio"]["quartiles"], answer["loss_difference"]
    ours = sum(count for name, count in answer["layers"].items() if name.endswith(" dwconv"))
    text = [
        f"{answer['median_ms'][CONVERTED]:.1f} ms, {ratio['median']:.2f} times as fast ({low:.2f} to {high:.2f}, at "
        f"most {ratio['at_most']:.2f})",
        *_other_ways(answer["median_ms"]),
        *(f"{kind} {found.get('verdict', 'not judged')}" for kind, found in answer.get("kinds", {}).items()),
        *(f"{name} busy for {each['busy']:.0%}" for name, each in answer.get("on_gpu", {}).items()),
        f"{ours} of {sum(answer['layers'].values())} passes by dwconv, losses apart {apart[CONVERTED]:.1e} (by "
        f"rounding {apart['rounded']:.1e})",
        *(f"{name} refused: {why}" for name, why in answer.get("refused", {}).items()),
    ]
    return ", ".join(text)


def _other_ways(ms: dict[str, float]) -> list[str]:
    """How many times as fast each other step with dwconv is as the plain one that runs in the same way."""
    rivals = {WITH_BLOCKS: PLAIN}
    for way in (WITH_GRAPHS, WITH_INDUCTOR):
        rivals |= {way[CONVERTED]: way[PLAIN], way[WITH_BLOCKS]: way[PLAIN]}
    return [f"{ours} {ms[plain] / ms[ours]:.2f}" for ours, plain in rivals.items() if ours in ms and plain in ms]
