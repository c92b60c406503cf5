"""From an artifact to a verdict; and the compiler that it takes.

Then every CUDA template on some of the shapes that templates go wrong on, the next ones on the others: right, without a
fault, without bank conflicts. Types and configurations take turns; one in four cases is slow.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dwconv.errors import BrokenInstallation, BuildError, NotKept, WorkerDied, WorkerTimeout
from dwconv.kernels.artifact import Artifact
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.simulator import host_compile as compiling
from dwconv.measure.simulator import simulate as simulating
from dwconv.measure.simulator.host_compile import translate
from dwconv.measure.simulator.machine import SimulatedGpu
from dwconv.measure.simulator.simulate import MOST_PRODUCTS, products, simulate, smaller, source_only
from dwconv.problems.workload import DType, Workload
from dwconv.records.record import Verdict
from dwconv.schedules.template import Candidate, template
from tests.measure.simulator.sources import HandlerSetup, kernel
from tests.schedules.cuda_layers import (
    SHAPES,
    SM_90,
    TEMPLATES,
    assert_right_and_clean,
    assert_right_on_extreme_values,
    drawn,
    fitted,
    layer,
)

LAYER = Workload(pass_="fprop", batch=4, channels=8, input_size=(20, 20), kernel=(3, 3), padding=((1, 1), (1, 1)))
MIDDLING = dataclasses.replace(LAYER, batch=64, channels=144, input_size=(56, 56))
RIGHT = Verdict(right=True, max_error=0.0, allowed_error=0.0)
LARGE = dataclasses.replace(LAYER, batch=64, channels=288, input_size=(112, 112))


def lowered(workload: Workload = LAYER) -> Artifact:
    return source_only(Candidate(workload, template("cuda.fprop_nchw").space(workload, SM_90).default), SM_90)


def test_a_small_workload_is_run_whole(objects: Path) -> None:
    verdict = simulate(lowered(), SM_90, folder=objects)
    assert verdict.right and verdict.max_error == 0


@pytest.mark.parametrize(
    ("part", "replacement", "reason"),
    [("__syncthreads();", "", "race: staged_shared"), (" * w_ptr[", " + w_ptr[", "value: ")],
)
def test_a_fault_or_wrong_numbers_are_a_wrong_verdict(part: str, replacement: str, reason: str, objects: Path) -> None:
    artifact = lowered()
    assert part in artifact.source
    faulty = dataclasses.replace(artifact, source=artifact.source.replace(part, replacement))
    verdict = simulate(faulty, SM_90, folder=objects)
    assert not verdict.right and verdict.reason.startswith(reason)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Workload]:
    """What was run whole."""
    found: list[Workload] = []
    usual = simulating.verified
    monkeypatch.setattr(simulating, "verified", lambda built, of, **how: found.append(of) or usual(built, of, **how))
    return found


def test_of_a_middling_workload_two_images_are_run_whole(
    objects: Path, ran: list[Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert simulate(lowered(MIDDLING), SM_90, folder=objects).right
    assert ran == [MIDDLING.with_batch(2)]
    monkeypatch.setattr(simulating, "MOST_OF_TWO_IMAGES", 0)
    monkeypatch.setattr(simulating, "verified", lambda artifact, of, **_: (ran.append(of), (RIGHT, None))[1])
    assert simulate(lowered(MIDDLING), SM_90, folder=objects) is RIGHT
    assert ran[-1].batch == 1, "at least one"


def test_of_a_large_workload_blocks_are_counted_and_fewer_channels_verified(objects: Path, ran: list[Workload]) -> None:
    artifact = lowered(LARGE)
    assert simulate(artifact, SM_90, folder=objects).right
    (small,) = ran
    assert small == dataclasses.replace(LARGE, channels=small.channels, batch=small.batch)
    assert small.channels < 288 and products(small) <= MOST_PRODUCTS
    with SimulatedGpu(artifact, folder=objects) as machine:
        report = machine.sample(batch=4)
    assert report.clean and report.counts.blocks == 8
    racing = dataclasses.replace(artifact, source=artifact.source.replace("__syncthreads();", ""))
    faulty = simulate(racing, SM_90, folder=objects)
    assert faulty.reason.startswith("race") and len(ran) == 1, "found in the blocks that were counted"


def test_a_workload_is_made_smaller_by_channels_alone() -> None:
    default = Candidate(LARGE, template("cuda.fprop_nchw").space(LARGE, SM_90).default)
    small = smaller(default, SM_90)
    assert small.config == default.config
    assert small.workload == dataclasses.replace(LARGE, channels=small.workload.channels)
    assert list(simulating._fewer(70)) == [64, 35, 32, 16, 14, 10, 8, 7, 6, 5, 4, 2, 1]


def test_unused_memory_costs_nothing(objects: Path) -> None:
    """A few blocks of a layer of 7 GB."""
    huge = dataclasses.replace(LARGE, channels=1024, input_size=(112, 112), batch=140)
    with SimulatedGpu(lowered(huge), folder=objects) as machine:
        assert machine.sample(batch=140, most_blocks=2).clean


def test_what_hangs_or_crashes_costs_its_worker(objects: Path) -> None:
    setup = HandlerSetup(target=SM_90, folder=str(objects))  # type: ignore[arg-type]
    worker = IsolatedProcess("tests.measure.simulator.sources:Vandal", setup, threads=1)
    hanging, broken = (lowered(dataclasses.replace(LAYER, channels=channels)).candidate for channels in (1, 2))
    try:
        with pytest.raises(WorkerDied, match="SIGILL"):
            worker.call(broken, timeout_s=120)
        with pytest.raises(WorkerTimeout):
            worker.call(hanging, timeout_s=4)
    finally:
        worker.kill()


# -- the compiler ----------------------------------------------------------------------------------------------------


def test_without_a_compiler_one_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_version", lambda: 0)
    assert not compiling.available()
    with pytest.raises(BrokenInstallation, match=r"needs g\+\+ 12 or newer, there is none; install it"):
        SimulatedGpu(lowered(), folder=tmp_path)


def test_what_the_compiler_refuses_is_one_line(objects: Path) -> None:
    broken = dataclasses.replace(lowered(), source=kernel("  y_ptr[t] = unheard_of(t);", name="main_kernel"))
    with pytest.raises(BuildError, match="unheard_of"):
        SimulatedGpu(broken, folder=objects)


def test_nothing_is_loaded_from_where_others_can_write(objects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiling.compile_kernels(lowered().source, lowered().launches, folder=objects)
    monkeypatch.setattr(os, "geteuid", lambda: objects.stat().st_uid + 1)
    with pytest.raises(NotKept, match="belongs to another user"):
        compiling.compile_kernels(lowered().source, lowered().launches, folder=objects)


def test_a_kernel_is_compiled_once(objects: Path, tmp_path: Path) -> None:
    shutil.copy(compiling.compile_runtime(objects), tmp_path)
    first = compiling.compile_kernels(lowered().source, lowered().launches, folder=tmp_path)
    written = first.stat().st_mtime_ns
    again = compiling.compile_kernels(lowered().source, lowered().launches, folder=tmp_path)
    assert again == first and again.stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("source", "unknown"),
    [
        (kernel('  asm volatile("bar.sync 1, 64;");'), "bar.sync 1, 64;"),
        (kernel('  asm volatile("mov.b32 %0, 1;" : "=r"(t));'), "mov.b32"),
        (kernel("  __shared__ float tile[4][4];"), "shared memory"),
        (kernel("", name="other"), "no kernel k"),
    ],
)
def test_what_cannot_be_translated_is_an_error(source: str, unknown: str) -> None:
    with pytest.raises(BuildError, match=unknown):
        translate(source, ["k"])


VARIANTS: list[tuple[DType, str]] = [("float32", "default"), ("float16", "drawn"), ("bfloat16", "default")]
LAYERS = {
    "56² K3 s2": layer(96, (56, 56), (3, 3), stride=(2, 2)),
    "14² K3 s2": layer(384, (14, 14), (3, 3), stride=(2, 2)),
    "14² K5": layer(192, (14, 14), (5, 5)),
    "7² K3": layer(960, (7, 7), (3, 3)),
    "7² K7": layer(768, (7, 7), (7, 7)),
    "28² K7": layer(192, (28, 28), (7, 7)),
    "28² K31": layer(64, (28, 28), (31, 31)),
}
MOST_WAVEFRONTS_PER_IDEAL = 1.06
FEW = 4


def cases(shapes: dict[str, Workload], variants: list[Any], *, quick_of: int) -> Iterator[Any]:
    """Each template with one of ``quick_of`` shapes that it fits, in one of the variants, which take turns; of one that
    fits ``FEW`` alone, with all. Half as many more are slow."""
    for number, (name, known) in enumerate(TEMPLATES.items()):
        fitting = {label: [one for one in variants if fitted(shape, known, one[0])] for label, shape in shapes.items()}
        met = [label for label, some in fitting.items() if some]
        used: dict[bool, Counter[Any]] = {True: Counter(), False: Counter()}
        for turn, label in enumerate(met, number):
            quick = turn % quick_of == 0 or len(met) <= FEW
            if turn % (2 * quick_of) != quick_of // 2 and not quick:
                continue
            variant = min(fitting[label], key=used[quick].__getitem__)
            used[quick][variant] += 1
            marks = () if quick else (pytest.mark.slow,)
            yield pytest.param(name, label, variant, id=f"{name}-{label}-{'-'.join(variant)}", marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape", "variant"), list(cases(SHAPES, VARIANTS, quick_of=9)))
def test_right_and_clean(name: str, shape: str, variant: tuple[DType, str], objects: Path) -> None:
    template, (dtype, choice) = TEMPLATES[name], variant
    workload = fitted(SHAPES[shape], template, dtype)
    assert workload is not None
    config = drawn(workload, template) if choice == "drawn" else template.space(workload, SM_90).default
    assert_right_and_clean(workload, config, objects)
    if dtype == "bfloat16":
        assert_right_on_extreme_values(workload, config, objects)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape", "variant"), list(cases(LAYERS, [("float32",), ("float16",)], quick_of=9)))
def test_defaults_are_free_of_bank_conflicts(name: str, shape: str, variant: tuple[DType], objects: Path) -> None:
    template = TEMPLATES[name]
    workload = fitted(LAYERS[shape], template, variant[0])
    assert workload is not None
    config = template.space(workload, SM_90).default
    with SimulatedGpu(source_only(Candidate(workload, config), SM_90), folder=objects) as machine:
        report = machine.sample(batch=2, most_blocks=3)
    assert report.clean, f"{config}: {report}"
    assert report.counts.wavefronts_per_ideal <= MOST_WAVEFRONTS_PER_IDEAL, str(config)
