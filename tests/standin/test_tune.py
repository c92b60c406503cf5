"""``python -m dwconv.tune`` on the stand-in, where some candidates have the faults of bad kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from dwconv.records.log import TuningLog
from dwconv.records.record import Status, TuningRecord
from tests.standin.conftest import OnStandIn
from tests.standin.faults import Fault, config_with

OPTIONS = ("--target", "cuda", "--shape", "2,8,9,9", "--kernel", "3", "--passes", "fprop", "--jobs", "1", "--json")
LIMIT_S = 6
"""Limit for building or running a candidate, without the time in which its process waits for a core."""
IMPATIENT = f"""
import sys
from dwconv import settings
settings.BUILD_TIMEOUT_S = settings.RUN_TIMEOUT_S = {LIMIT_S}.0
from dwconv import tune
sys.exit(tune.main(sys.argv[1:]))
"""


def records(folder: Path) -> list[TuningRecord]:
    return [record for path in (folder / "logs").glob("*.jsonl") for record in TuningLog(path).load().records]


@pytest.mark.slow
def test_a_faulty_candidate_alone_pays(on_stand_in: OnStandIn, tmp_path: Path) -> None:
    """One that finds no memory however alone it is, too; one that found none beside another program is tried again."""
    faults: dict[Fault, int] = {
        "slow build": 1, "memory": 0, "sticky": 2, "hang": 3, "wrong": 4, "launch": 5, "crowd": 6,
    }  # fmt: skip
    done = on_stand_in(["-c", IMPATIENT, *OPTIONS, "--trials", "9", "--patience", "9"], faults=faults)
    assert done.returncode == 0, done.stderr
    assert not done.problems
    known = records(tmp_path)
    statuses = {
        "slow build": Status.TIMEOUT, "memory": Status.RUNTIME_ERROR, "sticky": Status.RUNTIME_ERROR,
        "hang": Status.TIMEOUT, "wrong": Status.WRONG, "launch": Status.RUNTIME_ERROR,
    }  # fmt: skip
    words = {"memory": "out of memory", "sticky": "illegal", "wrong": "value", "launch": "OUT_OF_RESOURCES"}
    crowded = config_with("crowd", faults.pop("crowd"), tmp_path)
    assert crowded in [record.config.to_dict() for record in known]
    first, *others = [launch["pid"] for launch in done.launches if launch["config"] == crowded]
    assert others and first not in others, "its process keeps what memory it has: another one begins anew"
    bad = []
    for fault, number in faults.items():
        config = config_with(fault, number, tmp_path)
        assert config is not None, f"nobody came as far as {fault}"
        bad.append(config)
        found = [record for record in known if record.config.to_dict() == config]
        assert [record.status for record in found] == [statuses[fault]], fault
        assert words.get(fault, "") in found[0].detail.lower() + found[0].detail.upper(), fault
    good = [record for record in known if record.config.to_dict() not in bad]
    assert {record.status for record in good} == {Status.OK}
    assert any(record.confirmed for record in good)
