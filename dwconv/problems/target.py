"""Target: a device and what it can do. ``cpu``, ``cpu:avx2`` (with these vectors alone), ``cuda`` (this machine's GPU),
``cuda:sm_90`` (no GPU needed)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from dwconv import settings
from dwconv.errors import InvalidChoice, NoDevice
from dwconv.system import cpu_facts
from dwconv.system.cpu_facts import KiB, MiB

if TYPE_CHECKING:
    import torch

ForcedVectorSet = Literal["avx512", "avx2", "neon"]
FORCED_VECTOR_SETS: tuple[ForcedVectorSet, ...] = get_args(ForcedVectorSet)
"""Vector sets that ``cpu:NAME`` compiles for, whatever the widest of this CPU is."""


@dataclass(frozen=True, kw_only=True)
class CacheLevel:
    """A level of the caches of a core, or what a core has of a shared one."""

    bytes: int
    gb_per_s: float
    """Copy bandwidth (bytes read plus bytes written) of one thread whose data stay in this level."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The rates that memory and arithmetic can reach; measurements are compared with them."""

    memory_gb_per_s: float
    """Copy bandwidth (bytes read plus bytes written) of main memory."""
    cache_gb_per_s: float
    """Copy bandwidth of data that stay in the last-level cache."""
    cache_bytes: int
    """Size of the last-level cache; of a CPU's, what the threads can count on."""
    peak_gflop_per_s: float
    """Fused multiply-adds in float32, two operations each."""
    tensor_gflop_per_s: float = 0.0
    """GPU: multiply-adds of 16-bit numbers in float32 on tensor cores by ``mma.sync``, two operations each; 0 for a
    CPU."""
    levels: tuple[CacheLevel, ...] = ()
    """CPU: the levels of the caches, the nearest to the core first; empty where they were not measured."""
    thread_gflop_per_s: float = 0.0
    """CPU: the same as ``peak_gflop_per_s`` for one thread while the others rest; 0 where it was not measured."""
    region_us: float = 0.0
    """CPU: time to start all threads on a parallel region, and to wait for them; 0 where it was not measured."""

    def limit_us(self, *, bytes_moved: int, flops: int) -> float:
        """The least time, in microseconds, that the traffic and the arithmetic allow."""
        bandwidth = self.cache_gb_per_s if bytes_moved <= self.cache_bytes else self.memory_gb_per_s
        return max(bytes_moved / bandwidth, flops / self.peak_gflop_per_s) / 1e3


@dataclass(frozen=True, kw_only=True)
class CpuTarget:
    """This machine's CPU; or one with another vector set, which may not be here (``present``)."""

    device: str
    """Names the tuning log: model, vector set and number of threads."""
    threads: int
    vector_bytes: int
    cache_bytes: int = 32 * MiB
    """What the threads together can count on in the last level of the caches (``cpu_facts.last_level``)."""
    others_cache_bytes: int = 0
    """The rest of the last level, which other work may use: what the threads have put there may be found, or not."""
    limits: Limits | None = None
    """None until measured (dwconv.measure.limits)."""
    vector_set: ForcedVectorSet | None = None
    """The requested vector set, if it is not this machine's widest."""
    present: bool = True
    """False if kernels can only be compiled for it, not run."""
    mcpu: str | None = None
    """LLVM's name of another machine's CPU; None for the least one that has the vector set."""

    kind = "cpu"
    fast_math = False

    def __str__(self) -> str:
        return f"cpu:{self.vector_set}" if self.vector_set else "cpu"

    def lanes(self, itemsize: int = 4) -> int:
        return self.vector_bytes // itemsize

    def named(self, device: str) -> CpuTarget | None:
        """This CPU with the number of threads in ``device``, a device's name; None if it names another CPU. The caches
        stay those that the threads have here, where its kernels would run."""
        model = self.device.removesuffix(f"{self.threads}t")
        threads = device.removeprefix(model).removesuffix("t")
        if not re.fullmatch(r"[1-9][0-9]{0,5}", threads) or device != f"{model}{threads}t":
            return None
        return replace(self, device=device, threads=int(threads), limits=None)


@dataclass(frozen=True, kw_only=True)
class CudaTarget:
    """A GPU of one architecture; ``present`` if it is in this machine."""

    device: str
    """Names the tuning log: the GPU's name, or ``sm_90`` where there is none."""
    arch: str
    present: bool
    sms: int
    registers_per_sm: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    threads_per_sm: int
    blocks_per_sm: int
    clock_ghz: float
    limits: Limits
    threads_per_block: int = 1024
    registers_per_thread: int = 255
    warp: int = 32
    issue_slots: int = 4
    """Warp instructions that an SM issues in a cycle."""
    fast_math: bool = False
    """Kernels flush denormals to zero and divide approximately; otherwise arithmetic is IEEE's."""

    kind = "cuda"
    others_cache_bytes = 0

    @property
    def cache_bytes(self) -> int:
        return self.limits.cache_bytes

    def __str__(self) -> str:
        return "cuda" if self.present else f"cuda:{self.arch}"


Target = CpuTarget | CudaTarget


def _architecture(arch: str, *figures: float) -> CudaTarget:
    sms, shared_kib, threads, blocks, ghz, memory, cache, cache_mib, peak, tensor = figures
    return CudaTarget(
        device=arch, arch=arch, present=False, sms=int(sms), registers_per_sm=65536,
        shared_bytes_per_sm=int(shared_kib) * KiB, shared_bytes_per_block=int(shared_kib - 1) * KiB,
        threads_per_sm=int(threads), blocks_per_sm=int(blocks), clock_ghz=ghz,
        limits=Limits(
            memory_gb_per_s=memory, cache_gb_per_s=cache, cache_bytes=int(cache_mib) * MiB,
            peak_gflop_per_s=peak, tensor_gflop_per_s=tensor,
        ),
    )  # fmt: skip


# NVIDIA's published figures of the A100 (sm_80), RTX 3090 (sm_86), RTX 4090 (sm_89), H200 (sm_90), B200 (sm_100) and
# RTX 5090 (sm_120). The rates of memory and L2 are those that copies reach: nine tenths of the published ones. Those of
# tensor cores are what mma.sync reaches: on sm_90 as others have measured it, on sm_100 as many a cycle as on sm_80, a
# guess.
# fmt: off
_ARCHITECTURES = {target.arch: target for target in (
    #                    arch  SMs  KiB  threads  blocks    GHz  GB/s  of L2  MiB  GFLOP/s   tensor
    _architecture( "sm_80", 108, 164,    2048,     32,  1.41, 1400,  4000,  40,  19_500, 312_000),
    _architecture( "sm_86",  82, 100,    1536,     16, 1.695,  840,  2500,   6,  35_580,  71_000),
    _architecture( "sm_89", 128, 100,    1536,     24,  2.52,  910,  4500,  72,  82_580, 165_000),
    _architecture( "sm_90", 132, 228,    2048,     32, 1.755, 4300,  5500,  50,  67_000, 614_000),
    _architecture("sm_100", 148, 228,    2048,     32, 1.965, 7200,  9000, 126,  74_450, 595_000),
    _architecture("sm_120", 170, 100,    1536,     24, 2.407, 1610,  6000,  96, 104_770, 209_000),
)}
# fmt: on

_NO_ROCM = "there are no kernels for AMD GPUs yet: use cpu, or cuda:sm_90 to compile for another"


def parse_target(text: str) -> Target:
    """``auto``, ``cpu``, ``cpu:avx2``, ``cuda``, ``cuda:sm_NN``, … Raises InvalidChoice, or
    NoDevice for ``cuda`` without a GPU."""
    if text == "auto":
        return cuda_target() if _gpu_is_here() else cpu_target()
    if text == "cpu":
        return cpu_target()
    if text == "cuda":
        return cuda_target()
    for vector_set in FORCED_VECTOR_SETS:
        if text == f"cpu:{vector_set}":
            return cpu_target(vector_set=vector_set)
    if text.startswith("cuda:") and text.removeprefix("cuda:") in _ARCHITECTURES:
        return _ARCHITECTURES[text.removeprefix("cuda:")]
    if text.partition(":")[0] == "rocm":
        raise InvalidChoice(f"target={text} is not supported; {_NO_ROCM}")
    vector_sets = ", ".join(f"cpu:{name}" for name in FORCED_VECTOR_SETS)
    known = ", ".join(f"cuda:{arch}" for arch in sorted(_ARCHITECTURES, key=lambda arch: int(arch[3:])))
    raise InvalidChoice(f"target={text} is unknown; use auto, cpu, {vector_sets}, cuda, {known}")


def cpu_target(*, threads: int | None = None, vector_set: ForcedVectorSet | None = None) -> CpuTarget:
    """This machine's CPU, with as many threads as PyTorch uses, and with its widest vectors unless ``vector_set`` or
    ``DWCONV_CPU`` is set. Not ``present``, if this CPU does not have ``vector_set``.

    Raises InvalidChoice or NoDevice if ``DWCONV_CPU`` names a vector set that is none, or that this CPU has not."""
    import torch

    count, facts = threads or torch.get_num_threads(), cpu_facts.cpu_facts()
    forced = vector_set or _vector_set_of_the_environment()
    widest = facts.vector_set
    chosen = next((each for each in cpu_facts.VECTOR_SETS if each.name == forced), widest)
    present, last = facts.has(chosen.name), cpu_facts.last_level(threads=count)
    return CpuTarget(
        device=f"{_slug(facts.name)}-{chosen.name}-{count}t" if present else f"{chosen.name}-{count}t",
        threads=count,
        vector_bytes=chosen.bytes,
        cache_bytes=last.ours_bytes,
        others_cache_bytes=last.others_bytes,
        vector_set=None if chosen == widest else forced,
        present=present,
    )


def target_of_vector_set(name: ForcedVectorSet) -> CpuTarget:
    """Every CPU that has it: what packs for every layer are made for."""
    return replace(
        cpu_target(threads=_PACK_THREADS, vector_set=name),
        device=name,
        vector_set=name,
        cache_bytes=32 * MiB,
        others_cache_bytes=0,
    )


_PACK_THREADS = 8
"""What configurations of such packs are chosen for."""


def vector_set_of(target: CpuTarget) -> ForcedVectorSet | None:
    """The widest vector set of packs that run on ``target``; None if there is none."""
    if is_of_a_vector_set(target):
        return next(name for name in FORCED_VECTOR_SETS if name == target.device)
    has = [each.name for each in cpu_facts.VECTOR_SETS if each.bytes <= target.vector_bytes]
    return next((name for name in FORCED_VECTOR_SETS if name in has and cpu_facts.cpu_facts().has(name)), None)


def pack_target(target: CpuTarget) -> CpuTarget | None:
    """What the widest pack that runs on ``target`` is made for; None if there is none."""
    name = vector_set_of(target)
    return target_of_vector_set(name) if name else None


def is_of_a_vector_set(target: CpuTarget) -> bool:
    """True if it means every CPU that has a vector set."""
    return target.device in FORCED_VECTOR_SETS


def cpu_of_device(device: str) -> CpuTarget | None:
    """The CPU of a device's name, with the facts that are in the name; None if it is no CPU's name."""
    words = re.fullmatch(r".+-([a-z0-9_]+)-([1-9][0-9]{0,5})t", device)
    if words is None:
        return None
    widths = {each.name: each.bytes for each in cpu_facts.VECTOR_SETS}
    return CpuTarget(device=device, threads=int(words[2]), vector_bytes=widths.get(words[1], _LEAST_VECTOR_BYTES))


def check_present(target: Target) -> None:
    """Raises NoDevice if nothing can run on ``target``, saying what works without the device."""
    if target.present:
        return
    if isinstance(target, CudaTarget):
        raise NoDevice(f"target={target}: this machine has no such GPU; kernels can be compiled for it, not run")
    raise NoDevice(
        f"target={target}: this CPU has no {target.vector_set}; kernels can be compiled for it, not run: use cpu, or "
        "dwconv.show --what source"
    )


def _vector_set_of_the_environment() -> ForcedVectorSet | None:
    requested = settings.cpu_vector_set()
    if requested is None:
        return None
    found = next((name for name in FORCED_VECTOR_SETS if name == requested), None)
    has = [name for name in FORCED_VECTOR_SETS if cpu_facts.cpu_facts().has(name)]
    out = f"use {' or '.join(has)}, or unset it" if has else "unset it"
    if found is None:
        raise InvalidChoice(f"DWCONV_CPU={requested} is not a vector set; {out}")
    if found not in has:
        raise NoDevice(f"DWCONV_CPU={requested}: this CPU has no {requested}; {out}")
    return found


def cuda_target() -> CudaTarget:
    """This machine's GPU: the current one of PyTorch. Raises NoDevice where there is none."""
    import torch

    if is_rocm():
        raise NoDevice(f"target=cuda: this PyTorch is one for AMD GPUs; {_NO_ROCM}")
    if not _gpu_is_here():
        raise NoDevice("target=cuda: no GPU in this machine; use cuda:sm_90 or cuda:sm_80 to compile without one")
    facts = torch.cuda.get_device_properties(torch.cuda.current_device())
    arch = f"sm_{facts.major}{facts.minor}"
    like = _like(facts.major, facts.minor)
    return CudaTarget(
        device=_slug(facts.name),
        arch=arch,
        present=True,
        sms=facts.multi_processor_count,
        registers_per_sm=like.registers_per_sm,
        shared_bytes_per_sm=facts.shared_memory_per_multiprocessor,
        shared_bytes_per_block=getattr(facts, "shared_memory_per_block_optin", 48 * KiB),
        threads_per_sm=facts.max_threads_per_multi_processor,
        blocks_per_sm=like.blocks_per_sm,
        clock_ghz=like.clock_ghz,
        limits=replace(like.limits, cache_bytes=facts.L2_cache_size or like.limits.cache_bytes),
    )


def compiled_for_gpu(target: CudaTarget) -> CudaTarget:
    """What a kernel for ``target`` is compiled for: GPUs that differ in name, bandwidths and caches alone run the same
    kernels, whether they are in this machine or not."""
    like = _like(int(target.arch[3:-1]), int(target.arch[-1]))
    return replace(target, device=target.arch, present=False, limits=like.limits)


def target_of(device: torch.device) -> Target:
    """The target of a PyTorch device: a CPU (with as many threads as PyTorch uses now) or a GPU."""
    if device.type == "cpu":
        return cpu_target()
    import torch

    with torch.cuda.device(device):
        return cuda_target()


def _like(major: int, minor: int) -> CudaTarget:
    """The newest known architecture that is not newer than this one; the oldest known if all are newer."""
    known = {(int(arch[3:-1]), int(arch[-1])): target for arch, target in _ARCHITECTURES.items()}
    older = [version for version in known if version <= (major, minor)]
    return known[max(older) if older else min(known)]


def _gpu_is_here() -> bool:
    import torch

    return torch.cuda.is_available() and not is_rocm()


def is_rocm() -> bool:
    """Whether this PyTorch is one for AMD GPUs, which calls them ``cuda``, too."""
    import torch

    return torch.version.hip is not None


_LEAST_VECTOR_BYTES = 16


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower().replace("(r)", "").replace("(tm)", "")).strip("-")
