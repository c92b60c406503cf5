"""Validity: a record holds for the versions that it was measured with."""

from __future__ import annotations

import dataclasses

import pytest

from dwconv.records.record import Status, is_current, made_with
from dwconv.schedules import template as template_module
from dwconv.schedules.space import Config
from tests.planted_records import record_of, workload_of

INSTALLED = {"dwconv": "9", "torch": "2.13.0+cpu", "tvm": "0.27.0"}
MADE = {"torch": "2.13.0+cpu", "tvm": "0.27.0", "template": "1"}
CPU, CUDA = Config.of("cpu.fprop_nhwc"), Config.of("cuda.fprop_nhwc")


def made(*, config=CPU, without=(), status=Status.OK, computed=False, **other):
    versions = {name: version for name, version in {**MADE, **other}.items() if name not in without}
    record = record_of(workload_of(), config=config, status=status, computed=computed)
    return dataclasses.replace(record, versions=versions)


@pytest.mark.parametrize(
    ("record", "difference"),
    [
        (made(), ""),
        (made(dwconv="0.1"), ""),
        (made(torch="2.13.0"), ""),  # another build of the same release
        (made(torch="2.13.0+cu130"), ""),
        (made(torch="2.13.1"), "PyTorch 2.13.1"),
        (made(torch="2.12.0+cpu", tvm="0.26"), "PyTorch 2.12.0+cpu, TVM 0.26"),
        (made(without=["torch"]), "PyTorch an unknown version"),
        (made(without=["tvm"]), "TVM an unknown version"),
        (made(without=["template"]), ""),  # written before there were any
        (made(template="2"), "version 2 of cpu.fprop_nhwc"),
        (made(config=CUDA), ""),
        (made(config=CUDA, torch="2.13.0+cu130"), "PyTorch 2.13.0+cu130"),  # with libraries of its own
        (made(computed=True, torch="2.12.0"), ""),  # computed: PyTorch's op has no part in it
        (made(status=Status.COMPILE_ERROR, torch="2.12.0"), ""),
        (made(status=Status.COMPILE_ERROR, tvm="0.26"), "TVM 0.26"),
    ],
)
def test_a_record_is_current_if_it_was_made_with_what_is_installed(record, difference):
    assert made_with(record, INSTALLED) == difference
    assert is_current(record, INSTALLED) == (difference == "")


def test_a_template_that_was_changed_leaves_its_records_behind(monkeypatch):
    known = template_module.all_templates()
    changed = {**known, CPU.template: dataclasses.replace(known[CPU.template], version=2)}
    monkeypatch.setattr(template_module, "all_templates", lambda: changed)
    assert made_with(made(), INSTALLED) == "version 1 of cpu.fprop_nhwc"
    assert made_with(made(without=["template"]), INSTALLED) == "version 1 of cpu.fprop_nhwc"
    assert is_current(made(template="2"), INSTALLED)
    assert is_current(made(config=CUDA, torch="2.13.0+cpu"), INSTALLED), "another template"
