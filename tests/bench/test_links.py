"""Links of limited rate: they have that rate, every rank meets the others, and nothing of them stays behind."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench import links
from bench.__main__ import main
from dwconv.errors import WorkerDied, WorkerTimeout
from tests.parallel.ranks import needs_gloo
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def _limited():
    if links.why_not():
        pytest.skip(links.why_not())


limited = pytest.mark.usefixtures("_limited")
SEND = """
import os, socket, sys, threading, time
count, *receivers = map(int, sys.argv[1:])
rank, world, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
addresses = [f"{os.environ['MASTER_ADDR'].rpartition('.')[0]}.{1 + each}" for each in range(world)]

def receive(connection):
    left = count
    while left and (part := connection.recv(1 << 20)):
        left -= len(part)

def at_once(function, connections):
    threads = [threading.Thread(target=function, args=(each,)) for each in connections]
    [each.start() for each in threads]
    [each.join() for each in threads]

if rank in receivers:
    here = socket.create_server((addresses[rank], port))
    print("listening", flush=True)
    senders = [here.accept()[0] for _ in range(world - len(receivers))]
    started = time.monotonic()
    at_once(lambda sender: sender.sendall(b"go") or receive(sender), senders)
    print(time.monotonic() - started, flush=True)
else:
    found = [socket.create_connection((addresses[each], port)) for each in receivers]
    [each.recv(2) for each in found]  # their clocks run
    at_once(lambda receiver: receiver.sendall(bytes(count)), found)
"""
SENT_BYTES = 1_000_000


def seconds_to_send(rate, *, world=2, receivers=(0,)):
    """From all other ranks to each receiver, at once; the last one's."""
    with links.places(world, rate) as places, ExitStack() as stack:
        started = {}
        for rank in sorted(range(world), key=lambda rank: rank not in receivers):
            command = [*places[rank].before, sys.executable, "-c", SEND, str(SENT_BYTES), *map(str, receivers)]
            environment = {**os.environ, **places[rank].environment}
            started[rank] = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            stack.callback(started[rank].kill)
            assert rank not in receivers or started[rank].stdout.readline() == "listening\n"
        return max(float(started[rank].communicate(timeout=1200)[0]) for rank in receivers)


@limited
def test_a_link_has_its_rate():
    """It takes at least that long, but for what a filter lets through at once. A rank shares it between all that it
    sends at a time, and all that it receives."""
    bits = 8 * SENT_BYTES
    assert seconds_to_send("0.1") > 0.9 * bits / 0.1e9
    assert seconds_to_send("0.02") > 0.9 * bits / 0.02e9
    assert seconds_to_send("0.1", world=3, receivers=(0, 2)) > 0.8 * 2 * bits / 0.1e9
    assert seconds_to_send("0.1", world=3, receivers=(1,)) > 0.8 * 2 * bits / 0.1e9


WAIT = """
import os, sys, time
from pathlib import Path
Path(sys.argv[1], os.environ["RANK"]).write_text(os.readlink("/proc/self/ns/net"))
time.sleep(600)
"""


def networks():
    """Of all processes that are ours to look at, by their number."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found[process.name] = str((process / "ns/net").readlink())
        except OSError:
            continue
    return found


@limited
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_behind(how, tmp_path):
    """No rank, no namespace and so no device, also after ctrl-C, or where the benchmark is killed."""
    run = f"from bench.links import run_ranks; run_ranks(['-c', {WAIT!r}, {str(tmp_path)!r}], "
    run += "name='wait', world=2, rate='1', timeout_s=600)"
    process = subprocess.Popen([sys.executable, "-c", run], cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True)
    assert eventually(lambda: len([each for each in tmp_path.iterdir() if each.read_text()]) == 2)
    inside = {each.read_text() for each in tmp_path.iterdir()}
    assert len(inside) == 2 and str(Path("/proc/self/ns/net").readlink()) not in inside
    assert sum(network in inside for network in networks().values()) == 4  # each rank, and what waits with it
    process.send_signal(how)
    process.communicate(timeout=1200)
    if how == signal.SIGINT:
        assert not inside & {*networks().values()}
    assert eventually(lambda: not inside & {*networks().values()})


def test_a_rank_that_fails_ends_the_others(tmp_path):
    code = "import os, time; time.sleep(600 * (os.environ['RANK'] == '0')); raise SystemExit(3)"
    with pytest.raises(WorkerDied, match="three: rank 1 ended with the code 3"):
        links.run_ranks(["-c", code], name="three", world=2, rate=links.LOOPBACK, timeout_s=600)


def test_ranks_that_hang_show_where(monkeypatch, tmp_path, capfd):
    """On stderr, before they are ended."""
    code = "import os, time; from bench.links import shows_where_it_hangs; shows_where_it_hangs(); "
    code += f"open({str(tmp_path)!r} + '/' + os.environ['RANK'], 'w').close(); time.sleep(600)"
    real_sleep, err = time.sleep, []

    def has_shown():
        err.append(capfd.readouterr().err)
        return "".join(err).count("most recent call first") == 2

    def sleep(seconds):
        return eventually(has_shown) if seconds == links._SHOWS_FOR_S else real_sleep(seconds)

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(links.time, "sleep", sleep)
    monkeypatch.setattr(links.time, "monotonic", lambda: 100.0 * (len([*tmp_path.iterdir()]) == 2))
    with pytest.raises(WorkerTimeout, match="two: no end after 60 s"):
        links.run_ranks(["-c", code], name="two", world=2, rate=links.LOOPBACK, timeout_s=60)
    assert "".join(err).count("most recent call first") == 2


def test_jobs_that_do_not_fit_are_left_out(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(links.time, "monotonic", lambda: now[0])
    takes = {"a": 5.0, "slow": 60.0, "b": 5.0, "slow too": 60.0, "c": 5.0, "d": 30.0}
    done = []
    jobs = links.in_time(list(takes), seconds=100, least_s=lambda job: 8, kind=lambda job: "slow" in job)
    for job, seconds in jobs:
        assert seconds > 0
        now[0] += takes[job]
        done.append(job)
    assert done == ["a", "slow", "b", "c"] or done == ["a", "slow", "b", "c", "d"]


def test_time_is_shared_out_by_what_jobs_need(monkeypatch):
    """What one leaves goes to those that come; one that does not fit leaves its part to the others."""
    now, shares = [0.0], {}
    monkeypatch.setattr(links.time, "monotonic", lambda: now[0])
    needs, takes = {"a": 10.0, "b": 90.0, "huge": 500.0, "c": 20.0}, {"a": 15.0, "b": 150.0}
    for job, seconds in links.in_time(list(needs), seconds=310, least_s=needs.get, kind=str):
        shares[job] = seconds
        now[0] += takes.get(job, seconds)
    assert list(shares) == ["a", "b", "c"] and all(shares[job] >= needs[job] for job in shares)
    assert now[0] == pytest.approx(310)


@pytest.mark.parametrize("command", ["parallel", "communication"])
@pytest.mark.parametrize("error", [WorkerDied("rank 1 ended with the code 9"), WorkerTimeout("no end after 60 s")])
def test_what_fails_is_a_row_beside_those_that_were_measured(monkeypatch, tmp_path, capsys, command, error):
    """And the error of the command in the end."""
    bench, done = importlib.import_module(f"bench.{command}"), []

    def measured(*job, **more):
        done.append(job)
        if len(done) == 1:
            raise error
        failed = {"failed": "not needed here", "name": str(job), "network": "any", "images": "any", "world": 2}
        return {**failed, "rate": "1"} if command == "communication" else [{**failed, "rate": "1"}]

    monkeypatch.setattr(bench, "measured", measured)
    assert main([command, "--rates", "10,1", "--seconds", "3000", "--out", str(tmp_path)]) != 0
    (written,) = tmp_path.iterdir()
    rows = json.loads(written.read_text())["rows"]
    assert len(rows) == len(done) > 1 and rows[0]["failed"] == str(error) and rows[0]["rate"] == "10"
    out, err = capsys.readouterr()
    assert str(error) in out and err.count("\n") == 1 and str(error) in err


def test_a_step_is_sized_up_by_its_gradients_and_its_link():
    computes_s, sends_s = links.rough_step_s(94e6, world=2, rate="0.1")
    assert 0.5 < computes_s < 2 and sends_s == pytest.approx(94e6 / 12.5e6)
    assert links.rough_step_s(94e6, world=4, rate="0.1")[1] == pytest.approx(1.5 * sends_s)


@pytest.mark.parametrize("command", ["parallel", "communication"])
def test_bad_rates_are_one_line(command, capsys):
    for rates, named in (("1,fast", "fast"), ("", "nothing"), ("1,", "nothing"), ("-1", "-1"), ("0", "0")):
        with pytest.raises(SystemExit):
            main([command, f"--rates={rates}"])
        err = capsys.readouterr().err
        assert f"{named} is no rate; write loopback, or Gbit/s such as 1" in err


@limited
@needs_gloo
@pytest.mark.slow
def test_ranks_whose_link_vanishes_end_with_one_line(tmp_path):
    (tmp_path / "timeout").write_text("15")
    with links.places(2, "1") as places:
        ranks = [
            subprocess.Popen(
                [*place.before, sys.executable, "-m", "tests.parallel.jobs", str(tmp_path)],
                env={**os.environ, **place.environment, "DWCONV_NATIVE": "0"},
                cwd=ROOT, stderr=subprocess.PIPE, text=True,
            )
            for place in places
        ]  # fmt: skip
        assert eventually(lambda: len([*tmp_path.glob("under-way-*")]) == 2)
        subprocess.run([*places[0].before, "ip", "link", "set", "eth0", "down"], check=True)
        for number, rank in enumerate(ranks):
            _, err = rank.communicate(timeout=600)
            assert rank.returncode == 2, err
            assert f"rank {number} of 2 lost the connection to the others" in err and err.count("\n") == 1


# -- without namespaces ------------------------------------------------------------------------------------------------


def test_what_is_missing_is_named(monkeypatch):
    links.why_not.cache_clear()
    monkeypatch.setattr(links.shutil, "which", lambda program: None if program == "tc" else program)
    assert links.why_not() == "links cannot be limited without tc; install iproute2 and util-linux"
    monkeypatch.undo()
    links.why_not.cache_clear()
    monkeypatch.setattr(links, "_namespace", links.contextmanager(refused))
    assert re.fullmatch(
        r"links cannot be limited here \(unshare --net: Operation not permitted\); run it as root, or on loopback",
        links.why_not(),
    )
    links.why_not.cache_clear()


def refused(made_by):
    raise links._failed(["unshare", "--net"], b"Operation not permitted\n")
    yield


def test_a_program_that_fails_is_the_reason(tmp_path):
    said = r"\(sh -c .*: no such thing\); run it as root, or on loopback$"
    with pytest.raises(links.NoLinks, match=said), links._namespace(["sh", "-c", "echo no such thing >&2; exit 1"]):
        pass
