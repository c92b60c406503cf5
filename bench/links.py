"""Links that cost something: each rank in a network namespace of its own, joined by a bridge of limited rate.

    rank 0   eth0 ══ port0 ┐              each ══ is a pair of virtual Ethernet devices; neither end sends more than the
    rank 1   eth0 ══ port1 ┼ bridge       rate (tc, a token bucket filter), so a rank sends and receives at that rate,
    rank 2   eth0 ══ port2 ┘              both at once

A namespace lives as long as a process in it: ``cat`` waits there for the end of its input, which comes at the latest
with the end of this process; the ranks end then, too. So nothing stays behind, however a benchmark ends. Root makes
namespaces; others do where the system lets them have namespaces of users.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dwconv.errors import DwconvError, WorkerDied, WorkerTimeout, one_line

LOOPBACK = "loopback"
RATES = (LOOPBACK, "10", "1", "0.1")
"""``loopback``, or Gbit/s."""
_PROGRAMS = ("ip", "tc", "unshare", "nsenter", "setpriv")
_ADDRESS, _PORT = "10.77.0.{}", 29500
"""In namespaces of their own, so they can be in use elsewhere."""
_LEAST_BURST_BYTES, _BURST_S = 2**13, 1e-3
"""Of the filter: a few packets, into which it cuts what is larger, and what it may send between two ticks of its clock.
What goes at once is no part of the rate: a message of some hundred KiB would be too fast."""
_QUEUE_BYTES = 2**25
"""So much that nothing is dropped: TCP sends less ahead."""
_POLL_S = 0.05
_ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")


class NoLinks(DwconvError):
    """This machine does not let us limit links; the message says what is missing."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a rank runs."""

    before: tuple[str, ...]
    """Its command begins with this."""
    environment: dict[str, str]
    """Where it meets the others."""


def name_of(rate: str) -> str:
    """In words."""
    return rate if rate == LOOPBACK else f"{rate} Gbit/s"


def add_rates_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--rates``."""
    parser.add_argument(
        "--rates", type=_rates, default=RATES, metavar="RATE,…",
        help=f"links between the ranks: {LOOPBACK}, or Gbit/s; default {','.join(RATES)}",
    )  # fmt: skip


def _rates(text: str) -> tuple[str, ...]:
    rates = tuple(text.split(","))
    for rate in rates:
        if rate != LOOPBACK and not (_is_number(rate) and 0.001 <= float(rate) <= 1000):
            raise argparse.ArgumentTypeError(f"{rate or 'nothing'} is no rate; write {LOOPBACK}, or Gbit/s such as 1")
    return rates


def _is_number(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit()


@functools.cache
def why_not() -> str:
    """Why links cannot be limited here; empty if they can."""
    try:
        with _limited(2, bits_s=1e9):
            return ""
    except NoLinks as error:
        return str(error)


Job = TypeVar("Job")


_KEEPS_WITHIN = 1.2
"""Of its share a job may take so much without counting as one that does not keep to it."""


def in_time(
    jobs: Sequence[Job], *, seconds: float, least_s: Callable[[Job], float], kind: Callable[[Job], object]
) -> Iterator[tuple[Job, float]]:
    """Jobs with the seconds that each may take, while time is left: shares of it by ``least_s``, what a job needs at
    least. Where another of its kind did not keep to its share, it needs as much as that took."""
    until_s = time.monotonic() + seconds
    longest_s: dict[object, float] = {}
    needs_s = [least_s(job) for job in jobs]
    for number, job in enumerate(jobs):
        left_s, started_s = until_s - time.monotonic(), time.monotonic()
        needed_s = max(needs_s[number], longest_s.get(kind(job), 0.0))
        if left_s < needed_s:
            continue
        of_all_s = sum(each for each in needs_s[number:] if each <= left_s)
        share_s = max(needed_s, left_s * needs_s[number] / of_all_s)
        yield job, share_s
        if (taken_s := time.monotonic() - started_s) > _KEEPS_WITHIN * share_s:
            longest_s[kind(job)] = max(taken_s, longest_s.get(kind(job), 0.0))


_BYTES_OF_COMPUTING_S = 1e8
"""A step computes for about a second for so many bytes of gradients."""
_LOOPBACK_GBIT_S = 10.0


def rough_step_s(gradient_bytes: float, *, world: int, rate: str) -> tuple[float, float]:
    """What a step computes, and how long all-reduce then takes on that link: as rough as time is shared out by."""
    gbit_s = _LOOPBACK_GBIT_S if rate == LOOPBACK else float(rate)
    return gradient_bytes / _BYTES_OF_COMPUTING_S, 2 * (world - 1) / world * gradient_bytes / (gbit_s / 8 * 1e9)


# -- ranks on a link ---------------------------------------------------------------------------------------------------


def run_ranks(command: Sequence[str], *, name: str, world: int, rate: str, timeout_s: float) -> None:
    """Run ``python COMMAND`` as ranks of one thread each, and wait for the end of all. Raises NoLinks, WorkerDied where
    one fails, and WorkerTimeout after the ranks have printed where they are. No rank outlives this."""
    ends_at_s = time.monotonic() + timeout_s
    with places(world, rate) as found, ExitStack() as stack:
        ranks = [_started(command, place) for place in found]
        for rank in ranks:
            stack.callback(_end, rank)
        while any(rank.poll() is None for rank in ranks):
            failed = [number for number, rank in enumerate(ranks) if rank.poll()]
            if failed:
                raise WorkerDied(f"{name}: rank {failed[0]} ended with the code {ranks[failed[0]].returncode}")
            if time.monotonic() > ends_at_s:
                _show_where(ranks)
                raise WorkerTimeout(f"{name}: no end after {timeout_s:.0f} s")
            time.sleep(_POLL_S)
        if any(rank.returncode for rank in ranks):
            raise WorkerDied(f"{name}: its ranks ended with the codes {[rank.returncode for rank in ranks]}")


_WHERE = signal.SIGUSR1
_SHOWS_FOR_S = 2.0


def shows_where_it_hangs() -> None:
    """A rank calls it once: it then prints the stacks of its threads before it is ended because its time is up."""
    faulthandler.register(_WHERE)


def _show_where(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        rank.send_signal(_WHERE)
    time.sleep(_SHOWS_FOR_S)


def _started(command: Sequence[str], place: Place) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **place.environment}
    return subprocess.Popen([*place.before, sys.executable, *command], env=environment)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@contextmanager
def places(world: int, rate: str) -> Iterator[list[Place]]:
    """A place for each rank, with links of that rate while the context lasts. Raises NoLinks."""
    if rate == LOOPBACK:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        yield [_place(rank, world, address="127.0.0.1", port=port, device="lo") for rank in range(world)]
        return
    with _limited(world, bits_s=float(rate) * 1e9) as entered:
        yield [
            _place(rank, world, address=_ADDRESS.format(1), port=_PORT, device="eth0", before=(*before, *_ENDS_WITH_US))
            for rank, before in enumerate(entered)
        ]


def _place(rank: int, world: int, *, address: str, port: int, device: str, before: Sequence[str] = ()) -> Place:
    environment = {
        "MASTER_ADDR": address, "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": device,
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # it warns that addresses have no names
    }  # fmt: skip
    return Place(before=tuple(before), environment=environment)


def sent_bytes(device: str = "eth0") -> int | None:
    """What this rank has sent since its link is there; None on loopback, which all processes share."""
    for line in Path("/proc/self/net/dev").read_text(encoding="utf-8").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == device and os.environ.get("GLOO_SOCKET_IFNAME") == device:
            return int(numbers.split()[8])
    return None


# -- namespaces --------------------------------------------------------------------------------------------------------


@contextmanager
def _limited(world: int, *, bits_s: float) -> Iterator[list[list[str]]]:
    """What a command begins with to run on each of ``world`` ends of such links."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        raise NoLinks(f"links cannot be limited without {' and '.join(missing)}; install iproute2 and util-linux")
    users = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    with ExitStack() as stack:
        bridge = stack.enter_context(_namespace(["unshare", *users, "--net"]))
        into_users = ["nsenter", "--user", "--preserve-credentials", f"--target={bridge}"] if users else []
        ends = [stack.enter_context(_namespace([*into_users, "unshare", "--net"])) for _ in range(world)]
        entered = [_into(each, with_users=bool(users)) for each in (bridge, *ends)]
        _join(entered[0], entered[1:], ends, bits_s=bits_s)
        yield entered[1:]


def _join(bridge: Sequence[str], ranks: Sequence[Sequence[str]], ends: Sequence[int], *, bits_s: float) -> None:
    burst_bytes = max(_LEAST_BURST_BYTES, round(bits_s / 8 * _BURST_S))
    limit = f"root tbf rate {bits_s:.0f}bit burst {burst_bytes} limit {_QUEUE_BYTES}"
    _run([*bridge, "ip", "-batch", "-"], ["link add bridge type bridge", "link set bridge up"])
    for rank, end in enumerate(ends):
        port = f"port{rank}"
        pair = f"link add {port} type veth peer name eth0 netns {end}"
        _run([*bridge, "ip", "-batch", "-"], [pair, f"link set {port} master bridge up"])
        own = [f"addr add {_ADDRESS.format(rank + 1)}/24 dev eth0", "link set eth0 up", "link set lo up"]
        _run([*ranks[rank], "ip", "-batch", "-"], own)
        _run([*bridge, "tc", "-batch", "-"], [f"qdisc add dev {port} {limit}"])
        _run([*ranks[rank], "tc", "-batch", "-"], [f"qdisc add dev eth0 {limit}"])


@contextmanager
def _namespace(made_by: Sequence[str]) -> Iterator[int]:
    """A process that waits in new namespaces."""
    waiting = subprocess.Popen(
        [*made_by, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    assert waiting.stdin is not None and waiting.stdout is not None and waiting.stderr is not None
    try:
        try:
            waiting.stdin.write(b"\n")
            is_there = waiting.stdout.read(1)
        except BrokenPipeError:
            is_there = b""
        if not is_there:
            raise _failed(made_by, waiting.stderr.read())
        yield waiting.pid
    finally:
        _end(waiting)
        for pipe in (waiting.stdin, waiting.stdout, waiting.stderr):
            pipe.close()


def _into(process: int, *, with_users: bool) -> list[str]:
    users = ["--user", "--preserve-credentials"] if with_users else []
    return ["nsenter", *users, "--net", f"--target={process}"]


def _run(command: Sequence[str], lines: Sequence[str]) -> None:
    ran = subprocess.run(command, input="\n".join(lines).encode(), capture_output=True)
    if ran.returncode:
        raise _failed(command, ran.stderr)


def _failed(command: Sequence[str], said: bytes) -> NoLinks:
    reason = one_line(said.decode(errors="replace"))
    return NoLinks(f"links cannot be limited here ({' '.join(command)}: {reason}); run it as root, or on {LOOPBACK}")
