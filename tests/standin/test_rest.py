"""The device at rest, while times of the host are taken."""

from __future__ import annotations

import json
from pathlib import Path

from tests.standin.conftest import OnStandIn

ROUND_TRIP = """
import torch
from torch import nn
from tests.standin.rest import at_rest

model = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False))
model.to("cuda", memory_format=torch.channels_last)
x = torch.randn(2, 8, 6, 6, device="cuda").half().to(memory_format=torch.channels_last).requires_grad_()
dy = torch.ones_like(x)

def step():
    x.grad = None
    with torch.autocast("cuda", torch.float16):
        y = model(x)
    y.backward(dy)
    return y, x.grad, *(each.grad for each in model.parameters())

exact = [each.clone() for each in step()]
with at_rest():
    model.zero_grad()
    for found, wanted in zip(step(), exact, strict=True):
        assert (found.shape, found.stride(), found.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)
        assert found.device.type == "cuda"
model.zero_grad()
assert all(map(torch.equal, step(), exact)), "after the rest it computes again, and nothing has moved but statistics"
with at_rest():
    PLANTED
"""

COUNTED = """
import copy, json, sys, torch
from pathlib import Path
from torch import nn

import dwconv
from dwconv import native
from bench.launched import roads_of
from tests.planted_records import workload_of
from tests.standin.on_gpu.kernels import plant
from tests.standin.rest import AtRest, at_rest

workloads = [workload_of(shape=(2, 8, 6, 6), dtype=dtype, layout="nhwc") for dtype in ("float16", "bfloat16")]
plant(Path(sys.argv[1]) / "log.jsonl", workloads)
assert native.native() is not None, native.why_not
plain = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False).to("cuda", memory_format=torch.channels_last)
models = {"plain": plain, "ours": dwconv.convert(copy.deepcopy(plain))}
counted = {}
for dtype in (torch.float16, torch.bfloat16):
    x = torch.randn(2, 8, 6, 6, device="cuda").to(dtype, memory_format=torch.channels_last).requires_grad_()
    for name, model in models.items():
        def step():
            x.grad = model.weight.grad = None
            with torch.autocast("cuda", dtype):
                y = model(x)
            y.backward(x.detach())
            return y

        for _ in range(3):
            y = step()
        assert name == "plain" or roads_of(y) == {"C++": 1}
        with at_rest():
            step()
            before = AtRest.so_far()
            step()
            used = AtRest.so_far() - before
        counted[f"{name} {dtype}"] = [used.allocations, used.kernels, used.launches]
print(json.dumps(counted))
"""


def test_nothing_is_computed_and_all_has_its_size(on_stand_in: OnStandIn) -> None:
    done = on_stand_in(["-c", ROUND_TRIP.replace("PLANTED", "x.detach().cumsum(0)")])
    assert done.returncode == 0, done.stderr
    assert done.problems == ["computed at rest: aten::cumsum"], "a time with it in it would be none of the host"


def test_under_autocast_a_layer_uses_the_device_no_more_than_pytorchs(on_stand_in: OnStandIn, tmp_path: Path) -> None:
    """Each allocation and each launch takes the host some microseconds on a GPU, which no time here shows."""
    done = on_stand_in(["-c", COUNTED, str(tmp_path / "logs")])
    assert done.returncode == 0 and not done.problems, done.stderr
    counted = json.loads(done.stdout.splitlines()[-1])
    for dtype in ("torch.float16", "torch.bfloat16"):
        allocated, kernels, launches = counted[f"ours {dtype}"]
        most_allocated, most_kernels, of_driver = counted[f"plain {dtype}"]
        assert of_driver == 0 and launches >= 3, "fprop and both gradients"
        assert kernels == 2, "the weight is cast, and so is its gradient"
        assert kernels + launches <= most_kernels + 1 and allocated <= most_allocated + 1, "wgrad may sum in two steps"
