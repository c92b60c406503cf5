"""The facts that every new record carries."""

from __future__ import annotations

import dataclasses

import pytest

from dwconv.measure.outcomes import new_record
from dwconv.problems.target import cpu_target, parse_target
from dwconv.records.record import Status
from dwconv.records.validity import is_current
from dwconv.schedules import template as template_module
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from dwconv.system import versions
from tests.planted_records import workload_of


@pytest.mark.parametrize("version", [1, 7])
def test_a_new_record_is_current_and_names_the_version_of_its_template(monkeypatch, version):
    known = template_module.all_templates()
    changed = {**known, "cpu.fprop_nhwc": dataclasses.replace(known["cpu.fprop_nhwc"], version=version)}
    monkeypatch.setattr(template_module, "all_templates", lambda: changed)
    candidate = Candidate(workload_of(), Config.of("cpu.fprop_nhwc", block_h=1))
    record = new_record(candidate, cpu_target(), status=Status.COMPILE_ERROR)
    assert record.versions == {**versions.installed(), "template": str(version)}
    assert is_current(record, versions.installed())


def test_relaxed_arithmetic_is_named_beside_the_versions():
    target = dataclasses.replace(parse_target("cuda:sm_90"), fast_math=True)
    record = new_record(Candidate(workload_of(), Config.of("gone")), target, status=Status.CRASHED)
    assert record.fast_math and record.versions["template"] == "1"
