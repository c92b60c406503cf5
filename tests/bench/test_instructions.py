"""The goals of CUDA templates, on costs that are made up; and the file that the figures go to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import instructions
from bench.instructions import Regime, regimes
from tests.planted_records import workload_of

WORKLOAD = workload_of(shape=(64, 96, 56, 56), kernel=(7, 7), padding=3, layout="nchw", dtype="float16")


def cost(*, tensor: float) -> Any:
    """10 µs, with nothing to complain of."""
    return SimpleNamespace(
        microseconds=10.0,
        on_tensor_cores=tensor > 0,
        slowest=SimpleNamespace(bytes_in_flight_per_sm=100_000),
        kernels=(),
    )


@pytest.mark.parametrize(
    ("tensor", "others_us", "missed"), [(2.0, 29.0, ["gain <3.0 (2.9)"]), (2.0, 30.0, []), (0.0, 29.0, [])]
)
def test_tensor_cores_have_to_gain_over_the_others(tensor: float, others_us: float, missed: list[str]) -> None:
    assert Regime(workload=WORKLOAD, least_gain=3.0).missed(cost(tensor=tensor), others_us=others_us) == missed


def test_wide_kernels_of_every_pass_have_a_gain_to_reach() -> None:
    wanted = {(each.workload.pass_, each.workload.kernel[0]): each.least_gain for each in regimes() if each.least_gain}
    assert wanted == {
        **{(pass_, kernel): gain for pass_ in ("fprop", "dgrad") for kernel, gain in ((7, 1.5), (13, 4.0), (31, 6.0))},
        **{("wgrad", kernel): 3.0 for kernel in (13, 31)},
    }


Row = Callable[[], dict[str, Any]]


@pytest.fixture
def rows_come_from(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says what computes the rows; each is of a regime of its own."""

    def come_from(*rows: Row) -> None:
        monkeypatch.setattr(instructions, "regimes", lambda: [SimpleNamespace(name="", row=row) for row in rows])
        monkeypatch.setattr(instructions, "_rows", lambda regime, *_: [regime.row()])

    return come_from


def test_figures_are_written_row_by_row(tmp_path: Path, rows_come_from: Callable[..., None]) -> None:
    out = tmp_path / "figures.json"
    out.write_text("of another run")

    def first() -> dict[str, Any]:
        assert out.read_text() == "of another run", "nothing is lost before there is a row"
        return {"row": 1}

    def second() -> dict[str, Any]:
        assert json.loads(out.read_text()) == [{"row": 1}]
        return {"row": 2}

    rows_come_from(first, second)
    assert instructions.main(["--out", str(out)]) == 0
    assert json.loads(out.read_text()) == [{"row": 1}, {"row": 2}]


@pytest.mark.parametrize(
    ("out", "why"),
    [
        (".", "Is a directory"),
        ("folder", "Is a directory"),
        ("absent/figures.json", "No such file or directory"),
        ("file/figures.json", "Not a directory"),
    ],
)
def test_what_cannot_be_written_is_told_before_the_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rows_come_from: Callable[..., None],
    out: str,
    why: str,
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    rows_come_from(lambda: pytest.fail("it began to work"))
    with pytest.raises(SystemExit, match="2"):
        instructions.main(["--out", out])
    said, error = capsys.readouterr()
    assert said == "" and error.startswith(f"error: argument --out: {out} cannot be written: {why}; name another file ")


def test_what_can_no_longer_be_written_is_told_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows_come_from: Callable[..., None]
) -> None:
    (tmp_path / "folder").mkdir()
    out = tmp_path / "folder" / "figures.json"
    rows_come_from(lambda: shutil.rmtree(out.parent) or {"row": 1})
    assert instructions.main(["--out", str(out)]) == 2
    error = f"error: out={out} cannot be written: No such file or directory; name another file\n"
    assert capsys.readouterr().err == error
