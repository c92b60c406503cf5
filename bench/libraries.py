"""Libraries of models, imported also where torchvision was built for another PyTorch: no network needs its ops."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import torch

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
    source = Path(spec.origin).with_name("_meta_registrations.py").read_text()
    fragment: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for op in dict.fromkeys(re.findall(r"torchvision::(\w+)", source)):
        fragment.define(f"{op}(Tensor input) -> Tensor")
    _kept.append(fragment)
