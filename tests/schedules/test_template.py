"""The registry of templates, and what every template must keep."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools

import pytest
import tvm

from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.problems.block import Block
from dwconv.problems.target import CpuTarget, Target, parse_target
from dwconv.problems.workload import ALL_PASSES, DTYPES, IMAGES, LAYOUTS, PASSES, Pass, Workload
from dwconv.records.log import TuningLog
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, all_templates, fitting, template, templates_for
from tests.pages import ROOT

TARGET = CpuTarget(device="test", threads=2, vector_bytes=64)


def layer(pass_: Pass) -> Workload:
    return Workload(
        pass_=pass_,
        batch=2,
        channels=32,
        input_size=(7, 9),
        kernel=(3, 3),
        padding=((1, 1), (1, 1)),
        layout="nhwc",
        block=Block.parse("bn+relu,bn+relu") if pass_ not in PASSES else None,
    )


def test_a_module_with_a_template_is_found_by_its_name() -> None:
    for name, found in all_templates().items():
        assert found.name == name
        kinds = [""] if found.pass_ in PASSES else ["", "block_", "layer_norm_"]  # none: nothing is around it
        assert name.startswith(tuple(f"{found.device}.{kind}{found.pass_}_{found.layout}" for kind in kinds))
    assert {f"cpu.{pass_}_nhwc" for pass_ in PASSES} <= set(all_templates())


@pytest.mark.parametrize("pass_", PASSES)
def test_every_pass_has_a_template_on_the_cpu_in_both_layouts(pass_: Pass) -> None:
    """In NCHW both compete: the other one runs through copies."""
    for layout, names in {"nhwc": ["nhwc"], "nchw": ["nchw", "nhwc"]}.items():
        fitting = templates_for(dataclasses.replace(layer(pass_), layout=layout), TARGET)
        assert [found.name for found in fitting] == [f"cpu.{pass_}_{name}" for name in names]


def test_where_no_template_fits_each_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    picky = dataclasses.replace(template("cpu.fprop_nhwc"), misfit=lambda workload, _: f"not for {workload.dtype}")
    monkeypatch.setattr("dwconv.schedules.template.all_templates", lambda: {picky.name: picky})
    with pytest.raises(NoTemplate, match=r"no template runs fprop-.*: cpu\.fprop_nhwc: not for float32"):
        templates_for(layer("fprop"), TARGET)
    with pytest.raises(NoTemplate, match="no wgrad template for cpu yet"):
        templates_for(layer("wgrad"), TARGET)


@pytest.mark.parametrize("target", [TARGET, parse_target("cuda:sm_90")], ids=["cpu", "cuda"])
def test_a_template_fits_only_its_device_pass_layout_and_type(target: Target) -> None:
    for pass_, layout, dtype in itertools.product(PASSES, LAYOUTS, DTYPES):
        workload = dataclasses.replace(layer(pass_), layout=layout, dtype=dtype)
        fits = set()
        for name in all_templates():
            with contextlib.suppress(InvalidConfig):
                fits.add(fitting(name, workload, target).name)
        listed = set()
        with contextlib.suppress(NoTemplate):
            listed = {found.name for found in templates_for(workload, target)}
        assert fits == listed
        assert all(name.startswith(f"{target.kind}.{pass_}_") for name in fits)
        assert fits


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cpu.dgrad_nhwc", "it is for dgrad"),
        ("cuda.fprop_nhwc", "it is for cuda"),
        ("cpu.fprop_nchw", "it is for nchw"),
        ("cpu.winograd", "is unknown"),
    ],
)
def test_a_configuration_of_a_template_for_something_else_is_not_scheduled(name: str, reason: str) -> None:
    workload = layer("fprop")
    knobs = dict(template("cpu.dgrad_nhwc").space(layer("dgrad"), TARGET).default.values)
    with pytest.raises(InvalidConfig, match=reason):
        Candidate(workload, Config.of(name, **knobs)).schedule(TARGET)


@pytest.mark.parametrize("pass_", ALL_PASSES)
def test_parameters_are_the_arguments_and_then_workspaces(pass_: Pass) -> None:
    workload = layer(pass_)
    (found,) = templates_for(workload, TARGET)
    function = Candidate(workload, found.space(workload, TARGET).default).schedule(TARGET).mod["main"]
    names = [buffer.name for buffer in function.params]
    tensors = [*workload.inputs, *workload.results]
    assert names[: len(tensors)] == tensors
    assert all(name.startswith("workspace") for name in names[len(tensors) :])
    batched = [name for name, buffer in zip(names, function.params, strict=True) if str(buffer.shape[0]) == "n"]
    assert batched == [name for name in names if name in IMAGES]


def test_a_configuration_that_is_not_in_the_space_is_not_scheduled() -> None:
    workload = layer("fprop")
    default = templates_for(workload, TARGET)[0].space(workload, TARGET).default
    wrong = Config.of(default.template, **{**dict(default.values), "tile_w": 5})
    with pytest.raises(InvalidConfig, match="tile_w=5"):
        Candidate(workload, wrong).schedule(TARGET)


def test_records_that_do_not_name_newer_knobs_are_scheduled_as_if_they_did() -> None:
    """One of every template and every set of knobs that it lacks, of the logs that ship."""
    seen = set()
    for log, target in (("nvidia-h200", parse_target("cuda:sm_90")), ("amd-epyc-family-26-model-2-avx512-2t", TARGET)):
        for record in TuningLog(ROOT / f"tuning_logs/{log}.jsonl").load().records:
            found, workload, config = template(record.config.template), record.workload, record.config
            kind = (found.name, *dict(config.values))
            if kind in seen:
                continue
            whole = found.space(workload, target).check(config.to_dict())
            as_it_is, named = (found.schedule(workload, each, target) for each in (config, whole))
            tvm.ir.assert_structural_equal(as_it_is.mod, named.mod)
            seen.add(kind)
    assert len(seen) > 12


BLOCK, LN = (dataclasses.replace(layer("forward"), block=Block.parse(text)) for text in ("bn+relu,bn+relu", "none,ln"))
NCHW, WIDE = dataclasses.replace(layer("fprop"), layout="nchw"), ((0, 0), (64, 64))
NARROW = dataclasses.replace(TARGET, vector_bytes=16)


@pytest.mark.parametrize(
    ("workload", "target", "reason"),
    [
        (dataclasses.replace(BLOCK, multiplier=2), "cpu", "blocks have no channel multiplier"),
        (dataclasses.replace(LN, multiplier=2), "cpu", "blocks have no channel multiplier"),
        (
            dataclasses.replace(LN, pass_="backward", input_size=(1024, 1024)),
            "cpu",
            "more than the 67108864 of a thread",
        ),
        (dataclasses.replace(BLOCK, layout="nchw"), "cuda:sm_90", r"in the other layout it could: --layout nhwc$"),
        (dataclasses.replace(BLOCK, multiplier=2), "cuda:sm_90", r"blocks have no channel multiplier$"),
        (layer("fprop").with_epilogue("silu"), "cuda:sm_90", "it has no epilogue, the workload has epilogue=silu"),
    ],
)
def test_what_no_template_runs_says_why(workload: Workload, target: str, reason: str) -> None:
    with pytest.raises(NoTemplate, match=reason):
        templates_for(workload, TARGET if target == "cpu" else parse_target(target))


@pytest.mark.parametrize(
    ("name", "workload", "target", "reason"),
    [
        ("cpu.fprop_nhwc", NCHW.with_any_size(), TARGET, "its kernels are each built for one size"),
        ("cpu.fprop_nchw", NCHW.with_any_size(), NARROW, "it masks loads of float32"),
        ("cpu.fprop_nchw", dataclasses.replace(NCHW, stride=(1, 17)), TARGET, "stride_w=17 is beyond 16"),
        ("cpu.fprop_nchw", dataclasses.replace(NCHW, kernel=(1, 129), padding=WIDE), TARGET, "kernel_w=129"),
        ("cpu.layer_norm_forward_nhwc", BLOCK, TARGET, "it is for a LayerNorm"),
        ("cpu.block_forward_nhwc", LN, TARGET, "it is for BatchNorms"),
    ],
)  # fmt: skip
def test_a_template_that_cannot_run_a_workload_says_why(
    name: str, workload: Workload, target: Target, reason: str
) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        fitting(name, workload, target)
