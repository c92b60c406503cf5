"""Exported, a converted model is PyTorch's alone: what is written opens in a process that has no dwconv."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

import dwconv
from tests import forked
from tests.models import ConformerConvolution
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning", "ignore::DeprecationWarning")

_OPEN = """
import sys
sys.modules["dwconv"] = None  # to import it is an error
import torch

x, y = torch.load("io.pt")
for name in sys.argv[1:]:
    if name.endswith("aoti.pt2"):
        model = torch._inductor.aoti_load_package(name)
    else:
        model = torch.export.load(name).module() if name.endswith(".pt2") else torch.jit.load(name)
    torch.testing.assert_close(model(x), y, rtol=1e-4, atol=1e-5)
"""


@pytest.fixture
def x():
    return torch.randn(4, 8, 12, 10)


@pytest.fixture
def model(logs, x):
    """A converted model with a tuned kernel, which records of a call would name."""
    plant(logs / "log.jsonl", [workload_of(shape=(4, 8, 12, 10), layout="nchw")], baseline_us=1e6)
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 4, padding="same", groups=8))
    dwconv.convert(model)
    assert "Dwconv" in model[0](x).grad_fn.name()
    return model


def open_without_dwconv(folder, names, *, x, y):
    torch.save((x, y), folder / "io.pt")
    done = forked.run([sys.executable, "-c", _OPEN, *names], cwd=folder, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_exported_traced_and_scripted_opens_without_dwconv(model, x, tmp_path):
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "a.pt2")
    torch.export.save(torch.export.export(model, (x,), strict=True), tmp_path / "strict.pt2")
    sizes = {0: torch.export.Dim("batch"), 2: torch.export.Dim("height", min=8)}
    torch.export.save(torch.export.export(model, (x,), dynamic_shapes=(sizes,)), tmp_path / "dynamic.pt2")
    torch.jit.trace(model, (x,)).save(tmp_path / "traced.pt")
    torch.jit.script(model).save(tmp_path / "scripted.pt")
    names = ["a.pt2", "strict.pt2", "dynamic.pt2", "traced.pt", "scripted.pt"]
    with torch.no_grad():
        open_without_dwconv(tmp_path, names, x=x, y=model(x))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel", "ignore:.*LeafSpec:FutureWarning")
def test_a_package_of_aot_inductor_opens_without_dwconv(model, x, tmp_path):
    exported = torch.export.export(model, (x,))
    quickly = {"aot_inductor.compile_wrapper_opt_level": "O0", "aot_inductor.precompile_headers": False}
    path = str(tmp_path / "aoti.pt2")
    torch._inductor.aoti_compile_and_package(exported, package_path=path, inductor_configs=quickly)
    with torch.no_grad():
        open_without_dwconv(tmp_path, ["aoti.pt2"], x=x, y=model(x))


@pytest.mark.parametrize("dynamo", [False, True], ids=["older", "dynamo"])
def test_onnx(model, x, tmp_path, dynamo):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    path = str(tmp_path / "model.onnx")
    torch.onnx.export(model, (x,), path, dynamo=dynamo)
    session = runtime.InferenceSession(path)
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(y), model(x).detach(), rtol=1e-4, atol=1e-5)


def test_a_1d_model_with_a_call_of_its_own(logs):
    """``groups`` may be left out, and the input have no batch."""

    class Lines(ConformerConvolution):
        def forward(self, x):
            y = super().forward(x).transpose(1, 2)
            return dwconv.conv1d(y, self.depthwise.weight) + dwconv.conv1d(y[0], self.depthwise.weight)

    model, x = Lines().eval(), torch.randn(2, 20, 16)
    dwconv.convert(model)
    y = model(x)
    exported = torch.export.export(model, (x,))
    assert not [node for node in exported.graph.nodes if "dwconv" in str(node.target)]
    for twin in (exported.module(), torch.jit.trace(model, (x,))):
        torch.testing.assert_close(twin(x), y)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "circular"])
@pytest.mark.parametrize(("plain", "axes"), [(nn.Conv1d, 1), (nn.Conv2d, 2)])
def test_a_scripted_layer_is_pytorchs(logs, plain, axes, mode):
    layer = plain(6, 12, 3, stride=2, padding=2, dilation=2, groups=6, padding_mode=mode)
    x = torch.randn(2, 6, *[11] * axes)
    y = layer(x)
    dwconv.convert(layer)
    scripted = torch.jit.script(layer)
    torch.testing.assert_close(scripted(x), y)
    assert "aten::conv" in str(scripted.inlined_graph)


def test_what_compiles_keeps_our_kernels(model, x):
    """Only what is exported goes without them: here nothing else is known to run them than this process."""
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    torch.testing.assert_close(torch.compile(model, backend=backend, fullgraph=True)(x), model(x))
    assert "dwconv" in graphs[0].code
