"""Database: which record answers."""

from __future__ import annotations

import dataclasses
import secrets

import pytest

from dwconv import settings
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.records.record import AROUND, TRANSPOSED, Measurement, Status
from dwconv.schedules.space import Config
from tests.planted_records import record_of, workload_of

WORKLOAD = workload_of(shape=(8, 16, 14, 14))
A, B, C = (Config.of("cpu.made_up", block_h=value) for value in (1, 2, 4))


def known(**facts):
    return record_of(facts.pop("workload", WORKLOAD), **{"device": "here", **facts})


def confirmed(**facts):
    return dataclasses.replace(known(**facts), confirmed=True)


@pytest.fixture
def database(tmp_path):
    def load(*records):
        log = TuningLog(tmp_path / "log.jsonl")
        for record in records:
            log.append(record)
        return Database.load([tmp_path])

    return load


def best(database, workload=WORKLOAD):
    found = database.best(workload, "here")
    return found and (found.config, found.measurement.median_us, found.workload.batch)


BUSY = {"onednn-nhwc": Measurement(median_us=100, spread_us=1, rounds=9, contention=0.5)}
OF = {
    "the fastest": ([known(config=A, median_us=3), known(config=B, median_us=1)], (B, 1, 8)),
    "of the usual arithmetic": (
        [dataclasses.replace(known(config=A, median_us=1), versions={"math": "fast"}), known(config=B, median_us=2)],
        (B, 2, 8),
    ),
    "of this device, pass, size and layout": (
        [
            known(device="elsewhere"),
            known(workload=WORKLOAD.for_pass("wgrad")),
            known(workload=workload_of(shape=(8, 16, 14, 15))),
            known(workload=workload_of(shape=(8, 16, 14, 14), layout="nchw")),
        ],
        None,
    ),
    "what worked and was measured": (
        [known(config=A, status=each) for each in Status if each is not Status.OK]
        + [known(config=B, median_us=1, computed=True)],
        None,
    ),
    "the last line of a candidate": (
        [known(config=A, median_us=1), known(config=B, median_us=2), known(config=A, median_us=3)], (B, 2, 8),
    ),
    "not what failed later, however busy the machine was": (
        [
            known(config=A, median_us=1),
            known(config=B, median_us=2),
            dataclasses.replace(known(config=A, status=Status.WRONG), providers=BUSY),
        ],
        (B, 2, 8),
    ),
    "a measurement, not a later computation": (
        [known(config=A, median_us=5), known(config=A, median_us=1, computed=True)], (A, 5, 8),
    ),
    "knobs in any order": (
        [known(config=Config.of("t", a=1, b=2), median_us=1), known(config=Config.of("t", b=2, a=1), median_us=3)],
        (Config.of("t", b=2, a=1), 3, 8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", OF)
def test_the_best_is(database, what):
    records, expected = OF[what]
    assert best(database(*records)) == expected


CLOCKS = {
    "steps back": ("2026-03-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00"),
    "is not there": ("", ""),
    "is nonsense": ("zzzz", "2026-01-01T00:00:00+00:00"),
}


@pytest.mark.parametrize("clock", CLOCKS.values(), ids=list(CLOCKS))
def test_in_a_file_the_later_line_counts_whatever_its_clock_says(database, clock):
    worked = known(config=A, median_us=1, created=clock[0])
    failed = known(config=A, status=Status.CRASHED, created=clock[1])
    assert best(database(known(config=B, median_us=2), worked, failed)) == (B, 2, 8)
    mended = dataclasses.replace(worked, created=clock[1])
    assert best(database(dataclasses.replace(failed, created=clock[0]), mended)) == (A, 1, 8)


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_what_files_of_a_place_say_of_one_candidate_is_weighed(tmp_path, names):
    """Confirmed records count before others, which may have been lucky; slower before faster ones; and failures before
    all."""
    files = [TuningLog(tmp_path / f"{name}.jsonl") for name in names]
    files[0].append(known(config=B, median_us=20))
    files[0].append(known(config=A, median_us=9))
    files[1].append(known(config=A, median_us=1))
    assert best(Database.load([tmp_path])) == (A, 9, 8)
    files[1].append(confirmed(config=A, median_us=4))
    assert best(Database.load([tmp_path])) == (A, 4, 8)
    files[1].append(known(config=A, median_us=3))
    assert best(Database.load([tmp_path])) == (A, 9, 8), "a file's last line is its word"
    files[0].append(confirmed(config=A, median_us=9))
    files[1].append(known(config=A, status=Status.WRONG))
    assert best(Database.load([tmp_path])) == (B, 20, 8), "however sure the other file is"


@pytest.mark.parametrize(("asked", "answered"), [(8, 8), (1, 2), (3, 2), (5, 8), (16, 8), (40, 64), (1000, 64), (4, 8)])
def test_the_nearest_batch_answers_by_ratio(database, asked, answered):
    found = database(
        *(known(workload=WORKLOAD.with_batch(batch), median_us=batch) for batch in (2, 8, 64)),
        known(workload=WORKLOAD.with_batch(asked), config=B, status=Status.CRASHED),
    )
    assert best(found, WORKLOAD.with_batch(asked))[2] == answered


def test_batches_are_ranked_the_nearest_first(database):
    found = database(
        *(known(workload=WORKLOAD.with_batch(batch), config=config) for batch in (64, 2, 16) for config in (A, B)),
        known(workload=WORKLOAD.with_batch(2), config=A, status=Status.WRONG),
        known(workload=WORKLOAD.with_batch(9), config=A, status=Status.WRONG),
    )
    ranked = found.ranked_by_batch(WORKLOAD, "here")
    assert [(records[0].workload.batch, len(records)) for records in ranked] == [(16, 2), (2, 1), (64, 2)]
    assert ranked[0] == found.ranked(WORKLOAD, "here")


def test_records_of_a_workload_are_those_of_its_batch_in_order_failures_too(database):
    first, second = known(config=B, status=Status.TIMEOUT), known(config=A)
    found = database(first, known(workload=WORKLOAD.with_batch(4)), second, known(device="elsewhere"))
    assert found.records(WORKLOAD, "here") == [first, second]
    assert len(found.at_any_batch(WORKLOAD, "here")) == 3


def test_files_and_folders_are_read_once_and_what_is_not_there_holds_nothing(tmp_path):
    TuningLog(tmp_path / "folder" / "a.jsonl").append(known())
    (tmp_path / "folder" / "notes.txt").write_text("not a log")
    listed = [tmp_path / "folder", tmp_path / "folder" / "a.jsonl", tmp_path / "nowhere", tmp_path / "none.jsonl"]
    found = Database.load(listed)
    assert found.logs == [tmp_path / "folder" / "a.jsonl"]
    assert len(found.records(WORKLOAD, "here")) == 1
    assert found.problems == []


@pytest.fixture
def places(tmp_path):
    """A database of several places, each with the records of one list."""

    def load(*lists):
        folders = [tmp_path / secrets.token_hex(4) for _ in lists]
        for folder, records in zip(folders, lists, strict=True):
            for record in records:
                TuningLog(folder / "log.jsonl").append(record)
        return Database.load(*([folder] for folder in folders))

    return load


def test_earlier_places_go_before_later_ones(places):
    later = {"created": "2026-03-01T00:00:00Z"}
    shipped = [confirmed(config=B, median_us=2, **later), confirmed(config=C, median_us=1)]
    found = places([confirmed(config=A, median_us=5)], shipped)
    assert [record.config for record in found.ranked(WORKLOAD, "here")] == [A, C, B]
    found = places([known(config=A, median_us=1)], shipped)
    assert best(found) == (C, 1, 8), "what was not confirmed may be luck"
    own = [known(config=C, status=Status.WRONG), confirmed(config=B, median_us=7)]
    assert [record.measurement.median_us for record in places(own, shipped).ranked(WORKLOAD, "here")] == [7]
    nearer = places([confirmed(workload=WORKLOAD.with_batch(1), config=A)], [confirmed(config=B, median_us=2)])
    assert best(nearer) == (B, 2, 8)


def test_usually_the_users_own_log_comes_before_what_ships(tmp_path, monkeypatch):
    monkeypatch.delenv("DWCONV_TUNING_LOGS", raising=False)
    monkeypatch.setattr(settings, "own_log_folder", lambda: tmp_path / "own")
    monkeypatch.setattr(settings, "shipped_log_folder", lambda: tmp_path / "shipped")
    monkeypatch.chdir(tmp_path)
    TuningLog(tmp_path / "shipped" / "here.jsonl").append(confirmed(config=B, median_us=2))
    assert best(Database.usual()) == (B, 2, 8)
    TuningLog(tmp_path / "own" / "here.jsonl").append(confirmed(config=A, median_us=5))
    assert best(Database.usual()) == (A, 5, 8)
    assert best(Database.usual(tmp_path / "shipped" / "here.jsonl")) == (B, 2, 8), "only that one"
    (own,) = Database.usual().of_own_places
    assert own.config == A, "what ships was not measured here"
    packed = Database.usual().behind([confirmed(config=C, median_us=9)], [])
    assert best(packed) == (C, 9, 8) and [each.config for each in packed.of_own_places] == [C, A]


def test_the_fastest_other_provider_is_the_baseline_and_that_of_the_own_layout_the_alternative():
    taken = {"onednn-nhwc": 30.0, "onednn-nchw": 20.0, "aten-nhwc": 40.0, AROUND: 1.0, TRANSPOSED: 2.0}
    providers = {name: Measurement(median_us=us, spread_us=1, rounds=9) for name, us in taken.items()}
    record = dataclasses.replace(known(config=A, median_us=10), providers=providers)
    assert (record.baseline[0], record.alternative[0], record.speedup) == ("onednn-nchw", "onednn-nhwc", 2.0)
    assert record.transposed == providers[TRANSPOSED], "it is another op, of other layers"
    alone = dataclasses.replace(record, providers={AROUND: providers[AROUND]})
    assert (alone.baseline, alone.alternative, alone.speedup) == (None, None, None), "it does a part of a block alone"


def test_of_what_was_only_computed_the_doubtful_ranks_behind():
    def record(config, median_us, *, computed=True, **resources):
        plain = record_of(WORKLOAD, config=config, median_us=median_us, computed=computed)
        return dataclasses.replace(plain, resources=resources)

    spilling, framed = record(A, 1, spill_bytes=72), record(A, 2, stack_bytes=8, spill_bytes=0)
    lean, measured = record(B, 5, spill_bytes=0, stack_bytes=0), record(C, 1, computed=False, spill_bytes=72)
    assert sorted([spilling, framed, lean], key=lambda record: record.rank) == [lean, spilling, framed]
    assert measured.rank < lean.rank, "what was measured has paid for its spills"
    guessed = record(C, 1, counted_from_text=1)
    assert lean.rank < guessed.rank, "its loops may turn many times"


# -- records of other versions ---------------------------------------------------------------------------------------


def old(**facts):
    return dataclasses.replace(known(**facts), versions={"torch": "1"})


def is_new(record):
    return record.versions != {"torch": "1"}


def configs_of(found, **more):
    return [record.config for record in found.ranked(WORKLOAD, "here", **more)]


def test_current_records_come_before_others_however_sure_those_are(database):
    found = database(dataclasses.replace(old(config=A, median_us=1), confirmed=True), known(config=B, median_us=9))
    assert configs_of(found, is_current=is_new) == [B, A]
    assert configs_of(found) == [A, B], "unless it is not requested"


def test_a_record_of_another_version_hides_no_current_one_further_on(places):
    stale, current = dataclasses.replace(old(config=A, median_us=1), confirmed=True), confirmed(config=A, median_us=7)
    for found in (places([stale], [current]), places([current], [stale])):
        assert [record.measurement.median_us for record in found.ranked(WORKLOAD, "here", is_current=is_new)] == [7]


def test_a_failure_of_another_version_is_no_failure_here(places):
    found = places([old(config=A, status=Status.CRASHED)], [known(config=A)])
    assert configs_of(found, is_current=is_new) == [A]
    assert configs_of(found) == []


def test_the_best_of_a_kind_are_of_all_sizes_devices_and_versions(places):
    wide = dataclasses.replace(WORKLOAD, channels=WORKLOAD.channels * 2)
    kind = [old(config=A), known(workload=wide, device="elsewhere", median_us=7), known(config=B, median_us=99)]
    none = [known(workload=wide, device="elsewhere", status=Status.WRONG), known(workload=wide, median_us=8)]
    others = [
        known(workload=WORKLOAD.for_pass("wgrad")),
        known(workload=dataclasses.replace(WORKLOAD, layout="nchw" if WORKLOAD.layout == "nhwc" else "nhwc")),
        known(workload=dataclasses.replace(WORKLOAD, dtype="float16")),
    ]
    found = places([others[0], kind[0], others[1]], [*none, kind[1], others[2], kind[2]])
    assert found.bests_of_kind(WORKLOAD.with_batch(99)) == kind[:2]
    found.places.clear()
    assert found.bests_of_kind(wide) == kind[:2], "looked for once"
    assert found.bests_of_kind(WORKLOAD.for_pass("dgrad")) == []


def test_of_a_kind_the_best_of_each_arithmetic_is_known(places):
    usual, slower, fast, faster = (
        dataclasses.replace(known(config=config, median_us=us), versions={"math": "fast"} if is_fast else {})
        for config, us, is_fast in ((A, 5, False), (B, 6, False), (A, 9, True), (C, 1, True))
    )
    for order in ([usual, slower, fast, faster], [faster, fast, slower, usual], [fast, slower, usual, faster]):
        assert sorted(places(order).bests_of_kind(WORKLOAD), key=lambda best: best.fast_math) == [usual, faster]
    only_slower = places([usual, fast]).bests_of_kind(WORKLOAD)
    assert sorted(only_slower, key=lambda best: best.fast_math) == [usual, fast], "a slow one is the best of its own"


def test_a_record_that_is_added_is_known_as_if_it_had_been_read(tmp_path):
    log = TuningLog(tmp_path / "log.jsonl")
    log.append(known(config=A, median_us=5))
    wide = dataclasses.replace(WORKLOAD, input_size=(33, 33))
    database = Database.behind_log(log.path, alone=True)
    assert database.bests_of_kind(WORKLOAD) and not database.other_sizes(WORKLOAD, "here")
    assert configs_of(database) == [A]
    log.followers.append(database.add)
    for each in (known(config=B, median_us=1), known(config=A, status=Status.WRONG), known(workload=wide)):
        log.append(each)
    again = Database.load([log.path])
    assert list(database) == list(again) and len(list(again)) == 4
    assert configs_of(database) == configs_of(again) == [B]
    assert database.bests_of_kind(WORKLOAD) == again.bests_of_kind(WORKLOAD)
    assert database.other_sizes(WORKLOAD, "here") == again.other_sizes(WORKLOAD, "here") == [wide]
    missing = Database.behind_log(tmp_path / "missing.jsonl", alone=True)
    missing.add(known(config=A))
    assert configs_of(missing) == [A] == configs_of(missing.of_own_places)


def test_kernels_of_any_size_are_among_those_of_the_size_that_they_were_measured_at(database):
    general = WORKLOAD.with_any_size()
    several = dataclasses.replace(general, also_at=((28, 28),))
    found = database(
        known(config=A, median_us=2),
        known(workload=general, config=A, median_us=1),
        known(workload=several, config=B, median_us=0.5),
        known(workload=general.with_input_size((15, 15)), config=C, median_us=0.1),
        known(workload=general, config=B, status=Status.CRASHED),
    )
    assert [each.workload for each in found.ranked(WORKLOAD, "here")] == [general, WORKLOAD]
    assert [each.workload for each in found.ranked(general, "here")] == [several, general]
    assert not found.failed(WORKLOAD, "here"), "that one crashes says nothing of a kernel for one size"
    assert {each.input_size for each in found.at_sizes(general, "here")} == {(14, 14), (15, 15)}
    assert found.devices(workload_of(shape=(8, 16, 15, 15))) == found.devices_of_layer(general) == ["here"]
