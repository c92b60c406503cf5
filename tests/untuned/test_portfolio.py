"""The portfolio: its file, and which regime answers for a workload."""

from __future__ import annotations

import dataclasses
import json

import pytest

from dwconv import portfolio
from dwconv.errors import BrokenInstallation
from dwconv.schedules.space import Config
from dwconv.schedules.template import all_templates
from dwconv.untuned import portfolio_file
from dwconv.untuned.portfolio_file import Errors, GainModel, Portfolio, decode, encode, regimes
from dwconv.untuned.trees import Split, Trees
from tests.planted_records import workload_of

WIDE, NARROW = Config.of("cpu.t", block_h=4, order="hwc"), Config.of("cpu.t", block_h=8, order="chw")
ERRORS = {"wgrad nhwc": Errors(middle=-0.1, least=-1.2, workloads=40)}
KNOWN = Portfolio(
    devices=("one-avx2-2t",),
    workloads=7,
    configs={"cpu.t": (WIDE,), "cpu.t kernel to 3 dense": (NARROW, WIDE)},
    gain=GainModel(
        trees=Trees(base=1.5, trees=(Split(feature=2, below=0.5, children=(0.25, -1.0), missing=0), 0.125)),
        known_device=ERRORS,
        other_device=ERRORS,
    ),
)


def test_the_file_holds_all_of_it():
    assert decode(encode(KNOWN)) == KNOWN
    without = dataclasses.replace(KNOWN, gain=None, configs={})
    assert decode(encode(without)) == without


def test_a_change_is_a_line():
    changed = dataclasses.replace(KNOWN, configs={**KNOWN.configs, "cpu.t": (NARROW,)})
    before, after = encode(KNOWN).splitlines(), encode(changed).splitlines()
    assert len(before) == len(after)
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


def test_the_narrowest_regime_that_is_known_answers():
    assert KNOWN.configs_for("cpu.t", workload_of(kernel=(3, 3))) == (NARROW, WIDE)
    assert KNOWN.configs_for("cpu.t", workload_of(kernel=(3, 3), stride=2)) == (WIDE,)
    assert KNOWN.configs_for("cpu.other", workload_of()) == ()


def test_regimes_tell_sizes_apart():
    names = {
        regimes("t", workload)[0]
        for workload in (
            workload_of(),
            workload_of(stride=2),
            workload_of(kernel=(7, 7)),
            workload_of(kernel=(1, 7)),
            workload_of(kernel=(7, 1)),
            workload_of(kernel=(31, 31), padding=15),
            workload_of(shape=(8, 64, 56, 56)),
            workload_of(shape=(32, 64, 112, 112)),
        )
    }
    assert len(names) == 8
    assert regimes("t", workload_of())[-1] == "t"


def test_the_shipped_portfolio_names_knobs_that_templates_have():
    known = portfolio_file.shipped()
    assert known.gain is not None
    assert known.configs
    assert {config.template for configs in known.configs.values() for config in configs} <= set(all_templates())


@pytest.mark.parametrize("text", ["", "{}", '{"format": 99}', json.dumps({"format": 1, "configs": [1]})])
def test_a_damaged_file_is_a_broken_installation(text, tmp_path, monkeypatch):
    damaged = tmp_path / "portfolio.json"
    damaged.write_text(text)
    monkeypatch.setattr(portfolio_file, "PATH", damaged)
    with pytest.raises(BrokenInstallation, match=r"portfolio\.json cannot be read.*install dwconv again"):
        portfolio_file.shipped.__wrapped__()


def test_what_cannot_be_written_is_told_before_it_is_made(capsys):
    with pytest.raises(SystemExit, match="2"):
        portfolio.main(["no such log", "--out", "."])
    assert "error: argument --out: . cannot be written: Is a directory; name another file" in capsys.readouterr().err
