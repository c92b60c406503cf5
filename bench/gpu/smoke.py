"""Stage ``smoke``: first contact, in a minute. Prints the libraries, the device and its limits, and runs each template
once. A step that fails is reported, and the next one runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from bench.cases import odd_blocks
from bench.gpu.limits import MeasureLimits, known_limits, limits_of
from bench.gpu.plan import GpuPlan
from bench.gpu.run import Ended, Run, say
from bench.gpu.verify import RIGHT, Verifier, name_of, verify_all
from bench.gpu.worker import GpuFailure, GpuWorker
from dwconv.errors import DwconvError, one_line
from dwconv.kernels import nvrtc
from dwconv.measure.requests import LOAD, MeasureSetup
from dwconv.measure.runner import WorkerProcesses
from dwconv.problems.target import Target
from dwconv.problems.workload import LAYOUTS, PASSES, DType, Workload
from dwconv.schedules.template import Candidate, templates_for
from dwconv.system import versions

MOST_S = 60.0
_STEP_S = 30.0
_TYPES: tuple[DType, ...] = ("float32", "float16")


class FirstContact(Verifier):
    """Also: ``device`` in, findings out, as text by name; MeasureLimits in, limits by name out."""

    def answer(self, request: Any) -> Any:
        if isinstance(request, MeasureLimits):
            with torch.inference_mode():
                return limits_of(self.target, request)
        return _device(self.target) if request == "device" else super().answer(request)


def smoke_stage(run: Run, *, load: str = LOAD, sizes: MeasureLimits | None = None) -> Ended:
    """The run fails if no template is right."""
    setup = MeasureSetup(target=run.target, load=load)
    with (
        run.prepared_first(WorkerProcesses(run.target, jobs=run.jobs)) as workers,
        GpuWorker("bench.gpu.smoke:FirstContact", setup, here=run.one_process) as gpu,
    ):
        workers.builders.start()
        gpu.start()
        for name, seen in {**libraries(), **_seen(gpu, run)}.items():
            say("smoke", f"{name}: {seen}")
        known_limits(run, gpu, sizes or MeasureLimits(), stage="smoke")
        right, tried = _templates(run, workers=workers, gpu=gpu)
    return Ended(line=f"{right} of {tried} templates and types right", failed=not right)


def _seen(gpu: GpuWorker, run: Run) -> dict[str, str]:
    """What there is to say of the device; the error, if it fails."""
    try:
        seen: dict[str, str] = gpu.ask("device", timeout_s=_STEP_S, within_s=run.pace.left_s)
    except GpuFailure as failure:
        return {"device": f"failed: {failure}"}
    run.state.put("smoke", "device", seen)
    return seen


def _templates(run: Run, *, workers: WorkerProcesses, gpu: GpuWorker) -> tuple[int, int]:
    """(right, all) candidates: each template once in each type."""
    candidates = _candidates(run.target)
    verify_all(candidates, run, stage="smoke", workers=workers, gpu=gpu, told=len(candidates))
    known = run.state.of("smoke")
    right = sum(known.get(name_of(each)) == {"verdict": RIGHT} for each in candidates)
    return right, len(candidates)


def smoke_candidates(plan: GpuPlan) -> list[Candidate]:
    """What runs once."""
    return _candidates(plan.target)


def _candidates(target: Target) -> list[Candidate]:
    candidates: dict[tuple[str, str], Candidate] = {}
    for workload in small_odd_workloads():
        try:
            for template in templates_for(workload, target):
                config = template.space(workload, target).default
                candidates.setdefault((template.name, workload.dtype), Candidate(workload, config))
        except DwconvError as error:
            say("smoke", f"{workload.key}: {error}")
    return list(candidates.values())


def small_odd_workloads() -> list[Workload]:
    """One odd problem that most templates can run, and an even one for the others."""
    problems: tuple[dict[str, Any], ...] = (
        {"input_size": (13, 10), "kernel": (3, 5), "stride": (2, 2), "padding": ((1, 2), (2, 1))},
        {"input_size": (9, 11), "kernel": (3, 3), "padding": ((1, 1), (1, 1))},
    )
    alone = [
        Workload(pass_=pass_, batch=3, channels=20, dtype=dtype, layout=layout, **problem)
        for problem in problems
        for dtype in _TYPES
        for layout in LAYOUTS
        for pass_ in PASSES
    ]
    both = [each.for_pass("backward") for each in alone if each.pass_ == "wgrad"]
    return [*alone, *both, *odd_blocks(problems)]


# -- what there is ---------------------------------------------------------------------------------------------------


def libraries() -> dict[str, str]:
    """Versions, of what was loaded where there may be several. A missing or broken library is reported as such."""
    found = {name: str(version) for name, version in versions.installed().items()}
    found["CUDA of PyTorch"] = f"{torch.version.cuda}, cuDNN {_or_error(torch.backends.cudnn.version)}"
    found["driver"] = _or_error(lambda: _call("cuda.bindings.driver", "cuDriverGetVersion"))
    found["NVRTC"] = _or_error(_nvrtc)
    return found


def _call(module: str, function: str) -> str:
    status, *values = getattr(importlib.import_module(module), function)()
    return ".".join(map(str, values)) if not status.value else str(status.name)


def _nvrtc() -> str:
    """The one that compiles kernels, and its packages."""
    here = nvrtc.library()
    packages = (f"{name} {version}" for name, version in nvrtc.package_versions(here.cuda).items())
    return ".".join(map(str, here.version)) + f" ({', '.join(packages)})"


def _or_error(look: Callable[[], object]) -> str:
    try:
        return str(look())
    except Exception as error:  # noqa: BLE001  a library that is not there, or broken, is what is looked for
        return one_line(f"{type(error).__name__}: {error}", most=200)


def _device(target: Target) -> dict[str, str]:
    """The name and properties of the device, and whether it computes."""
    ones = torch.ones(1 << 10, device=target.kind)
    found = {"target": str(target), "a sum on it": f"{float((ones + ones).sum()):g}, 2048 is right"}
    if target.kind == "cuda":
        facts = torch.cuda.get_device_properties(torch.cuda.current_device())
        free, whole = torch.cuda.mem_get_info()
        found["device"] = (
            f"{facts.name}, sm_{facts.major}{facts.minor}, {facts.multi_processor_count} SMs, "
            f"{free / 2**30:.0f} of {whole / 2**30:.0f} GiB free, L2 {facts.L2_cache_size / 2**20:.0f} MiB"
        )
    return found
