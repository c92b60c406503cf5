"""Validity: a time holds for the versions that it was measured with.

A record compares one generated program with one version of PyTorch's op. Where another PyTorch, another TVM or another
version of the template is installed, both may be faster or slower: the record then is not *current*, and what it says
is a prediction.
"""

from __future__ import annotations

from collections.abc import Mapping

from dwconv.records.record import TuningRecord
from dwconv.schedules.template import version_of

_UNKNOWN = "an unknown version"


def is_current(record: TuningRecord, installed: Mapping[str, str]) -> bool:
    """True if the record was made with the versions of PyTorch (``torch``) and TVM (``tvm``) that are ``installed``,
    and by the version that its template has here.

    A patch release may change a kernel, so it counts as another version. What stands behind a ``+`` names the build:
    on a CPU all builds of a release have the same ops, on a GPU they come with libraries of different ages. PyTorch's
    version counts only for what was timed beside its ops, and TVM's only where it is installed: without it nothing can
    run but what was built elsewhere. A record that names no template version is of the first."""
    return not made_with(record, installed)


def made_with(record: TuningRecord, installed: Mapping[str, str]) -> str:
    """The versions in which the record differs from what is installed, in words: ``PyTorch 2.12.0``; empty if it is
    current."""
    differences = []
    if record.measured and _torch(record, record.versions) != _torch(record, installed):
        differences.append(f"PyTorch {record.versions.get('torch', _UNKNOWN)}")
    if "tvm" in installed and record.versions.get("tvm") != installed["tvm"]:
        differences.append(f"TVM {record.versions.get('tvm', _UNKNOWN)}")
    name = record.config.template
    if template_version(record) != str(version_of(name)):
        differences.append(f"version {template_version(record)} of {name}")
    return ", ".join(differences)


def template_version(record: TuningRecord) -> str:
    """The version of the template that made the record's kernel."""
    return record.versions.get("template", "1")


def _torch(record: TuningRecord, versions: Mapping[str, str]) -> str | None:
    """PyTorch's version, as far as its ops for the record's device depend on it."""
    version = versions.get("torch")
    is_on_gpu = record.config.template.startswith("cuda.")
    return version if version is None or is_on_gpu else version.partition("+")[0]
