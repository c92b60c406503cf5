"""What a row says it ran, against what the profiler saw."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from bench import launched
from bench.launched import kernels_of, passes_of, why_void

OURS = SimpleNamespace(launches=[SimpleNamespace(kernel="main_kernel"), SimpleNamespace(kernel="main_kernel_1")])
ATEN, CUDNN = "void at::native::conv_depthwise2d_forward_kernel<3>", "sm90_xmma_fprop_implicit_gemm"


@pytest.mark.parametrize(
    ("provider", "seen", "why"),
    [
        ("dwconv", {"main_kernel": 4, "main_kernel_1": 4}, ""),
        ("dwconv", {"main_kernel": 4, "main_kernel_1": 4, ATEN: 4}, ""),  # a copy, say: its time counts
        (
            "dwconv",
            {"main_kernel": 4},
            "main_kernel 4×, main_kernel_1 4× should have been launched, main_kernel 4× was",
        ),
        (
            "dwconv",
            {"main_kernel": 1, "main_kernel_1": 1},
            "should have been launched, main_kernel 1×, main_kernel_1 1×",
        ),
        ("dwconv", {}, "should have been launched, nothing was"),
        ("aten-nhwc", {ATEN: 4}, ""),
        ("aten-nhwc", {CUDNN: 4}, f"no kernel of PyTorch's own was launched: {CUDNN} 4×"),
        ("cudnn-nhwc", {CUDNN: 4, ATEN: 8}, ""),
        ("cudnn-nchw", {ATEN: 4}, "no kernel of cuDNN was launched: void at::native"),
        ("cudnn-op-nchw", {ATEN: 4}, "no kernel of cuDNN was launched"),
        ("inductor-nhwc", {"triton_tem_fused_convolution": 4}, ""),
        ("inductor-nhwc", {}, "no kernel was launched"),
        ("inductor-nhwc", {"triton_poi": 4, "main_kernel": 4}, "it launched dwconv's main_kernel"),
    ],
)
def test_a_row_is_void_without_the_kernels_of_its_name(provider: str, seen: dict[str, int], why: str) -> None:
    told = why_void(provider, Counter(seen), ours=OURS, calls=4, is_ours=provider == "dwconv")  # type: ignore[arg-type]
    assert why in told and bool(told) == bool(why)


def test_where_kernels_cannot_be_seen_nothing_is_said() -> None:
    assert kernels_of(lambda: None, device="cpu") is None
    assert why_void("dwconv", None, ours=OURS, calls=4, is_ours=True) == ""  # type: ignore[arg-type]


def test_a_profiler_that_sees_no_kernels_at_all_voids_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its library is missing, or must not look."""
    seen: list[Counter[str]] = [Counter(), Counter()]
    monkeypatch.setattr(launched, "_kernels", lambda call: seen.pop(0))
    assert kernels_of(lambda: None, device="cuda") is None and not seen
    seen += [Counter(), Counter(fill=1)]
    assert kernels_of(lambda: None, device="cuda") == Counter()


def event(name: str, *inside: SimpleNamespace, kernels: tuple[str, ...] = ()) -> SimpleNamespace:
    return SimpleNamespace(name=name, cpu_children=inside, kernels=[SimpleNamespace(name=kernel) for kernel in kernels])


@pytest.mark.parametrize(
    ("seen", "on_gpu", "on_cpu"),
    [
        (event("dwconv::fprop", kernels=("main_kernel",)), 1, 1),
        (event("dwconv::fprop", event("aten::empty", kernels=("main_kernel",))), 1, 1),
        (event("dwconv::fprop_silu", kernels=("main_kernel",)), 1, 1),
        (event("dwconv::fprop"), 0, 1),  # no kernel came of it
        (event("dwconv::fprop", kernels=("void at::native::convolution",)), 0, 1),
        (event("dwconv::fprop", event("aten::convolution", kernels=("main_kernel",))), 0, 0),
        (event("aten::convolution", kernels=("main_kernel",)), 0, 0),
    ],
)
def test_a_pass_is_one_of_ours_if_its_kernel_was_launched(
    monkeypatch: pytest.MonkeyPatch, seen: SimpleNamespace, on_gpu: int, on_cpu: int
) -> None:
    class Profile:
        def __init__(self, **how: object) -> None: ...

        def __enter__(self) -> Profile:
            return self

        def __exit__(self, *raised: object) -> None: ...

        def events(self) -> list[SimpleNamespace]:
            return [seen]

    monkeypatch.setattr(launched, "profile", Profile)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert passes_of(lambda: None, on_gpu=True)["fprop"] == on_gpu
    assert passes_of(lambda: None, on_gpu=False)["fprop"] == on_cpu
