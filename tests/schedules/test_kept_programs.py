"""What tests keep of builds serves only what it was made of."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dwconv.errors import BuildError
from dwconv.kernels import build, cpu_build, llvm, load_cpu
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.kernel import Kernel
from dwconv.schedules import emit
from dwconv.schedules.space import ConfigSpace
from dwconv.schedules.template import Candidate, templates_for
from tests import kept_programs
from tests.schedules.cpu_layers import TARGET, TARGETS, assert_right, layer

LAYER, OTHER = (layer(8, (9, 7), (3, 3), bias=bias) for bias in (False, True))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where nothing is kept yet."""
    monkeypatch.setenv(kept_programs.FOLDER, str(tmp_path / "programs"))
    for name in ("programs", kept_programs.ARTIFACTS, kept_programs.MACHINE_CODE):
        (tmp_path / name).mkdir()
    return tmp_path


def candidate(workload: Any) -> Candidate:
    return Candidate(workload, templates_for(workload, TARGET)[0].space(workload, TARGET).default)


def test_a_program_serves_the_same_program_and_target_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_programs, "_code", cache(lambda folder: code[0]))
    asked: list[str] = []
    code = ["a"]
    module = SimpleNamespace(__file__="cpu.py", generated=lambda program, target: asked.append(target) or target)
    kept_programs.keep(module)  # type: ignore[arg-type]
    first, other = (candidate(each).schedule(TARGET).mod for each in (LAYER, OTHER))
    for program, target in [(first, "avx2"), (first, "avx512"), (other, "avx2")] * 2:
        assert module.generated(program, target) == target
    assert len(asked) == 3
    for path in (folder / "programs").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert module.generated(first, "avx2") == "avx2" and len(asked) == 4
    kept_programs._code.cache_clear()
    code[0] = "b"
    assert module.generated(first, "avx2") == "avx2" and len(asked) == 5


def test_an_artifact_serves_the_same_candidate_target_and_code_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Candidate] = []
    code = ["a"]

    def make(candidate: Candidate, target: Any) -> Artifact:
        made.append(candidate)
        return Artifact(candidate=candidate, kind="cpu", source=str(target.vector_bytes), arguments=())

    monkeypatch.setattr(kept_programs, "sources", lambda: code[0])
    module: Any = SimpleNamespace(make=make)
    kept_programs.keep_artifacts(module, "make")
    first, other = candidate(LAYER), candidate(OTHER)
    for each, vectors in [(first, 64), (first, 32), (other, 64)] * 2:
        artifact = module.make(each, TARGETS[vectors])
        assert (artifact.candidate, artifact.source) == (each, str(vectors))
    assert len(made) == 3
    for place, name in [(emit, "ceil_div"), (ConfigSpace, "check")]:
        with monkeypatch.context() as replaced:
            replaced.setattr(place, name, property(str))
            module.make(first, TARGET)
        assert module.make(first, TARGET) is not None
    assert len(made) == 5, "a test that replaces a part of them builds anew"
    code[0] = "b"
    assert module.make(first, TARGET) and len(made) == 6


def test_artifacts_of_the_product_are_kept(folder: Path) -> None:
    made = build(candidate(LAYER), TARGET)
    (kept,), (program,) = (list((folder / name).iterdir()) for name in (kept_programs.ARTIFACTS, "programs"))
    program.unlink()
    assert build(candidate(LAYER), TARGET) == made and kept.exists() and not program.exists()
    assert cpu_build.build_cpu.__module__ == kept_programs.__name__


def test_machine_code_serves_the_same_ir_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    real = llvm.object_of
    monkeypatch.setattr(llvm, "object_of", lambda ir: compiled.append(ir) or real(ir))
    monkeypatch.setattr(load_cpu, "load_ir", load_cpu.load_ir.__wrapped__)  # type: ignore[attr-defined]
    for workload in (LAYER, OTHER, LAYER, OTHER):
        assert_right(Kernel.load(build(candidate(workload), TARGET)), workload)
    assert len(compiled) == len(list((folder / kept_programs.MACHINE_CODE).iterdir())) == 2
    with pytest.raises(BuildError):
        load_cpu.load_ir("no IR", ())
