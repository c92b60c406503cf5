"""A whole model tuned at once: by the command, and by ``dwconv.tune``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import dwconv
from dwconv import tune
from dwconv.call import background_builds
from dwconv.commands import tune_model
from dwconv.commands.tune_arguments import model_input, parser_of_tune
from dwconv.commands.tune_model import counts_of
from dwconv.dispatch import decide
from dwconv.errors import InvalidChoice, InvalidWorkload
from dwconv.measure.step_share import step_ratio_at_most
from dwconv.problems.layer_files import read_layers, shipped_layers
from dwconv.problems.target import cpu_target
from dwconv.tuner.search import search_loop
from tests import fake_tuning as fake
from tests import forked
from tests.models import ConformerConvolution, TinyNet
from tests.planted_gain import plant_gain
from tests.tune_command import error_of, plant, run

ROOT = Path(__file__).resolve().parents[2]
MODEL = ("--model", "tests.models:TinyNet", "--input", "2,3,12,12", "--target", "cpu", "--trials", "2")
IMAGE = torch.randn(2, 3, 12, 12)


class Tokens(nn.Module):
    """(N, L) of tokens -> (N, L, C)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.convolution = nn.Embedding(2, 16), ConformerConvolution()

    def forward(self, tokens):
        return self.convolution(self.embedding(tokens))


class Repeats(nn.Module):
    """A small layer eight times, and one that takes twice as long, once."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.large = nn.Conv2d(16, 16, 3, padding=1, groups=16)

    def forward(self, x):
        y = self.large(torch.cat([x, x], 1))
        for _ in range(8):
            x = self.small(x)
        return x, y


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    made = plant(monkeypatch, tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(tune_model, "step_ratio_at_most", lambda step, *, device: 1.25)  # of a few profiled steps
    yield made
    dwconv.reset()


def tuned_by(capsys, *options):
    """What the command tuned, and what it said."""
    assert run(*options, "--json") == 0
    out, err = capsys.readouterr()
    return [result["workload"] for result in json.loads(out)["results"]], err


# -- the command -------------------------------------------------------------------------------------------------------


def test_every_pass_that_a_step_runs_is_tuned_once(capsys, fakes):
    workloads, err = tuned_by(capsys, *MODEL)
    assert sorted(workloads) == sorted(
        f"{pass_}-n2-{layer}-float32-nchw{bias if pass_ != 'dgrad' else ''}"
        for layer, bias in (
            ("c8-12x12-k3x3-s1x1-p1x1-d1x1-m1", ""),
            ("c8-12x12-k5x5-s2x2-p2x2-d1x1-m2", "-bias"),
            ("c16-10x10-k3x3-s1x1-p0x0-d2x2-m1", "-bias"),
        )
        for pass_ in ("fprop", "dgrad", "wgrad")
    )
    assert "note: 3 depthwise layers in tests.models:TinyNet, 9 different passes to tune\n" in err
    assert "takes 20% of a step, without the optimizer: tuning can speed up a step at most 1.25×\n" in err


def test_what_was_found_is_ready_when_the_command_or_the_call_ends(capsys, fakes, monkeypatch, tmp_path):
    """By the records of the log that it was written to."""
    readied = []

    def build_fastest(workloads, target, *, threads, known):
        readied.append((len(workloads), target, threads, known and known.logs))

    monkeypatch.setattr(background_builds, "build_fastest", build_fastest)
    own = tmp_path / "own.jsonl"
    tuned_by(capsys, *MODEL)
    tuned_by(capsys, *MODEL, "--log", str(own))
    dwconv.tune(TinyNet(), IMAGE, trials=2)
    dwconv.tune(TinyNet(), IMAGE, trials=2, log=own)
    of = (9, fake.TARGET, fake.TARGET.threads)
    assert readied == [(*of, None), (*of, [own])] * 2


def test_inference_layouts_types_and_passes_as_requested(capsys, fakes):
    workloads, _ = tuned_by(capsys, *MODEL, "--infer", "--channels-last")
    assert len(workloads) == 3 and all(re.match("fprop-.*-nhwc", workload) for workload in workloads)
    workloads, _ = tuned_by(capsys, *MODEL, "--passes", "dgrad", "--dtype", "bfloat16")
    assert len(workloads) == 3 and all(re.match("dgrad-.*-bfloat16", workload) for workload in workloads)


def requested(*options):
    """What ``--model`` with these options is to tune on this machine."""
    parser = parser_of_tune()
    args = parser.parse_args(["--channels-last", "--model", *options])
    return {workload.key for workload in counts_of(args, cpu_target(), model_input(parser, args))}


def test_blocks_are_tuned_on_request(monkeypatch):
    monkeypatch.setattr(tune_model, "step_ratio_at_most", lambda step, *, device: 1.25)
    model = ("tests.model.test_block_swaps:Inverted", "--input", "2,4,9,7")
    block = "n2-c8-9x7-k3x3-s1x1-p1x1-d1x1-m1-float32-nhwc-bn+relu6,bn+hardswish"
    assert requested(*model, "--blocks") - requested(*model) == {f"backward-{block}", f"forward-{block}"}
    only_fprop = {each for each in requested(*model) if each.startswith("fprop")}
    assert requested(*model, "--blocks", "--infer") == {f"inference-{block}", *only_fprop}
    with pytest.raises(InvalidWorkload, match=r"no block of .*:Repeats can run as one: no norm is next to a layer"):
        requested("tests.commands.test_tune_model:Repeats", "--input", "2,8,9,9", "--blocks")


def test_models_of_tokens_get_integers(capsys, fakes):
    tokens = ["--model", "tests.commands.test_tune_model:Tokens", "--input", "2,10", "--input-dtype", "int64"]
    workloads, err = tuned_by(capsys, *tokens, *MODEL[4:])
    assert {re.sub("^[a-z]+-", "", workload) for workload in workloads} == {
        "n2-c16-1x10-k1x9-s1x1-p0x4-d1x1-m1-float32-nchw"
    }
    assert "1 depthwise layer in tests.commands.test_tune_model:Tokens, 3 different passes" in err


def test_what_cannot_be_tuned_is_one_clear_line(capsys, fakes, monkeypatch):
    model = ["--model", "torch.nn:ReLU", "--input", "2,3", "--target", "cpu"]
    assert "no depthwise convolution ran in torch.nn:ReLU" in error_of(capsys, *model, "--infer")
    assert run(*MODEL, "--infer", "--passes", "wgrad") == 2
    assert "passes=wgrad: the layers of tests.models:TinyNet ran fprop only" in capsys.readouterr().err
    assert not fakes


def test_every_network_that_ships_can_be_read():
    names = json.loads(shipped_layers().read_text())
    assert all(read_layers(shipped_layers(), network=name) for name in names) and len(names) > 20


# -- the function ------------------------------------------------------------------------------------------------------


def test_the_function_prints_the_table_of_the_command(capsys, fakes, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(fake, "BASELINE_US", 1e3)  # all are faster
    before = decide.database()
    tuned = dwconv.tune(TinyNet(), IMAGE, trials=2)
    _, err = capsys.readouterr()
    assert "note: 3 depthwise layers in TinyNet, 9 different passes to tune" in err and "trials done" in err
    assert len(tuned.outcomes) == 9 and tuned.worked and not tuned.left
    assert decide.database() is not before and len(list(decide.database())) > len(list(before)), "calls read them"
    assert run(*MODEL, "--trials", "2") == 0
    table = capsys.readouterr().out
    # What is measured by then has less to win, and so another place.
    assert sorted(_without_counts(str(tuned)).splitlines()) == sorted(_without_counts(table).splitlines())
    assert "next: dwconv.convert(model) uses these kernels" in str(tuned)
    own = tmp_path / "own.jsonl"
    tuned = dwconv.tune(TinyNet(), IMAGE, trials=2, log=own, trains=False)
    assert tuned.log == own and len(tuned.outcomes) == 3 and f"with DWCONV_TUNING_LOGS={own}" in str(tuned)


def _without_counts(table: str) -> str:
    """The second run measured nothing that the first had, and had nothing to gain."""
    table = re.sub(r"(?m)^still to gain: .*$", "", table)
    return re.sub(r"\(\d+ new trials, \d+ known before\)", "", table).strip()


def shown_gains(err):
    """What is still to gain, in ms, in each line that shows it."""
    return [float(gain) for gain in re.findall(r"still to gain: ([\d.]+) ms a step", err)]


def test_what_is_still_to_gain_goes_down_to_nothing(capsys, fakes, monkeypatch):
    planted = plant_gain(monkeypatch)  # PyTorch's op takes 1 ms, and a kernel a tenth of it
    planted.config, planted.gain, planted.at_least = fake.space(fake.WORKLOAD, fake.TARGET).default, 10.0, 0.5
    options = ["--model", "tests.models:TinyNet", "--input", "2,3,12,12", "--channels-last", "--target", "cpu"]
    options += ["--trials", "2", "--passes", "fprop,dgrad"]
    assert run(*options) == 0
    out, err = capsys.readouterr()
    gains = shown_gains(err)
    assert gains[0] == 5.4 and gains[-1] == 0 and gains == sorted(gains, reverse=True)
    assert len(set(gains)) == 7, "six passes"
    assert "still to gain: about 0.00 ms a step (0%) of " in out and "before, 5.40 ms a step (90%) of 6.00 ms" in out
    assert run(*options, "--json") == 0
    out, err = capsys.readouterr()
    assert set(shown_gains(err)) == {0}, "the log knows it"
    step = json.loads(out)["step"]
    assert step == {"still_to_gain_us": 0, "depthwise_us": 6 * fake.BASELINE_US}
    assert run("--shape", "8,96,28,28", "--kernel", "3", "--layout", "nhwc", *MODEL[4:], "--passes", "fprop") == 0
    assert "gain" not in "".join(capsys.readouterr()), "a single layer has no step"


def test_minutes_go_where_there_is_most_to_win(fakes, monkeypatch):
    seconds = {}
    real = search_loop.tune_workload

    def tune_workload(workload, target, *, budget, **others):
        seconds[workload] = budget.seconds
        return real(workload, target, budget=budget, **others)

    monkeypatch.setattr(search_loop, "tune_workload", tune_workload)
    dwconv.tune(Repeats(), torch.randn(2, 8, 9, 9), minutes=0.5, trials=2, trains=False)
    small, large = sorted(seconds, key=lambda workload: workload.channels)
    assert list(seconds) == [small, large], "eight calls of the small one take longer"
    assert seconds[small] == pytest.approx(2 + 4 * (30 - 2 * 5) / 5, rel=0.05)


def test_ctrl_c_is_raised_and_what_was_measured_is_kept(fakes):
    fakes.factory = lambda: fake.FakeRunner(interrupt_after=1)
    with pytest.raises(KeyboardInterrupt):
        dwconv.tune(TinyNet(), IMAGE, trials=2)
    assert len(list(decide.database())) == 1


def test_the_example_of_the_docs_tunes(capsys, fakes):
    page = (ROOT / "docs" / "tuning.md").read_text()
    program, listing, collecting = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, nn.Module] = {}
    exec(program, names)
    out, err = capsys.readouterr()
    assert "1 depthwise layer in Sequential, 3 different passes" in err and "log: " in out and fakes
    assert isinstance(names["model"][1], dwconv.nn.DepthwiseConv2d)
    exec(listing, {})
    (layer,) = read_layers(Path("layers.json"), network="Sequential")
    assert (layer.batch, layer.channels, layer.input_size, layer.bias) == (8, 32, (28, 28), True)
    exec(collecting, {})
    assert [each.input_size for each in read_layers(Path("layers.json"), network="collected")] == [
        (size, size) for size in (24, 28, 32)
    ]


def test_bad_limits_and_models_without_layers_are_refused(fakes):
    with pytest.raises(InvalidChoice, match="minutes=-1 must be above 0"):
        dwconv.tune(TinyNet(), IMAGE, minutes=-1)
    with pytest.raises(InvalidChoice, match="until=nan is not a share"):
        dwconv.tune(TinyNet(), IMAGE, until=float("nan"))
    with pytest.raises(InvalidWorkload, match="no depthwise convolution ran in Linear"):
        dwconv.tune(nn.Linear(12, 3), IMAGE)
    with pytest.raises(InvalidWorkload, match="can be tuned: dwconv has no kernels for float64"):
        dwconv.tune(TinyNet().double(), IMAGE.double())
    assert not fakes


def no_model() -> nn.Module:
    raise KeyError("no weights here")


@pytest.mark.parametrize(
    ("model", "size", "said"),
    [
        ("no_model", "1,3,8,8", f"model={__name__}:no_model could not be made: KeyError: 'no weights here'"),
        ("TinyNet", "1,7,8,8", f"model={__name__}:TinyNet does not run on an input of 1×7×8×8: RuntimeError: "),
    ],
)
def test_what_a_model_raises_is_one_line(capsys, fakes, model, size, said):
    assert tune.main(["--model", f"{__name__}:{model}", "--input", size]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {said}") and err.count("\n") == 1 and not fakes


def test_the_module_is_the_function_and_the_command():
    program = (
        "import sys, dwconv\n"
        "assert 'torch' not in sys.modules and callable(dwconv.tune)\n"
        "from dwconv.tune import main, tune\n"
        "assert dwconv.tune.main is main and dwconv.tune.__call__ is tune\n"
        "assert 'torch' not in sys.modules and 'tune' in dir(dwconv)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert tune.__call__ is tune.tune


# -- the share of a step -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("threads_as_asked")
def test_the_share_is_that_of_the_depthwise_layers():
    def ratio(step):
        return step_ratio_at_most(step, device=torch.device("cpu"))

    x = torch.randn(4, 32, 32, 32)
    model = nn.Conv2d(32, 32, 3, groups=32)
    assert ratio(lambda: x.sin()) == 1.0 < ratio(lambda: model(x))
    many = torch.randn(2, 128, 24, 24, dtype=torch.float64)  # of which PyTorch runs the groups one by one
    one_by_one = nn.Conv2d(128, 128, 5, groups=128).double()
    assert ratio(lambda: one_by_one(many).sum().backward()) > 2


def test_the_profiler_is_quiet():
    """In a process of its own: the profiler reads how loud it is to be when it first runs."""
    program = (
        "import torch\n"
        "from dwconv.measure.step_share import step_ratio_at_most\n"
        "step_ratio_at_most(lambda: torch.ones(3).sin(), device=torch.device('cpu'))\n"
    )
    ran = forked.run([sys.executable, "-c", program])
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


@pytest.mark.usefixtures("logs", "through_python")
def test_measuring_the_share_changes_nothing_and_warns_of_nothing(recwarn):
    model = TinyNet()
    dwconv.convert(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tune_model.counts_and_target(model, IMAGE, trains=True)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not [warning for warning in recwarn if issubclass(warning.category, dwconv.DwconvWarning)]
