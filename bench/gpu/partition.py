"""Stage ``partition``: the two-level partition taken apart, measured beside cuDNN: one level, two levels, virtual
threads, padding, the default, the least computed cost, and the best of all families, each of one pass in turns.

The configurations are those that ``bench partition`` chose for the architecture, from its results that ship; where none
do, those of least estimate. So nothing is searched on the GPU.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from statistics import geometric_mean
from typing import Any

from bench.gpu.plan import GpuPlan
from bench.gpu.run import Ended, Run, has_failed
from bench.partition import KERNELS, STRIDES, configs_of, measured_us, names_of, variants_of, workloads
from bench.results import FOLDER, read_results
from dwconv.errors import DwconvError, InvalidChoice, InvalidConfig
from dwconv.measure.runner import WorkerProcesses
from dwconv.problems.target import CudaTarget, Target
from dwconv.problems.workload import PASSES, Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, fitting

FIRST_S = 10.0
"""Expected seconds of a workload, until one has been measured."""
SIZES = (56, 14, 112, 28, 7)
"""Of maps, the most telling first: those whose kernels ``bench partition`` compiles come before the others."""
_ONE, _TWO, _VIRTUAL = "one level", "two levels", ("2 virtual threads", "4 virtual threads")
_BEST = "best of all"
_WORST = 3


def partition_stage(run: Run, *, wanted: Sequence[Workload] | None = None) -> Ended:
    """``wanted``: the workloads, by default all in the order of ``wanted_workloads``. The run fails if none that was
    started could be measured. Raises InvalidChoice for a device that is no GPU."""
    target = run.target
    if not isinstance(target, CudaTarget):
        raise InvalidChoice(f"target={target} is no GPU, and the two levels are those of a GPU")
    by_key = {each.key: each for each in (wanted_workloads() if wanted is None else wanted)}
    known = shipped_configs(target.arch)
    with run.prepared_first(WorkerProcesses(target, jobs=run.jobs)) as workers:

        def answer(key: str) -> dict[str, Any]:
            try:
                return _measured(by_key[key], target, known=known, workers=workers)
            except DwconvError as error:
                return {"failed": str(error)}

        answers = run.answers("partition", by_key, answer, in_words=_in_words)
    return Ended.of(answers, _summary(answers), count=len(by_key))


def wanted_workloads() -> list[Workload]:
    """Stride 1 before stride 2; maps of one size before the next, kernels of one size before the next, and the three
    passes of a layer together."""
    order = itertools.product(STRIDES, SIZES, KERNELS)
    return [
        workload
        for stride, size, kernel in order
        for workload in workloads(kernels=(kernel,), sizes=(size,), strides=(stride,))
    ]


def partition_candidates(plan: GpuPlan, *, wanted: Sequence[Workload] | None = None) -> Iterator[Candidate]:
    """In the order of the stage; of what ships for the architecture, or else of least estimate."""
    target = plan.target
    assert isinstance(target, CudaTarget), "kernels are built ahead for a GPU alone"
    for workload in wanted_workloads() if wanted is None else wanted:
        found, _ = _configs(workload, target, known=shipped_configs(target.arch))
        yield from (Candidate(workload, config) for config in dict.fromkeys(found.values()))


@cache
def shipped_configs(arch: str) -> dict[tuple[str, ...], dict[str, dict[str, Any]]]:
    """The configuration of each variant, as plain data, by the names of its workload: pass, size, kernel, stride."""
    path = FOLDER / f"partition-{arch}.json"
    found: dict[tuple[str, ...], dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in read_results(path, dict[str, Any])["rows"] if path.exists() else ():
        found[tuple(str(row[name]) for name in ("pass", "size", "kernel", "stride"))][row["variant"]] = row["config"]
    return found


def _key(workload: Workload) -> tuple[str, ...]:
    return tuple(map(str, names_of(workload).values()))


def _legal(
    fields: Mapping[str, Mapping[str, Any]], workload: Workload, target: Target
) -> tuple[dict[str, Config], dict[str, str]]:
    """The configurations by variant, and why others are none any more."""
    found: dict[str, Config] = {}
    refused: dict[str, str] = {}
    for variant, each in fields.items():
        try:
            found[variant] = fitting(str(each["template"]), workload, target).space(workload, target).check(each)
        except InvalidConfig as error:
            refused[variant] = str(error)
    return found, refused


def _configs(
    workload: Workload, target: CudaTarget, *, known: Mapping[tuple[str, ...], Any]
) -> tuple[dict[str, Config], dict[str, str]]:
    """As ``_legal``; of least estimate where nothing is ``known``."""
    found, refused = _legal(known.get(_key(workload), {}), workload, target)
    return found or configs_of(workload, target, built=0, variants=variants_of(workload)), refused


def _measured(
    workload: Workload, target: CudaTarget, *, known: Mapping[tuple[str, ...], Any], workers: WorkerProcesses
) -> dict[str, Any]:
    """Microseconds by variant, and of each of PyTorch's ops, all in turns. Raises DwconvError."""
    found, refused = _configs(workload, target, known=known)
    taken = measured_us(workload, target, list(found.values()), workers=workers)
    refused |= {name: "it was wrong, or did not run" for name, config in found.items() if config not in taken}
    us = {name: taken[config]["measured_us"] for name, config in found.items() if config in taken}
    if not us:
        return {"failed": "no variant was right"}
    others: dict[str, list[float]] = defaultdict(list)
    for each in taken.values():
        for name, one_us in each.items():
            if name != "measured_us":
                others[name.removesuffix("_us")].append(one_us)
    return {
        "us": us,
        "others_us": {name: min(times) for name, times in others.items()},
        "configs": {name: config.to_dict() for name, config in found.items()},
        "refused": refused,
    }


def _in_words(answer: Mapping[str, Any]) -> str:
    if has_failed(answer):
        return f"failed: {answer['failed']}"
    ours = ", ".join(f"{name} {us:.1f}" for name, us in answer["us"].items())
    return f"µs: {ours}; {', '.join(f'{name} {us:.1f}' for name, us in answer['others_us'].items())}"


def _summary(answers: Mapping[str, Mapping[str, Any]]) -> str:
    """What each part brought in each pass: losses first."""
    good = {key: each for key, each in answers.items() if not has_failed(each)}
    over_best = {
        key: min(each["others_us"].values()) / each["us"][_BEST]
        for key, each in good.items()
        if each["others_us"] and _BEST in each["us"]
    }
    parts = []
    if lost := sorted((ratio, key) for key, ratio in over_best.items() if ratio < 1):
        told = ", ".join(f"{key} {ratio:.2f}" for ratio, key in lost[:_WORST])
        parts.append(f"slower than PyTorch's best op in {len(lost)} of {len(over_best)}: {told}")
    for pass_ in PASSES:
        of_pass = [each["us"] for key, each in good.items() if key.startswith(f"{pass_}-")]
        for name, against in ((_TWO, _ONE), *((each, _TWO) for each in _VIRTUAL)):
            ratios = [us[against] / us[name] for us in of_pass if {name, against} <= us.keys()]
            if ratios:
                parts.append(
                    f"{pass_}: {name} {geometric_mean(ratios):.2f} times as fast as {against}, least {min(ratios):.2f}"
                )
    if over_best:
        ratios = list(over_best.values())
        parts.append(
            f"the best of all families {geometric_mean(ratios):.2f} times as fast as PyTorch's best op, least "
            f"{min(ratios):.2f}"
        )
    return "; ".join(parts) or "nothing was measured"
