"""A pack for every layer: any batch, size and number of channels, on every CPU with a vector set, without TVM."""

from __future__ import annotations

import copy
import itertools
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import dwconv
from dwconv import settings
from dwconv.call.call_plan import plans
from dwconv.errors import BuildError, DwconvWarning
from dwconv.kernels.artifact import Artifact
from dwconv.packs.write_pack import counted, make_pack_for_every_layer
from dwconv.problems.block import NOTHING, Block
from dwconv.problems.target import FORCED_VECTOR_SETS, cpu_target, parse_target, target_of_vector_set
from dwconv.problems.workload import LAYOUTS, PASSES, Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, templates_for
from dwconv.system import cpu_facts
from dwconv.untuned.every_layer import any_layer, candidates, configs, for_layer, passes_of
from tests.packs.clean import run_clean
from tests.packs.forging import forge_kernels
from tests.packs.test_export import error_of

SETS = [name for name in FORCED_VECTOR_SETS if cpu_facts.cpu_facts().has(name)]
pytestmark = pytest.mark.skipif(not SETS, reason="this CPU has no set of vectors that packs are made for")


@pytest.fixture(scope="module")
def of_every_layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of the three passes of a 3×3 kernel of stride 1, with a dilation or a multiplier, too, and for few
    channels; of one of 4×4 of stride 2; of a row and a column of an image; and of a contiguous one of 3×3×3."""
    if shutil.which(settings.linker()) is None:
        pytest.skip("packs for a CPU are linked by a C++ compiler")
    target = target_of_vector_set(SETS[-1])
    every = [each for each in candidates(target, taps=[3, 4, 7]) if not each.workload.bias]
    dense = [each for each in every if max(each.workload.stride) == 1 and max(each.workload.dilation) <= 2]
    few = [each for each in dense if each.workload.kernel == (3, 3)]
    few = [each for each in few if each.workload.layout == "nhwc" or each.workload.multiplier == 1]
    few += [each for each in dense if each.workload.axes == 3 and each.workload.layout == "nchw"]
    of_images = [each for each in every if each.workload.layout == "nhwc" and not each.workload.is_row]
    few += [each for each in of_images if (each.workload.kernel, each.workload.stride) == ((4, 4), (2, 2))]
    few += [each for each in of_images if each.workload.kernel in ((1, 7), (7, 1))]
    return make_pack_for_every_layer(few, target, folder=tmp_path_factory.mktemp("packs") / "pack").folder


TRAINING = """
import copy, importlib.util, torch, dwconv
assert importlib.util.find_spec("tvm") is None
torch.set_num_threads({threads})
dwconv.load_pack({pack!r}, unmeasured=True)
torch.manual_seed(0)
from dwconv.call.call_plan import plans
last, planes = torch.channels_last, torch.contiguous_format
of_images, of_volumes, up = torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.ConvTranspose2d
k3, dilated, doubled = {{"kernel_size": 3, "padding": 1}}, {{"kernel_size": 3, "padding": 2, "dilation": 2}}, {{
    "kernel_size": 4, "stride": 2, "padding": 1}}
along = {{"kernel_size": (1, 7), "padding": (0, 9), "dilation": (1, 3)}}
LAYERS = ((of_images, k3, last, 16, 1, (4, 9, 7), (1, 30, 5)), (of_images, k3, last, 41, 1, (2, 6, 13), (1, 1, 1)),
          (of_images, k3, planes, 3, 1, (2, 7, 40)), (of_volumes, k3, planes, 5, 1, (2, 3, 7, 9), (1, 1, 20, 2)),
          (of_images, k3, last, 5, 1, (4, 9, 7), (1, 30, 5)), (of_images, k3, last, 24, 2, (2, 6, 13), (1, 1, 1)),
          (of_images, dilated, last, 16, 1, (2, 9, 7)), (of_images, along, last, 16, 1, (2, 9, 7), (1, 3, 30)),
          (up, doubled, last, 20, 1, (2, 5, 7), (1, 1, 1)))
for convolution, how, lies, channels, times, *sizes in LAYERS:
    layer = convolution(channels, times * channels, groups=channels, **how)
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
    done = run_clean(tmp_path, TRAINING.format(pack=str(of_every_layer), threads=torch.get_num_threads(), layers=16))
    assert done.returncode == 0, done.stderr


RACE = """
import torch, dwconv
torch.set_num_threads({threads})
dwconv.load_pack({pack!r})
layer = torch.nn.Sequential(torch.nn.Conv2d(48, 48, 3, padding=1, groups=48, bias=False))
layer = dwconv.convert(layer.to(memory_format=torch.channels_last), x := torch.randn(4, 48, 20, 20).to(
    memory_format=torch.channels_last), seconds=600)
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


def swapped(artifacts: dict[str, Artifact]) -> dict[str, object]:
    """The machine code of fprop and of dgrad in each other's place."""
    of_layer = {(one.candidate.workload.layer_kind, one.candidate.config.values): one for one in artifacts.values()}
    other = {"fprop": "dgrad", "dgrad": "fprop"}

    def code_of(one: Artifact) -> bytes:
        pass_ = one.candidate.workload.pass_
        twins = [
            each
            for each in of_layer.values()
            if each.candidate.workload.layout == one.candidate.workload.layout
            and each.candidate.workload.kernel == one.candidate.workload.kernel
            and each.candidate.workload.pass_ == other.get(pass_, pass_)
        ]
        return twins[0].library

    return {path: replace(one, library=code_of(one)) for path, one in artifacts.items()}


def test_a_wrong_kernel_is_found_at_first_use_and_pytorchs_op_runs(of_every_layer, no_packs, tmp_path):
    pack = Path(shutil.copytree(of_every_layer, tmp_path / "pack"))
    forge_kernels(pack, swapped)  # taps the other way round
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
        (["--target", "cpu:avx2", "--kernel", "12"], "kernel=12: no pack for every layer has it"),
    ],
)
def test_the_command_refuses_bad_input(options, words, capsys, tmp_path):
    assert words in error_of(capsys, "--generic", *options, "-o", tmp_path / "pack")


def test_a_kernel_that_cannot_be_built_is_named_and_no_pack_is_left(tmp_path):
    target = target_of_vector_set(SETS[-1])
    layer = any_layer(kernel=(3, 3), stride=(1, 1), padding=((1, 1), (1, 1)))
    (template,) = templates_for(layer, target)
    wrong = Config.of(template.name, **dict(template.space(layer, target).default.values) | {"tile_w": 999})
    many = [Candidate(replace(layer, batch=batch), wrong) for batch in range(1, 12)]
    with pytest.raises(BuildError, match=r"fprop-n\d+-c192-28x28-k3x3.*tile_w"):
        make_pack_for_every_layer(many, target, folder=tmp_path / "pack")
    assert list(tmp_path.iterdir()) == []


def test_lines_count_the_kernels_now_and_then(capsys, monkeypatch):
    """Two seconds each: without a terminal a line comes after five seconds, with the time left at that pace."""
    now_s = iter(range(0, 4000, 2))
    monkeypatch.setattr(time, "monotonic", lambda: next(now_s))
    assert [*counted(iter(range(400)), total=400)] == [*range(400)]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "note: 3 of 400 kernels compiled, about 13 minutes left"
    assert lines[-1] == "note: 399 of 400 kernels compiled, about 2 s left" and len(lines) == 133
    assert [*counted(iter([1]), total=1)] == [1] and capsys.readouterr().err == ""


@pytest.mark.parametrize("target", SETS)
def test_all_passes_of_the_kernels_of_known_networks_are_in_it(target):
    found = {each.workload.layer_kind for each in candidates(target_of_vector_set(target))}
    padded = [((1, 4), 1, (3, 0)), *(((1, taps), 1, (taps // 2,) * 2) for taps in (5, 9, 15, 31))]  # Mamba, Conformer
    padded += [((taps, taps), stride, (taps // 2,) * 2) for taps in (3, 5, 7, 9, 11) for stride in (1, 2)]
    padded += [((taps, taps), 1, (taps // 2,) * 2) for taps in (13, 27, 29, 31)]  # RepLKNet
    padded += [((3, 3, 3), stride, (1, 1)) for stride in (1, 2)]  # X3D, MedNeXt
    padded += [((4, 4), 2, (1, 1)), ((2, 2), 2, (0, 0)), ((2, 2, 2), 2, (0, 0))]  # up by transposed layers
    dilated = [  # VAN, the same of rows and columns, UniRepLKNet, DeepLab
        *(
            ((taps, taps), dilation)
            for taps, dilation in ((7, 3), (7, 2), (3, 3), (3, 4), (3, 5), (3, 6), (3, 12), (3, 18))
        ),
        *((kernel, dilation) for taps, dilation in ((5, 1), (7, 3)) for kernel in ((1, taps), (taps, 1))),
    ]
    for layout in LAYOUTS if target == "avx512" else ("nhwc",):
        for kernel, stride, beside in padded:
            padding = tuple((0, 0) if taps == 1 else beside for taps in kernel)
            is_row, strides = kernel[0] == 1, (stride,) * len(kernel)
            layer = any_layer(kernel=kernel, stride=strides, padding=padding, layout=layout, is_row=is_row)
            assert {each.layer_kind for each in passes_of(layer)} <= found, layer.key
        for kernel, dilation in dilated:
            steps = tuple(1 if taps == 1 else dilation for taps in kernel)
            sides = tuple((taps // 2 * step,) * 2 for taps, step in zip(kernel, steps, strict=True))
            layer = any_layer(kernel=kernel, stride=(1, 1), padding=sides, dilation=steps, layout=layout)
            assert {each.layer_kind for each in passes_of(layer)} <= found, layer.key
        for taps, stride, side, step in (
            (3, 1, 2, 2),
            (3, 1, 8, 8),
            (16, 8, 4, 1),
            (10, 5, 0, 1),
        ):  # TCN, HiFi-GAN, banks
            row = {"kernel": (1, taps), "stride": (1, stride), "padding": ((0, 0), (side, side)), "dilation": (1, step)}
            layer = any_layer(**row, layout=layout, is_row=True)
            assert {each.layer_kind for each in passes_of(layer)} <= found, layer.key


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_race_has_kernels_for_rows_and_columns_of_images(layout):
    """Images of one row are sequences: what is cut for them is of no use here."""
    target = target_of_vector_set(SETS[-1])
    for kernel, padding in (((1, 7), ((0, 0), (9, 9))), ((7, 1), ((9, 9), (0, 0))), ((51, 5), ((25, 25), (2, 2)))):
        dilation = tuple(3 if taps == 7 else 1 for taps in kernel)
        layer = Workload(
            pass_="fprop", batch=2, channels=64, input_size=(28, 28), kernel=kernel, padding=padding, dilation=dilation,
            layout=layout,
        )  # fmt: skip
        for pass_ in PASSES:
            found = for_layer(layer.for_pass(pass_), target)
            assert found and {each.workload.layer_kind for each in found} == {layer.for_pass(pass_).layer_kind}
            assert not found[0].workload.is_row


def block_of(text: str, pass_: str, **more) -> Workload:
    layer = any_layer(kernel=(3, 3), stride=(2, 2), padding=((1, 1), (1, 1)))
    own = {"any_size": False, "any_channels": False, "channels": 144, "input_size": (56, 56)}
    return replace(layer, **{**own, "pass_": pass_, "block": Block.parse(text), **more})


@pytest.mark.parametrize("pass_", ["forward", "backward", "inference"])
@pytest.mark.parametrize("text", ["bn+relu6,bn+relu6", "bn+relu,bn", "in+silu,in", "frozen+relu,frozen"])
def test_blocks_that_differ_in_size_and_channels_alone_share_one_kernel(text, pass_):
    if (text[:2], pass_) == ("in", "inference"):
        pytest.skip("the statistics of images are not given")
    target = target_of_vector_set(SETS[-1])
    layers = [block_of(text, pass_), block_of(text, pass_, channels=960, input_size=(7, 9), batch=3)]
    (general,) = {each for layer in layers for each in for_layer(layer, target)}
    assert general.workload.any_channels and general.workload.layer_kind == layers[0].layer_kind
    for few in {4, target.lanes() - 1} if target.lanes() > 4 else ():
        (of_few,) = for_layer(block_of(text, pass_, channels=few), target)
        assert of_few.workload.channels == 4, "its vectors are as long as that"


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("pass_", ["forward", "backward", "inference"])
def test_packs_have_blocks_of_known_networks_and_a_race_takes_these_first(name, pass_):
    """On any number of threads. With many of them it has one that cuts images into more tasks, too."""
    packed = candidates(target_of_vector_set(name))
    for norm, act in itertools.product(("bn", "bn@0.001"), ("relu", "hardswish", "silu")):
        for taps, stride in itertools.product((3, 5), (1, 2)):  # MobileNetV3, EfficientNet, of PyTorch's and Keras' eps
            layer = block_of(
                f"{norm}+{act},{norm}+{act}", pass_, kernel=(taps,) * 2, stride=(stride,) * 2,
                padding=((taps // 2,) * 2,) * 2,
            )  # fmt: skip
            found = {threads: for_layer(layer, cpu_target(threads=threads, vector_set=name)) for threads in (1, 2, 64)}
            assert found[1] == found[2] == found[64][:1] and found[1][0] in packed
            assert found[64][1].config.block_h < found[1][0].config.block_h
    assert {each.layer_kind for each in map(mobilenet_v2, (1, 2))} <= {each.workload.layer_kind for each in packed}


def mobilenet_v2(stride: int) -> Workload:
    return block_of("bn+relu6,bn+relu6", "forward", stride=(stride,) * 2)


def test_blocks_of_other_kinds_have_a_kernel_each():
    target = target_of_vector_set(SETS[-1])
    volume = {"input_size": (4, 9, 9), "kernel": (3,) * 3, "stride": (1,) * 3, "padding": ((1, 1),) * 3}
    others = (
        block_of("bn+relu,bn", "forward", **volume, dilation=(1,) * 3),
        block_of("none,ln", "forward"),
        block_of(str(NOTHING), "backward"),
        block_of("bn+relu,bn", "forward", layout="nchw"),
        block_of("bn+relu,bn", "forward", channels=3),
    )
    assert [for_layer(each, target) for each in others] == [[]] * len(others)
    assert for_layer(block_of("bn+relu,bn", "forward"), parse_target("cuda:sm_90")) == []


def test_a_small_channels_last_kernel_has_two_configurations_each():
    target = target_of_vector_set(SETS[-1])
    layer = any_layer(kernel=(3, 3), stride=(2, 2), padding=((1, 1), (1, 1)))
    for workload in passes_of(layer):
        template, *others = templates_for(workload, target)
        found = configs(template, workload, target)
        assert not others and len(found) == 2


def test_for_a_gpu_there_are_five_configurations_of_each_kernel_the_estimated_best_first():
    target = parse_target("cuda:sm_90")
    workload = any_layer(kernel=(1, 4), stride=(1, 1), padding=((0, 0), (3, 0)), is_row=True)
    template, *others = templates_for(workload, target)
    found = configs(template, workload, target)
    assert not others and len(set(found)) == 5
    assert found[0] == template.space(workload, target).default
    costs = [template.estimate_us(workload, config, target) for config in found[1:4]]
    assert costs == sorted(costs)
    assert any(config.vector_c <= 2 for config in found), "for layers of few channels"
    rare = any_layer(kernel=(1, 31), stride=(1, 1), padding=((0, 0), (15, 15)), is_row=True)
    assert len(configs(template, rare, target)) == 2
