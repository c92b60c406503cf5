"""What bench cuda asks of a device."""

from __future__ import annotations

import pytest
import torch

from bench import gpu_device
from dwconv import native
from dwconv.target import cpu_target, parse_target


@pytest.mark.parametrize(("gpu", "expected"), [(True, ["left out", "waited"]), (False, ["compiled"])])
def test_minutes_on_a_gpu_are_not_spent_on_compiling_cpp(gpu: bool, expected: list[str], monkeypatch) -> None:  # type: ignore[no-untyped-def]
    done: list[str] = []
    monkeypatch.setattr(native, "native", lambda **options: done.append("compiled"))
    monkeypatch.setattr(native, "leave_out", lambda reason: done.append("left out"))
    monkeypatch.setattr(torch, "zeros", lambda *size, device: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append("waited"))
    gpu_device.warm_up(parse_target("cuda:sm_90") if gpu else cpu_target())
    assert done == expected
