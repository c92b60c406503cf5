"""Streamed stores of the CPU templates: the same bits, where they are worth it, as instructions that do it."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
import torch

from dwconv.problems.kernel_inputs import operands
from dwconv.problems.workload import PASSES, DType, Pass
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, templates_for
from tests.schedules.cpu_layers import SHAPES, TARGET, TARGETS, assert_right, built, layer, run, some_configs


@pytest.mark.usefixtures("through_python")
@pytest.mark.parametrize("vector_bytes", [32, 64])
@pytest.mark.parametrize("pass_", ["fprop", "dgrad"])
def test_streamed_results_are_the_cached_ones(pass_: Pass, vector_bytes: int) -> None:
    """Bit for bit; also where the result is unaligned or fits in the cache, as address and batch show when it runs."""
    stride = (1, 1) if pass_ == "fprop" else (2, 2)
    workload = layer(48, (12, 15), (3, 3), padding=((1, 1), (1, 1)), stride=stride, batch=4).for_pass(pass_)
    result_bytes = 4 * math.prod(workload.shape_of(workload.results[0]))
    target = dataclasses.replace(TARGETS[vector_bytes], cache_bytes=result_bytes)
    space = templates_for(workload, target)[0].space(workload, target)
    written_before = {name: value for name, value in space.default.values if name != "store"}
    inputs = operands(workload, data="integers", seed=1)
    kernels = {
        store: built(workload, space.check({**space.default.to_dict(), "store": store}), target)
        for store in ("cached", "streamed")
    }
    assert space.check(written_before) == kernels["cached"].artifact.candidate.config
    assert "nontemporal" not in built(workload, Config.of(space.template, **written_before), target).artifact.source
    assert "nontemporal" in kernels["streamed"].artifact.source
    assert space.default.store == "streamed"
    assert_right(kernels["streamed"], workload)
    ((cached,), (streamed,)) = (run(kernels[store], workload, inputs) for store in ("cached", "streamed"))
    assert torch.equal(cached, streamed)
    read = tuple(tensor.contiguous(memory_format=torch.channels_last) for tensor in inputs)
    for batch in (4, 3, 1):
        given = [read[0][:batch], *read[1:]]
        assert torch.equal(kernels["streamed"](*given), cached[:batch])
    artifact = kernels["streamed"].artifact
    (argument,) = artifact.results
    for off in (4, 16, 32):
        result = torch.full((result_bytes + 64,), -1, dtype=torch.int8)
        result = result[off - result.data_ptr() % 64 :][:result_bytes].view(torch.float32).view(argument.shape_at(4))
        workspaces = [torch.empty(each.shape_at(4)) for each in artifact.workspaces]
        kernels["streamed"].run_into(
            [read[0].permute(0, 2, 3, 1), inputs[1].view(artifact.inputs[1].shape_at(4))], [result], workspaces
        )
        assert torch.equal(result.permute(0, 3, 1, 2), cached)


@pytest.mark.parametrize("vector_bytes", [32, 64])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_results_of_16_bits_are_streamed_too(dtype: DType, vector_bytes: int) -> None:
    target = dataclasses.replace(TARGETS[vector_bytes], cache_bytes=1)
    workload = dataclasses.replace(layer(32, (12, 14), (3, 3), padding=((1, 1), (1, 1))), dtype=dtype)
    config = templates_for(workload, target)[0].space(workload, target).default
    assert config.store == "streamed"
    kernel = built(workload, config, target)
    assert "nontemporal" in kernel.artifact.source
    assert_right(kernel, workload)


def test_streamed_stores_are_machine_code_and_fenced() -> None:
    """On an x86 CPU with vectors of 64 bytes, whatever CPU is here."""
    import tvm

    from dwconv.kernels.cpu_build import pass_context

    workload = layer(96, (16, 16), (3, 3), padding=((1, 1), (1, 1)), batch=4)
    target = dataclasses.replace(TARGET, cache_bytes=1)
    schedule = Candidate(workload, some_configs(workload, 0, target=target)[0]).schedule(target)
    with pass_context():
        library = tvm.compile(
            schedule.mod, target={"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64-v4"}
        )
    code = library.mod.inspect_source("s")
    assert len(re.findall(r"vmovntps\s+%zmm", code)) >= 4 and code.count("sfence") == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_only_large_results_in_whole_vectors_are_streamed(shape: str) -> None:
    small = dataclasses.replace(TARGET, cache_bytes=1)
    for pass_ in PASSES:
        workload = SHAPES[shape].for_pass(pass_)
        for target in (TARGET, small, dataclasses.replace(small, vector_bytes=16)):
            knobs = [knob.name for knob in templates_for(workload, target)[0].space(workload, target).knobs]
            channels = workload.out_channels if pass_ == "fprop" else workload.channels
            may = target is small and pass_ != "wgrad" and channels % 16 == 0
            assert ("store" in knobs) == may
