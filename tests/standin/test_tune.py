"""``python -m dwconv.tune`` on the stand-in, where some candidates have the faults of bad kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from dwconv.records.log import TuningLog
from dwconv.records.record import Status, TuningRecord
from tests.standin.conftest import OnStandIn
from tests.standin.faults import Fault, config_with

OPTIONS = ("--target", "cuda", "--shape", "2,8,9,9", "--kernel", "3", "--passes", "fprop", "--jobs", "1", "--json")


def records(folder: Path) -> list[TuningRecord]:
    return [record for path in (folder / "logs").glob("*.jsonl") for record in TuningLog(path).load().records]


@pytest.mark.slow
def test_a_faulty_candidate_alone_pays(on_stand_in: OnStandIn, tmp_path: Path) -> None:
    """One that finds no memory however alone it is, too; one that found none beside another program is tried again."""
    faults: dict[Fault, int] = {"memory": 0, "sticky": 1, "wrong": 2, "launch": 3, "crowd": 4}
    done = on_stand_in(["-m", "dwconv.tune", *OPTIONS, "--trials", "7", "--patience", "7"], faults=faults)
    assert done.returncode == 0, done.stderr
    assert not done.problems
    known = records(tmp_path)
    crowded, *bad = [config_with(faults[fault], tmp_path) for fault in ("crowd", "memory", "sticky", "wrong", "launch")]
    first, *others = [launch["pid"] for launch in done.launches if launch["config"] == crowded]
    assert others and first not in others, "its process keeps what memory it has: another one begins anew"
    found = [next(record for record in known if record.config.to_dict() == config) for config in bad]
    assert [record.status for record in found] == [
        Status.RUNTIME_ERROR, Status.RUNTIME_ERROR, Status.WRONG, Status.RUNTIME_ERROR,
    ]  # fmt: skip
    for record, word in zip(found, ("out of memory", "illegal", "value", "out_of_resources"), strict=True):
        assert word in record.detail.lower()
    good = [record for record in known if record.config.to_dict() not in bad]
    assert {record.status for record in good} == {Status.OK} and any(record.confirmed for record in good)
    assert crowded in [record.config.to_dict() for record in good]
