"""The stage host of bench cuda: layers and blocks, plain and converted, in turns."""

from __future__ import annotations

import itertools

import pytest

from bench.gpu import host, host_turns
from bench.gpu.run import Pace
from dwconv.errors import WorkerTimeout
from tests.bench.gpu_runs import run_of
from tests.planted_records import plant, workload_of

SIZES = {"batch": 2, "channels": 8, "size": 6, "turns": 2}
FIGURES = {"plain", "converted", "ratio", "ratio_low", "ratio_high", "ratio_of_cpu_time"}
ITEMS = [
    f"{precision}, {road}"
    for road in ("C++", "Python")
    for precision in ("float16 autocast", "float16", "bfloat16 autocast")
]


def answer_of(ratio: float = 0.5) -> dict[str, object]:
    us = {"plain": 40.0, "converted": 40 * ratio, "ratio": ratio, "ratio_low": 0.4, "ratio_high": 0.6}
    return {"road": "C++", "chains": {"1 layer": {"us": {"forward": us, "step": us}}}}


@pytest.fixture
def asked(monkeypatch):
    """What was raced, how many passes of each type; then each process, by what it was given."""
    seen = []

    def in_a_process(function, how, *, environment, timeout_s):
        assert function is host_turns.measured and how["device"] == "cpu"
        assert 0 < timeout_s <= 60 and how["seconds"] < timeout_s, "a process needs time to start"
        seen.append((how["precision"], environment.get("DWCONV_NATIVE"), environment["DWCONV_TUNING_LOGS"]))
        return answer_of()

    def race_untuned(counts, run, *, stage, seconds):
        assert stage == "host" and seconds <= run.pace.left_s / 2 + 1, "the rest is for measuring"
        seen.append(sorted((each.dtype, each.pass_) for each in counts))

    monkeypatch.setattr(host, "in_a_process", in_a_process)
    monkeypatch.setattr(host, "race_untuned", race_untuned)
    monkeypatch.delenv("DWCONV_NATIVE", raising=False)
    return seen


def test_each_precision_on_each_road_has_a_process_of_its_own(tmp_path, asked):
    run = run_of(tmp_path)
    ended = host.host_stage(run)
    raced, *processes = asked
    passes = ("fprop", "dgrad", "wgrad", "forward", "backward")
    assert raced == sorted(itertools.product(("float16", "bfloat16"), passes))
    precisions, log = ("float16 autocast", "float16", "bfloat16 autocast"), str(run.log.path)
    assert processes == [(precision, road, log) for road in (None, "0") for precision in precisions]
    of_chain = "forward 0.50 (0.40 to 0.60), 20.0 µs, PyTorch's 40.0; step 0.50 (0.40 to 0.60), 20.0 µs, PyTorch's 40.0"
    assert f"float16 autocast, C++: road C++ | 1 layer: {of_chain}; float16, C++: " in ended.line
    assert not ended.failed and list(run.state.of("host")) == ITEMS


def test_what_was_measured_before_is_not_measured_again(tmp_path, asked):
    """Not even what ships, which older runs measured in another way: it stays, beside the rest."""
    run = run_of(tmp_path)
    run.state.take("host", {"C++": {"us": {}}, ITEMS[0]: answer_of(), ITEMS[2]: answer_of(), ITEMS[5]: answer_of()})
    host.host_stage(run)
    raced, *processes = asked
    assert {dtype for dtype, _ in raced} == {"float16"}, "no bfloat16 is left"
    assert [precision for precision, *_ in processes] == ["float16", "float16 autocast", "float16"]
    assert sorted(run.state.of("host")) == sorted(["C++", *ITEMS])
    asked.clear()
    host.host_stage(run)
    assert asked == [[]], "nothing is left"


def test_it_ends_when_time_is_up_and_a_process_without_an_end_is_no_answer(tmp_path, asked, monkeypatch):
    ended = host.host_stage(run_of(tmp_path / "short", pace=Pace(5, first_s=6)))
    assert ended.line == "nothing was measured; time is up, 6 of 6 left" and not ended.failed

    def hangs(*given, **named):
        raise WorkerTimeout("no end after 60 s")

    monkeypatch.setattr(host, "in_a_process", hangs)
    run = run_of(tmp_path)
    ended = host.host_stage(run)
    assert ended.failed and "failed: no end after 60 s" in ended.line
    assert run.state.of("host")[ITEMS[0]] == {"failed": "no end after 60 s"}


# -- in a process of its own -------------------------------------------------------------------------------------------


@pytest.fixture
def few_calls(monkeypatch):
    monkeypatch.setattr(host_turns, "_CALLS", 1)
    monkeypatch.setattr(host_turns, "_WARM_UPS", 1)


@pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")
@pytest.mark.usefixtures("logs", "few_calls")
def test_chains_of_layers_and_blocks_are_measured_each_way():
    found = host_turns.measured(device="cpu", precision="bfloat16 autocast", seconds=0.0, **SIZES)
    assert list(found["chains"]) == ["1 layer", "3 layers", "11 layers", "1 block", "3 blocks"]
    for name, chain in found["chains"].items():
        assert list(chain["us"]) == ["forward", "step", "step, all under autocast"]
        assert all(set(us) == FIGURES and min(us.values()) > 0 for us in chain["us"].values())
        assert all(us["ratio_low"] <= us["ratio"] <= us["ratio_high"] for us in chain["us"].values())
        assert chain["turns"] == 2 and chain["kernels_us"] == {"plain": 0.0, "converted": 0.0}
        assert chain["roads"] == {"PyTorch's op": int(name.split()[0])} and chain["as_one"] == 0
    assert list(host_turns.PRECISIONS) == list(dict.fromkeys(item.split(",")[0] for item in ITEMS))


@pytest.mark.parametrize("link", ["layer", "block"])
def test_it_shows_what_the_layers_and_blocks_ran_as(logs, few_calls, link):
    block = {"block": "bn+relu6,bn+relu6"} if link == "block" else {}
    plant(logs / "log.jsonl", [workload_of(shape=(2, 8, 6, 6), dtype="bfloat16", **block)], baseline_us=1e6)
    chain = host_turns.of_chain(
        host_turns.LINKS[link], 3, host_turns.Sizes(**SIZES), device="cpu", seconds=0.0,
        precision=host_turns.PRECISIONS["bfloat16 autocast"],
    )  # fmt: skip
    assert chain["roads"] == {"Python": 3} and chain["as_one"] == (3 if link == "block" else 0)


def test_without_autocast_weights_have_the_type_and_norms_stay_in_float32(monkeypatch):
    seen = []

    def timed(ways, *, turns, seconds):
        seen.append({name: list(each) for name, each in ways.items()})
        return {name: [dict.fromkeys(each, (1.0, 1.0))] * 4 for name, each in ways.items()}

    def copied(model, x, **options):
        seen.append({str(each.dtype) for each in model.parameters() if each.dim() == 1})
        seen.append({str(each.dtype) for each in [x, *model.parameters()] if each.dim() == 4})
        return model

    monkeypatch.setattr(host_turns, "_timed", timed)
    monkeypatch.setattr(host_turns, "converted_copy", copied)
    host_turns.of_chain(
        host_turns.LINKS["block"], 1, host_turns.Sizes(**SIZES), device="cpu", seconds=0.0,
        precision=host_turns.Precision(dtype="bfloat16", autocast=False),
    )  # fmt: skip
    ways = ["forward", "step"]
    assert seen == [{"torch.float32"}, {"torch.bfloat16"}, {"plain": ways, "converted": ways}]


def test_a_ratio_is_that_of_turns_and_microseconds_are_the_least():
    """Other work slows a turn and its neighbour alike."""
    plain = [{"step": (seconds, 1.0)} for seconds in (2e-6, 4e-6, 8e-6, 4e-6)]
    ours = [{"step": (seconds, 3.0)} for seconds in (1e-6, 2e-6, 4e-6, 4e-6)]
    found = host_turns._figures({"plain": plain, "converted": ours}, "step")
    assert found["plain"] == pytest.approx(2) and found["converted"] == pytest.approx(1)
    assert (found["ratio"], found["ratio_of_cpu_time"]) == (pytest.approx(0.5), pytest.approx(3))
    assert found["ratio_low"] <= 0.5 < found["ratio_high"]
