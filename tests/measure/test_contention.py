"""The time that other work took, from planted readings; and this system's own readings can be read."""

import threading
from types import SimpleNamespace

import psutil
import pytest

from dwconv.measure.clock import contention
from dwconv.measure.clock.contention import Load, Quiet, Reading, lost, lost_to_the_machine, others, oversubscription
from dwconv.measure.requests import CheckRequest, MeasureAnswer, Tried
from dwconv.measure.runner import LocalRunner
from dwconv.records.record import AtSize, Measurement, Verdict
from tests.measure import planted_kernels
from tests.measure.planted_kernels import TARGET, candidate, workload

START = Reading(wall_s=10.0, caller_s=3.0, waits=7, switches=4, queued_s=1.0)


def after(*, wall_s=0.010, caller_s=0.010, waits=0, switches=0, queued_s=0.0):
    """A reading so much later than START."""
    queued_s = None if queued_s is None else START.queued_s + queued_s
    return Reading(wall_s=10.0 + wall_s, caller_s=3.0 + caller_s, waits=7 + waits, switches=4 + switches,
                   queued_s=queued_s)  # fmt: skip


@pytest.mark.parametrize(
    ("later", "share"),
    [
        (after(), 0.0),
        (after(caller_s=0.0101), 0.0),  # clocks of different grain
        (after(queued_s=0.004), 0.4),  # a thread of ours had no core
        (after(queued_s=0.030), 1.0),  # several
        (after(caller_s=0.007), 0.3),  # the hypervisor had the caller's core
        (after(caller_s=0.007, waits=1), 0.0),  # it slept, or waited for a thread that had its core
        (after(caller_s=0.007, waits=1, queued_s=0.002), 0.2),
        (after(switches=3), 0.0),  # the system says how long that took: nothing
        (after(switches=3, queued_s=None), 0.03),
    ],
)
def test_what_a_lap_lost(later, share):
    before = START if later.queued_s is not None else after(wall_s=0, caller_s=0, queued_s=None)
    assert lost(before, later) == pytest.approx(share, abs=1e-6)


def load(*, busy_s, stolen_s=0.0, own_s=0.0, total_s=4.0):
    return Load(total_s=total_s, busy_s=busy_s, stolen_s=stolen_s, own_s=own_s)


NOTHING = load(busy_s=0, total_s=0)


@pytest.mark.parametrize(
    ("later", "oversubscribed", "share"),
    [
        (load(busy_s=4.0, own_s=4.0), True, 0.0),  # four threads of ours on two cores, and no other work
        (load(busy_s=4.0, own_s=1.0), True, 0.7375),
        (load(busy_s=4.0, own_s=1.0), False, 0.0),  # which rounds were contended is known better
        (load(busy_s=3.0, own_s=1.0), True, 0.0),  # cores were idle
        (load(busy_s=4.0, own_s=3.8, stolen_s=0.2), False, 0.0),  # as on any virtual machine
        (load(busy_s=4.0, own_s=2.0, stolen_s=2.0), False, 0.4875),
        (load(total_s=0.3, busy_s=0.3, own_s=0.26), True, 0.0),  # ticks
        (NOTHING, True, 0.0),  # a system without these counters
    ],
)
def test_what_the_machine_lost(later, oversubscribed, share):
    assert lost_to_the_machine(NOTHING, later, oversubscribed=oversubscribed) == pytest.approx(share)


def test_the_work_of_others_is_what_is_not_our_own(monkeypatch):
    assert others(NOTHING, load(busy_s=3.0, own_s=1.0)) == pytest.approx(0.5)
    assert others(NOTHING, load(busy_s=1.0, own_s=1.2)) == 0.0
    assert others(NOTHING, NOTHING) == 0.0

    def refused(*, percpu):
        raise PermissionError("/proc/stat")

    monkeypatch.setattr(psutil, "cpu_times", refused)
    now = contention.load(own_s=lambda: 1.0)
    assert (now.total_s, now.busy_s) == (0.0, 0.0), "a system that reports nothing"


def test_only_the_cores_that_we_may_use_count(monkeypatch):
    def core(user, idle, steal):
        times = SimpleNamespace(user=user, idle=idle, iowait=1.0, steal=steal, guest=user)
        times._asdict = lambda: {k: v for k, v in vars(times).items() if k != "_asdict"}
        return times

    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [core(5, 0, 0), core(2, 6, 1), core(3, 5, 1)])
    monkeypatch.setattr(contention, "allowed_cores", lambda: {1, 2})
    now = contention.load(own_s=lambda: 4.0)
    assert now == Load(total_s=20.0, busy_s=7.0, stolen_s=2.0, own_s=4.0)  # guest is in user already
    monkeypatch.setattr(contention, "allowed_cores", lambda: None)
    assert contention.load(own_s=lambda: 4.0).total_s == 26.0


@pytest.fixture
def busy_shares(monkeypatch):
    """Set to the shares of four cores that others have, look after look."""
    shares: list[float] = []
    now = {"busy_s": 0.0, "total_s": 0.0}

    def rest(seconds):
        now["total_s"] += 4 * seconds
        now["busy_s"] += 4 * seconds * shares.pop(0)

    monkeypatch.setattr(contention, "cores", lambda: 4)
    monkeypatch.setattr(contention, "load", lambda **_: load(**now))
    monkeypatch.setattr(contention.time, "sleep", rest)
    return shares


def test_quiet_is_a_core_for_each_thread(busy_shares):
    busy_shares += [0.05, 0.5, 0.5]
    assert Quiet(threads=4).look()
    half = Quiet(threads=4)
    assert not half.look() and half.busy == pytest.approx(0.5)
    assert Quiet(threads=2).look()


def test_waiting_ends_when_it_is_quiet_or_the_time_is_up(busy_shares):
    busy_shares += [1.0, 1.0, 0.0, 1.0]
    assert Quiet(threads=4).wait(timeout_s=30.0) and busy_shares == [1.0]
    busy_shares += [1.0] * 100
    quiet = Quiet(threads=4)
    assert not quiet.wait(timeout_s=3.0) and quiet.busy == 1.0
    assert 90 <= len(busy_shares) <= 92, "a look takes three tenths of a second"


def test_threads_of_our_own_that_crowd_each_other_are_named(monkeypatch):
    monkeypatch.setattr(contention, "cores", lambda: 1)
    assert oversubscription(2) == "2 threads on 1 core" and oversubscription(1) == ""


def test_this_system_can_be_read():
    ended = threading.Event()
    before = contention.read()
    threads = [threading.Thread(target=ended.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    during = contention.read()
    ended.set()
    for thread in threads:
        thread.join()
    later = contention.read()
    assert before.wall_s < during.wall_s < later.wall_s and 0 <= lost(before, during) <= 1 >= lost(during, later) >= 0
    assert (before.queued_s is None) == (later.queued_s is None)
    first = contention.load()
    assert first.busy_s <= first.total_s and contention.cores() >= 1


def test_where_the_run_queue_is_not_counted(tmp_path):
    assert contention._RunQueue(tmp_path / "absent").waited_s() is None
    (tmp_path / "7").mkdir()
    for text, waited_s in (("", None), ("5000 2500000000 3\n", 2.5)):
        (tmp_path / "7" / "schedstat").write_text(text)
        assert contention._RunQueue(tmp_path).waited_s() == waited_s


# -- what becomes of it ------------------------------------------------------------------------------------------------

QUIET = Measurement(median_us=100.0, spread_us=1.0, rounds=31)
BUSY = Measurement(median_us=8000.0, spread_us=1.0, rounds=31, contention=0.5)


def finals(monkeypatch, *, kernel=QUIET, provider=QUIET):
    """The record of one finalist that was timed so."""

    def request(self, body, *, share=1):
        right = Verdict(right=True, max_error=0, allowed_error=1)
        if isinstance(body, CheckRequest):
            return MeasureAnswer(verdict=right)
        taken = AtSize(input_size=(9, 7), measurement=kernel, providers={"onednn-nhwc": provider})
        return MeasureAnswer(each=(Tried(verdict=right, times=(taken,)),))

    def build(self, candidates):
        yield from ()
        return [planted_kernels.artifact(each) for each in candidates]

    monkeypatch.setattr(LocalRunner, "_request", request)
    monkeypatch.setattr(LocalRunner, "_build", build)
    runner = LocalRunner(workload(), TARGET, workers=SimpleNamespace(start=lambda: None))
    (record,) = runner.confirm([candidate()])
    return record


@pytest.mark.parametrize("who", ["kernel", "provider"])
def test_finalists_are_confirmed_unless_other_work_disturbed_them_or_their_rivals(monkeypatch, who):
    assert finals(monkeypatch).confirmed
    record = finals(monkeypatch, **{who: BUSY})
    assert not record.confirmed and record.inconclusive and record.contention == 0.5
    assert record.measured and record.speedup > 0
