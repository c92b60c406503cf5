"""Files of results: python -m bench compare matches rows by their names, and says what their ratios allow; and where
benchmarks write."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from bench.__main__ import BENCHMARKS, READERS, main
from bench.results import write_results
from dwconv.commands.command_line import ArgumentParser
from dwconv.errors import InvalidChoice
from dwconv.problems.target import cpu_target

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"


def layer(ratio, *, spread=0.01, **about):
    low, high = ratio - spread, ratio + spread
    return {
        "layer": "Tiny", "pass": "fprop", "dwconv_us": 1.0, "ratio": ratio, "ratio_interval": [low, high],
        "caches": "warm", **about,
    }  # fmt: skip


@pytest.fixture
def compared(tmp_path, capsys):
    def compare(before, after, *, benchmark="cpu-nhwc", later=None, **changed):
        paths = [tmp_path / "A.json", tmp_path / "B.json"]
        facts = {"benchmark": benchmark, "device": "epyc-2t", "threads": 2, "versions": {"torch": "2.13.0"}}
        changed["benchmark"] = later or benchmark
        for path, rows, more in zip(paths, (before, after), ({}, changed), strict=True):
            path.write_text(json.dumps({**facts, **more, "rows": rows}))
        code = main(["compare", *map(str, paths)])
        return code, *capsys.readouterr()

    return compare


def test_a_row_changed_if_its_intervals_do_not_meet(compared):
    before = [layer(2.0), layer(2.0, layer="B"), layer(2.0, layer="C", spread=0.5)]
    after = [layer(1.9), layer(2.1, layer="B"), layer(1.4, layer="C", spread=0.2)]
    code, out, err = compared(before, after)
    assert code == 1 and err == ""
    first, *lines = out.splitlines()
    assert first == "1 slower, 1 faster, 1 the same, of 3 rows that both have"
    assert lines == [
        "  slower Tiny, fprop, warm: 2.00 (1.99 to 2.01) before, 1.90 (1.89 to 1.91) after, as fast as PyTorch",
        "  faster B, fprop, warm: 2.00 (1.99 to 2.01) before, 2.10 (2.09 to 2.11) after, as fast as PyTorch",
    ]


def test_rows_that_only_one_has_are_named(compared):
    before = [layer(2.0), layer(1.5, layer="Gone"), layer(1.2, layer="Broken")]
    after = [layer(2.0), layer(3.0, caches="cold"), {**layer(1, layer="Broken"), "failed": "it crashed"}]
    code, out, _ = compared(before, after)
    assert code == 0 and out.splitlines()[1:] == [
        "  gone   Gone, fprop, warm: 1.50 (1.49 to 1.51)",
        "  gone   Broken, fprop, warm: 1.20 (1.19 to 1.21); it failed: it crashed",
        "  new    Tiny, fprop, cold: 3.00 (2.99 to 3.01)",
    ]


def test_results_from_before_there_were_intervals_have_those_of_their_spread(compared):
    old = {"layer": "Tiny", "pass": "fprop", "dwconv_us": 1.0, "ratio": 2.0, "ratio_spread": 0.2}
    code, out, _ = compared([old], [layer(2.22)])
    assert code == 0 and out.startswith("0 slower, 1 faster")
    assert compared([old], [layer(2.2)])[1].startswith("0 slower, 0 faster, 1 the same")


def test_blocks_and_steps_have_their_own_ratios(compared):
    block = {
        "network": "N",
        "layer": "L",
        "block": "bn",
        "count": 1,
        "over_eager": 2.0,
        "over_best_other": 2.0,
        "kept_bytes": {},
        "median_us": {"plain": 20.0, "as one": 10.0},
    }
    old, new = {**block, "spread_us": {"plain": 1.2, "as one": 0.8}}, {**block, "over_eager": 1.7}
    new |= {"over_eager_interval": [1.6, 1.81], "spread_us": old["spread_us"]}  # 2 / (1 + hypot(0.06, 0.08)) = 1.82
    assert compared([old], [new], benchmark="blocks")[0] == 1
    assert compared([old], [new | {"over_eager_interval": [1.6, 1.83]}], benchmark="blocks")[0] == 0
    step = {"network": "N", "allocator": "memory kept", "median_ms": {}}
    step["ratio"] = {"median": 1.1, "quartiles": [1.05, 1.15]}
    better = {**step, "ratio": {"median": 1.2, "quartiles": [1.1, 1.3], "interval": [1.16, 1.24]}}
    code, out, _ = compared([step], [better], benchmark="train-nhwc")
    assert code == 0 and out.startswith("0 slower, 1 faster") and "N, memory kept: 1.10" in out


def test_where_devices_or_versions_differ_it_says_so(compared):
    code, _, err = compared([layer(2.0)], [layer(2.0)], device="xeon-2t", versions={"torch": "2.14.0"})
    assert code == 0 and err.splitlines() == [
        "note: device epyc-2t before, xeon-2t after", "note: torch 2.13.0 before, 2.14.0 after"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "changes", "reason"),
    [
        ([layer(1.0)], {"later": "cpu-nchw"}, "A.json has results of cpu-nhwc, .*B.json of cpu-nchw"),
        (
            [{"layer": "Tiny"}],
            {},
            "B.json is not the output of a benchmark: row 0: Object missing required field `pass`",
        ),
        ([layer(1.0), layer(2.0)], {}, "B.json: two rows are called Tiny, fprop, warm"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(compared, rows, changes, reason):
    code, out, err = compared([layer(1.0)], rows, **changes)
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert re.search(reason, err)


def test_files_that_hold_nothing_are_refused(tmp_path, capsys):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps({"benchmark": "cliffs-nhwc", "rows": []}))
    bad.write_bytes(b"\xff{")
    for path, reason in (
        (good, "compare reads those of cpu, cuda, blocks, train"),
        (bad, "is not JSON"),
        (tmp_path, "Is a directory; give files"),
    ):
        assert main(["compare", str(path), str(good)]) == 2
        err = capsys.readouterr().err
        assert reason in err and err.count("\n") == 1 and "Traceback" not in err


@pytest.mark.parametrize("name", ["cpu-nhwc", "blocks", "train-nhwc"])
def test_every_result_that_is_kept_equals_itself(name, capsys):
    path = min(RESULTS.glob(f"{name}-amd*.json"))
    assert main(["compare", str(path), str(path)]) == 0
    rows = len(json.loads(path.read_text())["rows"])
    assert capsys.readouterr().out == f"0 slower, 0 faster, {rows} the same, of {rows} rows that both have\n"


# -- the list of benchmarks ------------------------------------------------------------------------------------------


def test_benchmarks_are_listed_by_group_in_a_line_each(capsys):
    assert main([]) == 2 and main(["nonsense"]) == 2
    out, err = capsys.readouterr()
    named = [line.split()[0] for line in err.splitlines() if line.startswith("  ")]
    assert out == "" and named == [*BENCHMARKS, *READERS] * 2
    assert main(["--help"]) == 0
    assert "each has --help" in capsys.readouterr().out


# -- where benchmarks write --------------------------------------------------------------------------------------------


_WITH_OUT = BENCHMARKS.keys() - {"coverage", "cuda"}  # one has no --out, and the other needs a GPU before it


@pytest.mark.parametrize("name", sorted(_WITH_OUT))
def test_a_folder_that_cannot_be_written_is_an_error_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    parse = ArgumentParser.parse_args
    monkeypatch.setattr(ArgumentParser, "parse_args", lambda *given: pytest.fail(f"it works on {parse(*given)}"))
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "below"
    with pytest.raises(SystemExit) as exit:  # argparse ends this way
        main([name, "--out", str(below)])
    out, err = capsys.readouterr()
    assert (exit.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: argument --out: {below} cannot be written: ")


def test_results_say_what_they_belong_to_and_are_replaced_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = cpu_target()
    monkeypatch.setattr(sys, "argv", ["bench", "cpu", "--out", "here", "--log", "my log", "--out=there"])
    written = json.loads(write_results("any", target=target, rows=[{"us": 1}], folder=tmp_path, goal=2).read_text())
    assert written["command"] == "python -m bench cpu --log 'my log'"
    assert written["rows"] == [{"us": 1}] and written["goal"] == 2
    assert (written["device"], written["threads"]) == (target.device, target.threads)
    assert {"dwconv", "torch", "tvm", "python"} <= written["versions"].keys() and written["created"]
    path, kept = tmp_path / f"any-{target.device}.json", tmp_path / "kept"
    path.write_text("before")
    os.link(path, kept)
    assert write_results("any", target=target, rows=[], folder=tmp_path) == path
    assert kept.read_text() == "before" != path.read_text()
    with pytest.raises(InvalidChoice, match=f"^out={path}/any-.* cannot be written: .*; name another folder$"):
        write_results("any", target=target, rows=[], folder=path)
