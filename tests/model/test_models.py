"""Models by name, of libraries that are fakes; and blocks of well-known models, if their libraries are here."""

from __future__ import annotations

import copy
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

import dwconv
from dwconv.call.call_plan import plans
from dwconv.errors import BrokenInstallation, InvalidWorkload
from dwconv.model.by_name import load_model
from dwconv.tuner import model_race
from tests.models import TinyNet
from tests.planted_records import plant

NAMES = ["mobilenetv3_small_050", "mobilenetv3_large_100", "convnext_tiny", "resnet50"]


class Made(nn.Identity):
    """What a library made, and how it was asked."""

    def __init__(self, *asked: object, **options: object) -> None:
        super().__init__()
        self.asked, self.options = asked, options


def fake(name: str, **contents: object) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(contents)
    return module


@pytest.fixture
def libraries(monkeypatch):
    def list_models():
        return NAMES

    torchvision = fake("torchvision.models", list_models=list_models, get_model=Made)
    auto_config = SimpleNamespace(for_model=lambda name: f"config of {name}")

    def from_config(config):
        if config == "config of part":
            raise ValueError("no model\nof that config")
        return Made(config)

    monkeypatch.setitem(sys.modules, "timm", fake("timm", list_models=list_models, create_model=Made))
    monkeypatch.setitem(sys.modules, "torchvision", fake("torchvision", models=torchvision))
    monkeypatch.setitem(sys.modules, "torchvision.models", torchvision)
    transformers = fake(
        "transformers", CONFIG_MAPPING=dict.fromkeys(["convnextv2", "mamba", "part"]), AutoConfig=auto_config,
        AutoModel=SimpleNamespace(from_config=from_config),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "transformers", transformers)


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize(
    ("spec", "asked", "options"),
    [
        ("timm:convnext_tiny", ("convnext_tiny",), {"pretrained": False}),
        ("timm:convnext_tiny.fb_in1k", ("convnext_tiny.fb_in1k",), {"pretrained": False}),
        ("torchvision:resnet50", ("resnet50",), {"weights": None}),
        ("transformers:mamba", ("config of mamba",), {}),
    ],
)
def test_libraries_make_models_with_random_weights(spec, asked, options):
    model = load_model(spec)
    assert (model.asked, model.options) == (asked, options)


@pytest.mark.usefixtures("libraries")
def test_a_factory_or_a_model_of_the_users_own(monkeypatch, tmp_path):
    assert isinstance(load_model("tests.models:TinyNet"), TinyNet)
    (tmp_path / "their_models.py").write_text("from torch import nn\nmade = nn.ReLU()\nnumber = lambda: 3\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    assert isinstance(load_model("their_models:made"), nn.ReLU), "of the current folder"
    with pytest.raises(InvalidWorkload, match=r"made a int, not a torch\.nn\.Module"):
        load_model("their_models:number")


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("timm:V3", "did you mean mobilenetv3_small_050, mobilenetv3_large_100?"),
        ("timm:convnext_tinny", "timm has no convnext_tinny; did you mean convnext_tiny?"),
        ("transformers:manba", "did you mean mamba?"),
        ("transformers:part", "cannot be made by its name alone: no model"),
        ("TinyNet", "write timm:NAME, torchvision:NAME, transformers:NAME or package.module:factory"),
        ("no_such_module:Net", "there is no module no_such_module"),
        ("tests.models:NoNet", "tests.models has no NoNet; name a class or function of it"),
    ],
)
def test_what_is_unknown_is_answered_with_what_is_known(spec, words):
    with pytest.raises(InvalidWorkload) as raised:
        load_model(spec)
    assert words in str(raised.value)


@pytest.mark.usefixtures("libraries")
def test_a_package_that_is_missing_or_broken_is_named_with_the_way_out(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "timm")
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if not hasattr(finder, "MAPPING")])
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(BrokenInstallation, match="timm is not installed; pip install timm"):
        load_model("timm:convnext_tiny")
    (tmp_path / "timm.py").write_text("import something_else_that_is_missing")
    with pytest.raises(BrokenInstallation, match=r"'something_else_that_is_missing'; pip install something_else_that_"):
        load_model("timm:convnext_tiny")
    (tmp_path / "timm.py").write_text("raise ImportError('cannot import name x')")
    with pytest.raises(BrokenInstallation, match=r"timm cannot be imported: .*; pip install --upgrade timm$"):
        load_model("timm:convnext_tiny")


_OF_ANOTHER_PYTORCH = [
    "raise RuntimeError('operator torchvision::nms does not exist')",
    "raise ImportError('libtorch_cuda.so: undefined symbol')",
    "raise OSError('libc10.so: cannot open shared object file')",
    "raise AttributeError('partially initialized module torchvision has no attribute extension')",
]


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("fault", _OF_ANOTHER_PYTORCH)
@pytest.mark.parametrize("library", ["timm", "torchvision", "transformers"])
def test_a_torchvision_of_another_pytorch_is_what_to_install_anew(monkeypatch, tmp_path, library, fault):
    """Also where another library imports it: that one is sound."""
    for name in ("timm", "torchvision", "transformers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if not hasattr(finder, "MAPPING")])
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    (tmp_path / "torchvision.py").write_text(fault)
    if library != "torchvision":
        (tmp_path / f"{library}.py").write_text("import torchvision")
    with pytest.raises(BrokenInstallation) as raised:
        load_model(f"{library}:any")
    line = str(raised.value)
    assert line.startswith(f"{library} cannot be imported: ") and "pip install --upgrade timm" not in line
    of_another = f"torchvision is of another PyTorch than {torch.__version__}"
    assert line.endswith(f"; {of_another}; install the torchvision that goes with it")


@pytest.mark.usefixtures("libraries")
def test_an_error_of_the_users_own_module_is_raised_as_it_is(monkeypatch, tmp_path):
    (tmp_path / "broken_models.py").write_text("import something_else_that_is_missing")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="something_else_that_is_missing"):
        load_model("broken_models:Net")


# -- blocks of well-known models ---------------------------------------------------------------------------------------


MODELS = {
    "timm:mobilenetv2_050": (17, "bn+relu6,bn+relu6"),
    "timm:tf_efficientnet_b0": (16, "bn@0.001+silu,bn@0.001+silu"),
    "torchvision:mobilenet_v3_small": (11, "bn@0.001+hardswish,bn@0.001+hardswish"),
    "transformers:mobilenet_v2": (17, "none,bn@0.001+relu6"),  # which pads x by itself, before the convolution
}
"""How many depthwise layers each has, and how most of their blocks are made."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_the_same(name, logs, monkeypatch):
    pytest.importorskip(name.partition(":")[0])
    monkeypatch.setattr(model_race, "race_for", lambda *args, **kwargs: [])
    torch.manual_seed(0)
    model = load_model(name).to(memory_format=torch.channels_last).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    x = torch.randn(4, 3, 64, 64).to(memory_format=torch.channels_last)
    exact = copy.deepcopy(model).double()
    dwconv.convert(model, x, blocks=True)
    seen = [block for block in dwconv.summary(model).discovery.blocks if block.problem]
    depthwise, usual = MODELS[name]
    assert sum(block.calls for block in seen) == depthwise
    assert usual in {str(block.problem.block) for block in seen}
    some = [block for block in seen if str(block.problem.block) == usual][:3]
    plant(logs / "cpu.jsonl", [block.problem.workload("forward") for block in some])
    dwconv.reset()
    for each, given in ((model, x), (exact, x.double())):
        output = each(given)
        output = output if isinstance(output, torch.Tensor) else output.last_hidden_state
        output.square().sum().backward()
    ran = [plan.tally.counted_ops() for plan in plans() if plan.problem.block]
    assert sum(ops["forward"] for ops in ran) == sum(ops["backward"] for ops in ran) >= len(some)
    for got, wanted in zip(model.buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(got.double(), wanted.double(), rtol=1e-3, atol=1e-3)
    found = torch.cat([parameter.grad.double().flatten() for parameter in model.parameters()])
    right = torch.cat([parameter.grad.flatten() for parameter in exact.parameters()])
    assert (found - right).norm() < 0.01 * right.norm()
