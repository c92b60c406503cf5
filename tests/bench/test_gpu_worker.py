"""A process with a GPU: what breaks in it costs one request."""

from __future__ import annotations

import os

import pytest

from bench.gpu.worker import GpuFailure, GpuWorker
from dwconv.errors import WorkerCannotStart


@pytest.fixture
def notes(tmp_path):
    return tmp_path / "notes"


@pytest.fixture
def worker(notes):
    with GpuWorker("tests.bench.planted_gpu:Sticky", str(notes)) as made:
        yield made


def asked(notes):
    return notes.read_text().splitlines()


def test_a_broken_process_is_replaced_and_the_request_tried_once_more(worker, notes):
    first = worker.ask("answer", timeout_s=20)
    assert worker.ask("break once", timeout_s=20)["pid"] not in (first["pid"], os.getpid())
    assert asked(notes) == ["answer", "break once", "break once"]
    with pytest.raises(GpuFailure, match=r"^an illegal memory access$"):
        worker.ask("break", timeout_s=20, again=False)
    worker.ask("answer", timeout_s=20)
    assert asked(notes)[3:] == ["break", "break", "answer"]


def test_a_refusal_keeps_its_process_unless_every_failure_is_tried_again(worker, notes):
    pid = worker.ask("answer", timeout_s=20)["pid"]
    with pytest.raises(GpuFailure, match=r"^BuildError: refuse second line$"):
        worker.ask("refuse", timeout_s=20, again=False)
    assert worker.ask("answer", timeout_s=20)["pid"] == pid
    with pytest.raises(GpuFailure):
        worker.ask("refuse", timeout_s=20)
    assert asked(notes).count("refuse") == 3
    assert worker.ask("answer", timeout_s=20)["pid"] != pid


def test_a_request_that_killed_its_process_is_tried_again_and_reported(worker, notes):
    with pytest.raises(GpuFailure, match="exit status 3"):
        worker.ask("die", timeout_s=20, again=False)
    assert asked(notes) == ["die", "die"]


def test_a_hang_ends_and_is_not_tried_again_where_there_is_no_time(worker, notes):
    worker.ask("answer", timeout_s=20)
    with pytest.raises(GpuFailure, match="no answer after"):
        worker.ask("hang", timeout_s=0.3, within_s=0.2)
    assert asked(notes).count("hang") == 1


def test_a_broken_process_is_replaced_where_there_is_no_time_to_try_again(worker, notes):
    with pytest.raises(GpuFailure):
        worker.ask("break", timeout_s=20, within_s=0.2)
    assert worker.ask("answer", timeout_s=20) and asked(notes) == ["break", "answer"]


def test_in_this_process_nothing_is_tried_again(notes):
    with GpuWorker("tests.bench.planted_gpu:Sticky", str(notes), here=True) as worker:
        assert worker.ask("answer", timeout_s=20) == {"pid": os.getpid()}
        with pytest.raises(GpuFailure):
            worker.ask("break", timeout_s=20)
    assert asked(notes) == ["answer", "break"]


def test_a_process_that_cannot_start_is_no_failure_of_the_request(notes):
    with (
        GpuWorker("tests.bench.planted_gpu:Nobody", str(notes)) as worker,
        pytest.raises(WorkerCannotStart, match="Nobody"),
    ):
        worker.ask("answer", timeout_s=20)
