"""The stages sizes, first_run, sequences, partition, cores and streams of bench cuda, and what verify leaves out."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import dwconv
from bench import providers
from bench.gpu import cores, first_run, partition, running_statistics, sequences, sizes, streams, verify
from bench.gpu.cores import Job, cores_stage
from bench.gpu.partition import partition_stage
from bench.gpu.plan import GpuPlan
from bench.gpu.run import Pace
from bench.gpu.sequences import SequenceLayer, SequenceRacer, answer_of, sequences_stage
from bench.gpu.sizes import sizes_stage
from bench.gpu.streams import streams_stage
from bench.gpu.worker import GpuFailure
from bench.process import said_by
from bench.race import ANY_SIZE, OURS, Raced
from dwconv.discovery import discover
from dwconv.errors import InvalidChoice, WorkerDied, WorkerTimeout
from dwconv.measure.clock.timing import Taken
from dwconv.measure.requests import MeasureSetup
from dwconv.problems.target import parse_target
from dwconv.problems.workload import PASSES
from dwconv.records.database import Database
from dwconv.records.record import Measurement
from dwconv.schedules.template import Candidate, template
from dwconv.settings import shipped_log_folder
from tests.bench.gpu_runs import TARGET, NoWorkers, StillClock, run_of, workload
from tests.planted_records import record_of

pytestmark = pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")  # what is raced is untuned
SM_90 = parse_target("cuda:sm_90")
WORKLOADS = [workload(pass_) for pass_ in PASSES]


class Worker:
    """For ``GpuWorker``: gives its answers one after the other, or raises them."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, role, setup, **how):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error): ...

    def ask(self, request, *, timeout_s, within_s):
        assert timeout_s > 0
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def taken(**us):
    names = {"ours": OURS, "any_size": ANY_SIZE}
    return Taken(
        measurements={names[name]: Measurement(median_us=each, spread_us=0.1, rounds=9) for name, each in us.items()},
        rounds_us={}, turns_us={},
    )  # fmt: skip


# -- sizes -----------------------------------------------------------------------------------------------------------


def test_kernels_of_any_size_are_of_all_widths_and_passes():
    found = sizes.workloads()
    assert {each.kernel[0] for each in found} == {3, 5, 7, 9, 11, 13}
    assert {each.pass_ for each in found} == set(PASSES) and len({each.key for each in found}) == len(found)


def test_what_dispatch_predicts_of_another_size_is_of_any_size():
    """Also where the tuned kernel's template has none, as those on tensor cores."""
    known = Database.load([shipped_log_folder() / "nvidia-h200.jsonl"])
    plan = GpuPlan(target=dataclasses.replace(SM_90, device="nvidia-h200"), known=known, workloads=[], odd=[])
    of_size = {}
    for each in itertools.islice(sizes.size_candidates(plan), 18):
        of_size.setdefault(each.workload.of_one_size, []).append(each)
    assert {each.kernel[0] for each in of_size} >= {3, 5, 7}
    for wanted, (tuned, *others) in of_size.items():
        assert tuned.workload == wanted and [each.workload for each in others] == [wanted.with_any_size()]
        assert all(template(each.config.template).any_size for each in others)
    assert any("toeplitz" in tuned.config.template for tuned, *_ in of_size.values())


@pytest.fixture
def sized(tmp_path, monkeypatch):
    """Runs the stage on planted answers of processes and of the GPU."""
    processes = {
        "steps_at_sizes": {
            "sizes": {"320": {"ratio": 0.9}, "352": {"ratio": 1.6}}, "layers": {}, "loss_difference": 0.0,
        },
        "first_calls": {"beyond_ms": {"PyTorch": 1.3, "PyTorch with cudnn.benchmark": 40.0, "dwconv": 0.25}},
    }  # fmt: skip

    def in_a_process(function, how, *, environment, timeout_s):
        assert how["device"] == "cpu" and timeout_s > 0 and environment["DWCONV_TUNING_LOGS"]
        if isinstance(processes[function.__name__], Exception):
            raise processes[function.__name__]
        return processes[function.__name__]

    monkeypatch.setattr(sizes, "in_a_process", in_a_process)
    monkeypatch.setattr(sizes, "workloads_of", lambda network, **how: [])
    monkeypatch.setattr(sizes, "race_untuned", lambda *of, **how: None)
    of_any_size = lambda record, target: Candidate(record.workload.with_any_size(), record.config)  # noqa: E731
    monkeypatch.setattr(sizes, "predicted_at_another_size", of_any_size)

    def stage(*answers, tuned=WORKLOADS, **planted):
        processes.update(planted)
        monkeypatch.setattr(sizes, "GpuWorker", Worker(*answers))
        run = run_of(tmp_path)
        for each in tuned if not run.log.path.exists() else ():
            run.log.append(record_of(each, device=TARGET.device))
        ended = sizes_stage(run, wanted=WORKLOADS)
        run.state.flush()
        return ended, run.state.of("sizes")

    return stage


def test_kernels_below_the_goal_come_first_then_steps_and_first_calls(sized):
    raced = [
        Raced(times={"warm": taken(ours=9.0, any_size=10.0), "cold": taken(ours=10.0, any_size=20.0)}),
        Raced(times={"warm": taken(ours=10.0, any_size=10.0), "cold": taken(ours=20.0, any_size=20.0)}),
    ]
    ended, answers = sized(*raced, tuned=WORKLOADS[:2])
    assert not ended.failed and ended.line == (
        f"1 of 2 kernels of any size below 0.9 of the tuned one's speed: {WORKLOADS[0].key} 0.50; kernels of any size "
        "reach 0.71 of the speed of tuned ones, least 0.50; steps at 2 sizes 1.20 times as fast as plain, slower at "
        "320² (0.90), least 0.90; the first call of a size takes 0.25 ms more of the host than the next, above 0.2 "
        "ms; PyTorch's 1.30, with cudnn.benchmark 40.00; 1 without a kernel of any size or a tuned one"
    )
    assert answers[WORKLOADS[0].key]["share"] == {"warm": 0.9, "cold": 0.5}
    assert sized()[0] == ended, "nothing is measured again"


def test_what_fails_of_sizes_is_kept_and_the_next_goes_on(sized):
    failed = GpuFailure("an illegal memory access", broken=True)
    good = Raced(times={"warm": taken(ours=9.0, any_size=9.0), "cold": taken(ours=9.0, any_size=9.0)})
    refused = Raced(times={"warm": taken(ours=9.0)}, refused={ANY_SIZE: "nothing should have been launched"})
    ended, answers = sized(failed, refused, good, first_calls=WorkerTimeout("no end after 5 s"))
    assert answers["first call"] == {"failed": "no end after 5 s"}
    assert answers[WORKLOADS[0].key] == {"failed": "an illegal memory access"}
    assert answers[WORKLOADS[1].key] == {"failed": "nothing should have been launched"}
    assert not ended.failed and "reach 1.00 of the speed" in ended.line


def test_steps_meet_all_sizes_and_losses_agree():
    found = sizes.steps_at_sizes(
        network="tests.models:OneLayer", batch=2, example=12, sizes=[12, 15], device="cpu", turns=2
    )
    assert list(found["sizes"]) == ["12", "15"] and found["loss_difference"] < 0.1
    assert all(min(each["median_ms"].values()) > 0 < each["ratio"] for each in found["sizes"].values())
    assert {*found["layers"]} == {"12", "15"}


def test_first_calls_take_sizes_that_no_other_way_has_met(monkeypatch):
    met = Counter()

    def host_ms(layer, x):
        met[x.shape[-1]] += 1
        return float(met[x.shape[-1]] == 1)

    monkeypatch.setattr(sizes, "_host_ms", host_ms)
    found = sizes.first_calls(device="cpu", batch=1, channels=4, example=8, count=3)
    assert found["beyond_ms"] == dict.fromkeys(sizes.WAYS, 1.0)
    assert all(len(each["first_ms"]) == 3 for each in found["ways"].values())


def test_the_detector_has_depthwise_layers_at_two_scales():
    model = sizes.Detector(classes=5)
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 5)
    depthwise = [layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d) and layer.groups > 1]
    assert len(depthwise) == 19 and {layer.in_channels for layer in depthwise[-2:]} == {96, 1280}


# -- first_run -------------------------------------------------------------------------------------------------------


RAN = {"ratio": 1.2, "ratio_interval": [1.1, 1.3], "convert_s": 12.0, "raced": 40, "won": 38, "left": 0, "problem": ""}


@pytest.fixture
def run_first(tmp_path, monkeypatch):
    """Runs the stage with a planted process; gives the environments and arguments that it had, too."""
    seen = []

    def stage(*answers, **how):
        waiting = list(answers)

        def in_a_process(function, given, *, environment, timeout_s):
            assert function is first_run.first_run and timeout_s > 0
            cache = environment["XDG_CACHE_HOME"]
            assert not [*Path(environment["DWCONV_TUNING_LOGS"]).iterdir()], "there is no record"
            seen.append((given["pack"], cache))
            answer = waiting.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(first_run, "in_a_process", in_a_process)
        run = run_of(tmp_path)
        ended = first_run.first_run_stage(run, **how)
        run.state.flush()
        return ended, run, seen

    return stage


def test_a_first_run_is_fresh_without_a_pack_and_with_one_that_is_made(run_first, monkeypatch):
    def said(command, *, environment, timeout_s):
        assert command[:3] == ["-m", "dwconv.export", "--generic"] and "3,5" in command and timeout_s > 0
        Path(command[-1]).mkdir()
        return ["pack: 200 kernels"]

    monkeypatch.setattr(first_run, "said_by", said)
    slow = {**RAN, "ratio": 0.9, "convert_s": 70.0, "left": 3}
    ended, run, seen = run_first(slow, RAN)
    folder = str(first_run.pack_folder(run))
    assert [pack for pack, _ in seen] == [None, folder] and seen[0][1] != seen[1][1]
    assert ended.line == (
        "without a pack: a step then slower than plain, 0.90 times as fast as plain (1.10 to 1.30), convert 70.0 s, 40 "
        "passes raced, 38 won, 3 left, above the 60 s that it should take; with a pack: a step then 1.20 times as fast "
        "as plain (1.10 to 1.30), convert 12.0 s, 40 passes raced, 38 won"
    )
    assert not ended.failed and list(run.state.of("first_run")) == [first_run.WITHOUT, first_run.WITH]


def test_a_pack_that_is_there_comes_first_and_one_that_cannot_be_made_costs_only_itself(
    run_first, monkeypatch, tmp_path
):
    folder = first_run.pack_folder(run_of(tmp_path))
    folder.mkdir()
    _, _, seen = run_first(RAN, RAN)
    assert [pack for pack, _ in seen] == [str(folder), None]
    folder.rmdir()
    (tmp_path / "cuda.json").unlink()

    def said(*of, **how):
        raise WorkerDied("-m dwconv.export: ended with code 2: no space left")

    monkeypatch.setattr(first_run, "said_by", said)
    ended, run, _ = run_first(RAN)
    assert run.state.of("first_run")[first_run.WITH] == {"failed": "-m dwconv.export: ended with code 2: no space left"}
    assert not ended.failed and ended.line.startswith("with a pack: failed: ")


def test_a_pack_is_not_begun_without_the_time_for_it(tmp_path):
    run = run_of(tmp_path, pace=Pace(first_run._PACK_S / 2))
    with pytest.raises(WorkerTimeout, match=r"make it before: python -m dwconv.export --generic .*pack-.*-float16$"):
        first_run._pack(run)


def test_a_first_run_counts_what_convert_does():
    found = first_run.first_run(
        network="tests.models:OneLayer", batch=2, image=12, device="cpu", seconds=0.0, turns=2, pack=None
    )
    assert found["raced"] == 0 < found["left"] and found["convert_s"] > 0 < found["first_step_s"]
    assert min(found["median_ms"].values()) > 0


# -- sequences -------------------------------------------------------------------------------------------------------


LAYER = SequenceLayer(network="Tiny", batch=2, channels=6, length=20, taps=4, silu=True)


def causal(x, weight, bias=None, activation=None):
    y = F.conv1d(x, weight.unsqueeze(1), bias, padding=weight.shape[1] - 1, groups=len(weight))[..., : x.shape[-1]]
    return F.silu(y) if activation in ("silu", "swish") else y


@pytest.fixture
def installed(monkeypatch):
    """Packages as they document their functions; one of them raises what it cannot run."""

    def refusing(x, weight, bias=None, activation="identity"):
        raise RuntimeError("kernel width is not supported\nat all")

    monkeypatch.setitem(sys.modules, "causal_conv1d", SimpleNamespace(causal_conv1d_fn=causal))
    monkeypatch.setitem(sys.modules, "cudnn.ops", SimpleNamespace(causal_conv1d=refusing))
    monkeypatch.setitem(sys.modules, "subquadratic_ops_torch.causal_conv1d", None)


def test_packages_for_sequences_race_if_they_are_installed(installed):
    found, refused = providers.causal_functions()
    assert list(found) == ["causal-conv1d", "cudnn-causal"]
    assert refused == {"subquadratic-ops": "subquadratic-ops-torch is not installed"}
    x, w, bias = torch.randn(2, 3, 9), torch.randn(3, 4), torch.randn(3)
    assert torch.equal(found["causal-conv1d"](x, w, bias, silu=True), causal(x, w, bias, "silu"))
    assert torch.equal(found["causal-conv1d"](x, w, None, silu=False), causal(x, w))


def test_a_package_that_does_not_fit_is_refused_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "causal_conv1d", SimpleNamespace())
    _, refused = providers.causal_functions()
    assert refused["causal-conv1d"].startswith("causal-conv1d cannot be used: AttributeError: ")


@pytest.mark.parametrize("layer", [LAYER, dataclasses.replace(LAYER, silu=False, causal=False, taps=5)], ids=str)
def test_a_layer_of_sequences_is_raced_in_both_passes_and_wrong_ways_are_not(installed, monkeypatch, layer):
    monkeypatch.setattr(sequences, "clock_of", lambda target: StillClock())
    racer = SequenceRacer(MeasureSetup(target=TARGET))
    us, refused, runs = racer(layer)
    assert runs == {"forward": None, "backward": None}, "on a CPU kernels are not seen"
    ours = {"plain", "dwconv", *(["causal-conv1d"] if layer.causal else [])}
    assert {pass_: set(times) for pass_, times in us.items()} == {"forward": ours, "backward": ours}
    assert all(each == pytest.approx(10) for times in us.values() for each in times.values())
    if layer.causal:
        assert refused["cudnn-causal"] == "kernel width is not supported at all"
    wrong = SimpleNamespace(causal_conv1d_fn=lambda *of, **how: causal(*of, **how) * 2)
    monkeypatch.setitem(sys.modules, "causal_conv1d", wrong)
    if layer.causal:
        assert racer(layer)[1]["causal-conv1d"].startswith("wrong: ")


def test_the_workloads_of_a_sequence_are_what_a_step_runs():
    """As discovery finds them, which looks at the parts and at both together."""

    class Mixer(torch.nn.Conv1d):
        def forward(self, x):
            return dwconv.causal_conv1d(x, self.weight.squeeze(1), self.bias, activation="silu")

    model = Mixer(LAYER.channels, LAYER.channels, LAYER.taps, groups=LAYER.channels, dtype=torch.bfloat16)
    x = torch.randn(LAYER.batch, LAYER.channels, LAYER.length, dtype=torch.bfloat16).requires_grad_()
    assert {*LAYER.workloads()} == {*discover(model, x).counts()}
    for layer in sequences.LAYERS:
        every = layer.workloads()
        assert all(each.is_row for each in every) and (1, layer.length) in {each.output_size for each in every}


def test_sequences_lose_first_and_say_what_is_not_installed(tmp_path, monkeypatch):
    other = dataclasses.replace(LAYER, network="Other")
    us = {"forward": {OURS: 10.0, "plain": 20.0, "causal-conv1d": 8.0}, "backward": {OURS: 10.0, "plain": 30.0}}
    worker = Worker(
        (us, {"cudnn-causal": "not installed"}, {"forward": 1, "backward": 0}),
        GpuFailure("an illegal memory access", broken=True),
    )
    monkeypatch.setattr(sequences, "GpuWorker", worker)
    monkeypatch.setattr(sequences, "read_alone", lambda log: None)
    wanted = []
    monkeypatch.setattr(sequences, "race_untuned", lambda workloads, run, **how: wanted.extend(workloads))
    run = run_of(tmp_path)
    run.state.put("limits", "device", {"memory_gb_per_s": 0.2})
    ended = sequences_stage(run, layers=[LAYER, other])
    assert len(wanted) == 16 and worker.asked == [LAYER, other]
    answer = run.state.of("sequences")[str(LAYER)]
    assert answer["ratio"] == {"forward": 0.8, "backward": 3.0, "step": 2.5}
    image_bytes = 2 * 2 * 6 * 20
    assert answer["percent_of_copy"]["forward"] == pytest.approx(100 * 2 * image_bytes / 10 / 1e3 / 0.2)
    assert answer["percent_of_copy"]["backward"] == pytest.approx(1.5 * answer["percent_of_copy"]["forward"])
    assert not ended.failed and ended.line.startswith(
        f"slower than the best other in 1 of 3: forward of {LAYER} 0.80× causal-conv1d; forward: 1 of 1 below 75 % of"
    )
    assert f"no kernel of dwconv's ran in backward of {LAYER}; " in ended.line
    assert ended.line.endswith("did not race: cudnn-causal: not installed")
    assert answer_of(LAYER, {"forward": {}, "backward": {}}, {OURS: "wrong"}, gb_per_s=1.0) == {"failed": "wrong"}


# -- partition -------------------------------------------------------------------------------------------------------


def test_what_ships_of_the_partition_is_legal_today():
    wanted = partition.wanted_workloads()
    assert len({each.key for each in wanted}) == len(wanted) == 3 * 5 * 4 * 2
    assert wanted[0].input_size == (56, 56) and wanted[0].stride == (1, 1)
    known = partition.shipped_configs("sm_90")
    found, refused = partition._legal(known[partition._key(wanted[0])], wanted[0], SM_90)
    assert not refused and {"one level", "two levels", "best of all"} <= set(found)
    first = next(partition.partition_candidates(GpuPlan(target=SM_90, known=Database.of([]), workloads=[], odd=[])))
    assert first.workload == wanted[0] and first.config in found.values()
    assert not partition.shipped_configs("sm_75")


def test_the_partition_is_measured_beside_pytorch_and_losses_come_first(tmp_path, monkeypatch):
    monkeypatch.setattr(partition, "WorkerProcesses", NoWorkers)
    wanted = partition.wanted_workloads()[:3]
    names = {"one level": 40.0, "two levels": 20.0, "best of all": 10.0}

    def measured(of, target, configs, *, workers):
        assert workers is not None
        if of == wanted[1]:
            raise InvalidChoice("no memory")
        taken = {}
        for name, config in partition._legal(partition.shipped_configs("sm_90")[partition._key(of)], of, SM_90)[
            0
        ].items():
            if of == wanted[0] and name in names:
                taken[config] = {
                    "measured_us": names[name],
                    "cudnn-nchw_us": 8.0 + names[name] / 10,
                    "aten-nchw_us": 99.0,
                }
        return taken

    monkeypatch.setattr(partition, "measured_us", measured)
    run = dataclasses.replace(run_of(tmp_path), target=SM_90)
    ended = partition_stage(run, wanted=wanted)
    answers = run.state.of("partition")
    assert answers[wanted[1].key] == {"failed": "no memory"}
    assert answers[wanted[2].key] == {"failed": "no variant was right"}
    answer = answers[wanted[0].key]
    assert answer["us"]["best of all"] == 10.0 and answer["others_us"]["cudnn-nchw"] == pytest.approx(9.0)
    assert "2 virtual threads" in answer["refused"] or "2 virtual threads" in answer["us"]
    assert not ended.failed and ended.line.startswith(
        f"slower than PyTorch's best op in 1 of 1: {wanted[0].key} 0.90; "
    )
    assert "fprop: two levels 2.00 times as fast as one level, least 2.00" in ended.line


def test_the_partition_is_of_a_gpu(tmp_path):
    with pytest.raises(InvalidChoice, match="is no GPU"):
        partition_stage(run_of(tmp_path))


# -- cores -----------------------------------------------------------------------------------------------------------


def job(how, **fields):
    return Job(**{"command": (how,), "module": "tests.bench.planted_bench", "seconds": 0.1, "most_s": 60.0, **fields})


def test_the_benchmarks_of_the_cpu_run_on_as_many_threads_as_there_are():
    every, few = cores.jobs(cores=16), cores.jobs(cores=2)
    assert sum(name.startswith("concurrency ") for name in every) == 6
    assert [name.partition(",")[0] for name in every if name.startswith("cpu ")] == [
        "cpu 16 threads", "cpu 4 threads", "cpu 1 threads",
    ]  # fmt: skip
    assert sum(name.startswith("cpu ") for name in few) == 1
    assert {each.command[0] for each in every.values()} == {"concurrency", "communication", "parallel", "cpu"}


def test_commands_are_run_and_those_that_fail_or_hang_are_kept_with_their_reason(tmp_path, capsys):
    jobs = {
        "cpu": job("cpu", environment={"OMP_NUM_THREADS": "4"}), "concurrency": job("concurrency"),
        "fails": job("fail"), "hangs": job("hang", most_s=3.0), "long": job("cpu", seconds=1e6),
    }  # fmt: skip
    run = run_of(tmp_path, pace=Pace(600))
    ended = cores_stage(run, wanted=jobs)
    run.state.flush()
    answers = run.state.of("cores")
    assert answers["fails"]["failed"].endswith("ended with code 2: --seconds 1 is too short")
    assert answers["hangs"]["failed"].endswith("no end after 3 s") and "long" not in answers
    assert answers["cpu"]["written"] == ["cpu-made-up-4t.json"] and answers["cpu"]["said"] == [
        "geometric means",
        "fine",
    ]
    assert json.loads((tmp_path / "cpu-made-up-4t.json").read_text())["gpus"] == ""
    assert not ended.failed and "time is up, 1 of 5 left" in ended.line
    order = [
        "fails failed: ", "layers over the best other, least (cpu) 0.50", "Tiny by the backend over recommended "
        "(concurrency) 0.90", "layers over the best other, mean (cpu) 1.00", "by the best strategy over recommended",
    ]  # fmt: skip
    places = [ended.line.index(each) for each in order]
    assert places == sorted(places)
    pid = int((tmp_path / "child.pid").read_text())
    until_s = time.monotonic() + 30
    while _is_alive(pid) and time.monotonic() < until_s:
        time.sleep(0.01)
    assert not _is_alive(pid), "what it started ends with it"
    again = cores_stage(run_of(tmp_path, pace=Pace(600)), wanted={name: jobs[name] for name in ("cpu", "concurrency")})
    assert "1.50" in again.line and capsys.readouterr().out.count("[cores] cpu: ") == 1, "what is done is not run again"


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_a_command_says_its_last_lines():
    lines = said_by(["-c", "print('one\\n\\ntwo')"], environment=os.environ, timeout_s=60)
    assert lines == ["one", "two"]


# -- streams ---------------------------------------------------------------------------------------------------------


def test_streams_lose_first_and_other_results_are_no_times(tmp_path, monkeypatch):
    good = {
        "ratio": 0.97,
        "ratio_interval": [0.9, 1.0],
        "loss_difference": {"S3": 0.0},
        "permitted": 1e-5,
        "streams": {"S3": 1, "random:0": 2},
    }
    planted = {
        "prefetch": {
            "same_batches": True, "ratio": 1.5, "ratio_interval": [1.4, 1.6],
            "median_ms": {"on request": 30.0, "ahead": 20.0},
        },
        "Inception-v2": {**good, "median_ms": {"plain": 10.0, "S3": 10.3}},
        "LSTM": {**good, "loss_difference": {"S3": 0.1}, "median_ms": {}},
    }  # fmt: skip

    def in_a_process(function, how, *, environment, timeout_s):
        return planted[how.get("network", "prefetch")]

    monkeypatch.setattr(streams, "in_a_process", in_a_process)
    run = run_of(tmp_path)
    ended = streams_stage(run, names=("Inception-v2", "LSTM"))
    assert run.state.of("streams")["LSTM"]["failed"].endswith("rounding (1.0e-05): S3 by 1.0e-01")
    assert not ended.failed
    order = [
        "LSTM: failed: ",
        "Inception-v2: the faster schedule, on 1 and 2 streams, slower, 0.97",
        "prefetch: steps on batches",
    ]
    places = [ended.line.index(each) for each in order]
    assert places == sorted(places)
    planted["prefetch"]["same_batches"] = False
    other = run_of(tmp_path / "other")
    assert (
        streams_stage(other, names=()).failed and "not the loader's" in other.state.of("streams")["prefetch"]["failed"]
    )


def test_epochs_give_the_batches_of_the_loader():
    found = streams.epochs(
        device="cpu", network="tests.models:OneLayer", batch=2, image=12, steps=3, turns=1, workers=0
    )
    assert found["same_batches"] and set(found["median_ms"]) == {"on request", "ahead"}
    assert found["report"]["depth"] == 2


def test_networks_for_a_gpu_have_larger_batches_of_images():
    images, _ = streams.network_for_gpu("Inception-v2", batch=3, image=32).data()
    assert images.shape == (3, 3, 32, 32)
    words, _ = streams.network_for_gpu("LSTM", batch=3, image=32).data()
    assert words.dtype == torch.int64


# -- verify ----------------------------------------------------------------------------------------------------------


def test_programs_that_were_right_in_what_ships_are_built_and_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "WorkerProcesses", NoWorkers)
    load = "tests.bench.gpu_runs:load"
    run = run_of(tmp_path, odd=[workload()])
    first = verify.verify_stage(run, load=load)
    right = verify.right_programs(run.state.of("verify"), run.state.of(verify.PROGRAMS))
    assert len(right) == 1 and not first.failed, "kernels that are planted have no source"
    asked = []
    monkeypatch.setattr(verify.Verifier, "answer", lambda self, request: asked.append(request))
    again = dataclasses.replace(run_of(tmp_path / "b", odd=[workload()]), known_programs=frozenset(right))
    ended = verify.verify_stage(again, load=load)
    assert not asked and not ended.failed
    assert ended.line == first.line.replace("right", "known")
    assert verify.right_programs(again.state.of("verify"), again.state.of(verify.PROGRAMS)) == right


def test_the_program_of_a_kernel_is_its_source_or_its_machine_code():
    of = partial(SimpleNamespace, source="", cubin=b"")
    programs = {verify.program_of(each) for each in (of(source="a"), of(source="b"), of(cubin=b"a"), of(cubin=b"c"))}
    assert len(programs) == 3, "equal bytes are one program"


def test_running_statistics_are_checked_with_what_lies_beside_them():
    checks = list(running_statistics.checks())
    assert len(set(map(str, checks))) == len(checks) and {len(each.channels) for each in checks} == {1, 2}
    seen = torch.ones(5)
    assert running_statistics._judged([(seen, seen.clone())]).right
    beside = seen.clone()
    beside[0] = 2
    verdict = running_statistics._judged([(seen, seen.clone()), (seen, beside)])
    assert not verdict.right and "off by 1.0e+00" in verdict.reason
