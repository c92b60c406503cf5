"""The computed cost of a CUDA candidate: how long each resource of the GPU would be busy, without running anything.

What the kernels do is the template's estimate; registers, shared memory and spills come from the compiler. The slowest
resource sets the time of a kernel, the others hide behind it but for a small share; kernels run one after the other. It
ranks candidates; it is not a measurement. To walk the machine code, with its addresses and trip counts, ranked no
better: of 453 candidates of 30 workloads that an H200 measured, the one of least cost takes 1.07 times as long as the
fastest of its workload, and took 1.15 times as long.

ComputeRunner makes records of it for a GPU that is not in this machine. Workers build each candidate, compute its cost,
and run its source on the CPU, in the simulator, to verify it.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwconv import settings
from dwconv.errors import BuildError, WorkerError
from dwconv.kernels import build
from dwconv.kernels.artifact import Artifact, Launch
from dwconv.kernels.entry import message
from dwconv.measure.processes.pool import Pool
from dwconv.measure.requests import new_record, status_after
from dwconv.measure.runner import Runner
from dwconv.measure.simulator.compile import available, compile_runtime
from dwconv.measure.simulator.simulate import simulate
from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.records.record import Measurement, Status, TuningRecord, Verdict
from dwconv.schedules.cuda.gpu.cost import LAUNCH_US, RESOURCES, BlockWork, Price, conflicts_us, price
from dwconv.schedules.cuda.gpu.hardware import WARP
from dwconv.schedules.template import Candidate, template


@dataclass(frozen=True, kw_only=True)
class KernelCost:
    """One kernel: what the compiler gave it, what its blocks do, and how long that keeps each resource busy."""

    kernel: str
    work: BlockWork
    target: CudaTarget
    price: Price
    resources: dict[str, int]
    """``registers``, ``shared_bytes`` (static and dynamic), ``spill_bytes``, ``stack_bytes``."""

    @property
    def busy_us(self) -> dict[str, float]:
        """One for each of RESOURCES, and ``launch``."""
        return {**self.price.busy_us, "launch": LAUNCH_US}

    @property
    def conflicts_us(self) -> float:
        """Microseconds that bank conflicts of shared memory take."""
        return conflicts_us([self.work], self.target)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Microseconds in all, and microseconds that each resource would be busy."""

    microseconds: float
    kernels: tuple[KernelCost, ...]
    limit_us: float
    """The least time that bandwidth and peak allow, where data come from DRAM."""
    instructions_per_output: float
    """Instructions of one thread each, over the elements of y; in dgrad of dx."""
    share_of_budget: float
    """Of the instructions that the GPU can issue while its memory moves the data: above 1 the issue slots, not the
    memory, set the time."""

    @property
    def limiter(self) -> str:
        """The resource that sets the time of the slowest kernel."""
        return self.slowest.price.limiter

    @property
    def busy_us(self) -> dict[str, float]:
        """One for each of RESOURCES, and ``launch``; kernels add up."""
        return {name: sum(kernel.busy_us[name] for kernel in self.kernels) for name in (*RESOURCES, "launch")}

    @property
    def slowest(self) -> KernelCost:
        return max(self.kernels, key=lambda kernel: kernel.price.microseconds)

    @property
    def dram_bytes(self) -> float:
        return sum(kernel.price.dram_bytes for kernel in self.kernels)


def computed_cost(artifact: Artifact, workload: Workload, target: CudaTarget) -> Cost:
    """The cost of running ``artifact`` at the workload's batch size. A candidate whose block does not fit on an SM
    costs infinity."""
    works = template(artifact.candidate.config.template).works
    assert works is not None, "a template of CUDA says what its kernels do"
    found = zip(artifact.launches, works(workload, artifact.candidate.config, target), strict=True)
    kernels = tuple(_kernel_cost(artifact, launch, work, target=target) for launch, work in found)
    on_tensor_cores = any(kernel.work.tensor_products for kernel in kernels)
    limits = target.limits
    peak_gflop_per_s = limits.tensor_gflop_per_s if on_tensor_cores else limits.peak_gflop_per_s
    moved_us = workload.bytes / limits.memory_gb_per_s / 1e3
    issued = sum(kernel.work.instructions * kernel.work.blocks for kernel in kernels)
    outputs = workload.input_shape if workload.pass_ == "dgrad" else workload.shape_of("y")
    return Cost(
        microseconds=sum(kernel.price.microseconds for kernel in kernels),
        kernels=kernels,
        limit_us=max(moved_us, workload.flops / peak_gflop_per_s / 1e3),
        instructions_per_output=issued * WARP / math.prod(outputs),
        share_of_budget=issued / (target.sms * target.issue_slots * target.clock_ghz * 1e3 * moved_us),
    )


def _kernel_cost(artifact: Artifact, launch: Launch, estimated: BlockWork, *, target: CudaTarget) -> KernelCost:
    resources = artifact.kernel_resources.get(launch.kernel) or artifact.resources
    warps = -(-estimated.threads // WARP)
    work = dataclasses.replace(
        estimated,
        registers=resources.get("registers", 0),
        shared_bytes=resources.get("shared_bytes", 0),
        # What is spilt goes to and from the first-level cache: the words of 32 threads are neighbours.
        lines=estimated.lines + warps * resources.get("spill_bytes", 0) / 4,
    )
    return KernelCost(kernel=launch.kernel, work=work, target=target, price=price(work, target), resources=resources)


def cost_data(cost: Cost) -> dict[str, Any]:
    """Times in microseconds, traffic in bytes, instructions of one thread each an output; null for infinity."""
    return {
        "microseconds": _finite(cost.microseconds),
        "limit_us": cost.limit_us,
        "limiter": cost.limiter,
        "instructions_per_output": cost.instructions_per_output,
        "budget_per_output": cost.instructions_per_output / cost.share_of_budget if cost.share_of_budget else None,
        "share_of_budget": cost.share_of_budget,
        "kernels": [_kernel_data(kernel) for kernel in cost.kernels],
    }


def cost_lines(cost: Cost) -> list[str]:
    """The computed cost in all; then the needs of each kernel, and how long it keeps each resource busy."""
    lines = [
        f"computed {cost.microseconds:.1f} µs; memory and arithmetic allow {cost.limit_us:.1f} µs; "
        f"{cost.limiter} sets the time",
        f"instructions: {cost.share_of_budget:.0%} of those that the memory leaves time for",
    ]
    for kernel in cost.kernels:
        work, price, held = kernel.work, kernel.price, kernel.price.occupancy
        lines += [
            f"{kernel.kernel}: {price.microseconds:.1f} µs, {price.limiter} sets the time",
            f"  {work.blocks} blocks of {work.threads} threads, {resource_words(kernel.resources)}",
            f"  {held.blocks_per_sm} blocks on an SM, {held.limiter} keeps out more: {held.threads_per_sm} threads; "
            f"{price.waves:.1f} waves; {int(price.bytes_in_flight_per_sm) / 1e3:.0f} KB of loads in flight an SM"
            + (", the next ones while it computes" if work.loads_ahead else ""),
            f"  busy µs: {'  '.join(f'{name} {time:.1f}' for name, time in kernel.busy_us.items())}",
            f"  DRAM {price.dram_bytes / 1e6:.1f} MB, second-level cache {work.cache_bytes / 1e6:.1f} MB",
            f"  shared memory: {shared_words(kernel)}",
        ]
    return lines


def resource_words(resources: dict[str, int]) -> str:
    """``56 registers, 25600 bytes shared, no spills``."""
    spilt, stack = resources.get("spill_bytes", 0), resources.get("stack_bytes", 0)
    words = [f"{resources.get('registers', 0)} registers", f"{resources.get('shared_bytes', 0)} bytes shared"]
    words.append(f"{spilt} bytes spilt" if spilt else "no spills")
    return ", ".join(words + [f"{stack} bytes stack"] * (stack > 0))


def shared_words(kernel: KernelCost) -> str:
    """``1.4 transactions a request; bank conflicts take 3.1 µs``."""
    degree = kernel.work.transactions_a_request
    if degree is None:
        return "unused"
    conflicts = (
        f"bank conflicts take {kernel.conflicts_us:.1f} µs" if kernel.work.conflict_turns else "no bank conflict"
    )
    return f"{degree:.1f} transactions a request; {conflicts}"


def _kernel_data(kernel: KernelCost) -> dict[str, Any]:
    price = kernel.price
    return {
        "kernel": kernel.kernel,
        "microseconds": _finite(price.microseconds),
        "limiter": price.limiter,
        "busy_us": {name: _finite(time) for name, time in kernel.busy_us.items()},
        "resources": kernel.resources,
        "threads": kernel.work.threads,
        "blocks": kernel.work.blocks,
        "occupancy": dataclasses.asdict(price.occupancy),
        "waves": _finite(price.waves),
        "bytes_in_flight_per_sm": int(price.bytes_in_flight_per_sm),
        "dram_bytes": price.dram_bytes,
        "cache_bytes": kernel.work.cache_bytes,
        "transactions_a_request": kernel.work.transactions_a_request,
        "conflicts_us": kernel.conflicts_us,
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


# -- records of it ---------------------------------------------------------------------------------------------------


@message
@dataclass(frozen=True, kw_only=True)
class Prediction:
    microseconds: float
    resources: dict[str, int]
    """Reported by the compiler."""
    verdict: Verdict | None = None
    """None if the candidate was not checked."""


class Predictor:
    """Handler of a worker: a Candidate in, a Prediction out. Kernels that crash or hang take it with them. Each is run
    in the simulator, too, where there is a compiler for that."""

    def __init__(self, target: CudaTarget) -> None:
        self._target = target
        self._folder: Path | None = None
        if available():
            self._temporary = tempfile.TemporaryDirectory(prefix="dwconv-simulator-")  # in the worker's own folder
            self._folder = Path(self._temporary.name)
            compile_runtime(self._folder)
        import tvm  # noqa: F401  takes a second or two, which should not count as the first candidate's time

    def __call__(self, candidate: Candidate) -> Prediction:
        artifact = build(candidate, self._target)
        cost = computed_cost(artifact, candidate.workload, self._target)
        if not math.isfinite(cost.microseconds):
            limiter = cost.slowest.price.occupancy.limiter
            raise BuildError(f"a block does not fit on an SM: {limiter} of {artifact.resources}")
        computed = Prediction(
            microseconds=float(cost.microseconds),  # NumPy's floats cannot pass between processes
            resources=artifact.resources,
        )
        if self._folder is None:
            return computed
        verdict = simulate(artifact, self._target, folder=self._folder)
        for compiled in self._folder.glob("*.so"):
            compiled.unlink()
        return dataclasses.replace(computed, verdict=verdict)


class ComputeRunner(Runner):
    """Raises WorkerCannotStart if no worker can start, since then no candidate could ever be built, and
    EnvironmentFailure if the machine stays short of memory, disk space or the like."""

    def __init__(
        self,
        target: CudaTarget,
        *,
        jobs: int = 1,
        timeout_s: float = settings.BUILD_TIMEOUT_S + settings.RUN_TIMEOUT_S,
    ) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self._workers = Pool("dwconv.tuner.gpu_cost:Predictor", target, size=jobs, misfit=_misfit)

    def measure(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """One record a candidate, as soon as it is known, its time computed."""
        for position, outcome in self._workers.map(candidates, timeout_s=self._timeout_s):
            yield record_of(candidates[position], outcome, self._target)

    def confirm(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """No records: computing the same cost again would give nothing new."""
        return iter(())

    def close(self) -> None:
        """End the worker processes."""
        self._workers.kill()


def record_of(candidate: Candidate, outcome: Prediction | WorkerError, target: CudaTarget) -> TuningRecord:
    """What is known of a candidate from its prediction, or from the error in its place."""
    if isinstance(outcome, WorkerError):
        status = status_after(outcome, otherwise=Status.COMPILE_ERROR)
        return dataclasses.replace(new_record(candidate, target, status=status), detail=str(outcome))
    verdict = outcome.verdict
    status = Status.OK if verdict is None or verdict.right else Status.WRONG
    known = new_record(candidate, target, status=status)
    known = dataclasses.replace(known, verdict=verdict, resources=outcome.resources)
    if verdict is not None and not verdict.right:
        return dataclasses.replace(known, detail=verdict.reason)
    time = Measurement(median_us=outcome.microseconds, spread_us=0.0, rounds=0, computed=True)
    return dataclasses.replace(known, measurement=time)


def _misfit(candidate: Candidate, answer: object) -> str:
    if not isinstance(answer, Prediction):
        return f"{type(answer).__name__} is not a prediction of {candidate.config}"
    return "" if 0 < answer.microseconds < math.inf else f"{answer.microseconds} µs, which no kernel takes"
