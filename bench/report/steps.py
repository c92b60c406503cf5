"""Training steps and blocks: how long each takes, what a step is spent on, and what is kept for the backward pass.
Where figures come from, and the rows of benchmarks that have no section of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.report.charts import facts, grouped, shown, steps
from bench.report.files import KINDS, BlockRow, MinuteRow, ResultFile, StepRow, in_us, of_blocks, of_steps
from dwconv.records.record import CONTENDED
from dwconv.reporting.drawing import name, stacked, text
from dwconv.reporting.frame import scrolled

_PARTS = {
    "depthwise": ("depthwise",),
    "pointwise, dense": ("pointwise",),
    "normalisation": ("normalisation",),
    "activation": ("activation",),
    "copies, layouts": ("copies",),
    "sums, products": ("sums",),
    "optimizer": ("optimizer",),
    "all else": (),
}
"""What a step is spent on, and what the names of its kinds begin with; each is a part of a bar."""


def section(files: Sequence[ResultFile]) -> str:
    """The steps of all files."""
    rows = [(file, row) for file in files for row in file.step_rows]
    if not rows:
        return ""
    return (
        "<h2>Training steps</h2>\n<p>All models take their steps in turns. The bar through a dot is the interval "
        "that was measured, or the middle half of the turns.</p>\n"
        f"{steps(files, of_steps)}\n<h3>Medians</h3>\n"
        '<p class="dim">×: converted over plain; at most: if depthwise convolution cost nothing; '
        "kept: for the backward pass.</p>\n"
        f"{_cards('network', [_step(file, row) for file, row in rows])}\n{_profiles(rows)}"
    )


_Card = tuple[str, str, dict[str, str]]
"""A name, what is said of it, and cells by their labels."""


def _cards(first: str, rows: Sequence[_Card]) -> str:
    """Tables of rows, one for all that have the same labels: none is wider than its rows need."""
    return "\n".join(_table(first, alike) for alike in grouped(rows, lambda row: frozenset(row[2])).values())


def _table(first: str, rows: Sequence[_Card]) -> str:
    labels = [label for label in rows[0][2] if any(cells[label] for _, _, cells in rows)]
    head = "".join(f'<th class="n">{text(label)}</th>' for label in labels)
    lines = []
    for called, said, cells in rows:
        line = (f'<td class="n" data-label="{text(label)}">{text(cells[label])}</td>' if cells[label] else "<td></td>"
                for label in labels)  # fmt: skip
        lines.append(f'<tr><th class="name">{name(called)}<small>{text(said)}</small></th>{"".join(line)}</tr>')
    body = "\n".join(lines)
    return scrolled(
        f'<table class="cards"><thead><tr><th>{first}</th>{head}</tr></thead>\n<tbody>{body}</tbody></table>'
    )


def _step(file: ResultFile, row: StepRow) -> _Card:
    cells = {f"{each} ms": f"{ms:.4g}" for each, ms in row.median_ms.items()}
    kept = ", ".join(f"{each} {size / 2**20:.0f}" for each, size in row.kept_bytes.items())
    cells |= {
        "×": shown(row.ratio.median),
        "at most": shown(row.ratio.at_most) if row.ratio.at_most else "",
        "kept": f"{kept} MiB" if kept else "",
    }
    return row.network, facts(row.allocator, file.heading), cells


# -- what a step is spent on -------------------------------------------------------------------------------------------


def _profiles(rows: Sequence[tuple[ResultFile, StepRow]]) -> str:
    profiled = [(file, row) for file, row in rows if row.profile_ms]
    heading = "<h3>What a step is spent on</h3>"
    if not profiled:
        return f'{heading}\n<p class="dim">These files do not have it: run bench train with --profile.</p>'
    key = "".join(f'<span><i class="p{place}"></i>{text(part)}</span>' for place, part in enumerate(_PARTS))
    bars = "\n".join(_bars(file, row) for file, row in profiled)
    return (
        f'{heading}\n<p class="dim">Milliseconds of the fastest profiled step; the profiler slows all models alike.'
        "</p>\n"
        f'<p class="key">{key}</p>\n{bars}'
    )


def _bars(file: ResultFile, row: StepRow) -> str:
    longest_ms = max(whole_ms(profile) for profile in row.profile_ms.values())
    lines = []
    for model, profile in row.profile_ms.items():
        parts = parts_of(profile)
        bar = stacked(
            [(f"p{place}", parts[part] / longest_ms) for place, part in enumerate(_PARTS)] if longest_ms else []
        )
        told = "; ".join(f"{part} {ms:.1f}" for part, ms in parts.items() if ms >= 0.05)
        lines.append(
            f'<div class="row"><div class="name">{name(model)}<small>{text(told)}</small></div>'
            f'<div class="at">{bar}</div><div class="n"><b>{whole_ms(profile):.4g} ms</b></div></div>'
        )
    said = facts(", ".join(filter(None, (row.network, row.allocator))), file.heading)
    return f'<h3>{text(said)}</h3><div class="rows">{"".join(lines)}</div>'


def whole_ms(profile: Mapping[str, float]) -> float:
    """The step; the sum of its parts if nothing says it."""
    return profile.get("step") or sum(profile.values())


def parts_of(profile: Mapping[str, float]) -> dict[str, float]:
    """Milliseconds by the parts of a bar. Together they are the step: Python between the ops is part of all else."""
    found = dict.fromkeys(_PARTS, 0.0)
    for kind, ms in profile.items():
        if kind != "step":
            part = next((part for part, starts in _PARTS.items() if kind.startswith(starts)), "all else")
            found[part] += max(ms, 0.0)
    return found


# -- blocks ------------------------------------------------------------------------------------------------------------


def blocks(files: Sequence[ResultFile]) -> str:
    """Blocks as one against all others."""
    rows = [(file, row) for file in files for row in file.block_rows]
    if not rows:
        return ""
    return (
        "<h2>Blocks</h2>\n<p>Norm, activation, convolution, norm, activation in training, forward and backward pass, "
        "as one against one by one.</p>\n"
        f"{steps(files, of_blocks)}\n"
        f'<p class="dim">kept: of what PyTorch keeps for the backward pass.</p>\n'
        f"{_cards('block', [_block(file, row) for file, row in rows])}"
    )


def _block(file: ResultFile, row: BlockRow) -> _Card:
    cells = {each: in_us(us) for each, us in row.median_us.items()}
    ours, theirs = row.kept_bytes.get("as one"), row.kept_bytes.get("plain")
    cells |= {
        "× eager": shown(row.over_eager),
        "× best other": shown(row.over_best_other),
        "kept": f"{ours / theirs:.0%}" if ours is not None and theirs else "",
    }
    return row.layer, facts(row.block, f"{row.count} in the network", file.heading), cells


# -- the first minute --------------------------------------------------------------------------------------------------


def first_minute(files: Sequence[ResultFile]) -> str:
    """Sums of steps from the start of a training, beside plain training's."""
    rows = [(file, row) for file in files for row in file.minute_rows]
    if not rows:
        return ""
    return (
        "<h2>The first minute</h2>\n<p>The time of so many steps from the start, what convert takes counted, less that "
        "of plain training: seconds lost, or won where the number is below 0. Then: times as fast as plain at the end."
        "</p>\n"
        f"{_cards('training', [_minute(file, row) for file, row in rows])}"
    )


def _minute(file: ResultFile, row: MinuteRow) -> _Card:
    cells = {"plain, ms": f"{row.plain_step_s * 1e3:.4g}", "convert, s": f"{row.convert_s:.1f}"}
    lost_s = {mark: ours - row.plain_sums_s[mark] for mark, ours in row.sums_s.items() if mark in row.plain_sums_s}
    cells |= {f"{mark} step{'s' * (mark != '1')}": f"{each:+.1f}" for mark, each in lost_s.items()}
    cells["then, ×"] = shown(row.plain_step_s / row.late_step_s)
    drift = f"plain {row.plain_drift:.2f} times as long at the end" if abs(row.plain_drift - 1) > _DRIFT else ""
    return f"{row.model}, {row.case}", facts(drift, file.heading), cells


_DRIFT = 0.05
"""A machine whose plain steps changed by more has no steady clock."""


def reproduce(files: Sequence[ResultFile]) -> str:
    """How to measure all of it again."""
    return "<h2>How to reproduce</h2>\n" + "\n".join(map(_of, {file.name: file for file in files}.values()))


def _of(file: ResultFile) -> str:
    facts = {
        "device": file.device,
        "threads": file.threads,
        "date": file.created,
        "versions": _said(file.versions),
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
        f"<details><summary>{text(file.heading)}, {len(file.rows)} rows</summary><ul>"
        + "\n".join(f"<li>{_row(row)}</li>" for row in file.rows)
        + "</ul></details>"
        for file in found
    )


def _row(row: Mapping[str, Any]) -> str:
    """Its texts in bold; then its numbers, and those of what is right inside of it."""
    words = [each for each in row.values() if isinstance(each, str)]
    numbers = [f"{label.replace('_', ' ')} {_said(each)}" for label, each in _numbers(row)]
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
