"""``python -m bench partition``: its variants are what their names say, the least cost is the least, and the page has
the figures of the results."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from bench import partition
from bench.__main__ import main
from bench.cases import square
from bench.partition import LEVELS, SIZES, _promising, restricted, rows_of, workloads
from bench.partition_tables import against_table, firsts, networks_table, reasons_table, times_table
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.problems.workload import PASSES, Workload
from dwconv.schedules.template import template

SM_90 = parse_target("cuda:sm_90")
assert isinstance(SM_90, CudaTarget)
SHOWN = (56, 14)
"""Sizes of maps whose reasons the page has."""
DEVICES = ("sm_80", "sm_90", "sm_100")
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "two_level_partition.md").read_text(encoding="utf-8")


def results(name: str) -> list[dict[str, Any]]:
    rows = json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())["rows"]
    assert isinstance(rows, list)
    return rows


def one(pass_: str, *, stride: int = 1, size: int = 7) -> Workload:
    (workload,) = workloads(kernels=[3], sizes=[size], strides=[stride], passes=[pass_])
    return workload


def rows(pass_: str, **chosen: int) -> dict[str, dict[str, Any]]:
    return {row["variant"]: row for row in rows_of(one(pass_, **chosen), SM_90, built=0)}


def test_variants_are_what_they_are_called() -> None:
    workload = one("fprop", size=14)
    found = rows("fprop", size=14)
    levels = {name: row["config"] for name, row in found.items()}
    assert (levels["one level"]["tile_h"], levels["one level"]["tile_w"]) == (1, 1)
    assert levels["2 virtual threads"]["vthread_w"] == 2 and levels["4 virtual threads"]["vthread_w"] == 4
    assert all(levels[variant.name]["stage"] == "shared" for variant in LEVELS)
    assert levels["padding"]["padding"] == "copied" and levels["no padding"]["padding"] == "fetched"
    tiles = template("cuda.fprop_nchw").space(workload, SM_90)
    assert levels["default"] == tiles.default.to_dict()
    for name, row in found.items():
        known = template(row["config"]["template"])
        config = known.space(workload, SM_90).check(row["config"])
        assert known.estimate_us is not None
        assert row["estimated_us"] == known.estimate_us(workload, config, SM_90) > 0, name
    own = [row["estimated_us"] for name, row in found.items() if name != "best of all"]
    assert found["least cost"]["estimated_us"] == min(own) >= found["best of all"]["estimated_us"]


def test_a_pass_without_block_tiles_has_the_best_of_all_alone() -> None:
    assert list(rows("dgrad", stride=2)) == ["best of all"]
    assert list(rows("wgrad")) == ["default", "one level", "two levels", "least cost", "best of all"]


def test_a_part_of_a_space_keeps_its_rules() -> None:
    space = template("cuda.fprop_nchw").space(one("fprop"), SM_90)
    part = restricted(space, {"stage": ["shared"], "vthread_w": [1]}, near=space.default)
    assert part is not None and part.default == space.default
    assert {knob.name: knob.values for knob in part.knobs}["vthread_w"] == (1,)
    assert part.why_illegal(space.default) is None and part.rules == space.rules
    assert restricted(space, {"stage": ["elsewhere"]}, near=space.default) is None


def test_of_equal_estimates_one_is_promising() -> None:
    space = template("cuda.fprop_nchw").space(one("fprop"), SM_90)
    first, second, third = itertools.islice(space, 3)
    found = {third: 1.0, second: 2.0, first: 1.0}
    cheapest = min(first, third, key=str)
    assert _promising(found, 1) == [cheapest]
    assert _promising(found, 2) == _promising(found, 9) == [cheapest, second]


@pytest.mark.slow
def test_kernels_are_compiled_where_that_is_wanted(tmp_path: Path) -> None:
    command = ["partition", "--targets", "cuda:sm_90", "--kernels", "3", "--sizes", "7", "--passes", "wgrad"]
    command += ["--out", str(tmp_path)]
    assert main([*command, "--strides", "1", "--compile", "7", "--built", "1"]) == 0
    path = tmp_path / "partition-sm_90.json"
    first = json.loads(path.read_text())["rows"]
    assert all(row["computed_us"] > 0 and row["spill_bytes"] >= 0 and row["registers"] > 8 for row in first)
    assert all(row["machine_code"]["instructions"] > row["machine_code"]["multiply_adds"] > 0 for row in first)
    assert main([*command, "--strides", "2", "--compile", "0", "--add"]) == 0
    both = json.loads(path.read_text())["rows"]
    assert [row for row in both if row["stride"] == 1] == first and {row["stride"] for row in both} == {1, 2}
    assert not any("computed_us" in row for row in both if row["stride"] == 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--targets", "cpu:avx2"], "target=cpu:avx2 is no GPU"),
        (["--sizes", "8"], "there is no fprop of 8² maps here; use "),
        (["--passes", "forward"], "there is no forward of 112² maps here; use fprop, dgrad, wgrad of "),
    ],
)
def test_what_it_cannot_take_is_one_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["partition", *arguments, "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ('{"benchmark": "partition"}', "is not the output of a benchmark: Object missing required field `rows`"),
        ('{"benchmark": "partition", "rows": [{"pass": "fprop", "size": [8]}]}', "has a row of fprop [8] None None"),
    ],
)
def test_a_file_that_cannot_be_added_to_is_one_line(
    content: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "partition-sm_90.json").write_text(content)
    assert main(["partition", "--targets", "cuda:sm_90", "--out", str(tmp_path), "--add"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err and "partition-sm_90.json" in err


# -- as tables ---------------------------------------------------------------------------------------------------------


def row(variant: str, time_us: float, **other: Any) -> dict[str, Any]:
    fields = {"pass": "fprop", "size": 56, "kernel": 7, "stride": 1, "config": {"template": "cuda.fprop_nchw"}}
    return {**fields, "variant": variant, "estimated_us": time_us, **other}


STRIP = {"template": "cuda.fprop_nchw_strip"}


def test_compiled_rows_are_called_so() -> None:
    estimated = [row("least cost", 60.0), row("best of all", 50.0, config=STRIP)]
    compiled = [{**each, "kernel": 13, "computed_us": each["estimated_us"] + 1} for each in estimated]
    *_, first, second = times_table([*estimated, *compiled], pass_="fprop", stride=1)
    assert first == "| 56², k7 | 60.0 | 50.0 | strip |"
    assert second == "| 56², k13, compiled | 61.0 | 51.0 | strip |"


def test_the_families_are_held_against_the_best() -> None:
    found = [
        row("least cost", 60.0),
        row("best of all", 50.0, config=STRIP),
        row("best of all", 20.0, stride=2, config={"template": "cuda.fprop_nchw_plane"}),
        row("least cost", 30.0, kernel=3, size=14),
        row("best of all", 30.0, kernel=3, size=14),
        row("best of all", 1.0, kernel=5, **{"pass": "wgrad"}),
    ]
    assert against_table(found, pass_="fprop") == [
        "| map | k3 | k7 |",
        "|---|---|---|",
        "| 56² |  | 1.20 strip |",
        "| 14² | 1.00 block tiles |  |",
        "| 56², stride 2 |  | plane |",
    ]


def test_layers_of_networks_are_held_against_the_best_on_each_device() -> None:
    def of(layer: str, pass_: str, *found: dict[str, Any]) -> list[dict[str, Any]]:
        return [{**each, "layer": layer, "batch": 64, "pass": pass_} for each in found]

    first = of("A 96×56² k7", "fprop", row("least cost", 60.0), row("best of all", 50.0, config=STRIP))
    second = of("A 96×56² k7", "dgrad", row("least cost", 60.0), row("best of all", 60.0))
    third = of("B 7² k3", "wgrad", row("least cost", 2.0), row("best of all", 2.0))
    assert networks_table({"sm_80": [*first, *second], "sm_90": [*second, *third]}) == [
        "| layer, batch | pass | sm_80 | sm_90 |",
        "|---|---|---|---|",
        "| A 96×56² k7, 64 | fprop | 1.20 strip |  |",
        "| A 96×56² k7, 64 | dgrad | 1.00 block tiles | 1.00 block tiles |",
        "| B 7² k3, 64 | wgrad |  | 1.00 weight gradient |",
    ]
    assert firsts([*first, *second, *third], passes=("fprop", "dgrad")) == (1, 2)
    assert firsts(third, passes=("wgrad",)) == (1, 1)


def test_layers_of_networks_have_rows_and_a_file_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "GPU_LAYERS", [square("Tiny", batch=2, channels=8, size=7, kernel=3)])
    command = ["partition", "--networks", "--targets", "cuda:sm_90", "--compile", "0", "--passes", "wgrad"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    (written,) = tmp_path.iterdir()
    assert written.name == "partition-networks-sm_90.json"
    rows = json.loads(written.read_text())["rows"]
    assert {(row["layer"], row["batch"], row["pass"]) for row in rows} == {("Tiny 8×7² k3", 2, "wgrad")}
    assert [row["variant"] for row in rows] == ["default", "least cost", "best of all"]


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_tables_of_the_page_are_those_of_the_results() -> None:
    sm_80, sm_90 = (results(f"partition-{device}") for device in ("sm_80", "sm_90"))
    tables = [times_table(sm_90, pass_=pass_, stride=1) for pass_ in ("fprop", "wgrad")]
    tables.append(times_table(sm_80, pass_="fprop", stride=1))
    tables.append(against_table(sm_90, pass_="fprop"))
    tables.append(reasons_table(sm_90, pass_="fprop", stride=1, sizes=SHOWN))
    for table in tables:
        assert "\n".join(table) in PAGE
    assert {row["size"] for row in sm_90} == set(SIZES) and {row["pass"] for row in sm_90} == set(PASSES)


def test_the_page_says_how_often_block_tiles_are_first() -> None:
    found = {device: results(f"partition-networks-{device}") for device in DEVICES}
    assert "\n".join(networks_table(found)) in PAGE
    first = {device: firsts(rows, passes=("fprop", "dgrad")) for device, rows in found.items()}
    assert {many for _, many in first.values()} == {18}
    told = ", ".join(f"{count} on {device}" for device, (count, _) in first.items())
    assert f"Of the 18 workloads of fprop and dgrad, block tiles are first in {told}" in " ".join(PAGE.split())
