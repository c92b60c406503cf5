"""Where the figures come from: each file's command, device, versions, limits, and how much other work disturbed it; and
the rows of benchmarks that have no section of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.report.files import KINDS, ResultFile, one_of
from dwconv.records.record import CONTENDED
from dwconv.reporting.drawing import text


def section(files: Sequence[ResultFile]) -> str:
    """How to measure all of it again."""
    return "<h2>How to reproduce</h2>\n" + "\n".join(map(_of, files))


def _of(file: ResultFile) -> str:
    facts = {
        "device": file.device,
        "threads": file.threads,
        "date": file.created,
        "versions": one_of(file.versions),
        "limits": _limits(file),
        "other work": _contention(file),
        "control": _said(file.control),
        "machine": _said(file.machine),
        "rows": len(file.rows),
    }
    lines = "<br>\n".join(
        f'<span class="dim">{label}</span> {text(str(said))}' for label, said in facts.items() if said
    )
    command = f"<p><code>{text(file.command)}</code></p>" if file.command else ""
    return f"<h3>{text(file.name)}</h3>\n{command}<p>{lines}</p>"


def _limits(file: ResultFile) -> str:
    limits = file.limits
    if limits is None:
        return ""
    caches = [f"{level.bytes // 1024} KiB {level.gb_per_s:.0f} GB/s" for level in limits.levels]
    caches = caches or [f"cache {limits.cache_gb_per_s:.0f} GB/s"]
    return ", ".join(
        [f"memory {limits.memory_gb_per_s:.0f} GB/s", *caches, f"peak {limits.peak_gflop_per_s:.0f} GFLOP/s"]
    )


def _contention(file: ResultFile) -> str:
    """Shares of the time that other work took."""
    shares = [row["contention"] for row in file.rows if isinstance(row.get("contention"), (int, float))]
    if not shares:
        return "not recorded"
    above = sum(share > CONTENDED for share in shares)
    return f"at most {max(shares):.1%} of the time; above {CONTENDED:.0%} in {above} of {len(shares)} rows"


def _said(value: Any) -> str:
    """Facts of any kind in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{label} {_said(each)}" for label, each in value.items() if _said(each))
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_said, value))
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


# -- what has no section -----------------------------------------------------------------------------------------------


def others(files: Sequence[ResultFile]) -> str:
    """The rows of other benchmarks, each with its names and numbers."""
    found = [file for file in files if file.kind not in KINDS]
    if not found:
        return ""
    return "<h2>Other benchmarks</h2>\n" + "\n".join(
        f"<details><summary>{text(file.title)}, {len(file.rows)} rows</summary><ul>"
        + "\n".join(f"<li>{_row(row)}</li>" for row in file.rows)
        + "</ul></details>"
        for file in found
    )


def _row(row: Mapping[str, Any]) -> str:
    """Its texts in bold; then its numbers, and those of what is right inside of it."""
    words = [each for each in row.values() if isinstance(each, str)]
    numbers = [f"{label.replace('_', ' ')} {_number(each)}" for label, each in _numbers(row)]
    return f"<b>{text(' '.join(words))}</b> <small>{text('; '.join(numbers))}</small>"


def _numbers(row: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for label, value in row.items():
        if isinstance(value, Mapping):
            found += [(f"{label}, {inner}", each) for inner, each in value.items() if _is_plain(each)]
        elif (isinstance(value, list) and value and all(map(_is_plain, value))) or (
            _is_plain(value) and not isinstance(value, str)
        ):
            found.append((label, value))
    return found


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, float, str))


def _number(value: Any) -> str:
    return _said(value)
