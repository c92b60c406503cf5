"""Held: what a database says of logs is what all of their records say; and few of those are ever made."""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict
from pathlib import Path

import pytest

import dwconv
from dwconv.dispatch import decide
from dwconv.records.condense import condensed
from dwconv.records.database import Database, kind_of, layer_of
from dwconv.records.line import RecordLine, encode
from dwconv.records.record import Measurement, Status, TuningRecord
from dwconv.schedules.space import Config
from dwconv.system import versions
from tests.planted_records import record_of, workload_of

DEVICES = ["here-2t", "here-8t", "elsewhere-2t"]
WORKLOADS = [
    workload_of(shape=(batch, 16, size, size), pass_=pass_, layout=layout, bias=bias)
    for batch in (1, 8)
    for size in (7, 14)
    for pass_, layout, bias in (("fprop", "nhwc", False), ("fprop", "nhwc", True), ("wgrad", "nchw", False))
]
ASKED = [*WORKLOADS, *(workload.with_batch(3) for workload in WORKLOADS), workload_of(shape=(8, 16, 28, 28))]
VERSIONS = [{}, {"torch": "1", "tvm": "2"}, {"torch": "1", "tvm": "2", "template": "3"}, {"math": "fast"}]


def drawn(draw: random.Random) -> TuningRecord:
    """Few times and configurations, so that many records are of one candidate, and many are equally good."""
    record = record_of(
        draw.choice(WORKLOADS),
        config=Config.of("cpu.made_up", block_h=draw.choice([1, 2, 4]), order=draw.choice(["chw", "hwc"])),
        device=draw.choice(DEVICES),
        median_us=draw.choice([3.0, 4.5, 9.0]),
        baseline_us=draw.choice([None, 6.0, 7.0]),
        status=draw.choice([*[Status.OK] * 8, *Status]),
        computed=draw.random() < 0.1,
        created=str(draw.randrange(100)),
    )
    others = {"onednn-nchw": Measurement(median_us=5.0, spread_us=0.0, rounds=3, contention=draw.choice([0.0, 0.4]))}
    return dataclasses.replace(
        record,
        confirmed=draw.random() < 0.3,
        raced=draw.random() < 0.3,
        settled=draw.random() < 0.3,
        providers={**record.providers, **(others if draw.random() < 0.3 else {})},
        resources={"spill_bytes": draw.randrange(2)} if draw.random() < 0.5 else {},
        versions=draw.choice(VERSIONS),
    )


@pytest.mark.parametrize("seed", range(6))
def test_what_is_held_of_a_log_are_its_records(tmp_path, seed):
    draw = random.Random(seed)
    records = [drawn(draw) for _ in range(60)]
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(map(encode, records)) + b"\n")
    by_key = defaultdict(list)
    for record in records:
        by_key[record.device, record.workload.batchless_key].append(record)
    found = Database.load([tmp_path])
    made = Database(places=[[dict(by_key)]], logs=[], problems=[])
    assert list(found) == list(made) and found.problems == []
    assert condensed(found, keep=3) == condensed(made, keep=3)
    for workload in ASKED:
        assert found.bests_of_kind(workload) == made.bests_of_kind(workload)
        known = {record.device for record in records if record.workload.batchless_key == workload.batchless_key}
        assert found.devices(workload) == sorted(known)
        for device in DEVICES:
            sizes = {each.workload.input_size for each in records if each.device == device
                     and each.workload.layer == workload.layer} - {workload.input_size}  # fmt: skip
            assert {other.input_size for other in found.other_sizes(workload, device)} == sizes


def test_a_family_names_the_layer_and_the_kind():
    odd = dataclasses.replace(WORKLOADS[0], padding=((0, 1), (2, 2)), dilation=(2, 1), multiplier=3, dtype="float16")
    for workload in [*WORKLOADS, odd, *(dataclasses.replace(odd, pass_="dgrad", layout=each) for each in ("nchw",))]:
        assert layer_of(workload.batchless_key) == workload.layer
        assert kind_of(workload.batchless_key) == (workload.pass_, workload.dtype, workload.layout)


def test_a_later_verdict_counts_among_more_records_than_are_kept(tmp_path):
    """The fastest candidate was found wrong, at the very end of a long log."""
    workload = WORKLOADS[0]
    lines = [
        encode(record_of(workload, config=Config.of("cpu.made_up", block_h=n), device="here", median_us=9 + n))
        for n in range(3000)
    ]
    lines.append(encode(record_of(workload, config=Config.of("cpu.made_up", block_h=0), device="here", status="wrong")))
    path = tmp_path / "log.jsonl"
    for some in (lines[:-1], lines):
        path.write_bytes(b"\n".join(some) + b"\n")
        best = Database.load([path]).best(workload, "here")
        assert best is not None and best.config.block_h == len(some) - len(lines) + 1


# -- what it takes -----------------------------------------------------------------------------------------------------


@pytest.fixture
def records_made(monkeypatch):
    """Counts the records that were made."""
    made: list[int] = []
    real = RecordLine.to_record
    monkeypatch.setattr(RecordLine, "to_record", lambda self: made.append(1) or real(self))
    return made


def long_log(path: Path, *, trials: int) -> int:
    """A log of 60 workloads, each with one confirmed record after so many trials. Returns its size."""
    with path.open("wb") as file:
        for channels in range(1, 21):
            for pass_ in ("fprop", "dgrad", "wgrad"):
                workload = workload_of(shape=(8, 8 * channels, 14, 14), pass_=pass_)
                line = encode(record_of(workload, baseline_us=10, created="2026-11-23T08:00:00+00:00"))
                knob = line.replace(b'"block_h":4', b'"block_h":4,"tile_w":14,"order":"cwh","unroll":"kw","block_c":%d')
                file.writelines(knob % trial + b"\n" for trial in range(trials))
                file.write(line.replace(b'"confirmed":false', b'"confirmed":true') + b"\n")
    return path.stat().st_size


@pytest.mark.parametrize("channels", [40, 41], ids=["measured", "never measured"])
def test_only_requested_records_are_made_however_long_the_log(logs, monkeypatch, records_made, channels):
    """Of a workload that was measured its own records are made; for one that was not, the best of each of the pass."""
    if channels == 41 and not versions.can_build():
        pytest.skip("where nothing can be built, nothing is predicted")
    monkeypatch.setenv("DWCONV_UNTUNED", "predict")
    for trials in (4, 40):
        long_log(logs / "log.jsonl", trials=trials)
        records_made.clear()
        dwconv.reset()
        decide.decide(workload_of(shape=(8, channels, 14, 14)), "cpu")
        assert len(records_made) == (trials + 1 if channels == 40 else 20)
