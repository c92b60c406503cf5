"""The output of a benchmark: bench/results/<benchmark>-<device>.json, with everything that its figures depend on.

One file a benchmark and device, overwritten by the next run; the history of the repository keeps the earlier ones. It
also holds the state of the machine: what it is, and how quiet it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import msgspec
import psutil

import dwconv
from dwconv.commands.command_line import writable_folder
from dwconv.errors import DwconvError, InvalidChoice, one_line
from dwconv.measure.clock.contention import Quiet
from dwconv.measure.limits import known_limits
from dwconv.problems.target import CpuTarget, Target
from dwconv.records.record import CONTENDED
from dwconv.system import versions
from dwconv.system.cpu_facts import cores
from dwconv.system.new_file import replace_file

FOLDER = Path("bench/results")
T = TypeVar("T")


class UnreadableResults(DwconvError):
    """A file that holds no results of a benchmark, or of another one than it is compared with."""


def add_out_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--out``, the folder that ``write_results`` writes to."""
    default = str(FOLDER)  # text, which argparse checks too
    parser.add_argument("--out", type=writable_folder, default=default, help=f"folder for the JSON, default {FOLDER}")


def add_log_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--log``, the tuning log to read and extend. The default, None, reads every log that dispatch reads, and
    writes the one that ``tune`` writes."""
    parser.add_argument(
        "--log", type=Path, help="tuning log to read and extend, default all that dispatch reads and your own"
    )


def read_alone(log: Path | None) -> None:
    """From now on dispatch reads that log alone; None leaves it those that it reads. It decides anew."""
    if log is not None:
        os.environ["DWCONV_TUNING_LOGS"] = str(log)
    dwconv.reset()


def name_part(network: str) -> str:
    """How the name of results names a network: ``timm-tinynet-d`` for ``timm:tinynet_d``."""
    return re.sub(r"[^a-z0-9]+", "-", network.lower())


def _anywhere(arguments: Sequence[str]) -> list[str]:
    """``arguments`` without ``--out`` and its folder, which is of one machine."""
    outs = [place for place, each in enumerate(arguments) if each == "--out"]
    left_out = {*outs, *(place + 1 for place in outs)}
    return [each for place, each in enumerate(arguments) if place not in left_out and not each.startswith("--out=")]


def write_results(name: str, *, target: Target, rows: list[dict[str, Any]], folder: Path, **facts: Any) -> Path:
    """Write ``rows`` and ``facts``; returns the file's path. Times in ``rows`` have their units in their names. Prints
    a note if other work disturbed some rows, by their ``contention``: the share of the time that it took. Raises
    InvalidChoice if it cannot be written; what was there stays."""
    limits = target.limits or (known_limits(target) if isinstance(target, CpuTarget) else None)
    results = {
        "benchmark": name,
        "command": shlex.join(["python", "-m", "bench", *_anywhere(sys.argv[1:])]),
        "created": versions.now(),
        "device": target.device,
        "threads": target.threads if isinstance(target, CpuTarget) else None,
        "limits": dataclasses.asdict(limits) if limits else None,
        "versions": {**versions.installed(), "python": platform.python_version()},
        **facts,
        "rows": rows,
    }
    path = folder / f"{name}-{target.device}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, [json.dumps(results, indent=1).encode(), b"\n"], durable=False)
    except OSError as error:
        raise InvalidChoice(f"out={path} cannot be written: {error.strerror}; name another folder") from error
    print(f"\nwritten to {path}")
    if contended := sum(row.get("contention", 0.0) > CONTENDED for row in rows):
        print(
            f"note: the machine was busy with other work in {contended} of {len(rows)} rows; measure again when quiet"
        )
    return path


def counts(row: Mapping[str, Any]) -> bool:
    """False of a row that failed, and of training steps some of whose passes were never raced: they say little."""
    return "failed" not in row and not row.get("passes", {}).get("left")


def read_results(path: Path, kind: type[T], *, way_out: str = "give files that a benchmark wrote") -> T:
    """The content of a file of results. Raises UnreadableResults, which names the file and what is wrong in it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise UnreadableResults(f"{path}: {error.strerror or error}; {way_out}") from error
    except msgspec.ValidationError as error:
        raise UnreadableResults(f"{path} is not the output of a benchmark: {error}; {way_out}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableResults(f"{path} is not JSON: {one_line(str(error))}; {way_out}") from error


class MachineWatch:
    """Looks at the machine now, which takes some tenths of a second, and when ``facts`` is called. Make one
    before the first time is taken."""

    def __init__(self, *, threads: int) -> None:
        self._threads = threads
        quiet = Quiet(threads=threads)
        self._was_quiet, self._busy = quiet.look(), quiet.busy
        self._clock_mhz = clock_mhz()

    def facts(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Threads and cores; the share of the cores that other work had before; the clock before and after, None where
        the system does not tell; the share of the time that other work took from the rows."""
        contention = [row["contention"] for row in rows if "contention" in row]
        return {
            "threads": self._threads,
            "cores": cores(),
            "quiet_before": self._was_quiet,
            "busy_before": round(self._busy, 3),
            "clock_mhz_before": self._clock_mhz,
            "clock_mhz_after": clock_mhz(),
            "contention": {"mean": round(fmean(contention), 3), "most": max(contention)} if contention else None,
        }


def clock_mhz() -> float | None:
    """The mean clock of the cores now; None where the system has no figure."""
    try:
        frequency = psutil.cpu_freq()
    except (AttributeError, OSError, RuntimeError, NotImplementedError):  # as systems differ
        return None
    return round(frequency.current, 1) if frequency and frequency.current else None
