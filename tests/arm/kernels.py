"""Every CPU template in every type on odd shapes, built here for Arm, and verified by qemu.

``python -m tests.arm.kernels build FILE`` needs TVM, and a linker for Arm in CXX. ``FOLDER/bin/python -m
tests.arm.kernels verify FILE`` runs all of them there; with ``1/3`` the first of each three.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from dwconv.kernels import entry
from dwconv.kernels.artifact import Artifact
from dwconv.problems.workload import ALL_PASSES, DTYPES, PASSES, DType, Epilogue, Pass, Workload

PARTS = {"plain", "volumes", "blocks", "layer norm", "epilogues", "any size", "slices", "both gradients"}
MCPUS = ("generic", "neoverse-n1", "neoverse-v1", "cortex-a76")
"""In turns: the least Arm, and such as LLVM uses more instructions for."""


# -- here --------------------------------------------------------------------------------------------------------------


def workloads() -> Iterator[tuple[str, Workload, str | None]]:
    """A part, a workload of it, and the layout of the template; None for the first that fits."""
    from tests.schedules import cpu_layers, test_cpu_any_size, test_cpu_block, test_cpu_layer_norm, test_cpu_slices
    from tests.schedules.volumes import VOLUMES

    shapes = [*cpu_layers.SHAPES.values(), cpu_layers.WIDE]
    for (turn, shape), (number, pass_), dtype in itertools.product(enumerate(shapes), enumerate(PASSES), DTYPES):
        for layout, by in cpu_layers.WAYS:
            biased = (turn + number) % 2 == 1
            yield "plain", _as(shape, pass_, dtype, layout=layout, bias=biased), by
    for (turn, volume), (number, pass_) in itertools.product(enumerate(VOLUMES.values()), enumerate(PASSES)):
        for at, (layout, by) in enumerate(cpu_layers.WAYS):
            yield "volumes", _as(volume, pass_, DTYPES[(turn + number + at) % 3], layout=layout), by
    for (turn, layer), pass_ in itertools.product(enumerate(test_cpu_block.LAYERS.values()), ALL_PASSES):
        for at, dtype in enumerate(DTYPES):
            if pass_ in test_cpu_block.EVERY_PASS:
                text = test_cpu_block.BLOCKS[(turn + at) % len(test_cpu_block.BLOCKS)]
                yield "blocks", test_cpu_block.block(layer, pass_, text, dtype), None
            if pass_ in test_cpu_layer_norm.BLOCK_PASSES:
                normed = dataclasses.replace(test_cpu_layer_norm.block(layer, pass_, dtype), bias=turn % 4 < 2)
                yield "layer norm", normed, None
    epilogues: tuple[Epilogue, ...] = ("silu", "silu_gradient")
    for (turn, shape), epilogue, dtype in itertools.product(enumerate(shapes), epilogues, DTYPES):
        layout = ("nhwc", "nchw")[turn % 2]
        yield "epilogues", _as(shape, "fprop", dtype, layout=layout, bias=turn % 3 == 0, epilogue=epilogue), None
    for (turn, (shape, _)), (number, pass_) in itertools.product(
        enumerate(test_cpu_any_size.CASES.values()), enumerate(PASSES)
    ):
        yield "any size", _as(shape, pass_, DTYPES[(turn + number) % 3], layout=shape.layout).with_any_size(), None
    for name, layer in test_cpu_slices.LAYERS.items():
        for layout, pass_ in itertools.product(("nhwc", "nchw"), test_cpu_slices.PASSES_OF_X):
            sliced = test_cpu_slices.sliced(_as(layer, pass_, layer.dtype, layout=layout), name)
            yield "slices", sliced, None
    for shape in shapes[:6]:
        for dtype in DTYPES:
            yield "both gradients", _as(shape, "backward", dtype, layout="nhwc"), None


def _as(workload: Workload, pass_: Pass, dtype: DType, **fields: object) -> Workload:
    return dataclasses.replace(workload, dtype=dtype, **fields).for_pass(pass_)  # type: ignore[arg-type]


def build(path: Path, parts: set[str]) -> None:
    """Write the kernels to ``path``. What no template fits is named."""
    from dwconv.errors import InvalidWorkload, NoTemplate
    from dwconv.kernels import build as build_kernel
    from dwconv.kernels.library import shared_library
    from dwconv.problems.target import cpu_target
    from dwconv.schedules.template import Candidate, templates_for
    from tests.schedules.cpu_layers import some_configs

    neon = cpu_target(threads=2, vector_set="neon")
    targets = [dataclasses.replace(neon, mcpu=mcpu) for mcpu in MCPUS]
    made: list[Artifact] = []
    unfit = 0
    for turn, (part, workload, by) in enumerate(workloads()):
        if part not in parts:
            continue
        target = targets[turn % len(targets)]
        try:
            if by not in (None, *(each.layout for each in templates_for(workload, target))):
                unfit += 1
                continue
            *_, config = some_configs(workload, turn // len(targets) % 2, layout=by, target=target)  # type: ignore[arg-type]
        except (NoTemplate, InvalidWorkload):
            unfit += 1
            continue
        artifact = build_kernel(Candidate(workload, config), target)
        made.append(dataclasses.replace(artifact, library=shared_library(artifact), source=""))
        if len(made) % 50 == 0:
            print(f"{len(made)} built", flush=True)
    path.write_bytes(entry.encode(made))
    print(f"{len(made)} kernels in {path}; of {unfit} more no template fits")


# -- there -------------------------------------------------------------------------------------------------------------


def verify(path: Path, *, turn: int = 1, of: int = 1) -> int:
    """The number of wrong kernels; each is named."""
    import torch

    from dwconv.kernels.kernel import Kernel
    from dwconv.measure.verify.cases import make_case
    from dwconv.measure.verify.verify import verify as verdict_of
    from dwconv.measure.verify.verify import verify_runs

    torch.set_num_threads(2)
    wrong, started_s = 0, time.monotonic()
    artifacts: tuple[Artifact, ...] = entry.decode(path.read_bytes())[turn - 1 :: of]
    for number, artifact in enumerate(artifacts):
        workload, faults = artifact.candidate.workload, []
        try:
            kernel = Kernel.load(artifact)
            kernels = kernel.any_size.samples() if kernel.any_size else [kernel]
            for each in kernels:
                own = each.artifact.candidate.workload
                exact = "normal" if own.block else "integers"
                faults.append(verdict_of(each, make_case(own, data=exact, seed=1)))
                for place, (data, batch) in enumerate((("extreme", own.batch), (exact, 3)), number):
                    case = make_case(own.with_batch(batch), data=data, seed=place)
                    faults.append(verify_runs(each, case, threads=(1, 2, 3), place=place))
        except Exception as error:  # noqa: BLE001  whatever it is, the next kernel is tried
            wrong += 1
            print(f"FAILED {workload.key} {artifact.candidate.config}: {type(error).__name__}: {error}", flush=True)
            continue
        if reasons := [each.reason for each in faults if not each.right]:
            wrong += 1
            print(f"WRONG {workload.key} {artifact.candidate.config}: {reasons[0]}", flush=True)
        if number % 50 == 49:
            print(f"{number + 1} of {len(artifacts)}, {time.monotonic() - started_s:.0f} s", flush=True)
    print(f"{len(artifacts) - wrong} of {len(artifacts)} kernels are right, {time.monotonic() - started_s:.0f} s")
    return wrong


if __name__ == "__main__":
    command, file, *only = sys.argv[1:]
    if command == "build":
        build(Path(file), set(only) or PARTS)
    else:
        turn, of = map(int, only[0].split("/")) if only else (1, 1)
        sys.exit(1 if verify(Path(file), turn=turn, of=of) else 0)
