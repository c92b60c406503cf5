"""What the report says of layers that ran: on which provider, how long that takes, and what tuning would win."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import dwconv
from dwconv.errors import InvalidWorkload
from dwconv.measure.step_share import OnGpu
from dwconv.problems.target import cpu_target
from dwconv.records.log import TuningLog
from tests.browser import browser
from tests.models import TinyNet
from tests.planted_gain import default_of, plant_gain
from tests.planted_records import plant, record_of, workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked", "through_python"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]
X = torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last)


def layer(*, bias=False):
    """In a model, so that it has a name and its input a gradient."""
    model = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=bias))
    model = model.to(memory_format=torch.channels_last)
    dwconv.convert(model)
    return model


def plant_one(logs, pass_, *, confirmed=True, median_us=50.0, baseline_us=100.0, **sizes):
    """A record of one pass, of the default of its template."""
    workload = workload_of(pass_=pass_, **sizes)
    record = record_of(
        workload, config=default_of(workload, cpu_target()), median_us=median_us, baseline_us=baseline_us
    )
    TuningLog(logs / "log.jsonl").append(dataclasses.replace(record, confirmed=confirmed))


def row_of(model, example=X):
    (row,) = dwconv.report(model, example).rows
    return row


def of_pass(row, pass_):
    return next(each for each in row.passes if each.pass_ == pass_)


# -- times -----------------------------------------------------------------------------------------------------------


def test_times_are_those_of_the_log(logs):
    plant_one(logs, "fprop")
    plant_one(logs, "wgrad", median_us=95.0)
    report = dwconv.report(layer(), X)
    (row,) = report.rows
    assert (row.names, row.workload, row.device) == (("1",), "2×8×9×7 k3 s1 f32 nhwc", cpu_target().device)
    fprop, dgrad, wgrad = row.passes
    assert (fprop.provider, fprop.ours_us, fprop.pytorch_us, fprop.times) == ("dwconv", 50, 100, 2)
    assert (fprop.pytorch, fprop.basis, fprop.batch, fprop.now_us) == ("onednn-nhwc", "measured", None, 50)
    assert fprop.config.startswith("cpu.fprop_nhwc block_h=")
    assert (dgrad.provider, dgrad.now_us, dgrad.basis) == ("pytorch", None, "not known")
    assert (wgrad.provider, wgrad.config, wgrad.ours_us, wgrad.now_us) == ("pytorch", "", 95, 100)
    assert (report.depthwise_us, report.saved_us, report.unknown) == (150, 50, 1)
    lines = str(report).splitlines()
    assert "a step: 150 µs of depthwise convolution, 200 µs on PyTorch's op: 50 µs saved (25%)" in lines
    assert "without 1 pass whose time is not known" in lines
    assert any(line.endswith("no kernel was measured to be faster, the call included") for line in lines)
    assert any(line.endswith(f"untuned on {cpu_target().device}") for line in lines)


def test_another_batch_and_a_sweep_for_the_bias_are_reckoned_in(logs):
    plant_one(logs, "fprop", median_us=100.0, baseline_us=1e5)
    fprop = of_pass(row_of(layer(bias=True), torch.cat([X, X])), "fprop")
    assert (fprop.batch, fprop.pytorch_us) == (2, 2e5)
    assert fprop.ours_us == pytest.approx(2 * (100 + 100)), "the sweep moves as much as the kernel"
    assert "measured at batch 2" in str(dwconv.report(layer(bias=True), torch.cat([X, X])))


@pytest.fixture
def threads():
    """Another number of threads, from then on."""
    before = torch.get_num_threads()
    yield lambda: torch.set_num_threads(before + 1)
    torch.set_num_threads(before)


@pytest.mark.parametrize("baseline_us", [1e5, 1.0], ids=["dwconv", "pytorch"])
def test_times_of_another_number_of_threads_are_said_to_be(logs, threads, baseline_us):
    plant(logs / "log.jsonl", [workload_of()], baseline_us=baseline_us)
    model, tuned_for = layer(), cpu_target()
    model(X)
    threads()
    (row,) = dwconv.report(model).rows
    assert (row.device, row.passes[0].threads) == (tuned_for.device, None), "as the calls ran"
    model(X)
    words = f"measured on {tuned_for.threads} thread" + "s" * (tuned_for.threads > 1)
    for report in (dwconv.report(model), dwconv.report(model, X)):
        (row,) = report.rows
        assert row.device == cpu_target().device != tuned_for.device
        assert {(each.basis, each.threads) for each in row.passes} == {("measured", tuned_for.threads)}
        assert words in str(report) and words in report.to_html()
    explained = dwconv.explain(X, model[1].weight, padding=1)
    assert all(words.removeprefix("measured ") in each.reason for each in explained.passes)
    torch.set_num_threads(tuned_for.threads)
    (row,) = dwconv.report(model).rows
    assert (row.device, row.passes[0].threads) == (tuned_for.device, None)


def test_what_runs_often_takes_more_of_a_step(logs):
    class Often(nn.Module):
        def __init__(self):
            super().__init__()
            self.often, self.once = layer(), layer()

        def forward(self, x):
            for _ in range(3):
                x = self.often(x)
            return self.once(x)

    for pass_ in ("fprop", "dgrad", "wgrad"):
        plant_one(logs, pass_, median_us=95.0)
    model = Often()
    for _ in range(5):
        model(X).sum().backward()
    for report in (dwconv.report(model), dwconv.report(model, X)):
        often, once = report.rows
        assert (often.step_us, once.step_us, report.depthwise_us) == (900, 300, 1200)


def test_sizes_that_run_seldom_are_summed_up(logs):
    model = layer()
    for height in range(4, 9):
        model(X[:, :, :height])
    report = dwconv.report(model)
    assert len(report.rows) == 5 and len(report.shown) == 3
    assert "2 more sizes, which their layers ran less often, are in the sums alone" in str(report)


def test_a_kernel_that_could_not_be_built_is_not_said_to_run(logs, monkeypatch):
    plant_one(logs, "fprop", baseline_us=1e5)
    monkeypatch.setattr("dwconv.call.process_kernels.kernel_of", lambda *_: 1 / 0)
    model = layer()
    model(X)
    (fprop,) = dwconv.report(model).passes[:1]
    assert fprop.provider == "pytorch" and "could not be built: division by zero" in fprop.why


@pytest.mark.parametrize("kernels_ms", [2.0, 9.0])
def test_a_step_that_the_host_limits_is_reported(logs, monkeypatch, kernels_ms):
    on_gpu = OnGpu(host_ms=9.5, step_ms=10.0, kernels_ms=kernels_ms, launches=40)
    monkeypatch.setattr("dwconv.reporting.step_on_gpu", lambda *_: on_gpu)
    lines = str(dwconv.report(layer(), X)).splitlines()
    assert "a step: nothing is measured yet" in lines
    busy = f"{kernels_ms:.3g} ms of 40 kernels: the GPU is busy for {kernels_ms / 10:.0%} of it"
    assert f"op by op it takes 9.5 ms of the host beside {busy}" in lines
    host = "the host is the bottleneck: dwconv.graphed(model, example_inputs) makes it two launches"
    assert (host in lines) == (kernels_ms == 2.0)


# -- what there is to win ----------------------------------------------------------------------------------------------


def test_what_is_confirmed_leaves_nothing_to_win(logs):
    for pass_ in ("fprop", "dgrad", "wgrad"):
        plant_one(logs, pass_, baseline_us=1e5)
    report = dwconv.report(layer(), X)
    assert report.to_win_us == 0 and report.call == "" and report.most_to_win is None
    assert "still to win by tuning: nothing is expected" in str(report)
    assert "tune:" not in str(report)


def test_the_commands_tune_what_there_is_to_win(logs):
    plant_one(logs, "fprop", baseline_us=1e5)
    plant_one(logs, "wgrad", baseline_us=1e5, confirmed=False)
    report = dwconv.report(layer(), X)
    fprop, dgrad, wgrad = report.passes
    assert fprop.to_win_us == 0 and dgrad.to_win_us > 0 and wgrad.to_win_us == pytest.approx(0.05 * 50)
    lines = str(report).splitlines()
    assert "tune: dwconv.tune(model, example_inputs, minutes=1)" in lines
    assert "  or: python -m dwconv.tune --shape 2,8,9,7 --kernel 3 --layout nhwc --passes dgrad,wgrad" in lines


def test_what_is_predicted_is_said_to_be(logs, monkeypatch):
    plant_gain(monkeypatch)
    (row,) = dwconv.report(layer(), X).rows
    assert {each.basis for each in row.passes} == {"predicted"} and row.passes[0].provider == "dwconv"
    assert row.passes[0].to_win_us == pytest.approx(0.08 * 1000 / 12.3)
    monkeypatch.setattr("dwconv.dispatch.decide.is_safe", lambda *_, **__: False)
    (row,) = dwconv.report(layer(), X).rows
    assert row.passes[0].provider == "pytorch" and row.passes[0].now_us == pytest.approx(1000)
    assert row.passes[0].to_win_us == pytest.approx(1000 * (1 - 1 / 12.3))
    assert row.passes[0].why.startswith("the predicted kernel is not sure to be faster")


def test_what_was_never_measured_is_a_guess(logs):
    text = str(dwconv.report(layer(), X))
    (line,) = [line for line in text.splitlines() if line.startswith("still to win by tuning: about ")]
    assert line.endswith(" a step; a guess: 3 passes were never measured here") and " ~" in text
    plant_one(logs, "fprop", confirmed=False)
    dwconv.reset()
    assert "; a guess: 2 of 3 passes were never measured here" in str(dwconv.report(layer(), X))
    for pass_ in ("dgrad", "wgrad"):
        plant_one(logs, pass_, confirmed=False)
    dwconv.reset()
    text = str(dwconv.report(layer(), X))
    assert "still to win by tuning: about " in text and "guess" not in text and "~" not in text


# -- which way calls take ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_text", [str, lambda report: report.to_html()], ids=["text", "page"])
def test_calls_through_python_are_said_to_be_with_the_reason(logs, monkeypatch, as_text):
    plant(logs / "log.jsonl", [workload_of()], baseline_us=1e6)
    model = layer()
    for _ in range(3):
        model(X)
    monkeypatch.setenv("DWCONV_NATIVE", "0")
    said = "calls go through Python: DWCONV_NATIVE=0 is set"
    costs = "; so far 0 in C++, 3 through Python, which takes a call some µs more than the times above"
    assert said + costs in as_text(dwconv.report(model))
    assert f"  {said}" in str(dwconv.explain(X, model[1].weight, padding=1))
    monkeypatch.delenv("DWCONV_NATIVE")
    monkeypatch.setattr("dwconv.native.why_not", "it is being compiled")
    assert "calls go through Python: the C++ is not there, it is being compiled; so far" in as_text(
        dwconv.report(model)
    )


def test_calls_in_cpp_are_counted(logs, monkeypatch):
    plant(logs / "log.jsonl", [workload_of()], baseline_us=1e6)
    model = layer()
    model(X)
    monkeypatch.setattr("dwconv.reporting.road.native", SimpleNamespace(module=object()))
    monkeypatch.setattr("dwconv.call.tally.Tally.roads", lambda tally: (9, 2))
    text = str(dwconv.report(model))
    assert "calls go through C++, after the first of their kind; so far 9 in C++, 2 through Python\n" in f"{text}\n"


def test_calls_to_pytorchs_op_go_as_without_dwconv(logs):
    model = layer()
    model(X)
    text = str(dwconv.report(model))
    assert "calls go to PyTorch's op, as without dwconv" in text and "through Python" not in text
    assert "  calls go to PyTorch's op" in str(dwconv.explain(X, model[1].weight, padding=1))


# -- which layers ------------------------------------------------------------------------------------------------------


def test_a_model_that_is_not_converted_is_one_clear_line(logs):
    with pytest.raises(InvalidWorkload, match=r"no layer of TinyNet is dwconv's yet; call dwconv\.convert\(model\) fi"):
        dwconv.report(TinyNet())
    with pytest.raises(InvalidWorkload, match=r"^Linear has no depthwise layer that dwconv could run$"):
        dwconv.report(nn.Linear(3, 3))
    with pytest.raises(InvalidWorkload, match="could run: groups=2 of 8 channels is not depthwise"):
        dwconv.report(nn.Conv2d(8, 8, 3, groups=2))


def test_a_model_that_did_not_run_says_how_to_go_on(logs):
    model = layer()
    assert str(dwconv.report(model)) == (
        "Sequential: 1 depthwise layer converted\n"
        "none of them ran in this process yet; run a step, or give an example: dwconv.report(model, example_inputs)"
    )
    assert "none of them ran" in dwconv.report(model).to_html()
    model.append(nn.Identity())
    model.forward = lambda x: model[0](x)
    assert "none of them ran in the example; give inputs that reach them" in str(dwconv.report(model, X))


def test_layers_that_are_not_dwconvs_are_named_with_the_reason(logs):
    class Own(nn.Conv2d):
        def forward(self, x):
            return nn.functional.conv2d(x, self.weight, self.bias, groups=8)

    model = layer()
    model.append(Own(8, 8, 3, groups=8))
    model.append(nn.Conv2d(8, 8, 3, groups=8))
    model.idle = layer()[1]
    model.forward = lambda x: model[3](model[2](model[1](x)))
    report = dwconv.report(model, X)
    assert [row.names for row in report.rows] == [("1",), ("2",), ("3",)]
    assert [each.why for row in report.rows[1:] for each in row.passes if each.pass_ == "fprop"] == [
        "called as a function; dwconv.convert(model, functional=True) runs the call",
        "not converted; dwconv.convert(model) swaps it",
    ]
    assert not any(each.to_win_us for row in report.rows[1:] for each in row.passes)
    lines = str(report).splitlines()
    assert "did not run: idle" in lines
    assert "not dwconv's: 2: its forward is its own; functional=True runs the depthwise calls in it on dwconv" in lines
    assert "not dwconv's: 3: not converted; dwconv.convert(model) swaps it" in lines


# -- as HTML -----------------------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """Raises AssertionError for tags that are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data.replace("\xa0", " ")


def parsed(html):
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert not tags.open
    return tags


def test_the_page_is_whole_and_needs_nothing_else(logs, tmp_path, monkeypatch):
    plant(logs / "log.jsonl", [workload_of()])
    report = dwconv.report(layer(), X)
    html = report.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == html == report.to_html()
    assert html.startswith("<!DOCTYPE html>") and report._repr_html_() in html
    tags = parsed(html)
    assert not {tag for tag, _ in tags.seen} & {"script", "link", "img"} and "http" not in html
    for shown in ("2×8×9×7 k3 s1 f32 nhwc", "cpu.fprop_nhwc", "20.00", "minutes=2", "2.85 ms saved (95%)"):
        assert shown in tags.text
    widths = [attrs["style"] for tag, attrs in tags.seen if tag == "i" and "style" in attrs]
    assert widths == ["width:95.0%", "width:5.0%"] * 3, "all take as long, and may win a twentieth"


def test_names_are_text_in_the_page(logs):
    model = nn.Sequential()
    model.add_module("<script>&'\"", layer()[1])
    model.__class__ = type("<b>Net", (nn.Sequential,), {})
    model.append(type("<i>Own", (nn.Conv2d,), {})(8, 8, 3, groups=8))
    tags = parsed(dwconv.report(model, X).to_html())
    assert not {tag for tag, _ in tags.seen} & {"script", "b"}
    assert "<script>&'\"" in tags.text and "<b>Net" in tags.text
    assert "<script>&'\"" in [attrs.get("title") for _, attrs in tags.seen]


def test_a_browser_shows_it_on_a_phone_and_on_a_desk(logs, tmp_path):
    plant(logs / "log.jsonl", [workload_of()])
    model = layer()
    model.append(dwconv.convert(nn.Conv2d(8, 8, (3, 5), padding=(1, 2), stride=(1, 2), groups=8)))
    long = "a_module_whose_name_is_" + "_and_".join(["longer"] * 12)
    model.add_module(long, dwconv.convert(nn.Conv2d(8, 8, 3, padding=1, groups=8)))
    (tmp_path / "report.html").write_text(dwconv.report(model, X).to_html())
    with browser(tmp_path / "profile") as shown:
        for width, dark in ((360, False), (800, True), (1280, False)):
            shown.show(tmp_path / "report.html", width=width, dark=dark)
            assert not shown.wrong(), (width, dark)
