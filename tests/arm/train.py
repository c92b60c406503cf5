"""A small network on Arm, converted and trained for three steps beside the plain one:

FOLDER/bin/python -m tests.arm.train tuned          kernels are built there, and calls run in the C++ compiled there
FOLDER/bin/python -m tests.arm.train pack PACK      without TVM, on a pack for every layer that was made here
"""

from __future__ import annotations

import copy
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

CHANNELS = 20
STEPS = 3


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(CHANNELS),
        nn.ReLU6(),
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False),
        nn.BatchNorm2d(CHANNELS),
        nn.ReLU6(),
        nn.Conv2d(CHANNELS, CHANNELS, 5, stride=2, padding=2, groups=CHANNELS),
        nn.GELU(),
        nn.Conv2d(CHANNELS, CHANNELS, 7, padding=3, groups=CHANNELS),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(CHANNELS, 4),
    )
    return net.to(memory_format=torch.channels_last, dtype=dtype)


def steps(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The losses, and the gradients of the last step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(each.grad for each in model.parameters() if each.grad is not None)]


def compare(plain: nn.Module, converted: nn.Module, x: Tensor, *, what: str) -> None:
    """Raises AssertionError where they learn something else."""
    from dwconv.call.call_plan import plans

    started_s = time.monotonic()
    torch.testing.assert_close(steps(converted, x), steps(plain, x), rtol=2e-3, atol=2e-4)
    ran = {pass_: count for plan in plans() for pass_, count in dict(plan.tally.counted_ops()).items()}
    on_ours = sum(each.provider == "dwconv" for plan in plans() for each in plan.decisions.values())
    print(
        f"{what}: right, {on_ours} passes on dwconv's kernels, {ran}, {time.monotonic() - started_s:.0f} s", flush=True
    )


def tuned() -> None:
    """Records say that kernels are faster, and TVM builds them there."""
    import dwconv
    from dwconv import native
    from dwconv.problems.target import cpu_target
    from tests.planted_records import plant, workload_of

    print(f"target {cpu_target().device}, {cpu_target().vector_set or cpu_target().vector_bytes}", flush=True)
    log = Path(os.environ["DWCONV_TUNING_LOGS"]) / "log.jsonl"
    shape = (2, CHANNELS, 16, 16)
    small = (2, CHANNELS, 8, 8)
    block = workload_of(shape=shape, block="bn+relu6,bn+relu6")
    for dtype in ("float32", "bfloat16"):
        plant(log, [
            workload_of(shape=shape, dtype=dtype),  # type: ignore[arg-type]
            workload_of(shape=shape, kernel=(5, 5), stride=2, padding=2, bias=True, dtype=dtype),  # type: ignore[arg-type]
            workload_of(shape=shape, kernel=(5, 5), stride=2, padding=2, dtype=dtype),  # type: ignore[arg-type]
            workload_of(shape=small, kernel=(7, 7), padding=3, bias=True, dtype=dtype),  # type: ignore[arg-type]
            workload_of(shape=small, kernel=(7, 7), padding=3, dtype=dtype),  # type: ignore[arg-type]
        ], baseline_us=1e6)  # fmt: skip
    compiled = native.native()
    print(f"C++ of calls: {'compiled' if compiled else native.why_not}", flush=True)
    assert compiled
    x = torch.randn(2, 3, 32, 32).to(memory_format=torch.channels_last)
    plain = network()
    converted = dwconv.convert(copy.deepcopy(plain))
    compare(copy.deepcopy(plain), converted, x, what="float32")
    from dwconv.call.call_plan import plans

    assert all(each.provider == "dwconv" for plan in plans() for each in plan.decisions.values()), plans()
    for dtype in (torch.bfloat16,):
        with torch.autocast("cpu", dtype):
            y = dwconv.convert(network())(x)
        y.float().sum().backward()
        print(f"autocast to {dtype}: {[plan.problem.dtype_name for plan in plans()]}", flush=True)
    dwconv.reset()
    plant(log, [block], baseline_us=1e8)
    blocks = dwconv.convert(copy.deepcopy(plain), x, seconds=0, blocks=True)
    compare(copy.deepcopy(plain), blocks, x, what="with a block")
    assert any(plan.problem.block and dict(plan.tally.counted_ops()).get("forward") for plan in plans())


def packed(pack: Path) -> None:
    """TVM is missing: at first the kernels of the pack run unmeasured, then a race chooses among them."""
    sys.modules["tvm"] = None  # type: ignore[assignment]
    import dwconv
    from dwconv.call.call_plan import plans

    x = torch.randn(2, 3, 32, 32).to(memory_format=torch.channels_last)
    plain = network()
    dwconv.load_pack(pack, unmeasured=True)
    compare(copy.deepcopy(plain), dwconv.convert(copy.deepcopy(plain)), x, what="on a pack, unmeasured")
    assert all(each.provider == "dwconv" for plan in plans() for each in plan.decisions.values()), plans()
    dwconv.load_pack(pack)
    converted = dwconv.convert(copy.deepcopy(plain), x, seconds=120)
    print(dwconv.summary(converted), flush=True)
    compare(copy.deepcopy(plain), converted, x, what="on a pack")


if __name__ == "__main__":
    warnings.simplefilter("always")
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as logs:
        os.environ |= {"DWCONV_TUNING_LOGS": logs, "DWCONV_UNTUNED": "wait"}
        packed(Path(sys.argv[2])) if sys.argv[1] == "pack" else tuned()
