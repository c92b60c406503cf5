"""``python -m bench coverage``: of well-known models, which depthwise layers ``convert`` takes, and which of them run.

Weights are random, images and sentences small: nothing is timed, and the output is compared with the plain model's.
Untuned layers run on PyTorch's op, so that no kernel has to be built: the question is which calls come to dwconv.
Libraries of models are imported also where torchvision was built for another PyTorch: no network needs its ops.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.util
import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import dwconv
from bench.results import FOLDER
from dwconv.discovery import discover
from dwconv.discovery.step import tensors_in
from dwconv.errors import one_line, say
from dwconv.model.by_name import load_model

_kept: list[Any] = []


def library(name: str) -> Any:
    """``timm``, ``torchvision`` or ``transformers``. Raises ImportError."""
    if not _kept and importlib.util.find_spec("torchvision"):  # the others import it, some of them late
        try:
            importlib.import_module("torchvision")
        except RuntimeError as error:
            if "operator torchvision::" not in str(error):
                raise
            _declare_the_ops_of_torchvision()
    return importlib.import_module(name)


def _declare_the_ops_of_torchvision() -> None:
    """The ops that torchvision looks for when it is imported. From PyPI it is built for PyTorch with CUDA, and finds
    them only there."""
    spec = importlib.util.find_spec("torchvision")
    assert spec is not None and spec.origin is not None, "it was found a moment ago"
    source = Path(spec.origin).with_name("_meta_registrations.py").read_text(encoding="utf-8")
    fragment: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for op in dict.fromkeys(re.findall(r"torchvision::(\w+)", source)):
        fragment.define(f"{op}(Tensor input) -> Tensor")
    _kept.append(fragment)


_SENTENCE = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "pad_token_id": 0}
_MAMBA = {"state_size": 8, "use_cache": False, **_SENTENCE}
_ATTENTION = {"intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, **_SENTENCE}


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model by name, made small where its library lets it."""

    name: str
    image: int = 64
    """The size of the image that it is shown; 0: it reads a sentence."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Of a model of transformers, what differs from its usual configuration."""

    def make(self) -> nn.Module:
        """Raises ImportError if its library is not installed."""
        package, _, name = self.name.partition(":")
        found = library(package)
        if not self.config:
            return load_model(self.name).eval()
        config = found.AutoConfig.for_model(name, **self.config)
        model: nn.Module = found.AutoModel.from_config(config)
        return model.eval()

    def example(self) -> Any:
        if self.image:
            return torch.randn(2, 3, self.image, self.image)
        return {"input_ids": torch.arange(1, 25).reshape(2, 12), "use_cache": False}


_TIMM = (
    "mobilenetv2_050", "mobilenetv3_small_100", "mobilenetv3_large_100", "mobilenetv4_conv_small", "mnasnet_050",
    "efficientnet_b0", "efficientnet_lite0", "tf_efficientnet_b0", "tf_efficientnet_lite0", "tf_efficientnetv2_b0",
    "tf_mobilenetv3_small_100", "fbnetc_100", "ghostnet_100", "lcnet_050", "tinynet_e", "hardcorenas_a",
    "mixnet_s", "tf_mixnet_s", "rexnet_100", "convnext_atto", "convnextv2_atto", "edgenext_xx_small",
    "repghostnet_050", "repvit_m0_9", "starnet_s1", "fastvit_t8", "mobileone_s0", "inception_next_atto",
    "semnasnet_075", "spnasnet_100",
)  # fmt: skip
_TORCHVISION = (
    "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "mnasnet0_5", "shufflenet_v2_x0_5", "efficientnet_b0",
    "convnext_tiny",
)  # fmt: skip
MODELS = (
    *(Model(name=f"timm:{name}") for name in _TIMM),
    *(Model(name=f"torchvision:{name}") for name in _TORCHVISION),
    Model(
        name="transformers:efficientnet",
        config={"width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640},
    ),
    Model(name="transformers:mobilenet_v1", config={"depth_multiplier": 0.25}),
    Model(name="transformers:mobilenet_v2", config={"depth_multiplier": 0.35}),
    Model(name="transformers:convnextv2", config={"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}),
    Model(name="transformers:mamba", image=0, config=_MAMBA),
    Model(name="transformers:falcon_mamba", image=0, config=_MAMBA),
    Model(
        name="transformers:mamba2",
        image=0,
        config={"num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 4, **_MAMBA},
    ),
    Model(name="transformers:jamba", image=0, config={"num_experts": 2, "attn_layer_offset": 1, **_ATTENTION}),
    Model(name="transformers:lfm2", image=0, config={"layer_types": ["conv", "full_attention"], **_ATTENTION}),
    Model(
        name="transformers:qwen3_next",
        image=0,
        config={
            "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
            "linear_value_head_dim": 8, "head_dim": 8, "num_experts": 2, "num_experts_per_tok": 1,
            "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, **_ATTENTION,
        },
    ),
)  # fmt: skip


def cover(model: Model) -> dict[str, Any]:
    """Convert it, and look what became of its depthwise layers: ``run``, layers and modules whose depthwise calls come
    to dwconv after ``convert`` with the example, ``functional``, how many of these by functional calls alone, and
    ``missed``, calls that do not; ``equal`` if the output is the plain model's, within rounding. Raises ImportError if
    its library is not installed."""
    torch.manual_seed(0)
    made, example = model.make(), model.example()
    plain = copy.deepcopy(made)
    dwconv.convert(made)
    converted = [module for module in made.modules() if isinstance(module, (nn.Conv1d, nn.Conv2d))]
    as_layers = discover(made, example, trains=False)
    dwconv.convert(made, functional=True)
    with_functions = discover(made, example, trains=False)
    come, by_layers = (
        {layer.name for layer in found.layers if not layer.is_functional} for found in (with_functions, as_layers)
    )
    ours = (dwconv.nn.DepthwiseConv1d, dwconv.nn.DepthwiseConv2d)
    return {
        "model": model.name,
        "depthwise": sum(each.groups == each.in_channels > 1 for each in converted),
        "converted": sum(isinstance(each, ours) for each in converted),
        "run": len(come),
        "functional": len(come - by_layers),
        "missed": sum(layer.is_functional for layer in with_functions.layers),
        "equal": _agree(_outputs(made, example), _outputs(plain, example)),
    }


def _outputs(model: nn.Module, example: Any) -> list[Tensor]:
    with torch.no_grad():
        outputs = model(**example) if isinstance(example, dict) else model(example)
    return list(tensors_in(outputs))


def _agree(found: list[Tensor], expected: list[Tensor]) -> bool:
    return len(found) == len(expected) and all(
        torch.allclose(a, b, rtol=1e-3, atol=1e-4 * max(1.0, float(b.abs().max())))
        for a, b in zip(found, expected, strict=True)
    )


def command(argv: Sequence[str] | None) -> int:
    """Print a line of JSON for each model, and write bench/results/coverage.json."""
    parser = argparse.ArgumentParser(prog="python -m bench coverage", description=__doc__)
    parser.add_argument("--model", help="one of the models by name; default all")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    os.environ.setdefault("DWCONV_UNTUNED", "pytorch")
    rows, failed = [], []
    for model in MODELS:
        if args.model in (None, model.name):
            try:
                rows.append(cover(model))
            except Exception as error:  # noqa: BLE001  libraries raise anything; the others are still worth a look
                failed.append(model.name)
                say(f"{model.name}: {type(error).__name__}: {one_line(str(error), most=200)}")
            else:
                print(json.dumps(rows[-1]), flush=True)
    if args.model is None:
        versions = {name: version(name) for name in ("torch", "timm", "torchvision", "transformers")}
        path = FOLDER / "coverage.json"
        result = {
            "benchmark": "coverage",
            "command": "python -m bench coverage",
            "versions": versions,
            "rows": rows,
            "failed": failed,
        }
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if failed or not all(row["equal"] for row in rows) else 0
