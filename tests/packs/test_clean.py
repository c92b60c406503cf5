"""A pack in a clean environment: no TVM, no compiler, no log, no cache. Training runs the pack's kernels."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from packs.clean import run_clean

import dwconv
from dwconv import native
from dwconv.packs.wheel import write_wheel

STEP = """
torch.manual_seed(0)
layer = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1, groups=8))
layer = layer.to(memory_format=torch.channels_last)
x = torch.randn(4, 8, 9, 7).to(memory_format=torch.channels_last).requires_grad_()
dwconv.convert(layer)
y = layer(x)
y.square().sum().backward()
results = [y, x.grad, *(each.grad for each in layer.parameters())]
"""
PROGRAM = (
    """
import importlib.util, pathlib, shutil, sys, warnings
assert importlib.util.find_spec("tvm") is None and importlib.util.find_spec("tvm_ffi") is None
assert shutil.which("c++") is None and shutil.which("ld") is None
import torch, dwconv
torch.set_num_threads({threads})
warnings.simplefilter("error")
{load}
"""
    + STEP
    + """
from dwconv import native
from dwconv.call.plan import plans
(plan,) = plans()
print({{pass_: bool(kernel and kernel.artifact.library) for pass_, kernel in plan.kernels.items()}})
print("through C++" if native.module else "through Python")
torch.save([each.detach() for each in results], {results!r})
"""
)


def numbers_here(planted_log: Path, logs: Path) -> list[torch.Tensor]:
    """The same step with kernels that are built here."""
    (logs / "log.jsonl").write_bytes(planted_log.read_bytes())
    dwconv.reset()
    names = {"torch": torch, "dwconv": dwconv}
    exec(STEP, names)
    return [each.detach() for each in names["results"]]


def program(load: str, results: Path) -> str:
    return PROGRAM.format(load=load, results=str(results), threads=torch.get_num_threads())


def test_a_step_runs_the_packs_kernels_with_the_same_bits(pack, planted_log, no_packs, logs, tmp_path):
    moved = Path(shutil.move(pack, tmp_path / "moved"))
    results = tmp_path / "results.pt"
    done = run_clean(tmp_path, program(f"dwconv.load_pack({str(moved)!r})", results))
    assert done.returncode == 0, done.stderr
    passes, way = done.stdout.splitlines()
    assert passes == "{'fprop': True, 'dgrad': True, 'wgrad': True}"
    assert way == ("through C++" if native.module else "through Python")
    assert all(map(torch.equal, torch.load(results), numbers_here(planted_log, logs)))


@pytest.mark.slow
def test_so_does_the_wheels_package(made, planted_log, no_packs, logs, tmp_path):
    wheel = write_wheel(made.folder, made.manifest, name="my_kernels", folder=tmp_path)
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    results = tmp_path / "results.pt"
    done = run_clean(tmp_path, program("import my_kernels", results), path=str(tmp_path / "site"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "{'fprop': True, 'dgrad': True, 'wgrad': True}"
    assert all(map(torch.equal, torch.load(results), numbers_here(planted_log, logs)))


@pytest.mark.slow
def test_without_a_pack_pytorchs_op_runs_there(tmp_path):
    """Nothing can be built, so neither shipped records nor predictions count."""
    text = program("warnings.simplefilter('ignore')", tmp_path / "results.pt")
    done = run_clean(tmp_path, text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "{'fprop': False, 'dgrad': False, 'wgrad': False}"
