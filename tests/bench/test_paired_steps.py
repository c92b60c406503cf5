"""The race of models that take turns, in one process and in processes of their own."""

from __future__ import annotations

import copy
import multiprocessing
from collections import Counter
from functools import partial

import pytest
import torch
from torch import nn

import dwconv
from bench import paired_steps
from bench.networks import workloads_of
from bench.paired_steps import PairedTraining, race
from bench.step_rows import losses_of, table_of
from dwconv.errors import CannotBeCaptured, NoDevice
from dwconv.measure.clock.timing import Lap
from dwconv.measure.step_share import ratio_at_most
from tests.bench import small_networks
from tests.bench.small_networks import TINY
from tests.models import TinyNet

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]
SMALL = {"model": "tests.models:TinyNet", "batch": 2, "image": 12, "steps": 2, "warmup": 1}
ON_PYTORCH = {f"{pass_} pytorch": 3 for pass_ in ("fprop", "dgrad", "wgrad")}


def test_a_race_says_where_layers_ran_and_how_far_the_losses_are_apart(logs):
    figures = race(**SMALL, profile=True)
    assert figures["layers"] == ON_PYTORCH
    assert figures["loss_difference"]["converted"] == 0.0  # nothing is tuned: both run the same ops
    assert figures["steps"] == 2 and figures["misnamed"] == {}
    assert figures["ratio"]["at_most"] == ratio_at_most(figures["profile_ms"]["plain"]) > 1
    row = {"network": "TinyNet", "allocator": "memory kept", **figures}
    assert table_of(row).startswith("TinyNet, memory kept: at most")
    assert "3 wgrad pytorch" in losses_of([row, row])
    assert figures["kept_bytes"]["plain"] == figures["kept_bytes"]["converted"] > 0
    assert figures["samples_per_s"] == {name: pytest.approx(2e3 / ms) for name, ms in figures["median_ms"].items()}
    assert figures["peak_bytes"] == {}, "the memory of a GPU"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_training_on_it_is_refused():
    with pytest.raises(NoDevice, match="no GPU"):
        race(**SMALL, device="cuda")


def test_what_a_step_runs_is_looked_at_not_what_was_decided(logs, monkeypatch):
    """Planted: every layer is said to run on dwconv; PyTorch's own convolution runs, eager and compiled."""
    said = {"fprop dwconv": 2, "fprop silu dwconv": 1, "wgrad dwconv": 3, "dgrad pytorch": 3}
    monkeypatch.setattr(paired_steps, "where_layers_run", lambda *of, **how: said)
    why = "dwconv's kernels ran fprop 0 of 3 times, wgrad 0 of 3 times"
    assert race(**SMALL)["misnamed"] == {"converted": why}


@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_a_race_in_mixed_precision_runs_in_it(logs, precision):
    figures = race(**SMALL, autocast=precision)
    assert figures["layers"] == ON_PYTORCH
    assert figures["loss_difference"]["converted"] == 0.0 < figures["loss_difference"]["rounded"]
    (first, *_) = workloads_of(TINY, autocast=precision)
    assert (first.dtype, first.layout, first.batch) == (precision, "nhwc", TINY.batch)
    assert workloads_of(TINY, contiguous=True)[0].dtype == "float32"


def test_small_gradients_survive_float16():
    """Where the loss is not scaled they are zero."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten(), nn.Linear(4 * 16, 2))
    with torch.no_grad():
        model[2].weight.mul_(1e-5)
    step = paired_steps.step_of(model, autocast="float16")
    seen = []
    model[0].register_forward_hook(lambda layer, inputs, result: seen.append(result.dtype))
    step(torch.randn(64, 3, 4, 4), torch.zeros(64, dtype=torch.long))
    assert set(seen) == {torch.float16}
    assert model[0].weight.grad.abs().max() > 0


# -- volumes, sequences, torch.compile -------------------------------------------------------------------------------

KERNELS = {
    "VIDEO": ("float32 nhwc 5×1×1 none", "float32 nhwc 3×3×3 none"),
    "VOLUME": ("float32 nhwc 3×3×3 none",),
    "SEQUENCE": tuple(f"float32 nhwc 1×4 {epilogue}" for epilogue in ("none", "silu", "silu_gradient")),
    "SPEECH": ("float32 nchw 1×5 none",),
}
"""What the layers of the small networks are."""
DEPTHWISE = dwconv.nn.DepthwiseConv1d | dwconv.nn.DepthwiseConv3d
LAYERS = {"VIDEO": 4, "VOLUME": 3, "SEQUENCE": 2, "SPEECH": 2}


@pytest.mark.parametrize("name", KERNELS)
def test_volumes_and_sequences_are_trained_converted_and_plain(logs, monkeypatch, name):
    found = workloads_of(getattr(small_networks, name))
    kinds = {f"{each.dtype} {each.layout} {'×'.join(map(str, each.kernel))} {each.epilogue}" for each in found}
    assert kinds == set(KERNELS[name]) and {each.batch for each in found} == {2}
    models = []
    convert = paired_steps.converted_copy
    kept = lambda *of, **how: models.append(convert(*of, **how)) or models[-1]  # noqa: E731
    monkeypatch.setattr(paired_steps, "converted_copy", kept)
    figures = race(model=f"tests.bench.small_networks:{name}", steps=2, warmup=2)
    passes = Counter(dict.fromkeys(("fprop", "dgrad", "wgrad"), 0))
    for ran, times in figures["layers"].items():
        passes[ran.partition(" ")[0]] += times
    assert passes == dict.fromkeys(passes, LAYERS[name])
    assert figures["loss_difference"]["converted"] < 1e-5 and figures["loss_difference"]["rounded"] < 1e-5
    assert sum(isinstance(layer, DEPTHWISE) for layer in models[0].modules()) == LAYERS[name]
    (raced,) = dwconv.summary(models[0]).races
    assert not (raced.won or raced.lost or raced.failed), "it was tuned before, or not at all"


@pytest.mark.slow
def test_models_under_torch_compile_take_turns_with_the_others(logs, monkeypatch):
    """Without Inductor, whose C++ takes most of a minute to compile."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    figures = race(model="tests.bench.small_networks:SEQUENCE", steps=4, warmup=2, compile=True)
    names = {"plain", "converted", "plain + inductor", "converted + inductor"}
    assert figures["median_ms"].keys() == names and figures["steps"] == 4
    assert figures["loss_difference"].keys() == (names - {"plain"}) | {"rounded"}
    assert max(figures["loss_difference"].values()) < 1e-5


def test_what_cannot_be_compiled_does_not_race():
    class Broken(nn.Module):
        def forward(self, x):
            raise RuntimeError("no C++\ncompiler")

    sound = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    before = [each.clone() for each in sound.parameters()]
    models = {"broken": Broken(), "sound": sound}
    refused = paired_steps.not_trainable(models, torch.randn(2, 3, 2, 2), autocast=None)
    assert refused == {"broken": "RuntimeError: no C++ compiler"}
    assert all(torch.equal(*both) for both in zip(before, sound.parameters(), strict=True))
    assert all(each.grad is None for each in sound.parameters())


@pytest.mark.parametrize("caused", [False, True], ids=["itself", "as a cause"])
@pytest.mark.parametrize("where", ["forward", "_as_graphs", "_under_inductor"])
def test_no_memory_is_a_matter_of_the_batch_wherever_it_is_missed(logs, monkeypatch, where, caused):
    """Planted. A capture, or what a compiler made, that fails otherwise is only left out."""
    lack = torch.OutOfMemoryError("Tried to allocate 9 bytes")

    def fails(*args, **options):
        if not caused:
            raise lack
        raise CannotBeCaptured("TinyNet cannot be CUDA graphs") from lack

    if where == "forward":
        monkeypatch.setattr(TinyNet, "forward", fails)
    else:
        monkeypatch.setattr(paired_steps, where, fails)
    found = race(**SMALL, graphs=True, compile=where == "_under_inductor")
    assert list(found) == ["out_of_memory"] and "\n" not in found["out_of_memory"]


# -- turns -----------------------------------------------------------------------------------------------------------


def test_every_second_turn_is_the_one_before_backwards_and_every_step_comes_first():
    order = []
    taken = {name: partial(lambda name: order.append(name) or Lap(seconds=len(order)), name) for name in "abcd"}
    laps = paired_steps.take_turns(taken, count=8)
    turns = ["".join(order[4 * turn : 4 * turn + 4]) for turn in range(8)]
    assert turns == ["abcd", "dcba", "bcda", "adcb", "cdab", "badc", "dabc", "cbad"]
    assert [lap.seconds for lap in laps["a"]] == [1, 8, 12, 13, 19, 22, 26, 31]


def test_turns_end_with_the_time_once_there_were_a_few():
    laps_of = dict.fromkeys("ab", lambda: Lap(seconds=1.0))
    few = paired_steps.take_turns(laps_of, count=90, seconds=0.0)
    assert 3 <= len(few["a"]) == len(few["b"]) < 20
    assert len(paired_steps.take_turns(laps_of, count=90, seconds=600.0)["a"]) == 90


@pytest.mark.slow
def test_models_apart_take_their_steps_in_other_processes(logs, monkeypatch):
    """Here no step may be timed."""
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload([paired_steps.__name__])

    def here(*of):
        raise AssertionError("a step is timed in this process")

    monkeypatch.setattr(paired_steps, "lap_of", here)
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: forking)  # to import PyTorch once
    figures = race(model="tests.bench.small_networks:TARDY", steps=3, warmup=1, apart=True, both_layouts=True)
    assert figures["median_ms"].keys() == {"plain", "converted", "plain, other layout"}
    tardy_ms = figures["median_ms"].pop("plain, other layout")
    assert tardy_ms >= 1000 and tardy_ms > max(figures["median_ms"].values())
    assert figures["steps"] == 3 and figures["loss_difference"]["converted"] == 0.0


def test_images_of_the_other_layout_are_laid_out_before_the_step():
    training = PairedTraining(model="tests.bench.small_networks:TINY")
    plain, other = (training.image_of(name) for name in ("plain", "plain, other layout"))
    assert plain.is_contiguous(memory_format=torch.channels_last) and not plain.is_contiguous()
    assert other.is_contiguous() and not other.is_contiguous(memory_format=torch.channels_last)
    seen = []
    paired_steps.lap_of(lambda images, labels: seen.append(images) or 0.0, other)()
    assert seen[0].is_contiguous() and seen[0].shape == other.shape


def test_models_that_drop_drop_the_same(logs):
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, 2))
    steps = {name: paired_steps.step_of(copy.deepcopy(model)) for name in ("plain", "again")}
    assert paired_steps.compare_losses(steps, torch.randn(64, 3, 2, 2), count=3) == {"again": 0.0}


def test_steps_before_the_turns_end_with_the_time_once_there_were_two():
    taken = []
    steps = {name: lambda images, labels, name=name: taken.append(name) or 0.0 for name in ("plain", "converted")}
    for seconds, count in ((0.0, 2), (600.0, 9)):
        assert paired_steps.compare_losses(steps, torch.randn(1, 3, 2, 2), count=9, seconds=seconds) == {"converted": 0}
        assert taken == ["plain", "converted"] * count
        taken.clear()
