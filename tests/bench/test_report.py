"""``bench report``: what the files hold is on the page, headlines first, then losses; nothing overlaps; bad files are
one line."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import report
from bench.__main__ import main
from bench.report import charts, pictures, steps
from bench.report import files as result_files
from bench.report.files import read
from bench.report.gpu import parts
from bench.results import UnreadableResults
from dwconv.reporting.drawing import LogAxis, lines_of, name
from dwconv.reporting.frame import heat
from tests.browser import browser

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = sorted((ROOT / "bench" / "results").glob("*.json"))
PICTURED = [
    path
    for name in ("cpu-nhwc-*", "cuda-*", "train-*-compile-blocks-nhwc-*family-26*")
    for path in sorted((ROOT / "bench" / "results").glob(f"{name}.json"))
]
"""What the pictures in the README are of."""
LIMITS = {"memory_gb_per_s": 20.0, "cache_gb_per_s": 50.0, "cache_bytes": 1 << 20, "peak_gflop_per_s": 100.0}
LEVELS = [
    {"bytes": 1 << 15, "gb_per_s": 52.0},
    {"bytes": 1 << 19, "gb_per_s": 51.0},
    {"bytes": 1 << 20, "gb_per_s": 50.0},
]


# -- made-up files -----------------------------------------------------------------------------------------------------


def layer_row(layer="MobileNetV2 144×56² k3", pass_="fprop", *, ratio=2.0, dwconv_us=100.0, **facts):
    return {
        "layer": layer, "pass": pass_, "kernel": 3, "dwconv_us": dwconv_us, "ratio": ratio,
        "ratio_spread": 0.1 * ratio, "contention": 0.0,
        "pytorch_us": {"onednn-nhwc": ratio * dwconv_us, "onednn-nchw": 2 * ratio * dwconv_us}, **facts,
    }  # fmt: skip


def step_row(network="Net", *, ratio=1.5, **facts):
    return {
        "network": network, "allocator": "memory kept", "median_ms": {"plain": 30.0, "converted": 20.0},
        "ratio": {"median": ratio, "quartiles": [ratio / 1.1, ratio * 1.1], "at_most": 1.7}, **facts,
    }  # fmt: skip


def block_row(**facts):
    us = {"plain": 200.0, "plain, contiguous": 300.0, "converted": 150.0, "as one": 100.0}
    return {
        "network": "Net", "layer": "Net 8×9×9 k3×3", "block": "bn+relu6,none", "count": 3, "median_us": us,
        "spread_us": dict.fromkeys(us, 1.0), "over_eager": 2.0, "over_best_other": 1.5,
        "kept_bytes": {"plain": 400, "converted": 400, "as one": 100}, "contention": 0.01, **facts,
    }  # fmt: skip


def written(path, rows, *, benchmark="cpu-nhwc", **facts):
    """A file as ``write_results`` writes it."""
    data = {
        "benchmark": benchmark, "command": f"python -m bench {benchmark}", "created": "2026-11-25T01:02:03+00:00",
        "device": "made-up-cpu-2t", "threads": 2, "limits": LIMITS, "versions": {"torch": "2.13.0", "tvm": None},
        **facts, "rows": rows,
    }  # fmt: skip
    path.write_text(json.dumps(data))
    return path


def read_all(paths):
    return [part for path in paths for part in parts(read(path))]


@pytest.fixture
def made_up(tmp_path):
    """From rows to a file that was read."""

    def make(*rows, **facts):
        return read(written(tmp_path / "made-up.json", list(rows), **facts))

    return make


class Tags(HTMLParser):
    """Raises AssertionError for tags that are not closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.seen, self.text, self._quiet = [], [], "", False
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data.replace("\xa0", " ")

    def of(self, kind):
        return [attrs for _, attrs in self.seen if kind in (attrs.get("class") or "").split()]


# -- what is on the page -----------------------------------------------------------------------------------------------


def test_all_that_was_committed_makes_one_page():
    files = read_all(COMMITTED)
    html = report.page(files)
    tags = Tags(html)
    assert html == report.page(files) and html.startswith("<!DOCTYPE html>")
    assert not {tag for tag, _ in tags.seen} & {"script", "link", "img", "iframe", "object", "use"}
    assert not re.search(r"https?:|//|@import|url\(|\bsrc=|\bhref=|\bon\w+=", html), "it needs nothing from elsewhere"
    for file in files:
        assert file.name in tags.text and file.command in tags.text
        for row in file.layer_rows:
            assert row.layer in tags.text
        for row in (*file.block_rows, *file.step_rows):
            assert row.network in tags.text
    for table in re.findall(r"<table.*?</table>", html, re.DOTALL):
        if columns := re.search(
            r'"heat wide.*--columns: (\d+)"', table
        ):  # of numbers; on a phone names have their own line
            assert int(columns[1]) == table.partition("</thead>")[0].count('<th class="n">')
    every = sum(len(list(result_files.of_layers(file))) for file in files)
    shown = Tags(charts.speedups(files))
    assert every > 300 and len(shown.of("row")) - len(shown.of("axis")) == every
    others = Tags(steps.others(files))
    assert len([tag for tag, _ in others.seen if tag == "li"]) == sum(
        len(file.rows) for file in files if file.kind not in result_files.KINDS
    )


def test_headlines_of_each_device_come_first(made_up):
    rows = [layer_row(ratio=2.0), layer_row("Net 8×9² k3", ratio=8.0)]
    compiled = {
        "plain": {"median": 1.6, "quartiles": [1.5, 1.7]},
        "plain + inductor": {"median": 1.2, "quartiles": [1, 2]},
    }
    step = step_row(ratio=1.5, compiled_blocks=compiled, blocks={"converted": {"median": 9.0, "quartiles": [8, 9]}})
    files = [
        made_up(step, {**step, "allocator": "glibc as it is"}, benchmark="train-nhwc"),
        made_up(*rows),
        made_up(block_row(), benchmark="blocks", device="another"),
    ]
    html = report.page(files)
    first, *_ = html.partition("<h2>Losses")
    tables = [
        [Tags(cell).text for cell in re.findall(r"<t[hd]\b[^>]*>.*?</t[hd]>", table)]
        for table in first.split("<h2>")[1:]
    ]
    assert tables == [
        [
            *("", "rows", "mean", "least", "cpu, nhwc: kernels over PyTorch's best", "2", "4", "2"),
            *("steps: converted over plain", "1", "1.5", "1.5"),
            *("steps: blocks + inductor over plain", "1", "1.6", "1.6"),
            *("steps: blocks + inductor over plain + inductor", "1", "1.2", "1.2"),
        ],
        ["", "rows", "mean", "least", "blocks over PyTorch's ops", "1", "2", "2"],
    ]  # fmt: skip
    assert "made-up-cpu-2t, times as fast" in first and "another, times as fast" in first


def test_results_of_a_gpu_are_layers_blocks_and_steps(made_up):
    timed = {"us": {"dwconv": 10.0, "cudnn-nhwc": 20.0, "aten-nhwc": 80.0}, "best_other": "cudnn-nhwc", "ratio": 2.0}
    layer = {
        "workload": "dgrad-n64-c96-56x56-k7x7-s1x1-p3x3-d1x1-m1-float16-nhwc", "warm": timed,
        "spread_us": {"dwconv": 0.3, "cudnn-nhwc": 0.8},
    }  # fmt: skip
    odd = {"workload": "fprop-n4-c96-56x14-k3x7-s1x2-p1x3-d1x1-m1-float32-nchw", "warm": timed}
    ratio = {"median": 1.1, "quartiles": [1.05, 1.2]}
    step = {
        **step_row(),
        "graphs": ratio,
        "graphed_blocks": {"plain": ratio, "plain + graphs": ratio, "converted": ratio},
    }
    block = {**block_row(), "workload": "forward-n64-c96-56x56-k3x3-s1x1-p1x1-d1x1-m1-float16-nhwc-bn,bn"}
    file = made_up(layer, odd, blocks=[block], steps={"Net bfloat16": step}, benchmark="cuda")
    found = parts(file)
    titles = ["cuda, float16, nhwc", "cuda, float32, nchw", "cuda, blocks, float16, nhwc", "cuda, train, bfloat16"]
    assert [each.title for each in found] == titles
    first, second, block, *steps = (contest for each in found for contest in result_files.of_all([each]))
    assert (first.name, first.group, first.ratio, first.over) == ("ConvNeXt-T 96×56² k7", "dgrad", 2.0, "cudnn-nhwc")
    assert (first.dot.low, first.dot.high) == pytest.approx((2 / 1.05, 2 * 1.05)), "3 and 4 % of two times"
    assert second.name == "96×56×14 k3×7 s1×2" and block.group == "block"
    assert [(each.name, each.group, each.over) for each in steps] == [
        ("Net", "converted", "plain"),
        ("Net", "converted + graphs", "plain + graphs"),
        ("Net", "blocks + graphs", "plain"),
        ("Net", "blocks + graphs", "plain + graphs"),
    ]
    ((point,),) = (line.points for line in pictures.of_devices(found))
    assert point.gflop_per_s == pytest.approx(charts.workload_of(found[0].layer_rows[0], found[0]).flops / 10 / 1e3)
    assert charts.workload_of(found[0].layer_rows[0], found[0]).batch == 64
    without_profile = Tags(report.page(found)).text
    step["profile_ms"] = {"plain": {"step": 3.0}}
    with_profile = Tags(report.page(parts(made_up(steps={"Net bfloat16": step}, benchmark="cuda")))).text
    for page in (without_profile, with_profile):
        assert not re.search(r", ;|; ;|^;", page, re.MULTILINE), "nothing is said of an allocator on a GPU"
    assert "Net; cuda, train, bfloat16 on made-up-cpu-2t" in with_profile


def test_steps_of_a_gpu_name_their_batch_and_those_that_do_not_count_are_left_out(made_up):
    of = {"network": "Net", "dtype": "float16", "batch": 128, "passes": {"of": 2, "left": []}}
    steps = {
        "Net float16 batch 256": {**step_row(), **of, "compiled": False},
        "Net float16 batch 256 compiled": {**step_row(), **of, "compiled": True},
        "Other float16 batch 256": {**step_row(), **of, "compiled": False, "passes": {"of": 2, "left": ["wgrad"]}},
        "Third float16 batch 256": {"failed": "it hangs", "network": "Third", "dtype": "float16", "batch": 256},
    }
    (found,) = parts(made_up(steps=steps, benchmark="cuda"))
    assert found.title == "cuda, train, float16"
    names = dict.fromkeys(contest.name for contest in result_files.of_all([found]))
    assert list(names) == ["Net, batch 128", "Net, batch 128, compiled"]


def test_losses_come_first_and_all_of_them(made_up):
    ratios = [0.91, 3.0, 0.42, *(1 + place / 10 for place in range(1, 12))]
    file = made_up(*(layer_row(f"Net {place + 8}×9² k3", ratio=ratio) for place, ratio in enumerate(ratios)))
    html = report.page([file])
    first, *_ = html.partition("<h2>By network</h2>")
    shown = [float(number) for number in re.findall(r"<b>([\d.]+)×</b>", first)]
    assert shown == sorted(ratios)[:10] and "<h2>Losses" in first
    assert "2 rows of 14 are slower than the other side, 1 of them beyond the noise" in Tags(charts.worst([file])).text
    many = made_up(*(layer_row(f"Net {place + 8}×9² k3", ratio=0.5 + place / 100) for place in range(12)), layer_row())
    assert len(re.findall(r"<b>0\.\d+×</b>", charts.worst([many]))) == 12, "all losses, though they are more than ten"
    none = made_up(layer_row(), layer_row(ratio=1.0))
    assert "no rows of 2 are slower" in charts.worst([none])


def test_what_has_no_time_is_named_with_the_reason(made_up):
    failed = {"layer": "Net 8×9² k128", "pass": "dgrad", "failed": "no answer after 10 s"}
    step = {"network": "Another", "allocator": "memory kept", "failed": "it ended"}
    text = Tags(charts.worst([made_up(layer_row(), failed), made_up(step, benchmark="train-nhwc")])).text
    assert "Without a time: 2 rows" in text and "Net 8×9² k128 dgrad" in text and "no answer after 10 s" in text
    assert "Another memory kept" in text and "it ended" in text


@pytest.mark.parametrize(
    ("facts", "ends", "kind"),
    [
        ({"ratio": 2.0, "ratio_interval": [1.9, 2.3]}, (1.9, 2.3), "win"),
        ({"ratio": 1.1, "ratio_spread": 0.22}, (1.1 / 1.2, 1.1 * 1.2), "even"),
        ({"ratio": 0.5, "ratio_spread": 5.0}, (0.5 / 11, 0.5 * 11), "even"),
        ({"ratio": 0.9, "ratio_interval": [0.85, 0.99]}, (0.85, 0.99), "loss"),
    ],
)
def test_an_interval_is_that_of_the_file_or_else_the_spread(made_up, facts, ends, kind):
    (contest,) = result_files.of_layers(made_up(layer_row(**facts)))
    assert (contest.dot.low, contest.dot.high) == pytest.approx(ends) and contest.dot.kind == kind


def test_the_worst_rows_are_compared_with_the_fastest_provider(made_up):
    best = {"best_other": "inductor-nhwc", "over_best_other": 0.97, "over_best_other_interval": [0.96, 0.985]}
    file = made_up(layer_row(**best, verdict="tie", caches="cold"), layer_row(**best, verdict="slower"), layer_row())
    (over_best, slower, other) = result_files.of_all([file])
    assert (over_best.ratio, over_best.over, over_best.dot.kind) == (0.97, "inductor-nhwc", "even"), "a tie, as it says"
    assert (slower.dot.kind, over_best.group, slower.group) == ("loss", "fprop, cold", "fprop")
    assert (other.ratio, other.over) == (2.0, "PyTorch's better layout")
    assert "2 rows of 3 are slower than the other side, 1 of them beyond the noise" in charts.worst([file])
    assert [each.ratio for each in result_files.of_layers(file)] == [2.0, 2.0, 2.0]
    assert "0.97 × inductor-nhwc: tie" in Tags(charts.speedups([file])).text
    step = step_row(**best, verdict="slower", best_ours="blocks + inductor")
    step["ratio"]["interval"] = [1.4, 1.6]
    converted, at_best = result_files.of_all([made_up(step, benchmark="train-nhwc")])
    assert (converted.dot.low, at_best.ratio, at_best.dot.kind) == (1.4, 0.97, "loss")
    assert at_best.group == "blocks + inductor" and at_best.over == "inductor-nhwc"
    (block,) = result_files.of_all([made_up(block_row(**best, verdict="faster"), benchmark="blocks")])
    assert (block.ratio, block.dot.kind) == (0.97, "win")


def test_two_models_are_held_against_each_other_once_and_where(made_up):
    """The best ones by the ratio that the control judged."""
    best = {"best_other": "plain", "over_best_other": 1.4, "over_best_other_interval": [1.3, 1.45]}
    row = step_row(**best, verdict="faster", best_ours="converted")
    file = made_up(row, benchmark="train-compile-bfloat16-nhwc")
    (only,) = result_files.of_steps(file)
    assert (only.over, only.ratio, only.dot.kind) == ("plain", 1.4, "win")
    assert f"; bfloat16 on {file.device}" in Tags(charts.steps([file], result_files.of_steps)).text
    assert "bfloat16" not in Tags(charts.steps([made_up(row, benchmark="train-nhwc")], result_files.of_steps)).text


def test_only_what_is_ours_is_held_against_others(made_up):
    ratio = {"median": 1.2, "quartiles": [1.1, 1.3]}
    row = step_row(
        compiled={"plain + inductor": ratio, "converted + inductor": ratio}, inductor={**ratio, "median": 0.9},
        blocks={"plain": ratio, "converted": ratio, "blocks + inductor": {**ratio, "median": 0.8}},
    )  # fmt: skip
    found = list(result_files.of_steps(made_up(row, benchmark="train-nhwc")))
    assert [(each.group, each.over, each.ratio) for each in found] == [
        ("converted", "plain", 1.5),
        ("converted + inductor", "plain + inductor", 0.9),
        ("blocks", "plain", 1.2),
    ]


def test_means_of_networks_and_how_often_their_layers_occur(made_up):
    rows = [
        layer_row("One 8×9² k3", ratio=2.0, count=3), layer_row("One 16×9² k3", ratio=8.0, count=2),
        layer_row("One 16×9² k3", "wgrad", ratio=0.5, count=2), layer_row("Two 8×9² k3", ratio=3.0),
    ]  # fmt: skip
    html = charts.networks([made_up(*rows)])
    one, two = re.findall(r"<tr><th class=\"name\">(.*?)</tr>", html)
    assert Tags(one.join(["<a><th>", "</a>"])).text == "One2 layers, 5 in the network40.50.5"
    assert Tags(two.join(["<a><th>", "</a>"])).text == "Two1 layer33"
    assert "One 8×9² k3 (3 of them)" in Tags(charts.speedups([made_up(*rows)])).text


def test_each_provider_has_a_mean_with_its_range(made_up):
    file = made_up(
        layer_row("One 8×9² k3 s2", ratio=0.5), layer_row("Two 16×9² k3 s2", ratio=2.0),
        layer_row("One 8×14² k7", ratio=20.0), layer_row("One 8×14² k7", "wgrad", ratio=0.9),
        layer_row("without sizes", ratio=1.2),
    )  # fmt: skip
    rows = re.findall(r"<tr><th.*?</tr>", charts.winners([file]))
    cells = [[Tags(cell).text for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]
    assert cells == [
        ["K", "size", "fprop", "wgrad"],
        ["", "without sizes", "1.2", ""],
        ["3 s2", "9²", "10.5–2", ""],
        ["7", "14²", "20", "0.9"],
    ]
    assert [heat(ratio) for ratio in (0.79, 0.8, 0.949, 0.95, 1.0, 1.05, 1.5, 3.0, 9.9, 10.0)] == [
        "h0", "h1", "h1", "h2", "h2", "h3", "h4", "h5", "h5", "h6"
    ]  # fmt: skip


def test_names_from_files_are_text(made_up):
    evil = "<script>alert(1)</script>"
    files = [
        made_up(
            layer_row(
                f"{evil} 8×9² k3", best_other=evil, over_best_other=1.0, over_best_other_interval=[1, 2], verdict=evil
            ),
            layer_row(evil),
            command=evil,
            device=evil,
            machine={evil: evil},
        ),
        made_up(step_row(evil, kept_bytes={evil: 1}), benchmark="train-nhwc"),
        made_up(block_row(network=evil, layer=evil, block=evil), benchmark=f"blocks-{evil}"),
        made_up({"name": evil, evil: 1.5}, benchmark=f"other-{evil}", versions={evil: evil}),
        made_up({"layer": evil, "pass": evil, "failed": evil}),
    ]
    tags = Tags(report.page(files))
    assert "script" not in {tag for tag, _ in tags.seen} and tags.text.count(evil) > 15
    (drawn,) = pictures.of([made_up(layer_row(f"{evil}\x00 & 'é' 8×9² k3"))]).values()
    assert "<script" not in drawn and ElementTree.fromstring(drawn) is not None


# -- the roofline ------------------------------------------------------------------------------------------------------


def test_kernels_stand_where_their_work_puts_them(made_up):
    file = made_up(layer_row(dwconv_us=100.0), layer_row("unknown 8×9² k3"), layer_row(pass_="wgrad"))
    (line,) = pictures.of_devices([file])
    # 8 images, 144 channels, 56×56, 3×3: 166 taps inside along each axis; x and y once each, and the weights
    flops, moved = 2 * 8 * 144 * 166**2, 4 * (2 * 8 * 144 * 56**2 + 144 * 9)
    first, _ = line.points
    assert (first.flop_per_byte, first.gflop_per_s) == pytest.approx((flops / moved, flops / 100 / 1e3))
    silu = made_up(
        layer_row("Mamba-130M 1536×1×2048 k1×4 silu_gradient", epilogue="silu_gradient"), benchmark="cpu-1d-nhwc"
    )
    ((point,),) = (line.points for line in pictures.of_devices([silu]))
    taps, image = 1536 * sum(min(4, place + 1) for place in range(2048)), 1536 * 2048  # causal, with a bias
    assert point.flop_per_byte == pytest.approx((2 * taps + image) / (4 * (3 * image + 1536 * 5))), "x, dy and dz"
    assert line.left_out == 1 and "1 row is left out" in pictures.section([file])
    html = pictures.section([file])
    marks = Tags(html).seen
    assert sum(tag == "title" for tag, _ in marks) == 2 and "2.2 FLOP per byte, 635 GFLOP/s" in Tags(html).text


def test_devices_are_not_mixed_and_the_best_reading_counts(made_up):
    slow = made_up(layer_row(), limits={**LIMITS, "memory_gb_per_s": 10.0, "levels": LEVELS})
    fast = made_up(layer_row(), limits={**LIMITS, "peak_gflop_per_s": 90.0})
    other, unmeasured = made_up(layer_row(), device="other"), made_up(layer_row(), device="third", limits=None)
    first, second = pictures.of_devices([slow, fast, other, unmeasured])
    assert (first.limits.memory_gb_per_s, first.limits.peak_gflop_per_s) == (20.0, 100.0)
    assert pictures.rates(first.limits) == {"mem": 20.0, "L3": 50.0, "L2": 51.0, "L1": 52.0}
    roofs = re.findall(r'class="roof" x1="([\d.-]+)%"[^>]* x2="([\d.-]+)%"', pictures.drawn(first))
    sides = [tuple(map(float, each)) for each in roofs]
    assert len(sides) == 5 and all(0 < left < right <= 100 for left, right in sides), "from the left to the peak"
    assert (second.device, len(second.points)) == ("other", 1)
    assert pictures.rates(second.limits) == {"mem": 20.0, "cache": 50.0}


# -- steps and blocks --------------------------------------------------------------------------------------------------


def test_a_step_is_stacked_by_what_it_is_spent_on(made_up):
    plain = {
        "depthwise fprop": 4.0,
        "depthwise backward": 6.0,
        "pointwise, dense backward": 7.0,
        "between the ops": 3.0,
        "step": 20.0,
    }
    profile = {"plain": plain, "converted": {"depthwise fprop": 2.0, "optimizer": 3.0, "step": 5.0}}
    html = steps.section([made_up(step_row(profile_ms=profile), benchmark="train-nhwc")])
    bars = [
        re.findall(r'class="(p\d)" style="width:([\d.]+)%', bar)
        for bar in re.findall(r'<div class="bar">.*?</div>', html)
    ]
    assert bars == [[("p0", "50.0"), ("p1", "35.0"), ("p7", "15.0")], [("p0", "10.0"), ("p6", "15.0")]]
    assert "depthwise 10.0; pointwise, dense 7.0; all else 3.0" in html
    without = steps.section([made_up(step_row(), benchmark="train-nhwc")])
    assert "These files do not have it: run bench train with --profile." in without


def test_the_tables_of_steps_and_blocks_have_every_number(made_up):
    row = step_row(
        median_ms={"plain": 31.0, "converted": 22.0, "plain + inductor": 28.0},
        kept_bytes={"plain": 5 << 20, "blocks": 2 << 20},
    )
    text = Tags(steps.section([made_up(row, benchmark="train-nhwc")])).text
    assert all(said in text for said in ("31", "22", "28", "1.7", "plain 5, blocks 2 MiB", "1.36–1.65"))
    fewer = steps.section([made_up(row, step_row("Other"), benchmark="train-nhwc")])
    medians = fewer.partition("<h3>Medians")[2].partition("<h3>")[0]
    assert [re.findall(r"<th[^>]*>([^<]*)</th>", table) for table in medians.split("<table")[1:]] == [
        ["network", "plain ms", "converted ms", "plain + inductor ms", "×", "at most", "kept"],
        ["network", "plain ms", "converted ms", "×", "at most"],
    ], "a table has the columns that its rows need"
    text = Tags(steps.blocks([made_up(block_row(), benchmark="blocks")])).text
    assert all(said in text for said in ("bn+relu6,none", "3 in the network", "300 µs", "1.5", "25%"))


def minute_row(model="Net", case="records", **facts):
    return {
        "model": model, "case": case, "plain_step_s": 0.03, "plain_drift": 1.2, "convert_s": 12.34,
        "sums_s": {"1": 12.4, "100": 14.0, "1000": 36.5}, "plain_sums_s": {"1": 0.03, "100": 3.0, "1000": 30.0},
        "late_step_s": 0.02, "open_plans": 0, **facts,
    }  # fmt: skip


def test_the_first_minute_is_what_was_lost_and_won_by_then(made_up, tmp_path, capsys):
    won = minute_row(case="race", sums_s={"1": 0.04}, plain_drift=1.0)
    file = made_up(minute_row(), won, benchmark="first-minute")
    text = Tags(steps.first_minute([file])).text
    for said in ("Net, records", "Net, race", "12.3", "+12.4", "+11.0", "+6.5", "+0.0", "1.5", "30"):
        assert said in text
    assert text.count("1.20 times as long at the end") == 1 and "Other benchmarks" not in report.page([file])
    assert "first minute" in report.page([file]) and not steps.first_minute([made_up(layer_row())])
    path = tmp_path / "first-minute-made-up.json"
    written(path, [minute_row(plain_step_s=0)], benchmark="first-minute")
    with pytest.raises(UnreadableResults, match="row 0: Expected `float` > 0"):
        result_files.read(path)


def test_how_to_reproduce_names_what_the_figures_depend_on(made_up):
    file = made_up(
        layer_row(contention=0.2),
        layer_row(),
        limits={**LIMITS, "levels": LEVELS},
        control={"ratio": 1.012345},
        machine="quiet",
    )
    text = Tags(steps.reproduce([file])).text
    for said in (
        "python -m bench cpu-nhwc", "made-up-cpu-2t", "threads 2", "2026-11-25T01:02:03", "torch 2.13.0",
        "memory 20 GB/s", "512 KiB 51 GB/s", "peak 100 GFLOP/s", "ratio 1.012", "quiet",
        "at most 20.0% of the time; above 5% in 1 of 2 rows",
    ):  # fmt: skip
        assert said in text
    assert "tvm" not in text


# -- bad files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "is not JSON"),
        ("[1, 2]", "Expected `object`, got `array`"),
        ('{"benchmark": "cpu"}', "missing required field `rows`"),
        (
            '{"benchmark": "cpu-nhwc", "rows": [{"layer": "L", "pass": "fprop"}]}',
            "row 0: Object missing required field `dwconv_us`",
        ),
        (
            '{"benchmark": "cpu-nhwc", "rows": [{"layer": "L", "pass": "fprop", "dwconv_us": 1, "ratio": -1}]}',
            "row 0: Expected `float` > 0",
        ),
        ('{"benchmark": "train-nhwc", "rows": [{"network": "N"}]}', "row 0: Object missing required field `allocator`"),
        ('{"benchmark": "cpu-nhwc", "rows": [3]}', "Expected `object`, got `int`"),
        (None, "No such file or directory"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, capsys, content, told):
    good, bad, out = written(tmp_path / "good.json", [layer_row()]), tmp_path / "bad.json", tmp_path / "report.html"
    out.write_text("kept")
    if content is not None:
        bad.write_text(content)
    assert main(["report", str(good), str(bad), "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(bad) in line and told in line and out.read_text() == "kept"


def test_it_writes_the_requested_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = str(written(tmp_path / "file.json", [layer_row()]))
    assert main(["report", file, "--pictures", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.json", "layers-made-up-cpu-2t.svg"]
    assert main(["report", file]) == 0 and Path("report.html").read_text() == report.page([read(Path(file))])
    assert "written to report.html" in capsys.readouterr().out
    assert main(["report", file, "--out", str(tmp_path / "no" / "where.html")]) == 2
    assert "cannot be written: No such file or directory; name another place" in capsys.readouterr().err
    other = str(written(tmp_path / "other.json", [], benchmark="coverage"))
    assert main(["report", other, "--pictures", str(tmp_path)]) == 2
    assert "neither layers nor steps; give files of bench cpu, train or cuda" in capsys.readouterr().err


# -- how it is drawn ---------------------------------------------------------------------------------------------------


def test_the_pictures_are_those_of_the_results():
    for file, drawn in pictures.of(read_all(PICTURED)).items():
        kept = (ROOT / "docs" / "images" / file).read_text()
        files = " ".join(str(path.relative_to(ROOT)) for path in PICTURED)
        assert kept == drawn, f"python -m bench report {files} --pictures docs/images"
        assert f"docs/images/{file}" in (ROOT / "README.md").read_text()


def test_numbers_along_an_axis_have_room():
    for low, high in ((0.9, 1.1), (0.72, 1.0), (0.5, 40.0), (0.4, 435.0), (1e-3, 1e6), (1e-9, 1e9), (1.0, 354.0)):
        axis = LogAxis.around([low, high])
        places = [axis.percent(tick) for tick in axis.ticks]
        assert places == sorted(places) and all(after - before >= 12.9 for before, after in pairwise(places))
        assert places or high / low < 1.3, (low, high)
        assert 5 <= axis.percent(low) < axis.percent(high) <= 95
        assert axis.percent(low / 1e3) == 5 and axis.percent(high * 1e3) == 95


def test_names_wrap_at_spaces_alone():
    assert (
        name("R(2+1)D-18 64×16×56×56 k1×3×3") == "<span>R(2+1)D-18</span> <span>64×16×56×56</span> <span>k1×3×3</span>"
    )
    assert name("features.1.conv") == "<span>features.</span><wbr><span>1.</span><wbr><span>conv</span>"
    assert name("long_name") == "<span>long_</span><wbr><span>name</span>"
    assert name("a.b: c") == "<span>a.</span><wbr><span>b:</span> <span>c</span>"
    assert name("0.5 v2-0.25") == "<span>0.5</span> <span>v2-0.25</span>"
    assert lines_of("a long name of words", most=9) == ["a long", "name of", "words"]
    assert lines_of("oneverylongword and", most=5) == ["oneverylongword", "and"]


SVG = "{http://www.w3.org/2000/svg}"


def text_boxes(element, *, width, height=0.0, x=0.0, y=0.0, size=11.0):
    """The boxes of all text, with what it says: about, by the number of its characters."""

    def place(value, whole):
        return float(value[:-1]) / 100 * whole if value.endswith("%") else float(value)

    for each in element:
        left, top = x + place(each.get("x", "0"), width), y + place(each.get("y", "0"), height)
        if each.tag.removeprefix(SVG) == "text":
            characters = 0.62 * (15 if each.get("class") == "title" else size) * len(each.text)
            left -= {"middle": characters / 2, "end": characters}.get(each.get("text-anchor", ""), 0.0)
            yield left, top - size, left + characters, top + 2, each.text
        else:
            inner = each.tag.removeprefix(SVG) == "svg"
            wide, high = (
                place(each.get(way, str(now)), now) if inner else now
                for way, now in (("width", width), ("height", height))
            )
            yield from text_boxes(
                each, width=wide, height=high, x=left if inner else x, y=top if inner else y, size=size
            )


def overlapping(boxes):
    boxes = list(boxes)
    return [
        (one[4], other[4])
        for place, one in enumerate(boxes)
        for other in boxes[place + 1 :]
        if min(one[2], other[2]) > max(one[0], other[0]) and min(one[3], other[3]) > max(one[1], other[1])
    ]


def test_no_text_of_a_drawing_covers_another(made_up):
    close = made_up(
        layer_row(dwconv_us=1000.0),
        layer_row("a layer whose name has very many words and needs more than one line 8×9² k3"),
        limits={**LIMITS, "levels": LEVELS},
    )  # fmt: skip
    for some in (read_all(COMMITTED), [close]):
        html = report.page(some).replace("\xa0", " ")
        drawings = re.findall(r'<svg class="(?:plot|chart)".*?</svg>(?=</div>|\n|</th>|<p|$)', html, re.DOTALL)
        found = [ElementTree.fromstring(each.replace('overflow="visible"', "")) for each in drawings]
        with_text = [each for each in found if each.find(".//text") is not None]
        assert with_text
        for drawing in with_text:
            for width in (320, 700):
                boxes = list(text_boxes(drawing, width=width, height=pictures.HEIGHT_PX))
                assert not overlapping(boxes), (width, boxes)
                assert all(left >= -2 and right <= width + 2 for left, _, right, _, _ in boxes), (width, boxes)
    for some in ([close], read_all(PICTURED)):
        for drawn in pictures.of(some).values():
            drawing = ElementTree.fromstring(drawn)
            boxes = list(text_boxes(drawing, width=pictures.WIDTH_PX, height=float(drawing.get("height")), size=12))
            assert len(boxes) >= 7 and not overlapping(boxes)
            assert all(left >= 0 and right <= pictures.WIDTH_PX for left, _, right, _, _ in boxes)
            assert all(top >= 0 and bottom <= float(drawing.get("height")) for _, top, _, bottom, _ in boxes)


def test_text_that_overlaps_is_found():
    drawing = ElementTree.fromstring(
        '<svg><text x="10%" y="10">one</text><svg x="5"><text x="10%" y="14">two</text></svg></svg>'
    )
    assert overlapping(text_boxes(drawing, width=100)) == [("one", "two")]


# -- as a browser shows it ---------------------------------------------------------------------------------------------


SHOWN = ("blocks-", "cuda-", "cliffs-", "concurrency-", "cpu-1d-bfloat16-", "cpu-3d-", "train-mobilenetv2-", "untuned-")
"""Of each kind one: all of them take a browser ten seconds."""
HOW_MANY_SCROLL = "[...document.querySelectorAll('.scrolled')].filter(box => box.scrollWidth > box.clientWidth).length"


def test_a_browser_shows_it_on_a_phone_and_on_a_desk(tmp_path):
    profile = {
        "plain": {"depthwise fprop": 4.0, "optimizer": 3.0, "step": 9.0},
        "converted": {"depthwise fprop": 1.0, "step": 6.0},
    }
    wide = written(
        tmp_path / "wide.json",
        [
            step_row(
                "a network with a long name", profile_ms=profile, kept_bytes={"plain": 5 << 20, "blocks": 2 << 20}
            ),
            step_row("words-with-hyphens-in-them another-hyphenated-word yet-another-one-of-them"),
            step_row("another.module.path.that.is.long.with.Many.Parts"),
            step_row(median_ms={f"a model of kind {each}": 1000.0 + each for each in range(16)}),
        ],
        benchmark="train-nhwc",
    )
    page = tmp_path / "report.html"
    some = [path for path in COMMITTED if path.name.startswith(SHOWN)]
    page.write_text(report.page(read_all([*some, wide])))
    assert len(some) >= 6
    with browser(tmp_path / "profile") as shown:
        for width in (360, 800, 1280):
            seen = []
            for dark in (False, True):
                shown.show(page, width=width, dark=dark)
                assert not shown.wrong(), (width, dark)
                seen.append(shown.screenshot(height=1200))
                (tmp_path / f"{width}-{'dark' if dark else 'light'}.png").write_bytes(seen[-1])
            assert all(each.startswith(b"\x89PNG") for each in seen) and seen[0] != seen[1]
        assert shown.asked(HOW_MANY_SCROLL) == 1, "the one of 16 models, in its box"
        for picture in sorted((ROOT / "docs" / "images").glob("*.svg")):
            host = tmp_path / "host.html"
            host.write_text(f"<!DOCTYPE html><body>{picture.read_text()}</body>")
            for dark in (False, True):
                shown.show(host, width=800, dark=dark)
                assert not shown.wrong(), (picture.name, dark)
        low = "<p style='height: 3px; margin: 0'>low</p>" * 12
        meta = "<meta name='viewport' content='width=device-width'>"
        wide = "<p style='width: 2000px; text-align: right'>wide</p>"
        host.write_text(f"<!DOCTYPE html>{meta}<body>{low}{wide}</body>")
        shown.show(host, width=360, dark=False)
        said = "\n".join(shown.wrong())
        assert "scrolls sideways" in said and "'wide' stands outside" in said, "it sees what is wrong"
        assert "lie on each other" in said
        for overflow, is_reached in (("auto", True), ("hidden", False)):
            box = f"<div style='overflow-x: {overflow}'>{wide}</div>"
            host.write_text(f"<!DOCTYPE html>{meta}<body>{'<p>line</p>' * 12}{box}</body>")
            shown.show(host, width=360, dark=False)
            assert bool(shown.wrong()) is not is_reached, overflow
