"""bench train: what is compared, what is written, and how a step is taken apart."""

from __future__ import annotations

import copy
import json
import time

import pytest
import torch
from torch import nn

import dwconv
from bench import networks, process, train
from bench.__main__ import main
from bench.launched import why_misnamed
from bench.networks import network_of, where_layers_run
from bench.rows_and_volumes import MedNeXtUNet
from bench.step_rows import profiles, summary, table_of
from dwconv.errors import WorkerDied, WorkerTimeout
from dwconv.measure.clock.timing import Lap
from dwconv.measure.step_share import ratio_at_most
from tests import forked
from tests.bench.small_networks import TINY
from tests.planted_records import plant, workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]


def laps(lost=(0.0, 0.0, 0.0), **seconds):
    """The last of ``seconds`` lose most."""
    return {name: [Lap(seconds=s, lost=share) for s, share in zip(taken, lost, strict=True)]
            for name, taken in seconds.items()}  # fmt: skip


def steady(**seconds):
    return summary(laps(**{name: [each] * 3 for name, each in seconds.items()}))


def test_ratios_are_of_steps_taken_in_turn_that_other_work_left_alone():
    times = {"plain": [2.0, 4.0, 60.0], "converted": [1.0, 2.0, 10.0]}
    found = summary(laps(**times))
    assert found["ratio"]["median"] == 2.0 and found["ratio"]["quartiles"] == [2.0, 4.0]
    assert found["median_ms"] == {"plain": 4000.0, "converted": 2000.0} and found["contention"] == 0
    assert not {"compiled", "inductor", "blocks", "verdict"} & found.keys()
    one_disturbed, most_disturbed = (summary(laps(lost, **times)) for lost in ((0, 0, 0.5), (0, 0.4, 0.5)))
    assert one_disturbed["median_ms"]["plain"] == 3000.0 and one_disturbed["contention"] == 0
    assert most_disturbed["median_ms"]["plain"] == 4000.0 and most_disturbed["contention"] == 0.3


@pytest.mark.parametrize(
    ("way", "of_each", "of_both"), [("inductor", "compiled", "inductor"), ("graphs", "graphed", "graphs")]
)
def test_each_way_to_run_is_compared_with_itself_with_plain_and_with_the_best(way, of_each, of_both):
    taken = {"plain": 12.0, "converted": 10.0, "blocks": 11.0, f"plain + {way}": 6.0, f"converted + {way}": 4.0}
    found = steady(**taken, **{f"blocks + {way}": 3.0})
    assert found[of_both]["median"] == 1.5 and found[of_each][f"converted + {way}"]["median"] == 3
    assert found["blocks"]["plain"]["median"] == 12 / 11 and found[f"{of_each}_blocks"]["blocks"]["median"] == 11 / 3
    assert (found["best_ours"], found["best_other"]) == (f"blocks + {way}", f"plain + {way}")
    assert found["over_best_other"] == 2 and found["over_best_other_interval"] == [2.0, 2.0]
    kinds = {kind: (each["best_ours"], each["over_best_other"]) for kind, each in found["kinds"].items()}
    assert kinds == {"eager": ("converted", 1.2), of_each: (f"blocks + {way}", 2.0)}


def test_a_race_against_itself_is_the_control_of_its_row():
    taken = {"plain": 10.0, "plain again": 12.0, "converted": 9.0, "plain, other layout": 8.0, "blocks": 20.0}
    found = steady(**taken)
    assert found["control"]["ratio"] == pytest.approx(10 / 12) and found["ratio_interval"] == [10 / 9, 10 / 9]
    assert found["best_other"] == "plain, other layout" and found["over_best_other"] == pytest.approx(8 / 9)
    assert found["verdict"] == "tie", "8/9 is nearer to 1 than 10/12"
    assert found["layouts"]["plain, other layout"]["median"] == 10 / 8
    assert found["blocks"].keys() == {"plain", "converted", "plain, other layout"}
    assert steady(**taken | {"plain again": 10.0})["verdict"] == "slower"


def test_the_table_of_a_network_has_every_model_and_what_it_keeps():
    found = steady(**{"plain": 12.0, "plain again": 12.0, "converted": 6.0, "plain + inductor": 8.0, "blocks": 4.0})
    found["ratio"]["at_most"] = 7.25
    row = {"network": "Net", "allocator": "memory kept", **found}
    row |= {"kept_bytes": {"plain": 4 << 20, "blocks": 2 << 20}, "refused": {"blocks + inductor": "no compiler"}}
    first, _, *lines = table_of(row).splitlines()
    assert first == "Net, memory kept: at most 7.25, 3 steps"
    assert [" ".join(line.split()) for line in lines] == [
        "plain 12000.0 4.0",
        "plain again 12000.0",
        "converted 6000.0 2.00 (2.00 to 2.00)",
        "plain + inductor 8000.0 1.50 (1.50 to 1.50)",
        "blocks 4000.0 3.00 (3.00 to 3.00) 2.0",
        "blocks + inductor did not race: no compiler",
        "blocks over plain + inductor: 2.00 (2.00 to 2.00), faster",
        "blocks over plain: 3.00 (3.00 to 3.00), faster",
    ]


def test_kernels_that_a_step_runs_are_seen_called_and_compiled(logs):
    x = torch.randn(2, 8, 9, 9)
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU(), nn.Conv2d(8, 8, 1))
    plant(logs / "log.jsonl", [workload_of(shape=(2, 8, 9, 9), layout="nchw", bias=True)], template_layout="nchw")
    converted = dwconv.convert(copy.deepcopy(model))
    layers = where_layers_run(converted, x)
    assert layers == {"fprop dwconv": 1, "wgrad dwconv": 1}
    compiled = torch.compile(converted, backend="aot_eager")
    compiled(x).sum().backward()
    for ours in (converted, compiled):
        assert why_misnamed(lambda ours=ours: ours(x).sum().backward(), layers, on_gpu=False) == ""
    theirs = why_misnamed(lambda: model(x).sum().backward(), layers, on_gpu=False)
    assert theirs == "dwconv's kernels ran fprop 0 of 1 times, wgrad 0 of 1 times"


def test_a_network_with_transposed_layers_trains_as_the_plain_one(logs):
    torch.manual_seed(0)
    plain = MedNeXtUNet(channels=8, rows=((2, 1), (2, 1))).to(memory_format=torch.channels_last_3d)
    x = torch.randn(2, 1, 8, 8, 8).to(memory_format=torch.channels_last_3d)
    layers = dwconv.layers(plain, x)
    plant(logs / "log.jsonl", [layer.problem.workload("fprop") for layer in layers.discovery.layers], baseline_us=1e6)
    ours = dwconv.convert(copy.deepcopy(plain))
    assert where_layers_run(ours, x) == dict.fromkeys(("fprop dwconv", "dgrad dwconv", "wgrad dwconv"), 5)
    assert why_misnamed(lambda: ours(x).sum().backward(), where_layers_run(ours, x), on_gpu=False) == ""
    losses = []
    for model in (plain, ours):
        model.zero_grad()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        losses.append([])
        for _ in range(4):
            loss = nn.functional.cross_entropy(model(x), torch.tensor([1, 2]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0][-1] < losses[0][0]


def test_networks_are_named_or_taken_by_their_dimensions(monkeypatch, capsys):
    assert [network.name for network in train.of_dims(1)] == ["Mamba-like"]
    assert [network.name for network in train.of_dims(3)] == ["X3D-S-like", "MedNeXt-S-like", "MedNeXt-S-like, whole"]
    dilated = [network.name for network in train.dilated()]
    assert {"VAN-B0", "SLaK-like", "DeepLabV3+-like", "TCN-like"} <= {*dilated}
    assert not {*dilated} & {network.name for dims in (1, 2, 3) for network in train.of_dims(dims)}
    asked = network_of("X3D-S-like", batch=1, image=64)
    assert (asked.batch, asked.sample) == (1, (3, 13, 64, 64))
    assert main(["train", "--model", "Mamba-like", "--image", "64"]) == 2, "sequences have no height"
    assert main(["train", "--model", "nowhere:Net"]) == 2
    assert capsys.readouterr().err.count("\n") == 2
    made = nn.Conv2d(3, 2, 1)
    made.default_cfg = {"input_size": (3, 240, 240)}
    monkeypatch.setattr(networks, "load_model", lambda name: made)
    found = network_of("timm:net", batch=2)
    assert (found.name, found.sample, found.batch, found.make()) == ("timm:net", (3, 240, 240), 2, made)
    del made.default_cfg
    assert network_of("torchvision:net").sample == (3, 224, 224)


# -- a process of its own ----------------------------------------------------------------------------------------------


def answer(*, seconds=0.0, failed=False):
    time.sleep(seconds)
    if failed:
        raise WorkerDied("it failed")
    return {"answer": 42}


def test_a_function_in_a_process_of_its_own_answers_or_costs_its_row(monkeypatch):
    monkeypatch.setattr(process, "subprocess", forked.shim(preload=forked.PYTORCH))

    def asked(timeout_s=None, **given):
        return process.in_a_process(
            answer, given, environment=train._environment(train.APART, None), timeout_s=timeout_s
        )

    assert asked() == {"answer": 42}
    with pytest.raises(WorkerDied, match=r"tests.bench.test_train:answer: the process ended with code \d"):
        asked(failed=True)
    with pytest.raises(WorkerTimeout, match="answer: no end after 0 s"):
        asked(seconds=60.0, timeout_s=0.4)


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def trained_here(monkeypatch, tmp_path, capsys):
    """What the command writes and prints if races take what is planted."""

    def train_with(*answers, options=()):
        asked, plan = [], list(answers)

        def raced(network, how, *, environment):
            asked.append(how)
            found = plan.pop(0)
            if isinstance(found, Exception):
                raise found
            return {**found, "layers": {}, "loss_difference": {"converted": 0.0, "rounded": 0.0}}

        monkeypatch.setattr(train, "raced", raced)
        arguments = ["--model", "MobileNetV2", "--seconds", "0", "--no-profile", "--out", str(tmp_path), *options]
        code = main(["train", *arguments])
        written = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
        return code, written, capsys.readouterr(), asked

    return train_with


def figures_of(converted, again=10.0):
    found = steady(**{"plain": 10.0, "plain again": again, "converted": converted})
    found["ratio"]["at_most"] = 2.0
    return found


def test_it_writes_what_races_showed_and_the_widest_of_their_controls(trained_here):
    code, (written,), (out, _), asked = trained_here(
        figures_of(8.0, again=10.5), figures_of(10.4, again=9.0), options=["--no-blocks"]
    )
    assert code == 0 and written["benchmark"] == "train-mobilenetv2-compile-nhwc"
    assert [row["verdict"] for row in written["rows"]] == ["faster", "tie"], "each by its own control"
    assert written["control"]["interval"] == pytest.approx([10 / 10.5, 10 / 9])
    assert written["machine"]["threads"] >= 1 and "slower than the best other: 0 of 2 rows; ties 1" in out
    on = {"both_layouts": True, "control": True, "compile": True, "blocks": False, "profile": False}
    assert all(on.items() <= how.items() for how in asked)
    assert [how["apart"] for how in asked] == [False, True]


def test_a_race_that_dies_or_runs_other_kernels_costs_its_own_row(trained_here):
    code, (written,), (out, _), _ = trained_here(figures_of(8.0), WorkerDied("it ended with code 1"))
    assert code == 0 and written["rows"][1]["failed"] == "it ended with code 1" and "failed 1" in out
    assert trained_here(WorkerDied("boom"), WorkerDied("boom"))[0] != 0
    code, (written,), *_ = trained_here({"out_of_memory": "no memory"}, figures_of(8.0))
    assert code == 0 and written["rows"][0]["failed"] == "no memory"
    misnamed = {"converted": "dwconv's kernels ran fprop 0 of 3 times"}
    code, (written,), *_ = trained_here({**figures_of(8.0), "misnamed": misnamed}, figures_of(8.0))
    assert code == 0 and written["rows"][0]["failed"] == "converted: dwconv's kernels ran fprop 0 of 3 times"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("--no-compile --no-blocks --contiguous", "train-nchw"),
        ("--no-compile --no-blocks --dims 3 --autocast bfloat16", "train-3d-bfloat16-nhwc"),
        ("--model my.models:Net", "train-my-models-net-compile-blocks-nhwc"),
    ],
)
def test_results_of_other_kinds_have_other_names(monkeypatch, options, name):
    seen = []
    monkeypatch.setattr(train, "network_of", lambda name, **how: TINY)
    monkeypatch.setattr(train, "raced", lambda *of, **how: {**figures_of(8.0), "layers": {}, "loss_difference": {}})
    monkeypatch.setattr(train, "write_results", lambda name, **facts: seen.append(name))
    assert main(["train", "--seconds", "0", *options.split()]) == 0 and seen == [name]


# -- what a step is spent on -------------------------------------------------------------------------------------------


def test_the_allocators_differ_in_nothing_else(logs, monkeypatch):
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    kept, usual = (train._environment(allocator, logs / "log.jsonl") for allocator in train.ALLOCATORS)
    assert {name for name in kept.keys() | usual.keys() if kept.get(name) != usual.get(name)} == set(
        train.settings.ALLOCATOR_ENVIRONMENT
    )
    assert usual["DWCONV_TUNING_LOGS"] == str(logs / "log.jsonl") and "MALLOC_TOP_PAD_" not in usual
    assert train.settings.PROFILER_ENVIRONMENT.items() <= usual.items()


def test_depthwise_layers_are_distinguished_from_the_others():
    """One depthwise and one pointwise layer: each is found, and all of a step is accounted for."""
    model = nn.Sequential(nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 5, padding=2, groups=16), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(image, labels):
        loss = model(image).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    found = profiles({"plain": step}, torch.randn(2, 3, 24, 24), torch.zeros(2), count=2)["plain"]
    for kind in ("depthwise fprop", "depthwise backward", "pointwise, dense", "activation", "optimizer"):
        assert found[kind] > 0, found
    assert sum(taken for kind, taken in found.items() if kind != "step") == pytest.approx(found["step"])


def test_what_can_be_won_at_most_is_what_the_depthwise_layers_take():
    profile = {"depthwise fprop": 10.0, "depthwise backward": 15.0, "pointwise, dense": 70.0, "step": 100.0}
    assert ratio_at_most(profile) == 100 / 75
    assert ratio_at_most({"pointwise, dense": 100.0, "step": 100.0}) == 1
