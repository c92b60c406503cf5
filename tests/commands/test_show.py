"""``python -m dwconv.show``: what it prints of a candidate, for people and for programs."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from dwconv.problems.target import cpu_target, parse_target
from dwconv.records.log import TuningLog
from dwconv.schedules.template import templates_for
from dwconv.show import main
from tests.planted_records import record_of, workload_of

SMALL = ["--shape", "2,16,9,9", "--kernel", "3", "--layout", "nhwc", "--target", "cpu"]
CUDA = ["--shape", "2,16,9,9", "--kernel", "3", "--target", "cuda:sm_90"]


@pytest.fixture(autouse=True)
def no_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DWCONV_TUNING_LOGS", str(tmp_path / "none.jsonl"))


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr of a command that exits with 2."""
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.startswith("error: ")
    return err


def test_config_names_every_knob_with_its_values_and_json_changes_those_it_names(capsys):
    text = shown(capsys, *SMALL, "--config", "default")
    default = json.loads(shown(capsys, *SMALL, "--config", "default", "--json"))
    assert default["config"]["template"] == "cpu.fprop_nhwc"
    for knob, values in default["knobs"].items():
        assert knob in text and default["config"][knob] in values
    other = next(value for value in default["knobs"]["tile_w"] if value != default["config"]["tile_w"])
    fields = json.loads(shown(capsys, *SMALL, "--config", json.dumps({"tile_w": other}), "--json"))
    assert fields["config"] == {**default["config"], "tile_w": other}


def test_tir_and_source_of_a_cpu_candidate(capsys):
    assert "def main" in shown(capsys, *SMALL, "--what", "tir", "--config", "default")
    assert "define" in shown(capsys, *SMALL, "--what", "source", "--config", "default")
    assert ".text" in shown(capsys, *SMALL, "--what", "asm", "--config", "default")


@pytest.mark.parametrize(("target", "registers"), [("cpu:avx512", "zmm0"), ("cpu:avx2", "ymm0"), ("cpu:neon", "v0.4s")])
def test_code_for_vectors_that_need_not_be_here(capsys, target, registers):
    assert registers in shown(capsys, *SMALL[:-1], target, "--what", "asm", "--config", "default")


def test_launches_print_without_a_gpu(capsys):
    fields = json.loads(shown(capsys, *CUDA, "--what", "launches", "--config", "default", "--json"))
    assert "__global__" in fields["source"]
    for launch in fields["launches"]:
        assert f"{launch['kernel']}(" in fields["source"]
        assert len(launch["grid"]) == len(launch["block"]) == 3
        assert launch["shared_bytes"] >= 0
    named = {arg["name"]: arg for arg in fields["launches"][0]["args"]}
    assert named["x"] == {"name": "x", "dtype": "float32", "shape": [2, 16, 9, 9]}
    assert named["w"]["shape"] == [16, 3, 3]
    assert named["y"]["shape"] == [2, 16, 9, 9]
    assert set(fields["launches"][0]["resources"]) == {"registers", "shared_bytes", "spill_bytes", "stack_bytes"}
    text = shown(capsys, *CUDA, "--what", "launches", "--config", "default")
    assert "grid=" in text and "x: float32[2, 16, 9, 9]" in text and "registers" in text


def test_cost_names_what_limits_each_kernel(capsys):
    fields = json.loads(shown(capsys, *CUDA, "--what", "cost", "--config", "default", "--json"))["cost"]
    assert fields["microseconds"] > fields["limit_us"] > 0 and fields["share_of_budget"] > 0
    taps = 9
    assert fields["instructions_per_output"] > taps, "each multiplies and adds, and more"
    of_budget = fields["instructions_per_output"] / fields["budget_per_output"]
    assert of_budget == pytest.approx(fields["share_of_budget"])
    for kernel in fields["kernels"]:
        assert kernel["limiter"] in kernel["busy_us"] and kernel["resources"]["registers"] > 0
    text = shown(capsys, *CUDA, "--what", "cost", "--config", "default")
    for words in ("registers", "no spills", "waves", "busy µs: dram", "computed, not measured"):
        assert words in text


def test_tiling_draws_both_levels_the_halo_and_the_banks(capsys):
    """Of 64 threads, each with two strided columns of 4 rows; and of vectors that are copied ahead."""
    layer = ["--shape", "64,96,28,32", "--kernel", "5", "--target", "cuda:sm_90", "--what", "tiling"]
    knobs = {"planes": 1, "block_h": 14, "tile_h": 7, "threads_w": 16, "vthread_w": 2, "tile_w": 1}
    text = shown(capsys, *layer, "--config", json.dumps({"template": "cuda.fprop_nchw", **knobs}))
    for words in (
        "level 1: block tiles of 1 plane × 14 rows × 32 columns",
        "28 × 32 outputs of a plane: 2 × 1 tiles; 96 groups of planes",
        "level 2: 32 threads, 1 × 2 × 16 on planes, rows and columns; 1 × 2 virtual threads each",
        "thread 0 owns 14 outputs, in registers: rows 0, 1, 2, 3, 4, 5, 6; columns 0, 16",
        "input: 18 × 36 of a plane, of them a halo of 4 rows and 4 columns",
        "1.0 transactions a request: no bank",
    ):
        assert words in text
    (lane_0, lane_16) = [line.split(":")[1].split() for line in text.splitlines() if line.startswith("      lane")]
    assert len({*lane_0, *lane_16}) == 32, "every lane of the warp reads another bank"
    knobs |= {"tile_h": 2, "threads_w": 8, "vthread_w": 1, "tile_w": 4, "pipeline": 2, "turns": 4}
    text = shown(capsys, *layer, "--config", json.dumps({"template": "cuda.fprop_nchw", **knobs}))
    assert "copied ahead, 16 bytes at a time, to 2 buffers" in text and "4 words from a bank on" in text
    assert "columns 0, 1, 2, 3" in text and "4 tiles each, one after the other" in text
    direct = {"template": "cuda.fprop_nchw", "stage": "registers", "vthread_w": 1, "tile_h": 2, "block_h": 14}
    assert "no shared memory, no banks" in shown(capsys, *layer, "--config", json.dumps(direct))


def test_tiling_of_other_families_is_what_these_draw(capsys):
    text = shown(capsys, *SMALL, "--what", "tiling", "--config", "default")
    assert "cpu.fprop_nhwc" in text and "tile_h" in text.split("\n\n", 1)[1]
    gradient = shown(capsys, *CUDA, "--pass", "dgrad", "--what", "tiling", "--config", "default")
    assert "dgrad as fprop from dy to dx" in gradient and "level 2" in gradient


def test_the_page_of_the_partition_shows_what_the_command_prints(capsys):
    page = (Path(__file__).parents[2] / "docs" / "two_level_partition.md").read_text(encoding="utf-8")
    command = next(line for line in page.splitlines() if line.startswith("python -m dwconv.show --shape"))
    printed = shown(capsys, *shlex.split(command)[3:])
    assert "\n".join(line.rstrip() for line in printed.splitlines()) in page


def test_sass_is_the_machine_code(capsys):
    text = shown(capsys, *CUDA, "--what", "sass", "--config", "default")
    assert "LDG" in text and "FFMA" in text and "EXIT" in text
    (code,) = json.loads(shown(capsys, *CUDA, "--what", "sass", "--config", "default", "--json"))["sass"].values()
    assert code == text.rstrip("\n")


def test_fast_math_has_records_of_its_own(capsys, tmp_path):
    log = tmp_path / "log.jsonl"
    workload = workload_of(shape=(2, 16, 9, 9), layout="nchw")
    target = parse_target("cuda:sm_90")
    config = next(iter(templates_for(workload, target)[0].space(workload, target)))
    record = record_of(workload, config=config, median_us=5.0, device="sm_90")
    TuningLog(log).append(dataclasses.replace(record, versions={**record.versions, "math": "fast"}))
    command = [*CUDA, "--log", str(log), "--what", "log", "--json"]
    assert json.loads(shown(capsys, *command))["records"] == []
    assert len(json.loads(shown(capsys, *command, "--fast-math"))["records"]) == 1
    assert "5.0 µs" in shown(capsys, *command[:-1], "--fast-math")


def test_best_is_the_fastest_record(capsys, tmp_path):
    log = tmp_path / "log.jsonl"
    workload = workload_of(shape=(2, 16, 9, 9))
    target = cpu_target()
    slow, fast = list(templates_for(workload, target)[0].space(workload, target))[:2]
    for config, median_us in ((slow, 9.0), (fast, 5.0)):
        TuningLog(log).append(record_of(workload, config=config, median_us=median_us))
    command = [*SMALL, "--log", str(log)]
    fields = json.loads(shown(capsys, *command, "--json"))
    assert fields["config"] == fast.to_dict()
    records = json.loads(shown(capsys, *command, "--what", "log", "--json"))["records"]
    assert [record["measurement"]["median_us"] for record in records] == [9.0, 5.0]
    assert "5.0 µs" in shown(capsys, *command, "--what", "log")


def test_without_a_record_the_default_is_shown_and_said_to_be(capsys):
    assert main([*SMALL, "--json"]) == 0
    out, err = capsys.readouterr()
    assert "config" in json.loads(out)
    assert "this is the default configuration" in err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([*SMALL, "--config", "best"], "--config default"),
        ([*SMALL, "--config", "fastest"], "--config fastest"),
        ([*SMALL, "--config", "{tile_w"], "not JSON"),
        ([*SMALL, "--config", '{"tile_w": 12345}'], "tile_w=12345"),
        ([*SMALL, "--config", '{"tile_w": [4]}'], "a knob is a whole number or a name"),
        ([*SMALL, "--config", '{"template": ["cpu.fprop_nhwc"]}'], "a knob is a whole number or a name"),
        ([*SMALL, "--config", '{"warp_size": 32}'], "warp_size"),
        ([*SMALL, "--config", '{"template": "cpu.magic"}'], "template=cpu.magic"),
        ([*SMALL, "--what", "launches", "--config", "default"], "for cpu, not cuda; use --what source"),
        ([*SMALL, "--what", "cost", "--config", "default"], "use --what source"),
        ([*SMALL, "--what", "sass", "--config", "default"], "use --what source"),
        ([*CUDA, "--what", "asm", "--config", "default"], "for cuda, not cpu; use --what sass"),
        ([*SMALL, "--fast-math"], "--fast-math is for CUDA"),
        ([*CUDA[:-1], "cuda:sm_61"], "cuda:sm_90"),
        (["--shape", "1,2,3", "--kernel", "3"], "1,2,3"),
        ([*SMALL[:-1], "tpu"], "target=tpu"),
    ],
)
def test_bad_input_is_one_line_with_the_way_out(capsys, arguments, named):
    assert named in refused(capsys, *arguments)
