"""What bench cuda keeps on disk, and goes on from."""

from __future__ import annotations

import json

import pytest

from bench.gpu.run import FILE, State, has_failed
from dwconv.errors import LogError
from dwconv.records.log import TuningLog
from tests.planted_records import record_of, workload_of

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
