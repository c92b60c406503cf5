"""Stages ``train`` and ``depthwise``: training steps of networks in mixed precision, plain, converted and with blocks,
in turns: op by op and as CUDA graphs, then under torch.compile. ``depthwise`` has the networks where depthwise
convolution is most of the work.

    passes of a network ──► those not raced yet are raced, blocks included ──► steps ──► a row, with the passes left
         ▲                                                                      │
         └── half the batch, if it does not fit into memory ◄───────────────────┘

A row counts if every pass was raced before. One with passes left is kept, and the next run goes on with it: what was
raced is in the log.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.full_size import FULL_SIZE
from bench.gpu.plan import GpuPlan, found_in
from bench.gpu.run import Ended, Interrupted, Run, State, has_failed, interrupted_after, of_all, say
from bench.gpu.tune import race_untuned
from bench.models import Network
from bench.networks import OURS, workloads_of
from bench.results import counts
from bench.step_rows import CONVERTED, PLAIN, WITH_BLOCKS, WITH_GRAPHS, WITH_INDUCTOR
from bench.train import raced, void
from dwconv import settings
from dwconv.errors import DwconvError, WorkerDied, one_line
from dwconv.model.by_name import load_model
from dwconv.problems.target import Target
from dwconv.problems.workload import BLOCK_PASSES, Workload
from dwconv.schedules.template import Candidate, can_run
from dwconv.tuner.step_time import with_both_gradients

FIRST_S = 40.0
"""Expected seconds of a row, until one has run."""
_FINDING_S = 60.0
_RACING_S = 120.0
_STEPS_S = 180.0
"""What finding the passes of a network, racing them, and its steps may take."""
_COMPILING_S = 180.0
"""What torch.compile may take longer for the models of a network."""
_LEAST_S = 5.0
"""With less time neither steps nor a race begin."""
_STEPS, _TURNS_S = 20, 20.0
TYPES = ("bfloat16", "float16")
_BATCH = 256


def _network(name: str, *, batch: int) -> Network:
    return dataclasses.replace(OURS.get(name) or Network(name=name, make=partial(load_model, name)), batch=batch)


TRAINED = tuple(
    _network(name, batch=_BATCH)
    for name in ("MobileNetV2", "MobileNetV3-Large", "timm:efficientnet_b0", "timm:convnext_tiny")
)
DEPTHWISE = (
    *FULL_SIZE,
    # 128 images on each of 8 GPUs: the command in InceptionNeXt's README
    _network("timm:inception_next_tiny", batch=128),
)


@dataclass(frozen=True, kw_only=True)
class StepsOf:
    """What a row is of."""

    network: Network
    """With the batch that is tried first."""
    dtype: str
    is_compiled: bool = False

    @property
    def name(self) -> str:
        return f"{self.network.name} {self.dtype} batch {self.network.batch}{' compiled' * self.is_compiled}"


def rows_of(networks: Sequence[Network], types: Sequence[str], *, compiled: bool = True) -> dict[str, StepsOf]:
    """By name: all networks in the first type before the next one, what torch.compile does with them at last."""
    found = [
        StepsOf(network=network, dtype=dtype, is_compiled=is_compiled)
        for is_compiled in ((False, True) if compiled else (False,))
        for dtype in types
        for network in networks
    ]
    return {each.name: each for each in found}


ROWS = {"train": rows_of(TRAINED, TYPES), "depthwise": rows_of(DEPTHWISE, TYPES[:1])}
"""The rows of each stage, in the order in which they are measured."""


def train_stage(
    run: Run, *, stage: str = "train", rows: Mapping[str, StepsOf] | None = None, steps: int = _STEPS
) -> Ended:
    """The run fails if no network that was started could be trained."""
    wanted = ROWS[stage] if rows is None else rows
    answers = run.answers(
        stage,
        wanted,
        lambda name: _answer(wanted[name], run, stage=stage, steps=steps),
        in_words=_in_words,
        left=_left(wanted, run.state, stage=stage),
    )
    _race_ahead(wanted, run, stage=stage)
    return _ended(answers, count=len(wanted))


depthwise_stage = partial(train_stage, stage="depthwise")


def _left(rows: Mapping[str, StepsOf], state: State, *, stage: str) -> Iterator[str]:
    """Rows that are not there or lack passes, then those that failed in an earlier run; then, once more, those that
    still lack passes."""
    known = state.of(stage)
    first = [name for name in rows if name not in known or _lacks_passes(known[name])]
    yield from dict.fromkeys([*first, *state.left(stage, rows)])
    known = state.of(stage)
    yield from [name for name in rows if name in known and _lacks_passes(known[name])]


def _lacks_passes(row: dict[str, Any]) -> bool:
    return not has_failed(row) and not counts(row)


def _answer(row: StepsOf, run: Run, *, stage: str, steps: int) -> dict[str, Any] | None:
    """None if the time was up before there was an answer."""
    too_large: list[int] = list(run.state.of(stage).get(row.name, {}).get("batches_too_large", []))
    found: dict[str, Any] = {"network": row.network.name, "dtype": row.dtype, "compiled": row.is_compiled}
    found["batches_too_large"] = too_large
    try:
        while True:
            found["batch"] = max(1, min([row.network.batch, *(batch // 2 for batch in too_large)]))
            passes = _Passes.of(row, run, batch=found["batch"])
            found["passes"] = passes.race(run, stage=stage, seconds=min(_RACING_S, run.pace.left_s - FIRST_S))
            if run.pace.left_s < _LEAST_S:
                return {**found, "failed": "time was up before its steps"} if too_large else None
            figures = _trained(passes, run, row, stage=stage, steps=steps)
            if "out_of_memory" not in figures:
                return {**found, **figures}
            if found["batch"] == 1:
                return {**found, "failed": figures["out_of_memory"]}
            say(stage, f"{row.name}: batch {found['batch']} does not fit into memory")
            too_large.append(found["batch"])
    except (DwconvError, Interrupted) as error:
        is_in_time = run.pace.left_s > 0 or too_large
        return {**found, "failed": str(error)} if is_in_time else None
    except Exception as error:  # noqa: BLE001  whatever a network does, it costs its own row
        return {**found, "failed": one_line(f"{type(error).__name__}: {error}", most=300)}


@dataclass(frozen=True, kw_only=True)
class _Passes:
    """Those of a network's depthwise layers and blocks, at the batch that is trained."""

    network: Network
    wanted: tuple[Workload, ...]
    has_blocks: bool

    @classmethod
    def of(cls, row: StepsOf, run: Run, *, batch: int) -> _Passes:
        """Raises Interrupted for a network whose first step does not end."""
        network = dataclasses.replace(row.network, batch=batch)
        with interrupted_after(_FINDING_S):
            wanted = _workloads(network, target=run.target, autocast=row.dtype, device=run.target.kind)
        return cls(
            network=network, wanted=tuple(wanted), has_blocks=any(each.pass_ == BLOCK_PASSES[0] for each in wanted)
        )

    def race(self, run: Run, *, stage: str, seconds: float) -> dict[str, Any]:
        """Race what is not known yet: how many passes there are, and the keys of those that are left."""
        result = race_untuned(self.wanted, run, stage=stage, seconds=max(0.0, seconds))
        return {"of": len(self.wanted), "left": [each.key for each in result.left]}


def _workloads(network: Network, *, target: Target, autocast: str, device: str) -> list[Workload]:
    """The passes that have a template, blocks included, and both gradients at once."""
    found = workloads_of(network, autocast=autocast, blocks=True, device=device)
    return list(with_both_gradients(dict.fromkeys((each for each in found if can_run(each, target)), 1), target))


def train_candidates(
    plan: GpuPlan, *, stage: str = "train", rows: Mapping[str, StepsOf] | None = None
) -> Iterator[Candidate]:
    """Of the passes that are raced before."""
    for row in (ROWS[stage] if rows is None else rows).values():
        if not row.is_compiled:  # its passes are those of the same network before
            find = partial(_workloads, target=plan.target, autocast=row.dtype, device="cpu")
            for workloads in found_in([row.network], find, stage=stage):
                yield from plan.raced(workloads)


depthwise_candidates = partial(train_candidates, stage="depthwise")


def _trained(passes: _Passes, run: Run, row: StepsOf, *, stage: str, steps: int) -> dict[str, Any]:
    """Raises WorkerDied. A model that cannot be captured may break the process: then none is captured."""
    environment = {**os.environ, **settings.PROFILER_ENVIRONMENT, "DWCONV_TUNING_LOGS": str(run.log.path)}
    how = {"device": run.target.kind, "autocast": row.dtype, "steps": steps, "seconds": _TURNS_S}
    how |= {"blocks": passes.has_blocks, "control": True, "profile": True}

    def tried(**more: bool) -> dict[str, Any]:
        limit_s = max(1.0, min(_STEPS_S + _COMPILING_S * row.is_compiled, run.pace.left_s))
        return raced(passes.network, {**how, **more}, environment=environment, timeout_s=limit_s)

    try:
        answer = tried(compile=row.is_compiled, graphs=not row.is_compiled)
    except WorkerDied as error:
        if row.is_compiled or run.pace.left_s < FIRST_S:
            raise
        say(stage, f"{row.name}, with graphs: {error}")
        answer = tried()
    return {"failed": void(answer["misnamed"])} if answer.get("misnamed") else answer


def _race_ahead(rows: Mapping[str, StepsOf], run: Run, *, stage: str) -> None:
    """Spend what time is left, too little for steps, on the passes of rows that are not there yet."""
    for name, row in rows.items():
        if run.pace.left_s < _LEAST_S:
            return
        known = run.state.of(stage).get(name)
        if known is not None and not _lacks_passes(known):
            continue
        try:
            passes = _Passes.of(row, run, batch=known["batch"] if known else row.network.batch)
            passes.race(run, stage=stage, seconds=run.pace.left_s - _LEAST_S)
        except Exception as error:  # noqa: BLE001  as above
            say(stage, f"{name}: {one_line(f'{type(error).__name__}: {error}', most=300)}")


# -- in words --------------------------------------------------------------------------------------------------------


def _ended(answers: Mapping[str, dict[str, Any]], *, count: int) -> Ended:
    """Rows that lack passes are named, but their figures do not count."""
    text = "; ".join(
        f"{name} does not count yet: {_raced(row)}" if _lacks_passes(row) else f"{name} {_in_words(row)}"
        for name, row in answers.items()
    )
    done = sum(not _lacks_passes(row) for row in answers.values())
    failed = bool(answers) and all(map(has_failed, answers.values()))
    return Ended(line=f"{text or 'no network was trained'}{of_all(done, count)}", failed=failed)


def _in_words(row: dict[str, Any]) -> str:
    if has_failed(row):
        return f"failed: {row['failed']}"
    ratio, (low, high), apart = row["ratio"], row["ratio"]["quartiles"], row["loss_difference"]
    ours = sum(count for name, count in row["layers"].items() if name.endswith(" dwconv"))
    too_large = "".join(f", since {batch} does not fit into memory" for batch in row["batches_too_large"][-1:])
    rates = ", ".join(f"{name} {rate:,.0f}" for name, rate in row.get("samples_per_s", {}).items())
    peaks = ", ".join(f"{name} {peak / 2**30:.2f}" for name, peak in row.get("peak_bytes", {}).items())
    text = [
        f"{row['median_ms'][CONVERTED]:.1f} ms, {ratio['median']:.2f} times as fast ({low:.2f} to {high:.2f}, at "
        f"most {ratio['at_most']:.2f})",
        *_other_ways(row["median_ms"]),
        *(f"{kind} {found.get('verdict', 'not judged')}" for kind, found in row.get("kinds", {}).items()),
        *(f"{name} busy for {each['busy']:.0%}" for name, each in row.get("on_gpu", {}).items()),
        f"batch {row['batch']}{too_large}, {_raced(row)}",
        *([f"a second: {rates}"] if rates else []),
        *([f"GiB at most: {peaks}"] if peaks else []),
        f"{ours} of {sum(row['layers'].values())} passes by dwconv, losses apart {apart[CONVERTED]:.1e} (by "
        f"rounding {apart['rounded']:.1e})",
        *(f"{name} refused: {why}" for name, why in row.get("refused", {}).items()),
    ]
    return ", ".join(text)


def _raced(row: dict[str, Any]) -> str:
    passes = row["passes"]
    return f"{passes['of'] - len(passes['left'])} of {passes['of']} passes raced"


def _other_ways(ms: dict[str, float]) -> list[str]:
    """How many times as fast each other step with dwconv is as the plain one that runs in the same way."""
    rivals = {WITH_BLOCKS: PLAIN}
    for way in (WITH_GRAPHS, WITH_INDUCTOR):
        rivals |= {way[CONVERTED]: way[PLAIN], way[WITH_BLOCKS]: way[PLAIN]}
    return [f"{ours} {ms[plain] / ms[ours]:.2f}" for ours, plain in rivals.items() if ours in ms and plain in ms]
