"""Which kernels go into a pack: those that the records of the device, made with the versions installed, decide for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dwconv.packs.pack_choice import PackedChoice, choose
from dwconv.problems.target import Target, cpu_target, parse_target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.template import templates_for
from dwconv.system import versions
from tests import planted_records
from tests.packs.conftest import LAYER, SMALL

GPU = parse_target("cuda:sm_90")
"""It is not here, so that computed costs decide."""
ON_GPU = planted_records.workload_of(shape=(8, 8, 12, 12), layout="nchw")


def computed(workload: Workload = ON_GPU, *, us: float = 50.0) -> TuningRecord:
    config = templates_for(workload, GPU)[0].space(workload, GPU).default
    return planted_records.record_of(
        workload, config=config, device="sm_90", computed=True, median_us=us, baseline_us=None
    )


def chosen(tmp_path: Path, workload: Workload, target: Target, *records: TuningRecord) -> PackedChoice | None:
    log = TuningLog(tmp_path / "log.jsonl")
    for record in records:
        log.append(record)
    return choose(workload, target, Database.load([log.path]))


def measured_elsewhere() -> TuningRecord:
    record = computed()
    assert record.measurement is not None
    return dataclasses.replace(record, measurement=dataclasses.replace(record.measurement, computed=False))


@pytest.mark.parametrize(
    ("record", "is_in"),
    [
        (computed(), True),
        (measured_elsewhere(), False),  # its pack would say that it is faster
        (dataclasses.replace(computed(), status=Status.WRONG), False),
        (dataclasses.replace(computed(), measurement=None), False),
        (dataclasses.replace(computed(), versions={**versions.installed(), "math": "fast"}), False),
        (dataclasses.replace(computed(), versions={**versions.installed(), "tvm": "0.1"}), False),
    ],
)
def test_computed_costs_alone_decide_for_a_gpu_that_is_not_here(tmp_path, record, is_in):
    choice = chosen(tmp_path, ON_GPU, GPU, record)
    assert [each.workload for each in choice.candidates] == [ON_GPU] if is_in else choice is None


def test_the_nearest_batch_size_goes_before_the_least_cost_and_that_before_the_rest(tmp_path):
    larger, smaller = (dataclasses.replace(ON_GPU, batch=batch) for batch in (64, 7))
    space = templates_for(smaller, GPU)[0].space(smaller, GPU)
    cheaper = dataclasses.replace(computed(smaller, us=30.0), config=space.neighbours(space.default)[0])
    choice = chosen(tmp_path, ON_GPU, GPU, computed(larger, us=1.0), computed(smaller, us=40.0), cheaper)
    assert choice is not None and choice.record == cheaper


def on_cpu(workload: Workload, *, tvm: str = "", us: float = 50.0) -> TuningRecord:
    (template,) = (each for each in templates_for(workload, cpu_target()) if each.layout == "nhwc")
    config = template.space(workload, cpu_target()).default
    record = planted_records.record_of(workload, config=config, median_us=us, baseline_us=1000.0)
    return dataclasses.replace(record, versions={**record.versions, **({"tvm": tvm} if tvm else {})})


def test_what_was_measured_with_other_versions_does_not_decide(tmp_path):
    assert chosen(tmp_path, SMALL, cpu_target(), on_cpu(SMALL, tvm="0.1", us=1.0)) is None
    current = on_cpu(SMALL)
    choice = chosen(tmp_path, SMALL, cpu_target(), current)
    assert choice is not None and choice.record == current


def test_a_layer_with_a_bias_gets_the_kernel_without_it_if_only_that_was_measured(tmp_path):
    """A call adds the bias in a sweep of its own."""
    without = dataclasses.replace(LAYER, bias=False)
    choice = chosen(tmp_path, LAYER, cpu_target(), on_cpu(without))
    assert choice is not None and [each.workload for each in choice.candidates] == [without]
    both = chosen(tmp_path, LAYER, cpu_target(), on_cpu(LAYER, us=80.0))
    assert both is not None and [each.workload for each in both.candidates] == [LAYER]


@pytest.mark.parametrize(("us", "is_in"), [(99.0, True), (101.0, False)])
def test_a_kernel_of_both_gradients_must_be_computed_to_be_faster_than_two(tmp_path, us, is_in):
    """Whatever batch sizes they were computed at."""
    layer = dataclasses.replace(ON_GPU, layout="nhwc")
    apart = [computed(layer.for_pass("dgrad"), us=40.0), computed(layer.for_pass("wgrad").with_batch(16), us=120.0)]
    both = computed(layer.for_pass("backward"), us=us)
    assert (chosen(tmp_path, both.workload, GPU, *apart, both) is not None) == is_in


def test_one_to_compare_with_nothing_is_in(tmp_path):
    both = computed(dataclasses.replace(ON_GPU, layout="nhwc").for_pass("backward"), us=1e6)
    assert chosen(tmp_path, both.workload, GPU, computed(both.workload.convolution("dgrad"), us=1.0), both) is not None
