"""A pack on a GPU: its kernels run, those that were measured there and those that were computed without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import dwconv
from dwconv.dispatch.decide import decide
from dwconv.errors import PackError
from dwconv.kernels import cache
from dwconv.packs.write_pack import make_pack, make_pack_for_every_layer
from dwconv.problems.target import parse_target
from dwconv.problems.workload import PASSES, Pass
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.schedules.template import Candidate, templates_for
from dwconv.system import versions
from dwconv.untuned.every_layer import any_layer
from tests.planted_records import record_of, workload_of
from tests.standin.on_gpu.kernels import Launches, plant, target

pytestmark = pytest.mark.usefixtures("no_packs")
LAYER = workload_of(shape=(2, 8, 9, 9), layout="nchw")
PASSES_OF_LAYER = [LAYER.for_pass(pass_) for pass_ in PASSES]


def step_is_right(monkeypatch: pytest.MonkeyPatch, *, passes: Sequence[Pass] = PASSES) -> None:
    """A training step gives PyTorch's numbers, and launches kernels of ``passes`` that are not built now."""

    def build(*arguments: object) -> None:
        raise AssertionError("a kernel of the pack was built again")

    monkeypatch.setattr(cache, "build_cached", build)
    x, w = torch.randn(2, 8, 9, 9), torch.randn(8, 1, 3, 3)
    launches, gradients = Launches(), []
    for device, convolve in (("cuda", dwconv.conv2d), ("cpu", torch.nn.functional.conv2d)):
        leaves = [each.to(device).requires_grad_() for each in (x, w)]
        y = convolve(*leaves, padding=1, groups=8)
        gradients.append([each.cpu() for each in torch.autograd.grad(y.square().sum(), leaves)])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    if launches.seen is not None:
        assert {launch["workload"].partition("-")[0] for launch in launches.seen} == {*passes}


def test_kernels_that_were_measured_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(tmp_path / "log.jsonl", [LAYER])
    known = Database.load([tmp_path / "log.jsonl"])
    made = make_pack(PASSES_OF_LAYER, target(), folder=tmp_path / "pack", known=known)
    assert made.manifest.made_for.measured
    dwconv.load_pack(tmp_path / "pack")
    step_is_right(monkeypatch)


@pytest.mark.parametrize("us", [50.0, 99.0, 101.0])
def test_kernels_that_were_computed_run_on_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, us: float) -> None:
    """Made as on a machine without a GPU. Both gradients come from one kernel if it takes less than dgrad and wgrad."""
    absent = parse_target(f"cuda:{target().arch}")
    log = TuningLog(tmp_path / "log.jsonl")
    both = LAYER.for_pass("backward")
    for workload in (*PASSES_OF_LAYER, both):
        config = templates_for(workload, absent)[0].space(workload, absent).default
        known = {"median_us": us if workload == both else 50.0, "baseline_us": None, "computed": True}
        log.append(record_of(workload, config=config, device=absent.device, **known))
    made = make_pack([*PASSES_OF_LAYER, both], absent, folder=tmp_path / "pack", known=Database.load([log.path]))
    assert not made.manifest.made_for.measured
    with pytest.raises(PackError, match="never measured"):
        dwconv.load_pack(tmp_path / "pack")
    dwconv.load_pack(tmp_path / "pack", unmeasured=True)
    step_is_right(monkeypatch, passes=["fprop", "backward"] if us < 2 * 50 else PASSES)


@pytest.mark.slow
def test_a_pack_for_every_layer_is_raced_without_tvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the race finds holds at other sizes of the layer, from the same machine code."""
    absent = parse_target(f"cuda:{target().arch}")
    layer = any_layer(kernel=(3, 3), stride=(1, 1), padding=((1, 1), (1, 1)))
    workloads = [layer.for_pass(pass_) for pass_ in PASSES]
    few = [Candidate(each, templates_for(each, absent)[0].space(each, absent).default) for each in workloads]
    made = make_pack_for_every_layer(few, absent, folder=tmp_path / "pack")
    assert made.manifest.made_for.every_layer
    dwconv.load_pack(tmp_path / "pack")
    has = {name: version for name, version in versions.installed().items() if name != "tvm"}
    monkeypatch.setattr(versions, "installed", lambda: has)
    assert not versions.can_build()
    depthwise = torch.nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False)
    ours = torch.nn.Sequential(depthwise).to("cuda", memory_format=torch.channels_last)
    x = torch.randn(2, 16, 9, 9, device="cuda").to(memory_format=torch.channels_last)
    ours = dwconv.convert(ours, x, seconds=60)
    (race,) = dwconv.summary(ours).races
    assert race.raced == 2 and not race.failed and not race.problem, race
    assert {record.config for record in race.records} <= {each.config for each in few}
    elsewhere = decide(race.records[0].workload.with_input_size((12, 7)), "cuda")
    assert "as it was measured at 2×16×9×9" in elsewhere.reason
