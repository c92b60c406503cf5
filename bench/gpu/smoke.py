"""Stage ``smoke``: first contact, in a minute. Prints the libraries, the device and its limits, runs each template
once, and times a call. A step that fails is reported, and the next one runs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from bench.cases import odd_blocks
from bench.gpu.limits import MeasureLimits, known_limits, limits_of
from bench.gpu.run import Ended, Run, say
from bench.gpu.verify import RIGHT, name_of, verify_all
from bench.gpu.worker import GpuFailure, GpuWorker, Refused, careful, host_us, warm_up
from dwconv.errors import DwconvError
from dwconv.kernels import build, nvrtc
from dwconv.kernels.entry import message
from dwconv.measure.clock.device import clock_of
from dwconv.measure.clock.timing import GLANCE, Call, time_in_turns
from dwconv.measure.processes.worker import locate
from dwconv.measure.requests import LOAD, MeasureSetup
from dwconv.measure.runner import Workers
from dwconv.measure.verify.cases import make_case
from dwconv.problems.target import Target
from dwconv.problems.workload import LAYOUTS, PASSES, DType, Workload
from dwconv.schedules.template import Candidate, templates_for

MOST_S = 60.0
_STEP_S = 30.0
_TYPES: tuple[DType, ...] = ("float32", "float16")
_PACKAGES = ("torch", "apache-tvm", "cuda-bindings", "nvidia-cuda-nvdisasm")
TIMED = Workload(
    pass_="fprop", batch=64, channels=384, input_size=(14, 14), kernel=(7, 7), padding=((3, 3), (3, 3)),
    dtype="float16", layout="nhwc",
)  # fmt: skip
"""The workload on which a call is timed."""


@message
@dataclass(frozen=True, kw_only=True)
class Look:
    """Ask for one step: ``libraries``, ``device``, or the times of ``dwconv`` or ``conv2d`` on a workload."""

    step: str
    workload: Workload | None = None


class FirstContact:
    """Handler: Look in, findings out, as text by name; or MeasureLimits in, limits by name out."""

    def __init__(self, setup: MeasureSetup) -> None:
        self._target = setup.target
        self._load: Callable[..., Any] = locate(setup.load)
        self._is_warm = False

    def __call__(self, request: Look | MeasureLimits) -> dict[str, str] | dict[str, float] | Refused:
        return careful(self._look, request, target=self._target)

    def _look(self, request: Look | MeasureLimits) -> dict[str, str] | dict[str, float]:
        if isinstance(request, MeasureLimits):
            self._warm_up()
            with torch.inference_mode():
                return limits_of(self._target, request)
        if request.step == "libraries":
            return libraries()
        if request.step == "device":
            return _device(self._target)
        assert request.workload is not None
        self._warm_up()
        with torch.inference_mode():
            return self._times(request.step, request.workload)

    def _warm_up(self) -> None:
        """Before anything is timed."""
        if not self._is_warm:
            warm_up(self._target)
            self._is_warm = True

    def _times(self, step: str, workload: Workload) -> dict[str, str]:
        x, w = make_case(workload, data="integers", device=self._target.kind).inputs
        if step == "dwconv":
            (template, *_) = templates_for(workload, self._target)
            kernel = self._load(
                build(Candidate(workload, template.space(workload, self._target).default), self._target)
            )
            call: Call = partial(kernel, x, w)
        else:
            padding = tuple(before for before, _ in workload.padding)
            call = partial(F.conv2d, x, w, None, workload.stride, padding, workload.dilation, workload.channels)
        times = {"host": f"{host_us(call):.1f} µs"}
        taken = time_in_turns({step: call}, clock=clock_of(self._target), effort=GLANCE)
        return {**times, "device": f"{taken[step].median_us:.1f} µs"}


def smoke_stage(run: Run, *, load: str = LOAD, timed: Workload = TIMED, sizes: MeasureLimits | None = None) -> Ended:
    """The run fails if no template is right."""
    setup = MeasureSetup(target=run.target, load=load)
    role = "bench.gpu.smoke:FirstContact"
    with (
        Workers(run.target, jobs=run.jobs) as workers,
        GpuWorker(role, setup, here=run.one_process) as contact,
        GpuWorker("bench.gpu.verify:Verifier", setup, here=run.one_process) as gpu,
    ):
        workers.builders.start()
        contact.start()
        gpu.start()
        for step in ("libraries", "device"):
            for name, seen in _step(Look(step=step), contact, run).items():
                say("smoke", f"{name}: {seen}")
        known_limits(run, contact, sizes or MeasureLimits(), stage="smoke")
        right, tried = _templates(run, workers=workers, gpu=gpu)
        times = []
        for step in ("dwconv", "conv2d"):
            seen_times = _step(Look(step=step, workload=timed), contact, run)
            text = (seen if name == step else f"{name} {seen}" for name, seen in seen_times.items())
            times.append(f"{step} {', '.join(text)}")
            say("smoke", f"a call of {times[-1]}")
    return Ended(line=f"{right} of {tried} templates and types right; {'; '.join(times)}", failed=not right)


def _step(request: Look, worker: GpuWorker, run: Run) -> dict[str, str]:
    """The findings of a step; the error, if it fails."""
    if run.pace.left_s <= 0:
        return {request.step: "time is up"}
    try:
        seen: dict[str, str] = worker.ask(request, timeout_s=_STEP_S, within_s=run.pace.left_s)
    except GpuFailure as failure:
        return {request.step: f"failed: {failure}"}
    run.state.put("smoke", request.step, seen)
    return seen


def _templates(run: Run, *, workers: Workers, gpu: GpuWorker) -> tuple[int, int]:
    """(right, all) candidates: each template once in each type."""
    candidates: dict[tuple[str, str], Candidate] = {}
    for workload in small_odd_workloads():
        try:
            for template in templates_for(workload, run.target):
                config = template.space(workload, run.target).default
                candidates.setdefault((template.name, workload.dtype), Candidate(workload, config))
        except DwconvError as error:
            say("smoke", f"{workload.key}: {error}")
    verify_all(list(candidates.values()), run, stage="smoke", workers=workers, gpu=gpu, told=len(candidates))
    known = run.state.of("smoke")
    right = sum(known.get(name_of(each)) == {"verdict": RIGHT} for each in candidates.values())
    return right, len(candidates)


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
    """Versions, and which of several libraries of one name were loaded. A missing one is reported as such."""
    found = {"python": sys.version.partition(" ")[0]}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "missing"
    found["CUDA of PyTorch"] = f"{torch.version.cuda}, cuDNN {_or_error(torch.backends.cudnn.version)}"
    found["driver"] = _or_error(lambda: _call("cuda.bindings.driver", "cuDriverGetVersion"))
    found["NVRTC"] = _or_error(_nvrtc)
    found["toolkit that TVM finds"] = _or_error(lambda: importlib.import_module("tvm.support.nvcc").find_cuda_path())
    found["loaded"] = _or_error(_loaded)
    return found


def _call(module: str, function: str) -> str:
    status, *values = getattr(importlib.import_module(module), function)()
    return ".".join(map(str, values)) if not status.value else str(status.name)


def _nvrtc() -> str:
    """The one that compiles kernels, and its packages."""
    here = nvrtc.library()
    packages = (f"{name} {version}" for name, version in nvrtc.package_versions(here.cuda).items())
    return ".".join(map(str, here.version)) + f" ({', '.join(packages)})"


def _loaded() -> str:
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split()[-1] for line in lines if "/" in line}
    wanted = ("libcuda.so", "libnvrtc.so", "libcudart.so", "libcudnn.so", "libtvm")
    return ", ".join(sorted(path for path in paths if Path(path).name.startswith(wanted))) or "none of CUDA's"


def _or_error(look: Callable[[], object]) -> str:
    try:
        return str(look())
    except Exception as error:  # noqa: BLE001  a library that is not there, or broken, is what is looked for
        return f"{type(error).__name__}: {error}".partition("\n")[0][:200]


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
