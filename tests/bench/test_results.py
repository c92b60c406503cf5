"""Where benchmarks write their results."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.__main__ import BENCHMARKS, main
from bench.results import add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser
from dwconv.errors import InvalidChoice
from dwconv.problems.target import cpu_target

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


def test_the_folder_that_goes_without_saying_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench").touch()
    monkeypatch.chdir(tmp_path)
    parser = ArgumentParser(prog="any", description="")
    add_out_argument(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([])
    assert "bench/results cannot be written: bench is no folder; name another folder" in capsys.readouterr().err


def test_results_are_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    target = cpu_target()
    path, kept = tmp_path / f"any-{target.device}.json", tmp_path / "kept"
    path.write_text("before")
    os.link(path, kept)
    assert write_results("any", target=target, rows=[], folder=tmp_path) == path
    assert kept.read_text() == "before" != path.read_text()
    with pytest.raises(InvalidChoice, match=f"^out={path}/any-.* cannot be written: .*; name another folder$"):
        write_results("any", target=target, rows=[], folder=path)
