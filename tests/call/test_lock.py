"""``dwconv.lock``: a later run runs what an earlier one ran, whatever was tuned meanwhile."""

from __future__ import annotations

import json
import warnings

import pytest
import torch

import dwconv
from dwconv.call import call_plan
from dwconv.call.call_plan import plan_for, plans
from dwconv.errors import DwconvWarning, InvalidSetting
from dwconv.problems.problem import Problem
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import PASSES
from dwconv.records.log import TuningLog
from dwconv.schedules.template import templates_for
from dwconv.system import versions
from tests.call.block_parts import SIZE, WHOLE, Parts, drawn, step
from tests.call.block_parts import ran as ran_blocks
from tests.planted_records import plant, record_of, workload_of

pytestmark = pytest.mark.usefixtures("threads_as_asked")
CPU = torch.device("cpu")


def run():
    """y and the gradients of x and w, of numbers that round."""
    torch.manual_seed(0)
    x = torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last).requires_grad_()
    w = torch.randn(8, 1, 3, 3, requires_grad=True)
    y = dwconv.conv2d(x, w, padding=1)
    return [y.detach(), *torch.autograd.grad(y.sin().sum(), (x, w))]


def configs():
    return {pass_: each.config for pass_, each in plan_for(Problem.of(workload_of()), CPU).decisions.items()}


def tune_otherwise(log):
    """A configuration of each pass that is faster than that of ``plant``, and sums in another order."""
    for pass_ in PASSES:
        workload = workload_of(pass_=pass_)
        (template,) = (each for each in templates_for(workload, cpu_target()) if each.layout == "nhwc")
        space = template.space(workload, cpu_target())
        other = next(each for each in space if each.tile_w != space.default.tile_w)
        TuningLog(log).append(record_of(workload, config=other, median_us=10.0, baseline_us=1000.0))


@pytest.fixture
def locked(logs, tmp_path, monkeypatch):
    """The file of a run with tuned kernels in fprop and dgrad, and what it gave."""
    plant(logs / "log.jsonl", [workload_of()], passes=PASSES[:2])
    TuningLog(logs / "log.jsonl").append(record_of(workload_of(pass_="wgrad"), median_us=200.0))
    given, ran = run(), configs()
    dwconv.lock(tmp_path / "run.lock.json")
    tune_otherwise(logs / "more.jsonl")
    dwconv.reset()
    monkeypatch.setenv("DWCONV_LOCK", str(tmp_path / "run.lock.json"))
    return tmp_path / "run.lock.json", given, ran


def test_the_same_runs_after_more_tuning(locked, monkeypatch):
    _, given, ran = locked
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = run()
    assert all(map(torch.equal, again, given)) and configs() == ran
    assert ran["fprop"] is not None and ran["wgrad"] is None, "PyTorch's op is a choice, too"
    monkeypatch.delenv("DWCONV_LOCK")
    dwconv.reset()
    run()
    assert all(config not in (None, ran[pass_]) for pass_, config in configs().items()), "else nothing was locked"


@pytest.mark.usefixtures("locked")
def test_a_call_that_the_file_does_not_name_runs_on_pytorchs_op():
    with pytest.warns(DwconvWarning, match=r"run\.lock\.json does not name it on .* threads; others") as caught:
        for size in (5, 6):
            dwconv.conv2d(torch.randn(1, 8, size, size).to(memory_format=torch.channels_last), torch.randn(8, 1, 3, 3))
    assert len(caught) == 1 and all(plan.is_pytorch for plan in plans())


def test_other_code_and_other_versions_are_named(locked, monkeypatch):
    path, given, _ = locked
    content = json.loads(path.read_text())
    content["calls"][0]["passes"]["fprop"]["code"] = "0" * 64
    content["made_with"]["torch"] = "1.0"
    path.write_text(json.dumps(content))
    with pytest.warns(DwconvWarning) as caught:
        assert all(map(torch.equal, run(), given))
    found = [str(each.message) for each in caught]
    assert any("made with torch 1.0: bits may differ" in each for each in found)
    assert any("is not the code that was locked: bits may differ" in each for each in found) and len(found) == 2
    assert versions.installed()["torch"] != "1.0"


def test_a_kernel_that_cannot_run_here_is_named(locked):
    path, _, ran = locked
    run()
    assert configs() == ran
    dwconv.reset()  # reads the file again
    content = json.loads(path.read_text())
    content["calls"][0]["passes"]["dgrad"]["config"]["template"] = "cpu.no_such"
    path.write_text(json.dumps(content))
    with pytest.warns(DwconvWarning, match=r"run\.lock\.json cannot run here: .*cpu\.no_such"):
        run()
    assert configs()["dgrad"] is None and configs()["fprop"] is not None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        ("{}", "is not what dwconv.lock writes"),
        ("[", "is not what"),
        ('{"calls": [{}]}', "is not"),
    ],
)
def test_a_file_that_is_none_is_named(logs, tmp_path, monkeypatch, content, says):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("DWCONV_LOCK", str(path))
    with pytest.raises(InvalidSetting, match=rf"DWCONV_LOCK=.*a\.json.*{says}"):
        run()
    with pytest.raises(InvalidSetting, match=r"lock=.*no/a\.json cannot be written"):
        dwconv.lock(tmp_path / "no" / "a.json")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda call: call.update(threads="2"), r"Expected `int`, got `str` - at `\$\.calls\[0\]\.threads`"),
        (lambda call: call.update(passes=[]), "Expected `object`, got `array`"),
        (lambda call: call["passes"].update(fprop="mine"), "Expected `object | null`, got `str`"),
        (lambda call: call["passes"]["fprop"].pop("code"), "missing required field `code`"),
        (lambda call: call["passes"]["fprop"]["config"].update(tile_h=[4]), "Expected `int | str`, got `array`"),
        (lambda call: call["problem"].update(batch="many"), "batch='many' must be a whole number"),
    ],
)
def test_a_file_with_one_wrong_field_is_named_before_any_call_runs(locked, spoil, says):
    path, *_ = locked
    content = json.loads(path.read_text())
    spoil(content["calls"][0])
    path.write_text(json.dumps(content))
    with pytest.raises(InvalidSetting, match=rf"DWCONV_LOCK=.*{says}.*; write it anew, or unset the variable$"):
        run()


def test_a_file_that_an_editor_marked_as_utf_8_is_read(locked):
    path, given, ran = locked
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert all(map(torch.equal, run(), given)) and configs() == ran


def test_kernels_that_are_still_being_built_are_counted(logs, tmp_path, monkeypatch):
    """Under "predict", the default of users, PyTorch's op runs until they are there."""
    plant(logs / "log.jsonl", [workload_of()], passes=PASSES[:2])
    monkeypatch.setenv("DWCONV_UNTUNED", "predict")
    monkeypatch.setattr(call_plan.background_builds, "predict", lambda *_, **__: None)
    dwconv.reset()
    run()
    with pytest.warns(DwconvWarning, match=r"lock=.*a\.json has 2 of 3 passes on PyTorch's op because their kernels"):
        dwconv.lock(tmp_path / "a.json")


@pytest.fixture
def one_thread_more():
    usual = torch.get_num_threads()
    torch.set_num_threads(usual + 1)
    yield usual
    torch.set_num_threads(usual)


def test_on_another_number_of_threads_the_same_kernels_run_and_one_line_says_so(locked, one_thread_more):
    _, given, ran = locked
    said = rf"was made with {one_thread_more} threads.*torch\.set_num_threads\({one_thread_more}\)"
    with pytest.warns(DwconvWarning, match=said) as caught:
        again = run()
        run()
    assert configs() == ran and torch.equal(again[0], given[0]) and torch.equal(again[1], given[1])
    assert len(caught) == 1


def test_so_does_a_block(logs, tmp_path, monkeypatch):
    usual = torch.get_num_threads()
    plant(logs / "log.jsonl", [workload_of(shape=SIZE, block=WHOLE)])
    expected = step(Parts(WHOLE), drawn())
    assert ran_blocks() == (1, 1)
    dwconv.lock(tmp_path / "run.lock.json")
    dwconv.reset()
    monkeypatch.setenv("DWCONV_LOCK", str(tmp_path / "run.lock.json"))
    torch.set_num_threads(usual + 2)
    try:
        with pytest.warns(DwconvWarning, match=rf"set_num_threads\({usual}\)") as caught:
            found = step(Parts(WHOLE), drawn())
    finally:
        torch.set_num_threads(usual)
    assert ran_blocks() == (1, 1) and all(map(torch.equal, found, expected))
    assert len(caught) == 1
