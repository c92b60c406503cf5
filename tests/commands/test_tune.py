"""``python -m dwconv.tune`` while it tunes, and at the end."""

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest

from dwconv import native, settings, tune
from dwconv.errors import WorkerCannotStart
from dwconv.measure import limits
from dwconv.problems import target as target_module
from dwconv.problems.workload import Workload
from dwconv.records.log import TuningLog
from dwconv.records.record import Status
from dwconv.tuner.campaign_result import Tuned
from dwconv.tuner.results_table import Outcome, Progress
from dwconv.tuner.search import search_loop, search_state
from dwconv.tuner.search.search_result import Budget, TuningResult
from dwconv.tuner.user_choices import UserChoices
from tests import fake_tuning as fake
from tests.tune_command import SHAPE, plant, run, shown_next


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    return plant(monkeypatch, tmp_path)


def test_by_default_the_users_own_log_is_written_and_what_ships_stays_as_it_is(capsys, fakes, monkeypatch, tmp_path):
    monkeypatch.delenv("DWCONV_TUNING_LOGS")
    monkeypatch.setattr(settings, "own_log_folder", lambda: tmp_path / "own")
    (tmp_path / "tuning_logs").mkdir()  # as in a source tree
    shipped = TuningLog(tmp_path / "tuning_logs" / "fake-cpu-2t.jsonl")
    space = fake.space(fake.WORKLOAD, fake.TARGET)
    best = fake.record(
        fake.WORKLOAD, space.check({**space.default.to_dict(), "block_h": 7, "tile_h": 7, "tile_w": 1}), median_us=9
    )
    shipped.append(best)
    before = shipped.path.read_bytes()
    assert run(*SHAPE, "--trials", "8", "--passes", "fprop", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["log"] == str(tmp_path / "own" / "fake-cpu-2t.jsonl")
    assert answer["results"][0]["measured"] == 8, "measured here, whatever others have measured"
    tried = [record.config for record in TuningLog(answer["log"]).load().records]
    assert best.config in tried[:4], "but what was best elsewhere is tried among the first"
    assert shipped.path.read_bytes() == before


@pytest.mark.parametrize(
    ("us", "lost", "said"),
    [
        ([50.0, 300.0], 0.0, "dwconv.convert(model) uses these kernels"),
        ([300.0, 300.0], 0.0, None),
        ([50.0, 50.0], 0.5, "run the same command again when the machine is quiet"),
    ],
)
def test_what_to_do_next_is_what_helps(us, lost, said):
    """Where no kernel would run, ``convert`` would change nothing."""
    outcomes = []
    for each in us:
        best = fake.record(fake.WORKLOAD, fake.space(fake.WORKLOAD, fake.TARGET).default, median_us=each)
        best = dataclasses.replace(best, measurement=dataclasses.replace(best.measurement, contention=lost))
        result = TuningResult(workload=fake.WORKLOAD, device="d", budget=Budget(), best=best, trials=1)
        outcomes.append(Outcome(workload=fake.WORKLOAD, result=result))
    log = Path("log")
    told = str(Tuned(outcomes=tuple(outcomes), target=fake.TARGET, log=log, is_own_log=True, left=0, interrupted=False))
    nexts = [line.removeprefix("next: ") for line in told.splitlines() if line.startswith("next: ")]
    assert nexts == ([said] if said else [])


def test_few_minutes_do_not_wait_for_what_takes_half_a_minute(fakes, capsys, monkeypatch):
    """Neither here nor in the process that measures."""
    assert run(*SHAPE, "--trials", "2", "--minutes", "0.1") == 0
    assert fakes.native_asked_after == [] and "0.1 minutes are too few to compile" in capsys.readouterr().err
    assert run(*SHAPE, "--trials", "2", "--seconds", "9", "--log", "other.jsonl") == 0
    assert fakes.native_asked_after == [] and "9 seconds a pass are too few to compile" in capsys.readouterr().err
    before = len(fakes)
    assert run(*SHAPE, "--trials", "2", "--minutes", "5", "--log", "again.jsonl") == 0
    assert fakes.native_asked_after == [before], "where the user sees it, before anything is measured"
    assert "is not compiled after 45 s; the next run may have it" in capsys.readouterr().err
    for module in (None, object()):
        monkeypatch.setattr(native, "module", module)
        assert UserChoices().workers(fake.TARGET).measurer._setup.compiles_calls is (module is not None)


@pytest.mark.parametrize(
    ("choices", "passes", "waits"),
    [
        (UserChoices(), 3, True),
        (UserChoices(trials=8), 1, True),
        (UserChoices(minutes=4.9), 300, False),
        (UserChoices(minutes=5), 1, True),
        (UserChoices(seconds=10), 3, False),
        (UserChoices(seconds=10), 30, True),
        (UserChoices(seconds=10, minutes=1), 300, False),
    ],
)
def test_a_short_run_does_not_wait_for_the_compiler(choices, passes, waits):
    assert (choices.compiles_for_s(passes=passes) > 0) is waits


def test_a_kernel_beyond_the_limits_has_them_measured_again_at_once(capsys, fakes, monkeypatch):
    """No percentage is shown above 100, neither while it is tuned nor in the end."""
    few, many = (
        dataclasses.replace(fake.TARGET.limits, memory_gb_per_s=rate, cache_gb_per_s=rate) for rate in (0.1, 1e4)
    )
    monkeypatch.setattr(target_module, "cpu_target", lambda: dataclasses.replace(fake.TARGET, limits=few))
    doubted, measured = [], []
    monkeypatch.setattr(limits, "doubt", doubted.append)
    for better in (many, few, WorkerCannotStart("no more processes")):

        def measure(target, better=better):
            measured.append(target.limits)
            if target.limits is None and isinstance(better, Exception):
                raise better
            return dataclasses.replace(target, limits=target.limits or better)

        monkeypatch.setattr(limits, "with_limits", measure)
        assert run(*SHAPE, "--trials", "8", "--json", "--no-resume") == 0
        out, err = capsys.readouterr()
        assert err.count("which are measured again") == 1 and "% of limit" not in err
        assert ("no more processes" in err) == isinstance(better, Exception)
        percents = [result["percent_of_limit"] for result in json.loads(out)["results"] if result["trials"]]
        assert len(percents) == 2
        assert all(0 < percent < 100 for percent in percents) if better is many else percents == [None, None]
    assert measured == [few, None] * 3 and len(doubted) == 3


def test_json_is_one_object_on_stdout(capsys, fakes):
    fakes.factory = lambda: fake.FakeRunner(fails=lambda c: Status.TIMEOUT if c.tile_w == 1 else None)
    assert run(*SHAPE, "--trials", "30", "--json") == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer["target"] == "cpu"
    assert answer["log"] == "tuning_logs/fake-cpu-2t.jsonl"
    assert [result["pass"] for result in answer["results"]] == ["fprop", "dgrad", "wgrad"]
    fprop, _, wgrad = answer["results"]
    assert fprop["workload"] == "fprop-n8-c96-28x28-k3x3-s1x1-p1x1-d1x1-m1-float32-nhwc"
    assert Workload.from_dict(fprop["workload_fields"]) == fake.WORKLOAD
    assert fprop["config"]["template"] == "fake.fprop"
    assert fprop["baseline"] == "onednn-nhwc" and fprop["baseline_us"] == fake.BASELINE_US
    assert fprop["speedup"] == pytest.approx(fake.BASELINE_US / fprop["median_us"])
    assert 0 < fprop["percent_of_limit"] < 100
    assert fprop["trials"] == 30 and fprop["failures"]["timeout"] > 0 and not fprop["predicted"]
    assert wgrad["config"] is None and wgrad["trials"] == 0 and "no wgrad template" in wgrad["reason"]
    assert "fprop --shape 8,96,28,28 --kernel 3 --layout nhwc" in err


@pytest.mark.parametrize("columns", [80, 100])
def test_the_table_shows_everything_at_80_columns(capsys, fakes, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    fakes.factory = lambda: fake.FakeRunner(fails=lambda c: Status.WRONG if c.tile_w == 1 else None)
    assert run(*SHAPE, "--trials", "16") == 0
    out = capsys.readouterr().out
    table = out[: out.index("\nlog: ")]
    assert max(map(len, table.splitlines())) <= columns
    best = min((r for r in TuningLog("tuning_logs/fake-cpu-2t.jsonl").load().records if r.measurement),
               key=lambda r: r.measurement.median_us)  # fmt: skip
    words = _words(table)
    assert str(best.config) in words
    assert f"{best.measurement.median_us:.1f} ± 1.00 onednn-nhwc 200.0" in words
    assert "wrong" in words and "no template" in words
    assert "log: tuning_logs/fake-cpu-2t.jsonl (32 new trials, 0 known before)" in out
    assert ("dwconv.convert(model) uses these kernels" in out) is (best.speedup > 1)
    assert "dwconv.show --shape 8,96,28,28 --kernel 3 --layout nhwc --pass fprop --target cpu --what source" in out
    assert shown_next(out) == ["source"]
    assert "\x1b" not in out
    assert run(*SHAPE, "--trials", "16") == 0 and "(0 new trials, 32 known before)" in capsys.readouterr().out
    made = len(fakes)
    assert run(*SHAPE, "--trials", "16", "--no-resume") == 0 and len(fakes) == made + 2


class BusyRunner(fake.FakeRunner):
    """Other work takes half of the time of whatever is confirmed."""

    def confirm(self, candidates):
        for record in super().confirm(candidates):
            contended = dataclasses.replace(record.measurement, contention=0.5)
            yield dataclasses.replace(record, measurement=contended, confirmed=False)


@pytest.fixture
def full_machine(monkeypatch):
    """Other work has 83 % of the cores, for as long as the search waits."""
    monkeypatch.setattr(search_state.Quiet, "wait", lambda quiet, *, timeout_s: setattr(quiet, "busy", 0.83))


@pytest.mark.usefixtures("full_machine")
def test_a_busy_machine_is_reported_and_the_same_command_confirms_later(capsys, fakes):
    fakes.factory = BusyRunner
    options = [*SHAPE, "--trials", "8", "--passes", "fprop,dgrad"]
    assert run(*options, "--json") == 0
    out, err = capsys.readouterr()
    assert [(r["confirmed"], r["too_busy"], r["busy"]) for r in json.loads(out)["results"]] == [(False, True, 0.83)] * 2
    assert "the machine is busy: waiting" in err and "not confirmed: the machine was busy" in err
    assert err.endswith(
        "note: the machine was busy with other work (83% of its cores); 2 passes are not confirmed; "
        "run the same command again when it is quiet\n"
    )
    fakes.factory = fake.FakeRunner
    assert run(*options, "--json") == 0
    out, err = capsys.readouterr()
    results = json.loads(out)["results"]
    assert [(r["confirmed"], r["too_busy"], r["measured"]) for r in results] == [(True, False, 0)] * 2
    assert "busy" not in err

    class AlwaysBusy(BusyRunner):
        def measure(self, candidates):
            for record in super().measure(candidates):
                contended = dataclasses.replace(record.measurement, contention=0.5)
                yield dataclasses.replace(record, measurement=contended)

    fakes.factory = AlwaysBusy
    assert run(*options, "--log", "busy.jsonl") == 0
    out, err = capsys.readouterr()
    assert "± 1.00 (contended)" in out and "µs (contended)" in err
    assert "faster than PyTorch's own op: 0 of 2; the others keep PyTorch's op" in out


def test_threads_beyond_the_cores_and_garbage_in_the_log_are_reported_once(capsys, fakes, monkeypatch, tmp_path):
    monkeypatch.setattr("dwconv.system.cpu_facts.allowed_cores", lambda: {0})
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'nonsense\n{"format": 1}\n\xff\xfe\n')
    assert run(*SHAPE, "--trials", "4", "--passes", "fprop,dgrad", "--log", path, "--json") == 0
    out, err = capsys.readouterr()
    assert [result["trials"] for result in json.loads(out)["results"]] == [4, 4]
    assert err.count("2 threads on 1 core") == 1
    (line,) = (line for line in err.splitlines() if "damaged" in line)
    assert "3 damaged lines set aside; line 1: " in line


def test_every_log_is_read_once(capsys, fakes, tmp_path, monkeypatch):
    own = TuningLog(tmp_path / "tuning_logs" / "fake-cpu-2t.jsonl")
    for path in (own.path, own.path.with_name("other.jsonl")):
        TuningLog(path).append(fake.record(fake.WORKLOAD, fake.space(fake.WORKLOAD, fake.TARGET).default, median_us=9))
    read, real = [], TuningLog.readable_lines
    monkeypatch.setattr(
        TuningLog, "readable_lines", lambda log, *given, **named: read.append(log.path) or real(log, *given, **named)
    )
    assert run(*SHAPE, "--minutes", "1", "--trials", "4", "--passes", "fprop,dgrad", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["results"]) == 2
    assert len(read) == len(set(read)) == 2


def test_ctrl_c_prints_the_best_so_far(capsys, fakes):
    fakes.factory = lambda: fake.FakeRunner(interrupt_after=5)
    assert run(*SHAPE, "--trials", "30") == 130
    out, err = capsys.readouterr()
    assert "fake.fprop" in out and "dgrad" not in out
    assert "interrupted: run the same command to continue" in err
    assert len(TuningLog("tuning_logs/fake-cpu-2t.jsonl").load().records) == 5
    fakes.factory = lambda: fake.FakeRunner(interrupt_after=0)
    assert run(*SHAPE, "--trials", "30", "--log", "other.jsonl") == 130
    assert "interrupted before anything was measured" in capsys.readouterr().out


def test_nothing_works(capsys, fakes):
    fakes.factory = lambda: fake.FakeRunner(fails=lambda config: Status.COMPILE_ERROR)
    assert run(*SHAPE, "--trials", "4", "--passes", "fprop") == tune.NOTHING_WORKED_EXIT_CODE
    assert "none of 4 candidates worked: 4 compile_error; the last one: compile_error: line one" in _words(
        capsys.readouterr().out
    )


def test_the_budget_that_is_named_is_the_one_that_counts(capsys, fakes, monkeypatch):
    given = []
    monkeypatch.setattr(search_loop, "tune_workload", lambda *_, **options: given.append(options) or pytest.fail())
    for options in ([], ["--trials", "5"], ["--seconds", "7"], ["--search", "exhaustive"], ["--minutes", "9"]):
        with pytest.raises(pytest.fail.Exception):
            run(*SHAPE, "--passes", "fprop", *options)
    assert [(o["budget"].trials, o["budget"].seconds, o["budget"].patience) for o in given] == [
        (64, 20.0, 48), (5, None, 48), (None, 7.0, 48), (None, None, None), (None, 20.0, 48),
    ]  # fmt: skip


@pytest.mark.parametrize("search", ["evolve", "random"])
def test_the_same_seed_tries_the_same_configurations(fakes, search):
    def tried(log: str, *options: str) -> list[str]:
        assert run(*SHAPE, "--trials", "24", "--passes", "fprop", "--search", search, "--log", log, *options) == 0
        return [str(record.config) for record in TuningLog(log).load().records if not record.confirmed]

    usual, other = tried("0.jsonl"), tried("7.jsonl", "--seed", "7")
    assert len(usual) == len(other) == 24 and set(usual) != set(other)
    assert tried("0 again.jsonl", "--seed", "0") == usual
    assert tried("7 again.jsonl", "--seed", "7") == other


@pytest.mark.parametrize("seed", ["-1", "1_0", "1.5", "٣", "9" * 19])
def test_a_seed_that_is_none_is_refused(fakes, capsys, seed):
    assert run(*SHAPE, f"--seed={seed}") == 2
    assert f"--seed: {seed} is not a whole number from 0 on" in capsys.readouterr().err


def test_the_live_line_fits_on_a_line(fakes, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert run(*SHAPE, "--trials", "8", "--passes", "fprop", "--json") == 0
    out, err = capsys.readouterr()
    json.loads(out)
    plain = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", err)
    lines = [line for line in re.split(r"[\r\n]+", plain) if line and not line.startswith("note: ")]
    words = r"8 trials, all trials done after \d+ s, best .* µs, .*× onednn-nhwc, \d+ % of limit"
    (end,) = [line for line in lines if line.startswith("fprop ")]
    assert re.fullmatch(rf"fprop --shape 8,96,28,28 --kernel 3 --layout nhwc: {words}", end)
    live = [line for line in lines if line != end]
    assert any(" fprop: 8 trials" in line for line in live) and max(map(len, live)) <= 80
    assert all(re.match(r". fprop: ", line) for line in live), "none goes on in a second line"


def test_a_live_line_that_is_too_long_is_cut_off(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress(workloads=1) as progress:
        progress.begin(Workload(pass_="fprop", batch=8, channels=96, input_size=(28, 28), kernel=(3, 3)))
        progress._show("about to confirm the best, best 322.9 µs, 0.62× onednn-nhwc")
    plain = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", capsys.readouterr().err)
    lines = {line[2:] for line in re.split(r"[\r\n]+", plain) if line}
    assert lines - {"fprop: starting"} == {"fprop: about to confirm the best, bes…"}


def _words(text: str) -> str:
    return re.sub(r"\s+", " ", text)
