"""The log of choices: what is kept is found again, and nothing else is believed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dwconv.concurrency.choosing import log
from dwconv.concurrency.choosing.choice import Choice, GradientTimes
from dwconv.concurrency.scheduling.schedule import Placement, Schedule
from dwconv.errors import LogError
from dwconv.records.record import Measurement

STEP = Measurement(median_us=100.5, spread_us=2.0, rounds=15, contention=0.01)
CHOICE = Choice(
    graph="ab" * 32, device="some-cpu-2t", cores=2, asked="S1+S3", winner="S3", reason="S3 is 20.0% faster",
    schedules=(
        Schedule(strategies=("S3",), cores=2, placements=(
            Placement(task=0, worker=0, threads=1, start_us=0.0, end_us=2.25),
            Placement(task=1, worker=1, threads=1, start_us=0.0, end_us=3.5))),
        Schedule(strategies=("S3",), cores=2, placements=()),
    ),
    kept_whole=(1, 4), steps={"plain": STEP, "S3": STEP}, peaks={"plain": 5, "S3": 7}, notes={"S3": "held back"},
    gradients=(GradientTimes(name="convolution_backward", serial_us=3.0, at_once_us=2.0),),
    handover_us=3.5, change_us=7.0, versions={"torch": "2.13.0"}, created="2026-01-01T00:00:00+00:00",
)  # fmt: skip
ASKED = {"graph": CHOICE.graph, "device": CHOICE.device, "cores": 2, "asked": "S1+S3", "versions": CHOICE.versions}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DWCONV_CONCURRENCY_LOGS", str(tmp_path / "made"))
    return tmp_path / "made"


def test_a_choice_is_found_again_as_it_was(folder):
    assert log.kept(**ASKED) is None
    path = log.keep(CHOICE)
    assert path == folder / "some-cpu-2t.jsonl"
    assert log.kept(**ASKED) == CHOICE
    log.keep(replace(CHOICE, winner="plain", schedules=()))
    assert log.kept(**ASKED).is_plain  # the last one counts


@pytest.mark.parametrize(
    "other",
    [{"graph": "cd" * 32}, {"cores": 4}, {"asked": "S1"}, {"versions": {"torch": "2.14.0"}}, {"device": "another"}],
)
def test_a_choice_holds_for_what_it_was_made_for(other):
    log.keep(CHOICE)
    assert log.kept(**{**ASKED, **other}) is None


def broken(**change):
    return json.dumps({**json.loads(log.encode(CHOICE)), **change}).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[]", b'"' + CHOICE.graph.encode() + b'"', b"\xff" + log.encode(CHOICE)[1:], broken(format=2),
        broken(cores=0), broken(schedules=[{"strategies": [], "cores": 1, "placements": [[0, 0, -1, 0, 0]]}]),
        broken(winner=7), broken(steps={"plain": {"median_us": -1, "spread_us": 0, "rounds": 1}}),
        broken(reason="x" * 600), broken(kept_whole=[-1]), b"[" * 5000 + CHOICE.graph.encode(),
    ],
)  # fmt: skip
def test_damaged_lines_are_passed_over(line, folder):
    with pytest.raises(LogError, match="not a choice of schedules"):
        log.decode(line)
    log.keep(CHOICE)
    with log.path_for(CHOICE.device).open("ab") as file:
        file.write(line + b"\n")
    assert log.kept(**ASKED) == CHOICE


def test_nothing_in_a_line_acts_on_a_terminal():
    found = log.decode(broken(reason="a\x1b[31mb\nc", winner="S3\x07"))
    assert found.reason.isprintable() and found.winner.isprintable()


def test_what_could_not_be_read_is_not_written(folder):
    with pytest.raises(LogError):
        log.keep(replace(CHOICE, reason="x" * 600))
    assert log.kept(**ASKED) is None


def test_a_log_that_is_no_file_is_named(folder):
    folder.mkdir()
    log.path_for(CHOICE.device).mkdir()
    with pytest.raises(LogError, match=r"some-cpu-2t\.jsonl"):
        log.kept(**ASKED)
    with pytest.raises(LogError, match=r"some-cpu-2t\.jsonl"):
        log.keep(CHOICE)
