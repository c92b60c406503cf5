"""bench cpu: its table and its means."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import ClassVar

import pytest

from bench import cpu, race
from bench import evidence as limits
from bench.__main__ import main
from bench.cases import CPU_LAYERS, square
from bench.evidence import BeyondLimit, Control
from bench.race import Race, Raced, Racer, line_of, means_of
from bench.race import row_of as cpu_row_of
from dwconv.errors import WorkerDied
from dwconv.kernels.cache import build_cached
from dwconv.measure.clock.timing import GLANCE, Taken
from dwconv.measure.requests import MeasureSetup
from dwconv.problems.target import CpuTarget, Limits, cpu_target, pack_target
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.records.record import Measurement
from dwconv.schedules.template import Candidate, templates_for
from dwconv.untuned import every_layer
from tests.bench.gpu_runs import workload
from tests.planted_records import record_of


def row_of(**changes: object) -> dict[str, object]:
    fields = {
        "layer": str(CPU_LAYERS[0]), "pass": "wgrad", "caches": "warm", "kernel": 3, "dwconv_us": 10.0, "spread_us": 1,
        "pytorch_us": {"onednn-nchw": 80.0, "onednn-nhwc": 20.0}, "ratio": 2.0, "ratio_interval": [1.9, 2.1],
        "ratio_same_layout": 2.0, "percent_of_limit": 50.0, "over_best_other": 2.0, "verdict": "faster",
        "best_other": "onednn-nhwc", "refused": {}, "contention": 0.0,
    }  # fmt: skip
    return {**fields, **changes}


def test_means_are_geometric_and_small_kernels_stand_apart():
    rows = [row_of(), row_of(ratio=8.0, over_best_other=4.5, kernel=5), row_of(**{"pass": "fprop"}, ratio=0.5)]
    text = means_of([*rows, row_of(**{"pass": "dgrad"}, refused={"onednn-blocked": "no compiler"}), {}])
    for line in (
        "  wgrad        over_best_other 3.00, 2.00; ratio 4.00, 2.00; ratio_same_layout 2.00, 2.00; 2 layers",
        "  wgrad, k ≥ 5 over_best_other 4.50, 4.50; ratio 8.00, 8.00; ratio_same_layout 2.00, 2.00; 1 layers",
        "  fprop        over_best_other 2.00, 2.00; ratio 0.50, 0.50; ratio_same_layout 2.00, 2.00; 1 layers",
        "did not race in 1 of 5 rows: onednn-blocked: no compiler",
    ):
        assert line in text.splitlines()


def test_a_line_names_both_layouts_of_pytorch():
    printed = "wgrad 80.0 20.0 10.0 1.0 2.00 (1.90 to 2.10) 50 faster, 2.00 × onednn-nhwc"
    assert line_of(row_of()).split()[-len(printed.split()) :] == printed.split()
    assert "boom" in line_of({"layer": "x", "pass": "fprop", "failed": "boom"})


# -- rows, from what all providers took --------------------------------------------------------------------------------

FPROP = workload()
TARGET = CpuTarget(
    device="made-up-1t", threads=1, vector_bytes=32,
    limits=Limits(memory_gb_per_s=20, cache_gb_per_s=50, cache_bytes=1 << 20, peak_gflop_per_s=100),
)  # fmt: skip
CANDIDATE = Candidate(FPROP, templates_for(FPROP, TARGET)[0].space(FPROP, TARGET).default)


def times_of(refused=None, **us):
    """As if every provider took as long in every round, and as many rounds."""
    took = {name.replace("_", "-"): each for name, each in us.items()}
    measurements = {
        name: Measurement(median_us=each, spread_us=each / 10, rounds=5, contention=each / 1e6)
        for name, each in took.items()
    }
    rounds_us = {name: (each,) * 5 for name, each in took.items()}
    taken = Taken(measurements=measurements, rounds_us=rounds_us, turns_us=rounds_us)
    return Raced(times={"warm": taken}, refused=refused or {})


def raced(*, control=1.0, race=None, **us):
    race = race or Race(candidate=CANDIDATE)
    control = Control(ratio=1.0, interval=(1 / control, control))
    return cpu_row_of(race, times_of(**us), TARGET, name="Tiny, fprop, warm", control=control)


def test_a_row_is_over_pytorch_and_over_the_best_of_all():
    row = raced(dwconv=10.0, onednn_nhwc=40.0, onednn_nchw=30.0, onednn_blocked=20.0, inductor_nhwc=25.0)
    assert row["ratio"] == 3.0 and row["ratio_interval"] == [3.0, 3.0], "over the better layout"
    assert row["ratio_same_layout"] == 4.0 and row["ratio_same_layout_interval"] == [4.0, 4.0]
    assert row["over_best_other"] == 2.0 and row["best_other"] == "onednn-blocked" and row["verdict"] == "faster"
    assert row["pytorch_us"] == {"onednn-nhwc": 40.0, "onednn-nchw": 30.0}
    assert row["others_us"] == {"onednn-blocked": 20.0, "inductor-nhwc": 25.0}
    assert row["contention"] == 40 / 1e6 and row["in_cache"]


def test_a_rival_that_is_faster_than_pytorch_and_us_is_a_loss():
    row = raced(dwconv=10.0, onednn_nhwc=40.0, inductor_nchw=9.0)
    assert row["ratio"] == 4.0 and row["verdict"] == "slower" and row["over_best_other"] == 0.9


def test_a_row_within_the_control_is_a_tie():
    assert raced(dwconv=10.0, onednn_nhwc=11.0, control=1.05)["verdict"] == "faster"
    assert raced(dwconv=10.0, onednn_nhwc=11.0, control=1.15)["verdict"] == "tie"
    assert raced(dwconv=10.0, onednn_nhwc=9.0, control=1.15)["verdict"] == "tie"


def test_without_pytorch_there_is_no_ratio():
    refused = {"onednn-nhwc": "wrong: value: all", "onednn-nchw": "no memory"}
    row = raced(dwconv=10.0, onednn_blocked=20.0, refused=refused)
    assert row == {"failed": "onednn-nhwc: wrong: value: all; onednn-nchw: no memory"}


def test_a_kernel_faster_than_the_device_stops_the_benchmark(monkeypatch):
    monkeypatch.setattr(limits, "doubt", lambda target: None)
    monkeypatch.setattr(limits, "with_limits", lambda target: TARGET)
    with pytest.raises(BeyondLimit, match=r"^Tiny, fprop, warm: 0.0 µs is"):
        raced(dwconv=0.001, onednn_nhwc=40.0)


def test_a_kernel_of_16_bits_is_held_against_our_own_in_float32():
    row = raced(**{"dwconv": 10.0, "dwconv float32": 15.0, "onednn_nhwc": 40.0})
    assert row["float32_us"] == 15.0 and row["ratio_float32"] == 1.5 and row["ratio_float32_interval"] == [1.5, 1.5]
    assert row["over_best_other"] == 4.0, "it is no rival"


def test_kernels_of_any_size_are_held_against_ours_and_pytorch():
    row = raced(**{"dwconv": 10.0, "dwconv any size": 12.5, "dwconv any channels": 20.0, "onednn_nhwc": 40.0})
    assert row["any_size"] == 0.8 and row["any_size_ratio"] == 3.2 and row["any_channels"] == 0.5
    assert row["over_best_other"] == 4.0, "they are no rivals"
    about = {"layer": "x", "pass": "wgrad", "caches": "warm", "kernel": 3}
    told = "onednn-nhwc; any_size 0.80; any_size_ratio 3.20; any_channels 0.50; any_channels_ratio 2.00"
    assert line_of({**about, **row}).endswith(told)
    lines = means_of([{**about, **row}, {**about, **row, "any_size": 0.2, "any_size_ratio": 0.8}])
    assert "any_size 0.40, 0.20; any_size_ratio 1.60, 0.80" in lines


def test_the_kernel_of_a_pack_is_timed_as_the_pack_has_it_at_the_size_of_the_layer(monkeypatch):
    built = {}
    monkeypatch.setattr(race, "build_cached", lambda each, target: build_cached(each, built.setdefault(each, target)))
    target = cpu_target(threads=1)
    layer = replace(FPROP, channels=24, input_size=(5, 9), layout="nhwc")
    ours, (packed, _) = templates_for(layer, target)[0].space(layer, target).default, cpu._packed(layer, target)
    beside = {"dwconv any channels": packed}
    asked = Race(candidate=Candidate(layer, ours), beside=beside, effort=GLANCE)
    assert "dwconv any channels" in Racer(MeasureSetup(target=target))(asked).times["warm"].measurements
    assert list(built.values()) == [target, pack_target(target)] and packed in every_layer.candidates(
        pack_target(target)
    )


def test_beside_a_transposed_layer_only_pytorchs_transposed_convolution_is_timed():
    target = cpu_target(threads=1)
    layer = replace(FPROP, channels=24, input_size=(9, 8), stride=(2, 2), layout="nhwc").for_pass("dgrad")
    ours = Candidate(layer, templates_for(layer, target)[0].space(layer, target).default)
    raced = Racer(MeasureSetup(target=target))(Race(candidate=ours, transposed=True, effort=GLANCE))
    assert raced.times["warm"].measurements.keys() == {"dwconv", "pytorch-nhwc", "pytorch-nchw"} and not raced.refused


def test_kernels_of_any_size_have_the_nearest_configuration():
    wide = replace(FPROP, channels=48)
    record = record_of(wide, config=CANDIDATE.config, device=TARGET.device)
    chosen = cpu._Chosen(layer=CPU_LAYERS[0], workload=wide, record=record)
    packed = cpu._packed(wide, TARGET)
    assert len(packed) == 2
    slow, fast = str(packed[0]), str(packed[-1])

    class Timed:
        """Races in which the last one is the fastest."""

        def ask(self, request):
            assert request.beside.keys() == {slow, fast} and request.control
            took = {slow: 3.0, fast: 2.0}
            measurements = {name: Measurement(median_us=us, spread_us=0.1, rounds=9) for name, us in took.items()}
            return Raced(times={"warm": Taken(measurements=measurements, rounds_us={}, turns_us={})})

    races = Timed()
    beside = cpu._beside(chosen, TARGET, races, known=Database.load(), any_size=True)
    any_size, any_channels = beside["dwconv any size"], beside["dwconv any channels"]
    assert any_size.workload.any_size and not any_size.workload.any_channels
    assert any_channels == packed[-1] in every_layer.candidates(pack_target(TARGET), taps=(3,)), "as a pack has it"
    assert not cpu._packed(replace(wide, kernel=(9, 9), padding=((3, 3), (3, 3))), TARGET), "no pack has it"
    assert any_size.config.template == CANDIDATE.config.template
    assert not cpu._beside(chosen, TARGET, races, known=Database.load(), any_size=False)
    general = wide.with_any_size()
    own, *_ = templates_for(general, TARGET)[0].space(general, TARGET).neighbours(any_size.config)
    known = Database.of([record, record_of(general, config=own, device=TARGET.device, median_us=1.0)])
    assert cpu._beside(chosen, TARGET, races, known=known, any_size=True)["dwconv any size"].config == own
    assert cpu.best_of(wide, TARGET, known=known) == record, "the faster is of any size"


# -- the command -----------------------------------------------------------------------------------------------------


class Races:
    """For ``Races``: answers at once, with what is planted."""

    asked: ClassVar[list[object]] = []
    answers: ClassVar[dict[str, Raced]] = {}

    def __init__(self, target):
        self.asked.clear()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def ask(self, request):
        self.asked.append(request)
        if request.control:
            answer = times_of(**{"dwconv": 10.0, "dwconv again": 10.2})
        else:
            answer = self.answers[request.candidate.workload.pass_]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def measured(tmp_path, capsys, monkeypatch):
    """The rows of the first layer, whose three passes are tuned, and the rest of what is written and printed."""
    monkeypatch.setattr(cpu, "Races", Races)
    monkeypatch.setattr(cpu, "with_limits", lambda target: replace(target, limits=TARGET.limits))
    log = TuningLog(tmp_path / "log.jsonl")
    for pass_ in CPU_LAYERS[0].workloads(dtype="float32", layout="nhwc"):
        log.append(record_of(pass_))

    def measure(*options, **answers):
        Races.answers = answers
        arguments = ["--seconds", "0", "--first", "1", "--log", str(log.path), "--out", str(tmp_path), *options]
        assert main(["cpu", *arguments]) == 0
        (written,) = tmp_path.glob("cpu-*.json")
        results = json.loads(written.read_text())
        return results.pop("rows"), results, capsys.readouterr().out

    return measure


def test_it_measures_a_control_first_and_says_what_it_lost(measured):
    rows, results, out = measured(
        fprop=times_of(dwconv=1000.0, onednn_nhwc=2000.0), wgrad=WorkerDied("it crashed"),
        dgrad=times_of(dwconv=2000.0, onednn_nhwc=1000.0),
    )  # fmt: skip
    assert [each.control for each in Races.asked] == [True] * 3 + [False] * 3
    assert results["control"] == {"ratio": pytest.approx(1.02), "interval": pytest.approx([1.02, 1.02])}
    assert out.startswith("control: the same against itself 1.020")
    assert [row.get("verdict") for row in rows] == ["faster", "slower", None] and rows[2]["failed"] == "it crashed"
    assert all(row["caches"] == "warm" for row in rows)
    assert {"threads", "cores", "busy_before", "clock_mhz_after", "contention"} <= results["machine"].keys()
    summary = out[out.index("slower than the best other: 1 of 3 rows; ties 0, faster 1, failed 1") :]
    assert summary.index("it crashed") < summary.index("slower 0.50") < summary.index("geometric means")


@pytest.mark.slow
@pytest.mark.usefixtures("short_ranking", "brief_timing")
def test_it_tunes_what_is_untuned_and_writes_what_it_measured(tmp_path, capsys, monkeypatch):
    layer = square("Tiny", batch=1, channels=16, size=8, kernel=3)
    monkeypatch.setattr(cpu, "CPU_LAYERS", (layer,))
    first, *_ = layer.workloads(dtype="float32", layout="nchw")
    monkeypatch.setattr(cpu.BenchLayer, "workloads", lambda *_, **__: iter([first]))
    arguments = ["--layout", "nchw", "--seconds", "0.5", "--log", str(tmp_path / "log.jsonl"), "--out", str(tmp_path)]
    assert main(["cpu", *arguments]) == 0
    out = capsys.readouterr().out
    (written,) = tmp_path.glob("cpu-nchw-*.json")
    rows = json.loads(written.read_text())["rows"]
    assert [row["pass"] for row in rows] == ["fprop"]
    measured = [row for row in rows if "failed" not in row]  # on a busy machine a candidate may run out of time
    assert measured
    for row in measured:
        assert row["dwconv_us"] > 0 and len(row["pytorch_us"]) == 2
    assert out.count("Tiny 16×8² k3") >= 2  # in the table and among the worst


def test_layers_of_one_dimension_are_those_of_networks_that_it_lists():
    layers = cpu.layers_of("1")
    passes = [workload for layer in layers for workload in layer.workloads(dtype="float32", layout="nhwc")]
    assert {workload.epilogue for workload in passes} == {"none", "silu", "silu_gradient"}
    assert {max(layer.kernel for layer in layers), min(layer.kernel for layer in layers)} == {128, 4}
    assert all(workload.is_row for layer in layers for workload in layer.workloads(dtype="float32", layout="nchw"))


def test_dilated_layers_are_those_of_networks_that_have_them():
    layers = cpu.layers_of("dilated")
    passes = [workload for layer in layers for workload in layer.workloads(dtype="float32", layout="nhwc")]
    assert {(1, 1), (3, 3), (5, 5), (6, 6), (12, 12), (18, 18), (1, 128)} <= {each.dilation for each in passes}
    assert {(51, 5), (5, 51), (1, 7), (13, 13)} <= {each.kernel for each in passes}
    assert any(each.is_row for each in passes)
    names = [str(layer) for layer in layers]
    assert len({*names}) == len(names)
    few = [*layers[:6]]  # of each network
    assert str(few[0]) == "VAN-B0@224 32×56×56 k7×7 d3" and len({layer.network for layer in few}) == 6
    assert {str(few[1]), str(few[5])} == {"VAN-B0-LSKA@224 32×56×56 k1×5", "Conv-TasNet 512×1×3999 k1×3 d2"}


def test_transposed_layers_are_named_by_their_own_sizes_and_passes():
    layers = cpu.layers_of("transposed")
    assert [str(layer) for layer in layers] == [
        "U-Net 144×28² k3 s2 transposed", "FCN 64×28² k4 s2 transposed",
        "MedNeXt 64×24×24×24 k3×3×3 s2×2×2 transposed", "HiFi-GAN 256×1×512 k1×16 s1×8 transposed",
    ]  # fmt: skip
    passes = [workload for layer in layers for workload in layer.workloads(dtype="float32", layout="nchw")]
    assert {workload.input_size for workload in passes} == {(56, 56), (47, 47, 47), (1, 4096)}
    assert [layers[0].name_of(each.pass_) for each in passes[:3]] == ["dgrad", "fprop", "wgrad"]


def test_a_transposed_layer_races_pytorchs_transposed_convolution(measured, monkeypatch):
    monkeypatch.setattr(cpu, "TRANSPOSED_LAYERS", (replace(CPU_LAYERS[0], is_transposed=True),))
    rows, results, _ = measured(
        "--transposed", fprop=times_of(dwconv=1e3, pytorch_nhwc=9e3), wgrad=times_of(dwconv=1e3, pytorch_nchw=8e3),
        dgrad=times_of(dwconv=1e3, pytorch_nhwc=7e3, pytorch_nchw=6e3),
    )  # fmt: skip
    assert results["benchmark"] == "cpu-transposed-nhwc"
    assert [(row["pass"], row.get("ratio")) for row in rows] == [("dgrad", 9.0), ("fprop", 6.0), ("wgrad", None)]
    assert [each.transposed for each in Races.asked if not each.control] == [True] * 3


def test_without_seconds_what_is_untuned_stays_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cpu, "with_limits", lambda target: target)
    options = ["--seconds", "0", "--first", "1", "--log", str(tmp_path / "log.jsonl"), "--out", str(tmp_path)]
    assert main(["cpu", *options]) == 0
    assert capsys.readouterr().out.count("failed: untuned") == 6  # in the table, and in the summary
