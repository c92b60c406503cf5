"""How the seconds of bench cuda are spent, on a clock that the tests turn; what it keeps on disk, and goes on from."""

from __future__ import annotations

import json
import time

import pytest

from bench.gpu.run import FILE, Budget, Interrupted, Pace, State, has_failed, interrupted_after
from dwconv.errors import LogError
from dwconv.records.log import TuningLog
from tests.planted_records import record_of, workload_of


class Watch:
    """A clock that stands still until it is turned."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def watch():
    return Watch()


def test_a_stage_gets_its_share_of_what_those_before_it_left(watch):
    budget = Budget(100, now=watch)
    weights = {"a": 1, "b": 3, "c": 1}
    first = budget.pace(["a", "b", "c"], weights=weights, first_s=1, most_s=1000)
    assert first.left_s == 20
    watch.at += 5  # it took less
    assert budget.pace(["b", "c"], weights=weights, first_s=1, most_s=1000).left_s == 95 * 3 / 4
    assert budget.pace(["b", "c"], weights=weights, first_s=1, most_s=7).left_s == 7
    watch.at += 500
    assert budget.left_s == 0 == budget.pace(["c"], weights=weights, first_s=1, most_s=9).left_s


def test_an_item_starts_if_those_before_it_would_have_fitted(watch):
    pace = Pace(30, first_s=12, now=watch)
    assert pace.fits
    for taken_s in (6, 10):
        with pace.item():
            watch.at += taken_s
    assert pace.expected_s == 8 and pace.left_s == 14 and pace.fits
    watch.at += 6.5
    assert not pace.fits
    assert not Pace(0, first_s=0, now=watch).fits


def test_what_an_item_takes_beside_its_grant_is_learnt(watch):
    pace = Pace(100, first_s=10, now=watch)
    assert pace.grant_s(items=4, least_s=4, most_s=60) == 25 - 6
    with pace.item(granted_s=19):
        watch.at += 19 + 11
    assert pace.grant_s(items=3, least_s=4, most_s=60) == pytest.approx(70 / 3 - 11)
    assert pace.grant_s(items=3, least_s=4, most_s=5) == 5
    assert pace.grant_s(items=50, least_s=4, most_s=60) == 4, "few done well instead of all badly"
    watch.at += 56
    assert pace.grant_s(items=1, least_s=4, most_s=60) is None
    assert pace.grant_s(items=0, least_s=0, most_s=1) == 1


def test_granted_items_keep_to_the_time(watch):
    """Whatever an item takes beside: the last one may be late by what it took longer than those before it."""
    for beside_s in (0.5, 3.0, 9.0):
        started = watch.at
        pace = Pace(200, first_s=10, now=watch)
        left = 54
        while left and (seconds := pace.grant_s(items=left, least_s=4, most_s=60)):
            with pace.item(granted_s=seconds):
                watch.at += seconds + beside_s
            left -= 1
        assert 0.9 * 200 <= watch.at - started <= 1.05 * 200


def test_what_takes_too_long_is_interrupted():
    with pytest.raises(Interrupted, match="no end after 0 s"), interrupted_after(0.05):
        while True:
            time.sleep(0.01)


def test_what_handles_the_interruption_itself_can_ask_whether_it_was_one():
    with interrupted_after(0.05) as up:
        try:
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            assert up.is_set()


def test_ctrl_c_stays_ctrl_c():
    with pytest.raises(KeyboardInterrupt), interrupted_after(60):
        raise KeyboardInterrupt


def test_what_ends_in_time_is_left_alone():
    with interrupted_after(0.1) as up:
        pass
    time.sleep(0.2)
    assert not up.is_set()


DEVICE = "nvidia-made-up"


def opened(folder, **options):
    return State.open(folder, device=DEVICE, **options)


def test_it_goes_on_where_it_stopped(tmp_path):
    folder = tmp_path / "deep" / "er"
    state = opened(folder)
    state.put("tune", "a", {"trials": 3})
    state.put("tune", "b", {"failed": "boom"})
    state.flush()
    again = opened(folder)
    assert again.of("tune") == {"a": {"trials": 3}, "b": {"failed": "boom"}}
    assert again.left("tune", ["a", "b", "c"]) == ["c", "b"], "what failed is tried again, after the others"
    assert again.left("race", ["a"]) == ["a"]
    again.put("tune", "b", {"failed": "boom"})
    assert again.left("tune", ["a", "b", "c"]) == ["c"], "once in a run"


def test_many_answers_in_a_row_are_all_written(tmp_path):
    state = opened(tmp_path)
    for number in range(50):
        state.put("verify", str(number), {"verdict": "right"})
    state.flush()
    assert len(json.loads((tmp_path / FILE).read_text())["answers"]["verify"]) == 50


def test_an_earlier_run_comes_along_with_its_log(tmp_path):
    earlier = opened(tmp_path / "earlier")
    earlier.put("tune", "a", {"trials": 3})
    earlier.put("tune", "b", {"trials": 4})
    earlier.flush()
    first, second = (record_of(workload_of(), device=DEVICE, median_us=us) for us in (10.0, 20.0))
    TuningLog(tmp_path / "earlier" / f"{DEVICE}.jsonl").append(first)
    own = opened(tmp_path / "own")
    own.put("tune", "b", {"trials": 9})
    own.flush()
    TuningLog(tmp_path / "own" / f"{DEVICE}.jsonl").append(second)
    for _ in range(2):  # the second time nothing comes twice
        state = opened(tmp_path / "own", continue_from=tmp_path / "earlier" / FILE)
        assert state.of("tune") == {"a": {"trials": 3}, "b": {"trials": 9}}
        assert TuningLog(tmp_path / "own" / f"{DEVICE}.jsonl").load().records == [second, first]
    same = opened(tmp_path / "earlier", continue_from=tmp_path / "earlier" / FILE)
    assert len(same.of("tune")) == 2
    assert TuningLog(tmp_path / "earlier" / f"{DEVICE}.jsonl").load().records == [first]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        ("{torn", "is damaged"),
        ("[1]", "holds no answers"),
        ('{"verify": {}}', "holds no answers"),
        ('{"format": 2, "device": "nvidia-made-up", "answers": {"tune": 3}}', "holds no answers"),
        ('{"format": 2, "device": "nvidia-other", "answers": {}}', "belongs to nvidia-other, this is nvidia-made-up"),
    ],
)
def test_a_file_that_cannot_be_continued_is_named(tmp_path, text, why):
    file = tmp_path / "old.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(LogError, match=f"continue-from={file}.*{why}.*; name the {FILE} of") as raised:
        opened(tmp_path / "own", continue_from=file)
    assert "\n" not in str(raised.value)
    if text is not None:
        (tmp_path / FILE).write_text(text)
        with pytest.raises(LogError, match=f"out={tmp_path}.*{why}.*; remove it, or name another folder"):
            opened(tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match=f"out={tmp_path}/file/sub cannot be made"):
        opened(tmp_path / "file" / "sub")


def test_failed_is_what_says_so():
    assert has_failed({"failed": "x"}) and not has_failed({"failures": 3}) and not has_failed(None)
