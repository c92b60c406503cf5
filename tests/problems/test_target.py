"""Target: what is spelt how, and what it knows."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dwconv.dispatch.of_problem import why_no_kernels
from dwconv.errors import InvalidChoice, NoDevice
from dwconv.kernels.cpu_build import llvm_target
from dwconv.problems import target as target_module
from dwconv.problems.problem import Problem
from dwconv.problems.target import CpuTarget, CudaTarget, Limits, check_present, cpu_target, parse_target
from dwconv.system import cpu_facts
from tests.planted_records import workload_of


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
    assert two.named(sixteen.device) == dataclasses.replace(
        sixteen, cache_bytes=two.cache_bytes, others_cache_bytes=two.others_cache_bytes
    )
    assert two.named(two.device) == two
    for other in ("another-cpu-avx2-16t", sixteen.device + "t", two.device.removesuffix("2t"), "cuda-16t", ""):
        assert two.named(other) is None


def cpu_with(monkeypatch: pytest.MonkeyPatch, flags: str) -> None:
    """This machine has a CPU with these vector sets."""
    facts = cpu_facts.facts_in(f"model name\t: Made Up 1\nflags\t: {flags}\n")
    monkeypatch.setattr(cpu_facts, "cpu_facts", lambda: facts)
    monkeypatch.delenv("DWCONV_CPU", raising=False)


def test_a_vector_set_can_be_forced(monkeypatch):
    cpu_with(monkeypatch, "avx avx2 fma avx512f")
    own, avx2, neon = (parse_target(text) for text in ("cpu", "cpu:avx2", "cpu:neon"))
    assert parse_target("cpu:avx512") == own
    threads = torch.get_num_threads()
    assert [each.device for each in (own, avx2, neon)] == [
        f"made-up-1-avx512-{threads}t", f"made-up-1-avx2-{threads}t", f"neon-{threads}t",
    ]  # fmt: skip
    assert [(str(each), each.vector_bytes, each.present) for each in (own, avx2, neon)] == [
        ("cpu", 64, True), ("cpu:avx2", 32, True), ("cpu:neon", 16, False),
    ]  # fmt: skip
    more = avx2.named(f"made-up-1-avx2-{threads + 1}t")
    assert more is not None and (more.threads, more.vector_set) == (threads + 1, "avx2")
    assert avx2.named(own.device) is own.named(avx2.device) is None, "records of the two do not mix"


def test_a_vector_set_that_is_not_here_is_compiled_for_alone(monkeypatch):
    cpu_with(monkeypatch, "avx avx2 fma")
    assert parse_target("cpu:avx2") == parse_target("cpu")
    target = parse_target("cpu:avx512")
    assert (target.vector_set, target.vector_bytes, target.present) == ("avx512", 64, False)
    with pytest.raises(NoDevice, match="this CPU has no avx512"):
        check_present(target)
    check_present(parse_target("cpu"))
    with pytest.raises(NoDevice, match="no such GPU"):
        check_present(parse_target("cuda:sm_90"))


def test_the_environment_forces_a_vector_set_where_none_is_named(monkeypatch):
    cpu_with(monkeypatch, "avx avx2 fma avx512f")
    forced = parse_target("cpu:avx2")
    monkeypatch.setenv("DWCONV_CPU", "avx2")
    assert parse_target("cpu") == cpu_target() == forced
    assert parse_target("cpu:avx512").vector_bytes == 64
    monkeypatch.setenv("DWCONV_CPU", "neon")
    with pytest.raises(NoDevice, match="DWCONV_CPU=neon: this CPU has no neon; use avx512 or avx2, or unset it"):
        cpu_target()
    monkeypatch.setenv("DWCONV_CPU", "sse")
    with pytest.raises(InvalidChoice, match="DWCONV_CPU=sse is not a vector set; use avx512 or avx2, or unset it"):
        cpu_target()


def test_a_cpu_without_any_of_the_vector_sets_cannot_be_forced(monkeypatch):
    cpu_with(monkeypatch, "sse")
    monkeypatch.setenv("DWCONV_CPU", "avx2")
    with pytest.raises(NoDevice, match="this CPU has no avx2; unset it"):
        cpu_target()


@pytest.mark.parametrize(
    ("arch", "sms"), [("sm_80", 108), ("sm_86", 82), ("sm_89", 128), ("sm_90", 132), ("sm_100", 148), ("sm_120", 170)]
)
def test_architectures_need_no_gpu(arch, sms):
    target = parse_target(f"cuda:{arch}")
    assert isinstance(target, CudaTarget)
    assert (target.sms, target.present, str(target)) == (sms, False, f"cuda:{arch}")


@pytest.mark.parametrize("text", ["tpu", "cuda:sm_1", "cuda:", "CPU", "cpu:", "cpu:sse", ""])
def test_unknown_targets_are_named_with_the_way_out(text):
    with pytest.raises(InvalidChoice, match=r"cpu:avx2, .*cuda:sm_90"):
        parse_target(text)


def test_amd_gpus_are_no_cuda(monkeypatch):
    """PyTorch calls them so; dwconv leaves them to PyTorch's own ops."""
    with pytest.raises(InvalidChoice, match=r"target=rocm:gfx942 is not supported; there are no kernels for AMD GPUs"):
        parse_target("rocm:gfx942")
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert parse_target("auto").kind == "cpu"
    with pytest.raises(NoDevice, match="one for AMD GPUs"):
        parse_target("cuda")
    problem = Problem.of(workload_of())
    assert why_no_kernels(problem, torch.device("cuda")) == "dwconv has no kernels for AMD GPUs"
    assert why_no_kernels(problem, torch.device("cpu")) == ""


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


@pytest.mark.parametrize(
    ("version", "like"),
    [((7, 5), "sm_80"), ((8, 7), "sm_86"), ((9, 0), "sm_90"), ((10, 3), "sm_100"), ((12, 1), "sm_120")],
)
def test_an_unknown_gpu_is_taken_for_the_latest_one_known_before_it(version: tuple[int, int], like: str) -> None:
    assert target_module._like(*version).arch == like


def test_kernels_are_for_the_cpu_that_is_named():
    neon = parse_target("cpu:neon")
    named = llvm_target(dataclasses.replace(neon, mcpu="cortex-a76"))
    assert (named.attrs["mcpu"], named.attrs["mtriple"]) == ("cortex-a76", "aarch64-unknown-linux-gnu")
    assert llvm_target(neon).attrs["mcpu"] == "generic"
