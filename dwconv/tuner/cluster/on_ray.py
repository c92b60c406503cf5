"""A cluster of Ray: an actor for each device. The only file that imports Ray.

A node with GPUs has an actor for each of them, any other node one for its cores, which Ray then gives to no other.
Actors get their work by name and data (``worker.NodeWorker``); dwconv is installed on every node.
"""

from __future__ import annotations

import os
import re
import socket
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dwconv import settings
from dwconv.errors import BrokenInstallation, DwconvError, NodeLost, NoDevice, described_error, one_line
from dwconv.measure.processes.worker import locate
from dwconv.system import interpreter

if TYPE_CHECKING:
    import ray

WORKER = "dwconv.tuner.cluster.node_worker:NodeWorker"
_MOST_SAID = 300
_ANSWER_S = 10.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class RayCluster:
    """The nodes of the cluster at ``address``; without one, of that which runs on this machine, or of a Ray that is
    started here. A context manager: at its end the actors end, and what was started here with them.

    ``kind``: ``cpu`` or ``cuda`` devices; ``auto`` are GPUs where a node has some. ``worker``: ``module:name`` of the
    class that tunes on a node. Raises BrokenInstallation without Ray, NoDevice if none answers or has such devices."""

    def __init__(self, address: str | None, *, kind: str, worker: str = WORKER) -> None:
        ray = _ray()
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            _connect(address)
        self.links: list[RayLink] = []
        try:
            self.links = list(_actors(kind, worker))
            if not self.links:
                wanted = "GPUs" if kind == "cuda" else "cores or GPUs"
                raise NoDevice(f"ray={address or 'local'}: no node has {wanted}; see ray status")
        except BaseException:
            self.close()
            raise

    def answers(self, *, timeout_s: float) -> list[tuple[RayLink, object]]:
        """What has been answered to the last question of each node, as soon as there is something; nothing after
        ``timeout_s``. Where a node cannot answer, a NodeLost."""
        ray = _ray()
        links = {link.answer: link for link in self.links if link.answer is not None}
        if not links:
            return []
        ready, _ = ray.wait(list(links), num_returns=1, timeout=timeout_s)
        found: list[tuple[RayLink, object]] = []
        for reference in ready:
            link = links[reference]
            link.answer = None
            found.append((link, _answer(reference)))
        return found

    def close(self) -> None:
        """End the actors."""
        for link in self.links:
            link.end()
        if self._is_ours:
            _ray().shutdown()

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class RayLink:
    """An actor, and the answer that it owes."""

    def __init__(self, name: str, actor: Any) -> None:
        self.name = name
        self.answer: ray.ObjectRef[object] | None = None
        self._actor = actor

    def ask(self, method: str, *arguments: object) -> None:
        self.answer = self._actor.call.remote(method, *arguments)

    def end(self) -> None:
        self.answer = None
        _ray().kill(self._actor)


class Actor:
    """Runs in a process that Ray starts on a node."""

    def __init__(self, worker: str, *, kind: str, position: int, cpus: int) -> None:
        settings.forget_threads_of_ray()
        if cpus and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, share_of_cores(os.sched_getaffinity(0), position=position, count=cpus))
        self._worker = locate(worker)(kind)

    def call(self, method: str, *arguments: object) -> object:
        return getattr(self._worker, method)(*arguments)


def share_of_cores(cores: set[int], *, position: int, count: int) -> set[int]:
    """``count`` of the ``cores`` of a machine, others for each position; all if there are too few for that."""
    share = sorted(cores)[position * count : (position + 1) * count]
    return set(share) if len(share) == count else cores


def check_ray_is_here() -> None:
    """Raises BrokenInstallation without Ray."""
    _ray()


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise BrokenInstallation("--ray needs Ray, which is not installed; run: pip install 'dwconv[ray]'") from None
    return ray


def _connect(address: str | None) -> None:
    if address:
        _check_answers(address)
    elif not interpreter.runs_python():
        raise NoDevice("ray=local would start this program again, as Python; give the address of a cluster")
    settings.quiet_ray()
    try:
        _ray().init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise NoDevice(
            f"ray={address or 'local'}: no cluster answers: {one_line(str(error), most=_MOST_SAID)}; start one with "
            "ray start --head, or leave the address out"
        ) from None


def _check_answers(address: str) -> None:
    """Raises NoDevice if nothing listens at ``address``: Ray itself would wait for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not (host and port.isascii() and port.isdigit()):
        raise NoDevice(f"ray={address} is not an address such as 10.0.0.1:6379, which ray start --head prints")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise NoDevice(f"ray={address}: nothing answers there: {described_error(error)}; see ray status") from error


def _actors(kind: str, worker: str) -> Iterator[RayLink]:
    """Started on the devices of the cluster, node by node."""
    ray = _ray()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = [node for node in ray.nodes() if node["Alive"]]
    seen: Counter[str] = Counter()
    for node in sorted(alive, key=lambda node: (node["NodeManagerHostname"], node["NodeID"])):
        cpus, gpus = (int(node["Resources"].get(resource, 0)) for resource in ("CPU", "GPU"))
        name = node["NodeManagerHostname"]
        seen[name] += bool(cpus or gpus)
        if seen[name] > 1:  # several nodes of Ray on one machine
            name = f"{name} ({seen[name]})"
        gpus = gpus if kind != "cpu" else 0
        if not gpus and (not cpus or kind == "cuda"):
            continue
        share, there = cpus // (gpus or 1), NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        options = {"num_cpus": share, "num_gpus": min(gpus, 1), "max_restarts": 0, "scheduling_strategy": there}
        actor = ray.remote(Actor).options(**options)
        for position in range(gpus or 1):
            started = actor.remote(worker, kind="cuda" if gpus else "cpu", position=position, cpus=share)
            yield RayLink(f"{name} GPU {position}" if gpus else name, started)


def _answer(reference: Any) -> object:
    """The answer, or a NodeLost that says why there is none."""
    ray = _ray()
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        return NodeLost(str(cause) if isinstance(cause, DwconvError) else described_error(cause))
    except ray.exceptions.RayError as error:
        return NodeLost(reason_of(error))


def reason_of(error: Exception) -> str:
    """The line of a message of Ray's that says most: of what an actor raised when it was made, the last one."""
    lines = _COLOURS.sub("", str(error)).strip().splitlines() or [type(error).__name__]
    return one_line(lines[-1] if "creation task" in lines[0] else lines[0], most=_MOST_SAID)
