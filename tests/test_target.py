"""Target: what is spelt how, and what it knows."""

from __future__ import annotations

import pytest
import torch

from dwconv import target as target_module
from dwconv.errors import NoDevice, UnknownTarget
from dwconv.target import CpuTarget, CudaTarget, Limits, cpu_target, parse_target


def test_cpu_is_named_by_model_vector_set_and_threads():
    target = parse_target("cpu")
    assert isinstance(target, CpuTarget)
    assert target.threads == torch.get_num_threads()
    assert target.device.endswith(f"-{target.threads}t")
    assert target.device == target.device.lower().replace(" ", "-")
    assert target.vector_bytes in (16, 32, 64)
    assert target.lanes(4) * 4 == target.vector_bytes
    assert cpu_target(threads=7).device != target.device


def test_a_cpu_knows_itself_with_other_threads_by_name():
    two, sixteen = cpu_target(threads=2), cpu_target(threads=16)
    assert two.named(sixteen.device) == sixteen
    assert two.named(two.device) == two
    for other in ("another-cpu-avx2-16t", sixteen.device + "t", two.device.removesuffix("2t"), "cuda-16t", ""):
        assert two.named(other) is None


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("model name\t: AMD EPYC 9B45\ncpu family\t: 26\nmodel\t\t: 17\n", "AMD EPYC 9B45"),
        ("cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n", "AMD EPYC family 26 model 2"),
        (
            "model name\t: Xeon CPU @ 2.20GHz\ncpu family\t: 6\nmodel\t\t: 79\n",
            "Xeon CPU @ 2.20GHz family 6 model 79",
        ),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd40\n", "implementer 0x41 part 0xd40"),
        ("model name\t:\nmodel\t\t: 5\n", "model 5"),
    ],
)
def test_a_name_that_many_cpus_share_gets_numbers(cpuinfo, name):
    assert target_module._cpu_name(cpuinfo) == name
    assert target_module._cpu_name("")


@pytest.mark.parametrize(
    ("arch", "sms"), [("sm_80", 108), ("sm_86", 82), ("sm_89", 128), ("sm_90", 132), ("sm_100", 148), ("sm_120", 170)]
)
def test_architectures_need_no_gpu(arch, sms):
    target = parse_target(f"cuda:{arch}")
    assert isinstance(target, CudaTarget)
    assert (target.sms, target.present, str(target)) == (sms, False, f"cuda:{arch}")


@pytest.mark.parametrize("text", ["tpu", "cuda:sm_1", "cuda:", "CPU", ""])
def test_unknown_targets_are_named_with_the_way_out(text):
    with pytest.raises(UnknownTarget, match="cuda:sm_90"):
        parse_target(text)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_names_the_way_out():
    assert parse_target("auto").kind == "cpu"
    with pytest.raises(NoDevice, match="cuda:sm_90"):
        parse_target("cuda")


def test_limit_is_the_slower_of_traffic_and_arithmetic():
    limits = Limits(memory_gb_per_s=100, cache_gb_per_s=200, cache_bytes=1000, peak_gflop_per_s=50)
    assert limits.limit_us(bytes_moved=1000, flops=0) == pytest.approx(1000 / 200e3)
    assert limits.limit_us(bytes_moved=2000, flops=0) == pytest.approx(2000 / 100e3)
    assert limits.limit_us(bytes_moved=1, flops=1_000_000) == pytest.approx(20)


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_the_figures_of_an_architecture_agree_with_each_other(arch):
    target = parse_target(f"cuda:{arch}")
    lanes = target.limits.peak_gflop_per_s / (target.sms * target.clock_ghz) / 2
    assert lanes == pytest.approx(64 if arch == "sm_80" else 128, rel=0.15)  # multiply-adds an SM and cycle
    assert target.shared_bytes_per_block == target.shared_bytes_per_sm - 1024
    assert target.limits.cache_gb_per_s > target.limits.memory_gb_per_s


@pytest.mark.parametrize(
    ("version", "like"),
    [((7, 5), "sm_80"), ((8, 7), "sm_86"), ((9, 0), "sm_90"), ((10, 3), "sm_100"), ((12, 1), "sm_120")],
)
def test_an_unknown_gpu_is_taken_for_the_latest_one_known_before_it(version: tuple[int, int], like: str) -> None:
    assert target_module._like(*version).arch == like
