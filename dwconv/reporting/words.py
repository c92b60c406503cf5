"""The words of a report, which the table and the page share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dwconv.model.conversion import shown_name
from dwconv.system import versions

if TYPE_CHECKING:
    from dwconv.reporting.rows import LayerRow, PassRow
    from dwconv.reporting.sums import ReportSums

_UNKNOWN = "–"
TIMES_ARE = "µs: of one call, the medians of the tuning log; nothing is timed in your steps"
COUNTS_ARE = "calls: counted in this process since the last decisions"
_MOST_NAMES = 3


def heading(report: ReportSums) -> str:
    """``TinyNet on cpu-name: 3 depthwise layers converted, in a step on the example``"""
    devices = ", ".join(dict.fromkeys(row.device for row in report.rows))
    layers = f"{report.converted} depthwise layer{'s' if report.converted > 1 else ''} converted"
    step = ", in a step on the example" if report.of_an_example else ""
    return f"{report.model}{f' on {devices}' if devices else ''}: {layers}{step}"


def nothing_ran(report: ReportSums) -> str:
    """The text of a report without rows."""
    if report.of_an_example:
        return "none of them ran in the example; give inputs that reach them"
    return "none of them ran in this process yet; run a step, or give an example: dwconv.report(model, example_inputs)"


def sums(report: ReportSums) -> list[str]:
    """The step, the time saved, and the gain that is left."""
    now_us = report.depthwise_us
    if not now_us:
        lines = ["a step: nothing is measured yet"]
    else:
        without_us = now_us + report.saved_us
        lines = [
            f"a step: {in_ms(now_us)} of depthwise convolution, {in_ms(without_us)} on PyTorch's op: "
            f"{in_ms(report.saved_us)} saved ({report.saved_us / without_us:.0%})"
        ]
    if step := report.on_gpu:
        lines.append(
            f"op by op it takes {in_ms(step.host_ms * 1e3)} of the host beside {in_ms(step.kernels_ms * 1e3)} of "
            f"{step.launches} kernels: the GPU is busy for {step.busy:.0%} of it"
        )
        if step.waits_for_host:
            lines.append("the host is the bottleneck: dwconv.graphed(model, example_inputs) makes it two launches")
    if report.kept:
        lines.append(str(report.kept))
    if report.unknown:
        passes = "1 pass" if report.unknown == 1 else f"{report.unknown} passes"
        lines.append(f"without {passes} whose time is not known")
    if report.to_win_us:
        share = f" ({report.to_win_us / now_us:.0%})" if now_us and not report.unknown else ""
        lines.append(f"still to win by tuning: about {in_ms(report.to_win_us)} a step{share}{_guess(report)}")
    else:
        lines.append("still to win by tuning: nothing is expected")
    return lines


def _guess(report: ReportSums) -> str:
    """What is known of passes that were never measured here is how much others gained."""
    if not report.guessed:
        return ""
    of = "" if report.guessed == len(report.passes) else f" of {len(report.passes)}"
    passes = "1 pass was" if report.guessed == 1 and not of else f"{report.guessed}{of} passes were"
    return f"; a guess: {passes} never measured here"


def roads(report: ReportSums) -> str:
    """``calls go through C++, after the first of their kind; so far 40 in C++, 2 through Python``"""
    in_cpp, in_python = report.calls_by_road
    line = f"calls go {report.road}"
    if in_cpp or in_python:
        line += f"; so far {in_cpp} in C++, {in_python} through Python"
    if in_python > in_cpp or report.road.startswith("through Python"):
        line += ", which takes a call some µs more than the times above"
    return line


def commands(report: ReportSums) -> list[str]:
    """What brings it."""
    row = report.most_to_win
    return [report.call, row.command] if row else []


def notes(report: ReportSums) -> list[str]:
    """The other lines about the layers."""
    lines = []
    hidden = len(report.rows) - len(report.shown)
    if hidden:
        lines.append(f"{hidden} more sizes, which their layers ran less often, are in the sums alone")
    if report.is_compiled or any(row.counted_for > 1 for row in report.shown):
        lines.append(
            "under torch.compile, layers of the same sizes are counted together; replays of CUDA graphs are not counted"
        )
    if report.idle and report.rows:
        lines.append(f"did not run: {', '.join(map(shown_name, report.idle))}")
    if report.most_to_win and not versions.can_build():
        lines.append(f"{versions.NO_TVM}: tune{versions.where_to_tune()}")
    lines += [f"not dwconv's: {shown_name(layer.name)}: {layer.text}" for layer in report.left]
    return lines


def names(row: LayerRow) -> str:
    """The layers of a row; of many, the first few."""
    some = [shown_name(name) for name in row.names[:_MOST_NAMES]]
    more = len(row.names) - len(some)
    return ", ".join(some) + (f" and {more} more" if more > 0 else "")


FIGURES = ("calls", "dwconv µs", "PyTorch µs", "×", "basis", "µs a step", "to win µs/step")
NUMBERS = {*FIGURES} - {"basis"}
"""Columns whose text stands on the right."""


def figures(row: LayerRow, each: PassRow) -> dict[str, str]:
    """What is in each column: ``40 in 3 layers``, ``measured at batch 8 on 2 threads``"""
    basis = each.basis + (f" at batch {each.batch}" if each.batch else "")
    return {
        "calls": f"{each.calls}" + (f" in {row.counted_for} layers" if row.counted_for > 1 and each.calls else ""),
        "dwconv µs": _us(each.ours_us),
        "PyTorch µs": _us(each.pytorch_us),
        "×": f"{each.times:.2f}" if each.times else _UNKNOWN,
        "basis": basis + (f" on {each.threads} thread{'s' if each.threads > 1 else ''}" if each.threads else ""),
        "µs a step": _us(each.step_us),
        "to win µs/step": _to_win(each),
    }


def numbered(reasons: Sequence[str]) -> dict[str, int]:
    """Each different reason, and its number among them."""
    return {reason: place for place, reason in enumerate(dict.fromkeys(reasons), start=1)}


def in_ms(time_us: float) -> str:
    """``12.3 ms``; a short time in microseconds."""
    if abs(time_us) < 1e3:
        return f"{time_us:.3g} µs"
    return f"{time_us / 1e3:.3g} ms" if abs(time_us) < 1e6 else f"{time_us / 1e3:.0f} ms"


def _to_win(each: PassRow) -> str:
    if not each.to_win_us:
        return ""
    return _us(each.step_to_win_us) if each.basis == "measured" else f"~{_us(each.step_to_win_us)}"


def _us(time_us: float | None) -> str:
    """``0.73``, ``7.3``, ``1240``"""
    if time_us is None:
        return _UNKNOWN
    return f"{time_us:.0f}" if time_us >= 100 else f"{time_us:.1f}" if time_us >= 1 else f"{time_us:.2f}"
