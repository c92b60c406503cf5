"""Two ranks with tuning logs of their own run the same kernels, after ``convert`` with an example."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import dwconv
from dwconv.call import plan_kernels
from dwconv.call.call_plan import plan_for
from dwconv.problems.problem import Problem
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import PASSES
from dwconv.records.log import TuningLog
from dwconv.schedules.template import templates_for
from tests.parallel.ranks import needs_gloo
from tests.planted_records import record_of, workload_of

pytestmark = needs_gloo


def tune(folder: Path, block: int, *, median_us: float) -> None:
    """The first or the last block of rows is the fastest in each pass: a weight's gradient sums in another order."""
    for pass_ in PASSES:
        workload, target = workload_of(pass_=pass_), cpu_target(threads=1)
        (template,) = (each for each in templates_for(workload, target) if each.layout == "nhwc")
        space = template.space(workload, target)
        blocks = sorted({config.block_h for config in space})
        config = next(config for config in space if config.block_h == blocks[block])
        record = record_of(workload, config=config, device=target.device, median_us=median_us, baseline_us=1e6)
        TuningLog(folder / "log.jsonl").append(record)


def converted(folders: list[Path], faulty: int | None, agrees: bool) -> dict[str, object]:
    """On a rank: its gradients, what ran, and what was said. ``faulty``: the rank where no kernel can be built."""
    rank, before = dist.get_rank(), dict(os.environ)
    kernel_of = plan_kernels.PlanKernels._kernel_of
    os.environ["DWCONV_TUNING_LOGS"] = str(folders[rank])
    if not agrees:  # else PyTorch's op runs while kernels are built
        os.environ["DWCONV_UNTUNED"] = "wait"
    dwconv.reset()
    try:
        if rank == faulty:
            plan_kernels.PlanKernels._kernel_of = lambda *_: (None, "cannot be built: planted")  # type: ignore[method-assign]
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)).to(memory_format=torch.channels_last)
        example = torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last)
        x = torch.randn(3, 8, 9, 7).to(memory_format=torch.channels_last).requires_grad_()  # steps have another batch
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            dwconv.convert(model, *([example] if agrees else []), **({"seconds": 0} if agrees else {}))
            model(x).sin().sum().backward()
        plan = plan_for(Problem.of(workload_of(shape=(3, 8, 9, 7))), torch.device("cpu"))
        return {
            "gradients": [x.grad, *(each.grad for each in model.parameters())],
            "configs": {pass_: each.config for pass_, each in plan.decisions.items()},
            "reasons": [each.reason for each in plan.decisions.values()],
            "said": [str(each.message) for each in heard if issubclass(each.category, dwconv.DwconvWarning)],
        }
    finally:
        plan_kernels.PlanKernels._kernel_of = kernel_of  # type: ignore[method-assign]
        os.environ.clear()
        os.environ.update(before)
        dwconv.reset()


def are_equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(map(torch.equal, one, other))


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Of logs that differ: the second rank knows what is faster."""
    found = [tmp_path / str(rank) for rank in (0, 1)]
    for rank, folder in enumerate(found):
        folder.mkdir()
        tune(folder, -rank, median_us=10.0 - rank)
    return found


def test_gradients_are_the_same_bits_whatever_the_logs_say(two_ranks, folders):
    apart = two_ranks.run(converted, folders, None, False)
    assert not are_equal(*(each["gradients"] for each in apart)), "else the logs make no difference"
    first, second = two_ranks.run(converted, folders, None, True)
    assert are_equal(first["gradients"], second["gradients"]) and first["configs"] == second["configs"]
    assert first["configs"] == apart[0]["configs"] and all(first["configs"].values())
    assert all(each.startswith("as rank 0 decided: ") for each in second["reasons"])
    (said,) = first["said"] + second["said"]
    assert said.startswith("rank 1 decided differently from rank 0 in 1 of 1 calls, such as 2×8×9×7 nhwc float32") and (
        said.endswith("run what it decided: their tuning logs, packs or settings differ")
    )


def test_a_rank_without_logs_follows_and_equal_ranks_say_nothing(two_ranks, folders, tmp_path):
    (tmp_path / "none").mkdir()
    first, second = two_ranks.run(converted, [folders[0], tmp_path / "none"], None, True)
    assert are_equal(first["gradients"], second["gradients"])
    assert all(second["configs"].values()) and second["configs"] == first["configs"]
    first, second = two_ranks.run(converted, [tmp_path / "none", folders[1]], None, True)
    assert are_equal(first["gradients"], second["gradients"]) and second["configs"] == first["configs"]
    alike = two_ranks.run(converted, [folders[1]] * 2, None, True)
    assert not any(each["said"] for each in alike)
    assert not any("as rank" in reason for each in alike for reason in each["reasons"])


@pytest.mark.parametrize("faulty", [0, 1])
def test_what_one_rank_cannot_run_runs_on_pytorchs_op_on_both(two_ranks, folders, faulty):
    first, second = two_ranks.run(converted, folders, faulty, True)
    assert are_equal(first["gradients"], second["gradients"])
    assert not any(first["configs"].values()) and not any(second["configs"].values())
    (said,) = first["said"] + second["said"]
    assert f"rank {faulty} cannot run fprop of" in said and said.endswith(
        "cannot be built: planted; PyTorch's op runs 3 such passes on all"
    )
