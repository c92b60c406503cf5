"""The frame of a page: one file without scripts, with its style for a light and a dark theme, for a phone and for
paper.

Colours are those of Okabe and Ito, distinct for colour-blind readers; marks differ in shape as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

LIGHT = {
    "ground": "#ffffff", "ink": "#1b1f24", "dim": "#57606a", "line": "#d0d7de", "one": "#1b1f24",
    "win": "#0072b2", "loss": "#d55e00", "even": "#6e7781",
    "fprop": "#0072b2", "dgrad": "#b85c00", "wgrad": "#007a59",
}  # fmt: skip
DARK = {
    "ground": "#0d1117", "ink": "#e6edf3", "dim": "#9ea7b3", "line": "#30363d", "one": "#e6edf3",
    "win": "#56b4e9", "loss": "#ff8c42", "even": "#8b949e",
    "fprop": "#56b4e9", "dgrad": "#e69f00", "wgrad": "#2fc79a",
}  # fmt: skip
"""Colours of text and marks, on either ground."""
_PARTS = ("#0072b2", "#56b4e9", "#e69f00", "#cc79a7", "#009e73", "#f0e442", "#d55e00", "#8b949e")
"""Parts of a bar, ``p0`` to ``p7``."""
_HEAT = ("#d55e00/#000", "#f2b27e/#000", "#e4e7eb/#000", "#d6e8f5/#000", "#9fcdec/#000", "#56b4e9/#000", "#0072b2/#fff")
"""Cells of a table that is coloured, ``h0`` to ``h6``: ground and text, the same on either ground of the page."""
HEAT_FROM = (0.8, 0.95, 1.05, 1.5, 3.0, 10.0)
"""Where each colour of a cell gives way to the next."""

DRAWN = """
text { fill: var(--dim); font: 11px system-ui, sans-serif; }
.grid { stroke: var(--line); }
.one { stroke: var(--one); stroke-width: 1.2; }
.interval { stroke-width: 2.5; stroke-linecap: round; opacity: .55; }
.win { fill: var(--win); stroke: var(--win); }
.loss { fill: var(--loss); stroke: var(--loss); }
.even { fill: var(--even); stroke: var(--even); }
.fprop { fill: var(--fprop); stroke: var(--fprop); }
.dgrad { fill: var(--dgrad); stroke: var(--dgrad); }
.wgrad { fill: var(--wgrad); stroke: var(--wgrad); }
.hollow { fill: var(--ground); stroke-width: 1.5; }
.roof { stroke: var(--ink); stroke-width: 1.4; fill: none; }
.tag { fill: var(--ink); paint-order: stroke; stroke: var(--ground); stroke-width: 3px; }
"""
"""What is drawn looks the same in a page and in a picture."""

_STYLE = """
.dwconv { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; color: var(--ink);
  background: var(--ground); padding: 1px; max-width: 70rem; margin: 0 auto; }
.dwconv h1 { font-size: 1.4em; margin: 0 0 .5em; }
.dwconv h2 { font-size: 1.2em; margin: 2em 0 .4em; border-bottom: 1px solid var(--line); }
.dwconv h3 { font-size: 1em; margin: 1.4em 0 .3em; }
.dwconv p { max-width: 48rem; margin: .5em 0; }
.dwconv .dim, .dwconv small { color: var(--dim); font-weight: 400; }
.dwconv small { display: block; font-size: 12px; }
.dwconv code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere; }
.dwconv .name { min-width: 0; overflow-x: auto; }
.dwconv .name span { white-space: nowrap; }
.dwconv .n { font-variant-numeric: tabular-nums; text-align: right; white-space: nowrap; }
.dwconv summary { cursor: pointer; }
.dwconv summary b { font-size: 1.05em; }
.dwconv ul { padding-left: 1.2em; }
.dwconv li { margin: .3em 0; overflow-wrap: anywhere; }

.dwconv .rows { margin: .3em 0 1em; }
.dwconv .row { display: grid; grid-template-columns: minmax(0, 22rem) minmax(0, 1fr) 5.5rem; column-gap: .8rem;
  align-items: center; border-top: 1px solid var(--line); padding: .15em 0; break-inside: avoid; }
.dwconv .row.axis { border: 0; }
.dwconv .row b { font-weight: 600; }
.dwconv svg.plot { display: block; width: 100%; overflow: visible; }
.dwconv svg.chart { display: block; width: 100%; max-width: 46rem; overflow: visible; }

.dwconv table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6em 0 1em; }
.dwconv th, .dwconv td { padding: .2em .6em; text-align: left; border: 0; vertical-align: top; }
.dwconv th.n, .dwconv td.n { text-align: right; }
.dwconv thead th { border-bottom: 2px solid var(--line); font-weight: 600; }
.dwconv .cards .n, .dwconv .heat th.n { white-space: normal; }
.dwconv tbody th { font-weight: 600; }
.dwconv tbody { border-bottom: 1px solid var(--line); }
.dwconv .scrolled { max-width: 100%; overflow-x: auto; }
.dwconv tr { break-inside: avoid; }
.dwconv .tables { display: flex; flex-wrap: wrap; gap: 0 2.5rem; align-items: start; }
.dwconv .tables > div { max-width: 100%; }
.dwconv .heat td { text-align: right; border: 1px solid var(--ground); }
.dwconv .heat td small { color: inherit; }

.dwconv .drawn { min-width: 8em; }
.dwconv .bar { display: flex; height: .9em; min-width: 6em; background: var(--line); border-radius: 3px;
  overflow: hidden; }
.dwconv .bar i { height: 100%; }
.dwconv .key { display: flex; flex-wrap: wrap; gap: .1em 1.2em; }
.dwconv .key i { display: inline-block; width: .8em; height: .8em; border-radius: 3px; margin-right: .4em; }
.dwconv .key svg { width: 14px; height: 12px; vertical-align: -1px; margin-right: .3em; }
"""

_NARROW = """
@media (max-width: 45rem) {
.dwconv .row { grid-template-columns: minmax(0, 1fr) auto; }
.dwconv .row .at { grid-column: 1 / -1; grid-row: 2; }
.dwconv .row.axis .name { display: none; }
.dwconv .heat { font-size: 12px; }
.dwconv .heat th, .dwconv .heat td { padding: .2em .3em; }
.dwconv .heat.wide tr { display: grid; grid-template-columns: repeat(var(--columns), minmax(0, 1fr)); }
.dwconv .heat.wide tbody th { grid-column: 1 / span 2; }
.dwconv .heat.wide td.size { grid-column: 3 / -1; text-align: left; }
.dwconv .heat.wide:not(.networks) tbody th::before { content: "K\\a0"; }
.dwconv .heat.wide td.size::before { content: "size\\a0"; }
.dwconv .heat.wide thead th.first { display: none; }
.dwconv .heat.networks tbody th { grid-column: 1 / -1; }
.dwconv .heat.networks tbody th small { display: inline; margin-left: .5em; }
.dwconv .heat small { font-size: 10px; }
}
@media (max-width: 70rem) {
.dwconv .cards, .dwconv .cards tbody, .dwconv .cards tr, .dwconv .cards th, .dwconv .cards td { display: block; }
.dwconv .cards thead { display: none; }
.dwconv .cards tr { padding: .3em 0; }
.dwconv .cards td { text-align: left; padding: 0 .4em; white-space: normal; }
.dwconv .cards td:empty { display: none; }
.dwconv .cards td[data-label]::before { content: attr(data-label) "\\a0"; color: var(--dim); }
.dwconv .cards td.n, .dwconv .cards td.said { display: inline-block; }
}
@media print {
.dwconv { --ground: #fff; --ink: #000; --dim: #444; --line: #bbb; --one: #000; font-size: 11px; max-width: none; }
.dwconv * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.dwconv small { font-size: 9px; }
.dwconv h2, .dwconv h3 { break-after: avoid; }
}
"""


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def colours(selector: str) -> str:
    """The colours as variables of ``selector``, those of a dark ground where that is preferred."""
    dark = f"@media (prefers-color-scheme: dark) {{ {selector} {{ {_variables(DARK)} }} }}"
    return f"{selector} {{ {_variables(LIGHT)} }}\n{dark}\n"


def style() -> str:
    """The style of everything inside of ``<div class="dwconv">``; the rest of a page is left as it is."""
    drawn = "\n".join(f".dwconv svg {line}" for line in DRAWN.strip().splitlines())
    parts = "\n".join(f".dwconv i.p{place} {{ background: {colour}; }}" for place, colour in enumerate(_PARTS))
    heat = "\n".join(
        ".dwconv td.h{} {{ background: {}; color: {}; }}".format(place, *colour.split("/"))
        for place, colour in enumerate(_HEAT)
    )
    return f"<style>\n{colours('.dwconv')}{_STYLE}{drawn}\n{parts}\n{heat}\n{_NARROW}</style>"


def whole(title: str, body: str) -> str:
    """A page of its own around ``body``, which is HTML."""
    ground = f"body {{ margin: 0; padding: 1rem clamp(.6rem, 3vw, 2rem); background: {LIGHT['ground']}; }}"
    dark = f"@media (prefers-color-scheme: dark) {{ body {{ background: {DARK['ground']}; }} }}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>\n{ground}\n{dark}\n@media print {{ body {{ background: #fff; }} }}\n</style>\n"
        f"</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def fragment(parts: Sequence[str]) -> str:
    """A part of another page, as of a notebook."""
    return f'<div class="dwconv">\n{style()}\n' + "\n".join(part for part in parts if part) + "\n</div>"


def scrolled(table: str) -> str:
    """A table in a box of its own: one wider than the page scrolls there, and the page does not."""
    return f'<div class="scrolled">{table}</div>'


def heat(ratio: float) -> str:
    """The kind of a cell, by its ratio."""
    return f"h{sum(ratio >= start for start in HEAT_FROM)}"
