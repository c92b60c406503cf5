"""A pack of a few kernels, made once for all tests of this folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dwconv import settings
from dwconv.packs.write_pack import MadePack, make_pack
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import BLOCK_PASSES, PASSES
from dwconv.records.database import Database
from tests import planted_records

LAYER = planted_records.workload_of(shape=(4, 8, 9, 7), bias=True)
SMALL = planted_records.workload_of(shape=(2, 8, 4, 6, 5), kernel=(3, 3, 3))
BLOCK = planted_records.workload_of(shape=(2, 8, 9, 7), block="bn+relu6,bn+relu")


@pytest.fixture(scope="session")
def planted_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planted") / "log.jsonl"
    planted_records.plant(path, [LAYER, SMALL, BLOCK])
    return path


@pytest.fixture(scope="session")
def made(planted_log: Path, tmp_path_factory: pytest.TempPathFactory) -> MadePack:
    if shutil.which(settings.linker()) is None:
        pytest.skip("packs for a CPU are linked by a C++ compiler")
    workloads = [layer.for_pass(pass_) for layer in (LAYER, SMALL) for pass_ in PASSES]
    workloads += [BLOCK.for_pass(pass_) for pass_ in BLOCK_PASSES]
    folder = tmp_path_factory.mktemp("packs") / "pack"
    return make_pack(workloads, cpu_target(), folder=folder, known=Database.load([planted_log]))


@pytest.fixture
def pack(made: MadePack, tmp_path: Path) -> Path:
    """A copy of the pack, which a test may damage."""
    return Path(shutil.copytree(made.folder, tmp_path / "pack"))
