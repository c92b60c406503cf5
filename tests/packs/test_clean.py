"""A clean environment: no TVM, no compiler, no log, no cache. Training runs a pack's kernels, or PyTorch's ops, and
every function answers."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch

import dwconv
from dwconv import native
from tests.packs.clean import run_clean

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
from dwconv.call.call_plan import plans
(plan,) = plans()
print({{pass_: bool(kernel and kernel.artifact.library) for pass_, kernel in plan.kernels.items()}})
print("through C++" if native.module else "through Python")
torch.save([each.detach() for each in results], {results!r})
"""
)


def numbers_here(planted_log: Path, logs: Path) -> list[torch.Tensor]:
    """What the step gives with kernels that are built here."""
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


BLOCK = """
import torch, dwconv
dwconv.load_pack({pack!r})
torch.set_num_threads({threads})
torch.manual_seed(0)
norms, acts = [torch.nn.BatchNorm2d(8) for _ in range(2)], [torch.nn.ReLU6(), torch.nn.ReLU()]
conv = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
x = torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last)
block = dwconv.nn.DepthwiseBlock(bn1=norms[0], act1=acts[0], conv=conv, bn2=norms[1], act2=acts[1])
block(x).square().sum().backward()
from dwconv.call.call_plan import plans
print(*(dict(plan.tally.counted_ops()) for plan in plans()))
z = acts[1](norms[1](conv(acts[0](norms[0](x)))))
torch.testing.assert_close(block(x), z, rtol=1e-4, atol=1e-4)
"""


@pytest.mark.slow
def test_a_block_of_a_pack_runs_as_one(pack, tmp_path):
    done = run_clean(tmp_path, BLOCK.format(pack=str(pack), threads=torch.get_num_threads()))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{'forward': 1, 'backward': 1}\n"


@pytest.mark.slow
def test_without_a_pack_pytorchs_op_runs_there(tmp_path):
    """Nothing can be built, so neither shipped records nor predictions count."""
    text = program("warnings.simplefilter('ignore')", tmp_path / "results.pt")
    done = run_clean(tmp_path, text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "{'fprop': False, 'dgrad': False, 'wgrad': False}"


EVERYTHING = """
import contextlib, io, sys, warnings
import torch, dwconv
from dwconv import export, show, tune
warnings.simplefilter("ignore")

def refused(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except dwconv.DwconvError as error:
        return str(error)

def said(command, *arguments):
    with contextlib.redirect_stderr(io.StringIO()) as told:
        code = command([*arguments])
    return code, told.getvalue().splitlines()[-1]

x = torch.randn(4, 8, 9, 7).to(memory_format=torch.channels_last).requires_grad_()
has = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)  # in the pack; the other is not
model = torch.nn.Sequential(has, torch.nn.Conv2d(8, 8, 5, padding=2, groups=8)).to(memory_format=torch.channels_last)
plain = model(x).detach()
shape = "--shape", "4,8,9,7", "--kernel", "3"
print("layers", len(dwconv.layers(model, x).layers))
print("tune", refused(dwconv.tune, model, x, minutes=1))
print("command", *said(tune.main, *shape))
print("command", *said(export.main, *shape, "-o", "pack"))
print("command", *said(show.main, *shape, "--what", "source"))
for pack in (None, {pack!r}):
    pack and dwconv.load_pack(pack)
    with contextlib.redirect_stderr(io.StringIO()) as told:
        dwconv.convert(model, x)
    model(x).square().sum().backward()
    assert not told.getvalue() and torch.allclose(model(x), plain, atol=1e-4)
    print("summary", str(dwconv.summary(model)).replace("\\n", "|"))
    for layer, padding in zip(model, (1, 2)):
        print("explain", str(dwconv.explain(x, layer.weight, layer.bias, padding=padding)).replace("\\n", "|"))
    for report in (dwconv.report(model), dwconv.report(model, x)):
        print("report", str(report).replace("\\n", "|"))
"""
NO_TVM = "TVM, which builds kernels, is not installed"
WAY_OUT = "tune where TVM is, and load a pack made there (python -m dwconv.export)"


@pytest.mark.slow
def test_what_needs_tvm_says_so_in_one_line_and_everything_else_works(pack, tmp_path):
    """Without a pack, and then with one that has the first of two layers."""
    done = run_clean(tmp_path, EVERYTHING.replace("{pack!r}", repr(str(pack))))
    assert (done.returncode, done.stderr) == (0, "")
    layers, tune, *commands = done.stdout.splitlines()[:5]
    assert layers == "layers 2"
    error = f"{NO_TVM}; run: pip install dwconv; or {WAY_OUT}"
    assert tune == f"tune {error}"
    assert commands == [f"command 2 error: {error}"] * 3
    without, with_pack = (done.stdout.splitlines()[start : start + 5] for start in (5, 10))
    took = r"\|0 passes raced in \d+\.\d s; "
    assert re.search(took + r"6 left for the next time\|", without[0])
    assert re.search(took + r"3 known before; 3 left for the next time\|", with_pack[0])
    nothing = f"pytorch  no loaded pack has it, and {NO_TVM}|"
    for summary, has, other, *reports in (without, with_pack):
        assert f"|not all was raced: {error}" in summary
        assert has.count(nothing) == (3 if has == without[1] else 0)
        assert (other.count(nothing), "|  race:" in other) == (3, False)
        assert f"|  {WAY_OUT}: python -m dwconv.tune --shape 4,8,9,7 --kernel 5" in other
        for report in reports:
            assert f"|{NO_TVM}: {WAY_OUT}" in report and f"] no loaded pack has it, and {NO_TVM}|" in report
    assert with_pack[1].count("  dwconv   20.00× as fast") == 3 and str(pack / "records.jsonl") in with_pack[1]
    assert all("dwconv cpu.wgrad_nhwc" in report for report in with_pack[3:])
