"""How the seconds of bench cuda are spent, on a clock that the tests turn; what it keeps on disk, and goes on from."""

from __future__ import annotations

import json
import time

import pytest

from bench.gpu.run import FILE, Interrupted, Pace, State, has_failed, interrupted_after
from dwconv.errors import LogError


def test_an_item_starts_if_those_before_it_would_have_fitted():
    at = [100.0]
    pace = Pace(30, first_s=12, now=lambda: at[0])
    assert pace.fits
    for taken_s in (6, 10):
        with pace.item():
            at[0] += taken_s
    assert pace.expected_s == 8 and pace.left_s == 14 and pace.fits
    at[0] += 6.5
    assert not pace.fits
    assert not Pace(0, first_s=0, now=lambda: at[0]).fits


def test_what_takes_too_long_is_interrupted_and_ctrl_c_stays_ctrl_c():
    with pytest.raises(Interrupted, match="no end after 0 s"), interrupted_after(0.05):
        while True:
            time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt), interrupted_after(60):
        raise KeyboardInterrupt
    with interrupted_after(0.1):
        pass
    time.sleep(0.2)


DEVICE = "nvidia-made-up"


def test_it_goes_on_where_it_stopped(tmp_path):
    folder = tmp_path / "deep" / "er"
    state = State.open(folder, device=DEVICE)
    state.put("tune", "a", {"trials": 3})
    state.put("tune", "b", {"failed": "boom"})
    for number in range(50):
        state.put("verify", str(number), {"verdict": "right"})
    state.flush()
    assert len(json.loads((folder / FILE).read_text())["answers"]["verify"]) == 50
    again = State.open(folder, device=DEVICE)
    assert again.of("tune") == {"a": {"trials": 3}, "b": {"failed": "boom"}}
    assert again.left("tune", ["a", "b", "c"]) == ["c", "b"], "what failed is tried again, after the others"
    assert again.left("race", ["a"]) == ["a"]
    again.put("tune", "b", {"failed": "boom"})
    assert again.left("tune", ["a", "b", "c"]) == ["c"], "once in a run"
    again.take("tune", {"a": {"trials": 9}, "c": {"trials": 1}})
    assert again.of("tune")["a"] == {"trials": 3} and again.left("tune", ["a", "c"]) == []


def test_what_ships_is_measured_again_once_if_it_is_asked_for(tmp_path):
    shipped = {"a": {"trials": 3}, "b": {"trials": 4}}
    state = State.open(tmp_path, device=DEVICE)
    state.take("tune", shipped, again=True)
    assert state.left("tune", ["a", "b", "c"]) == ["c", "a", "b"] and state.of("tune") == shipped
    state.put("tune", "a", {"trials": 5})
    assert state.left("tune", ["a", "b"]) == ["b"]
    state.flush()
    later = State.open(tmp_path, device=DEVICE)
    later.take("tune", shipped, again=True)
    assert later.left("tune", ["a", "b"]) == ["b"] and later.of("tune")["a"] == {"trials": 5}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{torn", "is damaged"),
        ("[1]", "holds no answers"),
        ('{"format": 1, "device": "nvidia-made-up", "answers": {}}', "holds no answers of bench cuda in format 2"),
        ('{"format": 2, "device": "nvidia-made-up", "answers": {"tune": 3}}', "holds no answers"),
        ('{"format": 2, "device": "nvidia-other", "answers": {}}', "belongs to nvidia-other, this is nvidia-made-up"),
    ],
)
def test_a_file_that_cannot_be_continued_is_named(tmp_path, text, why):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(LogError, match=f"out={tmp_path}.*{why}.*; remove it, or name another folder") as raised:
        State.open(tmp_path, device=DEVICE)
    assert "\n" not in str(raised.value)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match=f"out={tmp_path}/file/sub cannot be made"):
        State.open(tmp_path / "file" / "sub", device=DEVICE)


def test_failed_is_what_says_so():
    assert has_failed({"failed": "x"}) and not has_failed({"failures": 3}) and not has_failed(None)
