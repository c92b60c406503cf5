"""What is tuned here goes to the records of the team, and what they have tuned is not tuned again."""

from __future__ import annotations

import json
import re

import pytest

from dwconv import settings
from dwconv.errors import EnvironmentFailure
from dwconv.records.log import TuningLog
from dwconv.records.shared import SharedRun
from tests import fake_tuning as fake
from tests.tune_command import SHAPE, plant, run

TUNE = (*SHAPE, "--passes", "fprop", "--trials", "8")


@pytest.fixture
def team(monkeypatch, tmp_path):
    """The folder of a team, on one of whose machines this is. That may be busy."""
    for name in ("SHARED_READ_TIMEOUT_S", "SHARED_WRITE_TIMEOUT_S"):
        monkeypatch.setattr(settings, name, 600.0)
    monkeypatch.setenv("DWCONV_SHARED_RECORDS", str(tmp_path / "team"))
    (tmp_path / "team").mkdir()
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "one").mkdir()
    return tmp_path / "team"


@pytest.fixture
def fakes(team, monkeypatch, tmp_path):
    return plant(monkeypatch, tmp_path / "one")


def lines_in(*folder_files):
    return sorted(line for path in folder_files for line in path.read_bytes().splitlines())


def test_what_was_measured_is_shared_at_the_end(capsys, fakes, team):
    assert run(*TUNE) == 0
    (shared,) = team.iterdir()
    assert re.fullmatch(r"fake-cpu-2t-\d{8}T\d{6}Z-[0-9a-f]{16}\.jsonl", shared.name)
    (own,) = (team.parent / "one" / "tuning_logs").iterdir()
    assert lines_in(shared) == lines_in(own) and len(lines_in(own)) > 8
    assert f"note: {len(lines_in(own))} records shared: {shared}\n" in capsys.readouterr().err


def test_another_machine_of_the_team_goes_on_from_there(capsys, fakes, team, monkeypatch, tmp_path):
    assert run(*TUNE) == 0
    capsys.readouterr()
    monkeypatch.setenv("DWCONV_TUNING_LOGS", str(tmp_path / "two"))
    assert run(*TUNE, "--json") == 0
    out, err = capsys.readouterr()
    (result,) = json.loads(out)["results"]
    assert result["measured"] == 0 and result["trials"] == 8 and len(fakes) == 1
    assert "shared" not in err and len(list(team.iterdir())) == 1, "there is nothing new to share"
    assert run(*SHAPE, "--passes", "fprop", "--minutes", "1") == 0
    assert "1 of 1 passes were searched before, by " in (err := capsys.readouterr().err) and "or the team" in err


def test_a_log_of_its_own_is_neither_shared_nor_filled_from_what_is(fakes, team):
    assert run(*TUNE) == 0
    assert run(*TUNE, "--log", "mine.jsonl") == 0
    assert len(fakes) == 2 and len(list(team.iterdir())) == 1


def test_what_was_measured_before_ctrl_c_or_an_error_is_shared(capsys, fakes, team):
    class Failing(fake.FakeRunner):
        def measure(self, candidates):
            yield from list(super().measure(candidates))[:3]
            raise EnvironmentFailure("the machine is short of patience")

    for factory, code in ((lambda: fake.FakeRunner(interrupt_after=3), 130), (Failing, 2)):
        fakes.factory = factory
        assert run(*TUNE, "--no-resume") == code
        counts = [len(TuningLog(path).load().records) for path in team.iterdir()]
        assert set(counts) == {3}
    assert len(counts) == 2


def test_while_many_passes_are_tuned_it_is_shared_now_and_then(fakes, team, monkeypatch):
    monkeypatch.setattr(settings, "SHARED_EVERY_S", 0.0)
    put, seen = SharedRun.put, []
    monkeypatch.setattr(SharedRun, "put", lambda run: seen.append(put(run)) or seen[-1])
    assert run(*SHAPE, "--passes", "fprop,dgrad", "--trials", "8") == 0
    first, second, last = seen
    assert 8 <= first < second == last


def test_a_place_that_cannot_be_written_costs_a_line_and_nothing_else(capsys, fakes, team, monkeypatch):
    team.rmdir()
    team.write_text("no folder")
    assert run(*TUNE) == 0
    err = capsys.readouterr().err
    (line,) = (line for line in err.splitlines() if "not shared" in line)
    assert "cannot be written" in line and "it is in tuning_logs/fake-cpu-2t.jsonl" in line
    assert len(TuningLog("tuning_logs/fake-cpu-2t.jsonl").load().records) > 8
