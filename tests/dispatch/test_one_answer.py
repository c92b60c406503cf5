"""What a record is worth: dispatch, what there is to win, ``show``, and the race give one answer."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import dwconv
from dwconv import show
from dwconv.dispatch import loaded_packs
from dwconv.dispatch.decide import decide
from dwconv.dispatch.knowledge import database, is_known
from dwconv.dispatch.loaded_packs import PackedKernels
from dwconv.problems.as_written import workload_options
from dwconv.problems.target import cpu_target
from dwconv.records.log import TuningLog
from dwconv.records.record import Measurement, Status
from dwconv.schedules.template import Candidate, templates_for
from dwconv.tuner.expected_gain import ExpectedGains
from dwconv.untuned import gain
from tests.planted_records import record_of, workload_of

WORKLOAD = workload_of()
TARGET = cpu_target()
SPACE = templates_for(WORKLOAD, TARGET)[0].space(WORKLOAD, TARGET)
FAST, SLOW = SPACE.default, next(config for config in SPACE if config != SPACE.default)


@pytest.fixture(autouse=True)
def records_alone(monkeypatch):
    """No packs, and nothing is expected that no record tells."""
    monkeypatch.setattr(gain, "expected", lambda *_, **__: None)
    loaded_packs.forget()
    yield
    loaded_packs.forget()


def record(config=FAST, *, us=50.0, **facts):
    """Against 1 s of PyTorch's op."""
    return dataclasses.replace(record_of(WORKLOAD, config=config, median_us=us, baseline_us=1e6), **facts)


def contended(config=FAST, *, us=50.0):
    return record(config, measurement=Measurement(median_us=us, spread_us=1.0, rounds=9, contention=0.5))


OLD_TVM = {**record().versions, "tvm": "0.1"}
OLD_TORCH = {**record().versions, "torch": "2.1.0"}
DONE = {"provider": "dwconv", "command": False, "basis": "measured", "wins": False, "known": True}
NOTHING = {"provider": "pytorch", "command": True, "basis": "assumed", "wins": True, "known": False}
SEARCHED, FAILED = record(confirmed=True), record(status=Status.WRONG, measurement=None)


@pytest.mark.parametrize(
    ("records", "answers"),
    [
        ([SEARCHED], {**DONE, "best": FAST}),
        ([record()], {**DONE, "wins": True, "known": False, "best": FAST}),
        ([contended()], {**NOTHING, "best": None}),
        ([contended(us=1.0), record(SLOW, confirmed=True)], {**DONE, "best": SLOW}),
        ([record(us=1.0), record(SLOW, confirmed=True)], {**DONE, "best": SLOW}),
        ([record(confirmed=True, versions=OLD_TORCH)], {**NOTHING, "basis": "predicted", "best": FAST}),
        ([record(confirmed=True, versions=OLD_TVM)], {**NOTHING, "basis": "predicted", "best": FAST}),
        ([record(us=1.0, versions=OLD_TORCH), record(SLOW, confirmed=True)], {**DONE, "best": SLOW}),
        (
            [record(us=1.0, confirmed=True, versions=OLD_TORCH), record(SLOW)],
            {**DONE, "wins": True, "known": False, "best": SLOW},
        ),
        ([record(confirmed=True, device="other-avx2-2t")], {**NOTHING, "best": None}),
        ([SEARCHED, FAILED], {**NOTHING, "command": False, "known": True, "best": None}),
        ([SEARCHED, record(SLOW), FAILED], {**DONE, "wins": True, "known": False, "best": SLOW}),
        ([FAILED, SEARCHED], {**DONE, "best": FAST}),
        ([record(us=2e6)], {**DONE, "provider": "pytorch", "wins": True, "best": FAST}),
    ],
)
def test_all_ways_in_give_one_answer(logs, capsys, records, answers):
    for each in records:
        TuningLog(logs / "log.jsonl").append(each)
    assert asked(capsys) == answers


def test_a_kernel_of_a_pack_counts_for_all_whatever_tvm_generated_it(logs, capsys):
    confirmed = record(confirmed=True, versions=OLD_TVM)
    artifact = cast("Any", SimpleNamespace())
    pack = PackedKernels(
        device=TARGET.device, measured=True, tvm="0.1", artifacts={Candidate(WORKLOAD, FAST): artifact},
        records=(confirmed,), log=Path("pack/records.jsonl"),
    )  # fmt: skip
    loaded_packs.add(pack, digest="pack")
    TuningLog(logs / "log.jsonl").append(confirmed)  # as where it was tuned
    assert asked(capsys) == {**DONE, "best": FAST}


def asked(capsys) -> dict[str, Any]:
    dwconv.reset()
    decision = decide(WORKLOAD, "cpu")
    to_win = ExpectedGains(TARGET, database()).of(WORKLOAD)
    return {
        "provider": decision.provider,
        "command": bool(decision.command),
        "basis": to_win.basis,
        "wins": to_win.win_us > 0,
        "known": is_known(WORKLOAD, TARGET, database(), broken={}),
        "best": shown(capsys),
    }


def shown(capsys):
    """The configuration that ``show --config best`` prints; None if there is none."""
    exit_code = show.main([*workload_options(WORKLOAD).split(), "--config", "best", "--json"])
    printed = capsys.readouterr()
    if exit_code:
        assert "has no record" in printed.err
        return None
    fields = json.loads(printed.out)["config"]
    return SPACE.check(fields)
