"""A pack for every layer: any batch, size and number of channels, on every CPU with a vector set, without TVM."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch

import dwconv
from dwconv import settings
from dwconv.call.call_plan import plans
from dwconv.errors import DwconvWarning
from dwconv.packs.every_layer import any_layer, candidates, configs, target_of_vector_set
from dwconv.packs.make import make_pack_for_every_layer
from dwconv.packs.manifest import Manifest
from dwconv.problems.target import FORCED_VECTOR_SETS, parse_target
from dwconv.schedules.template import templates_for
from dwconv.system import cpu_facts
from tests.packs.clean import run_clean
from tests.packs.forging import forge
from tests.packs.test_export import error_of

SETS = [name for name in FORCED_VECTOR_SETS if cpu_facts.cpu_facts().has(name)]
pytestmark = pytest.mark.skipif(not SETS, reason="this CPU has no set of vectors that packs are made for")


@pytest.fixture(scope="module")
def of_every_layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of the three passes of a 3×3 kernel of stride 1."""
    if shutil.which(settings.linker()) is None:
        pytest.skip("packs for a CPU are linked by a C++ compiler")
    target = target_of_vector_set(SETS[-1])
    few = [each for each in candidates(target, taps=[3]) if each.workload.kernel[0] == 3]
    few = [each for each in few if each.workload.stride == (1, 1) and not each.workload.bias]
    return make_pack_for_every_layer(few, target, folder=tmp_path_factory.mktemp("packs") / "pack").folder


TRAINING = """
import copy, importlib.util, torch, dwconv
assert importlib.util.find_spec("tvm") is None
torch.set_num_threads({threads})
dwconv.load_pack({pack!r}, unmeasured=True)
torch.manual_seed(0)
from dwconv.call.call_plan import plans
last, planes = torch.channels_last, torch.contiguous_format
LAYERS = (last, 16, (4, 9, 7), (1, 30, 5)), (last, 41, (2, 6, 13), (1, 1, 1)), (planes, 3, (2, 7, 40))
for lies, channels, *sizes in LAYERS:
    layer = torch.nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
    exact = copy.deepcopy(layer).double()
    dwconv.convert(layer.to(memory_format=lies))
    for batch, *size in sizes:
        x = torch.randn(batch, channels, *size).to(memory_format=lies).requires_grad_()
        like = x.detach().double().requires_grad_()
        for each, given in ((layer, x), (exact, like)):
            each.zero_grad()
            each(given).square().sum().backward()
        for ours, right in ((x, like), *zip(layer.parameters(), exact.parameters())):
            torch.testing.assert_close(ours.grad.double(), right.grad, rtol=1e-4, atol=1e-4)
ran = [sorted(pass_ for pass_, kernel in plan.kernels.items() if kernel) for plan in plans()]
assert ran == {layers} * [["dgrad", "fprop", "wgrad"]], ran
"""


def test_layers_of_any_size_train_without_tvm(of_every_layer, tmp_path):
    done = run_clean(tmp_path, TRAINING.format(pack=str(of_every_layer), threads=torch.get_num_threads(), layers=5))
    assert done.returncode == 0, done.stderr


RACE = """
import torch, dwconv
torch.set_num_threads({threads})
dwconv.load_pack({pack!r})
layer = torch.nn.Sequential(torch.nn.Conv2d(48, 48, 3, padding=1, groups=48, bias=False))
layer = dwconv.convert(layer.to(memory_format=torch.channels_last), x := torch.randn(4, 48, 20, 20).to(
    memory_format=torch.channels_last), seconds=30)
(race,) = dwconv.summary(layer).races
assert race.raced == 2 and not race.failed and not race.problem, race
from dwconv.dispatch.decide import decide
measured = decide(race.records[0].workload, "cpu")
assert measured.record is not None or race.inconclusive, measured
elsewhere = decide(race.records[0].workload.with_input_size((19, 23)), "cpu")
assert "as it was measured at 4×48×20×20" in elsewhere.reason or race.inconclusive, elsewhere
assert elsewhere.provider == measured.provider or race.inconclusive
"""


@pytest.mark.slow
def test_convert_races_the_packs_kernels_without_tvm_and_what_it_finds_holds_at_other_sizes(of_every_layer, tmp_path):
    done = run_clean(tmp_path, RACE.format(pack=str(of_every_layer), threads=torch.get_num_threads()))
    assert done.returncode == 0, done.stderr


def swap(one: str, other: str) -> Callable[[Manifest], Manifest]:
    """The machine code of two passes in each other's place."""

    def change(manifest: Manifest) -> Manifest:
        passes = {one: other, other: one}
        files = {(kernel.workload["layout"], kernel.workload["pass"]): kernel.file for kernel in manifest.kernels}
        kernels = []
        for kernel in manifest.kernels:
            layout, pass_ = kernel.workload["layout"], kernel.workload["pass"]
            kernels.append(msgspec.structs.replace(kernel, file=files[layout, passes.get(pass_, pass_)]))
        return msgspec.structs.replace(manifest, kernels=kernels)

    return change


def test_a_wrong_kernel_is_found_at_first_use_and_pytorchs_op_runs(of_every_layer, no_packs, tmp_path):
    pack = Path(shutil.copytree(of_every_layer, tmp_path / "pack"))
    forge(pack, swap("fprop", "dgrad"))  # taps the other way round
    dwconv.load_pack(pack, unmeasured=True)
    layer = torch.nn.Conv2d(40, 40, 3, padding=1, groups=40, bias=False).to(memory_format=torch.channels_last)
    x = torch.randn(2, 40, 9, 8).to(memory_format=torch.channels_last).requires_grad_()
    expected = copy.deepcopy(layer)(x)
    with pytest.warns(DwconvWarning, match="gave wrong results when it was checked here"):
        y = dwconv.convert(layer)(x)
        y.sum().backward()
    torch.testing.assert_close(y, expected)
    (plan,) = plans()
    assert {pass_: bool(kernel) for pass_, kernel in plan.kernels.items()} == {
        "fprop": False, "dgrad": False, "wgrad": True
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target", "cpu"], "or for an architecture of GPUs; use cpu:avx512, cpu:avx2, cpu:neon or cuda:sm_90"),
        (["--target", "cpu:avx2", "--shape", "1,8,9,9", "--kernel", "3"], "--shape goes without --generic"),
        (["--target", "cpu:avx2", "--kernel", "8"], "kernel=8: no pack for every layer has it"),
    ],
)
def test_the_command_refuses_bad_input(options, words, capsys, tmp_path):
    assert words in error_of(capsys, "--generic", *options, "-o", tmp_path / "pack")


def test_for_a_gpu_there_are_five_configurations_of_each_kernel_the_estimated_best_first():
    target = parse_target("cuda:sm_90")
    workload = any_layer(kernel=(1, 4), stride=(1, 1), padding=((0, 0), (3, 0)))
    template, *others = templates_for(workload, target)
    found = configs(template, workload, target)
    assert not others and len(set(found)) == 5
    assert found[0] == template.space(workload, target).default
    costs = [template.estimate_us(workload, config, target) for config in found[1:4]]
    assert costs == sorted(costs)
    assert any(config.vector_c <= 2 for config in found), "for layers of few channels"
