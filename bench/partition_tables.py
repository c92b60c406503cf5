"""The rows of ``python -m bench partition`` as tables in Markdown."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def times_table(rows: Sequence[Mapping[str, Any]], *, pass_: str, stride: int) -> list[str]:
    """Microseconds of each variant, a line for each map and kernel, in Markdown."""
    of_pass = [row for row in rows if (row["pass"], row["stride"]) == (pass_, stride)]
    variants = list(dict.fromkeys(row["variant"] for row in of_pass))
    lines = [f"| map, kernel | {' | '.join(variants)} | its family |", "|---" * (len(variants) + 2) + "|"]
    for (size, kernel), group in _by_layer(of_pass):
        found = {row["variant"]: row for row in group}
        times = [f"{time_us(found[name]):.1f}" if name in found else "" for name in variants]
        compiled = ", compiled" if "computed_us" in group[0] else ""
        lines.append(f"| {size}², k{kernel}{compiled} | {' | '.join(times)} | {_family(found['best of all'])} |")
    return lines


def reasons_table(rows: Sequence[Mapping[str, Any]], *, pass_: str, stride: int, sizes: Sequence[int]) -> list[str]:
    """Of the least cost of block tiles and of the best of all, what sets the time, in Markdown."""
    heading = "map, kernel", "family", "µs", "set by", *REASONS
    lines = [f"| {' | '.join(heading)} |", "|---" * len(heading) + "|"]
    of_pass = [row for row in rows if (row["pass"], row["stride"]) == (pass_, stride) and row["size"] in sizes]
    for (size, kernel), group in _by_layer(of_pass):
        found = {row["variant"]: row for row in group if row["variant"] in ("least cost", "best of all")}
        for row in {str(row["config"]): row for row in found.values()}.values():
            facts = [_family(row), f"{time_us(row):.1f}", row["limiter"].replace("_", "/"), *_reasons(row)]
            lines.append(f"| {size}², k{kernel} | {' | '.join(facts)} |")
    return lines


REASONS = (
    "transactions a request", "registers", "threads on an SM", "MB through the second-level cache",
    "instructions an FMA", "in the machine code",
)  # fmt: skip


def _reasons(row: Mapping[str, Any]) -> list[str]:
    met, issued, code = row["transactions_a_request"], row["instructions_a_product"], row.get("machine_code")
    return [
        f"{met:.2f}" if met else "",
        str(row["registers"]),
        str(row["threads_per_sm"]),
        f"{row['cache_bytes'] / 1e6:.0f}",
        f"{issued:.2f}" if issued else "",
        f"{code['instructions'] / code['multiply_adds']:.2f}" if code and code["multiply_adds"] else "",
    ]


def against_table(rows: Sequence[Mapping[str, Any]], *, pass_: str) -> list[str]:
    """How many times as long as the best of all the two-level partition takes, and the family of the best, a line for
    each map and stride, in Markdown."""
    of_pass = [row for row in rows if row["pass"] == pass_]
    kernels = sorted({row["kernel"] for row in of_pass})
    lines = [f"| map | {' | '.join(f'k{kernel}' for kernel in kernels)} |", "|---" * (len(kernels) + 1) + "|"]
    for stride, size in sorted({(row["stride"], row["size"]) for row in of_pass}, key=lambda at: (at[0], -at[1])):
        group = [row for row in of_pass if (row["stride"], row["size"]) == (stride, size)]
        cells = {kernel: _against([row for row in group if row["kernel"] == kernel]) for kernel in kernels}
        strided = f", stride {stride}" if stride > 1 else ""
        lines.append(f"| {size}²{strided} | {' | '.join(cells.values())} |")
    return lines


def networks_table(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Layers of networks in Markdown: a line for each layer and pass, a column for each device. Of wgrad, the weight
    gradient takes the place of block tiles."""
    lines = [f"| layer, batch | pass | {' | '.join(found)} |", "|---" * (len(found) + 2) + "|"]
    layers = dict.fromkeys((row["layer"], row["batch"], row["pass"]) for rows in found.values() for row in rows)
    for layer, batch, pass_ in layers:
        groups = (
            [row for row in rows if (row["layer"], row["batch"], row["pass"]) == (layer, batch, pass_)]
            for rows in found.values()
        )
        lines.append(f"| {layer}, {batch} | {pass_} | {' | '.join(map(_against, groups))} |")
    return lines


def firsts(rows: Sequence[Mapping[str, Any]], *, passes: Sequence[str]) -> tuple[int, int]:
    """Of how many workloads of these passes the two-level partition is the best of all, and how many there are."""
    bests = [row for row in rows if row["variant"] == "best of all" and row["pass"] in passes]
    return sum(_family(row) in ("block tiles", "weight gradient") for row in bests), len(bests)


def _against(group: Sequence[Mapping[str, Any]]) -> str:
    found = {row["variant"]: row for row in group}
    own, best = found.get("least cost"), found.get("best of all")
    if best is None:
        return ""
    return f"{time_us(own) / time_us(best):.2f} {_family(best)}" if own else _family(best)


def _by_layer(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[int, int], list[Mapping[str, Any]]]]:
    for layer, group in itertools.groupby(rows, key=lambda row: (row["size"], row["kernel"])):
        yield layer, list(group)


def time_us(row: Mapping[str, Any]) -> float:
    """Computed from the compiled kernel; of a row that was not compiled, estimated."""
    return float(row.get("computed_us", row["estimated_us"]))


def _family(row: Mapping[str, Any]) -> str:
    """The last word of the template's name; block tiles and weight gradients have none of their own."""
    *_, last = str(row["config"]["template"]).split("_")
    return {"nchw": "weight gradient" if row["pass"] == "wgrad" else "block tiles"}.get(last, last)
