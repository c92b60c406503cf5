"""Depthwise convolution in training, tuned for the device it runs on.

    y = dwconv.conv2d(x, w, padding=1)      # F.conv2d(x, w, padding=1, groups=x.shape[1]), on tuned kernels
    model = dwconv.convert(model)           # the depthwise layers of a model run on them, in place
    model = dwconv.graphed(model, x)        # on a GPU: forward and backward pass as CUDA graphs
    print(dwconv.summary(model))            # which layers these are
    print(dwconv.explain(x, w, padding=1))  # what runs, and why
    print(dwconv.report(model))             # what ran, layer by layer, and what tuning can still gain
    print(dwconv.tune(model, x, minutes=10))  # tunes every depthwise layer of the model
    dwconv.layers(model, x).save("layers.json")  # lists them, for python -m dwconv.tune --layers layers.json
    with dwconv.collect("layers.json"): ...      # or those of a training loop, at all its sizes
    dwconv.load_pack("pack")                # kernels that were compiled elsewhere

``python -m dwconv.tune`` tunes from the command line. Importing dwconv is light: PyTorch comes with the first name
used, TVM with the first kernel.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dwconv import nn as nn
    from dwconv.call.active import active as active
    from dwconv.call.causal import causal_conv1d as causal_conv1d
    from dwconv.call.functional import conv1d as conv1d
    from dwconv.call.functional import conv2d as conv2d
    from dwconv.call.functional import conv3d as conv3d
    from dwconv.call.functional import lock as lock
    from dwconv.call.functional import reset as reset
    from dwconv.errors import DwconvError as DwconvError
    from dwconv.errors import DwconvWarning as DwconvWarning
    from dwconv.model.conversion import summary as summary
    from dwconv.model.convert import convert as convert
    from dwconv.model.graphed import graphed as graphed
    from dwconv.model.layers import collect as collect
    from dwconv.model.layers import layers as layers
    from dwconv.model.reverting import revert as revert
    from dwconv.packs.load import load_pack as load_pack
    from dwconv.reporting import report as report
    from dwconv.reporting.explanation import explain as explain
    from dwconv.tune import tune as tune

    __version__: str

_HOMES = {
    "active": "dwconv.call.active",
    "causal_conv1d": "dwconv.call.causal",
    "collect": "dwconv.model.layers",
    "conv1d": "dwconv.call.functional",
    "conv2d": "dwconv.call.functional",
    "conv3d": "dwconv.call.functional",
    "convert": "dwconv.model.convert",
    "explain": "dwconv.reporting.explanation",
    "graphed": "dwconv.model.graphed",
    "layers": "dwconv.model.layers",
    "load_pack": "dwconv.packs.load",
    "lock": "dwconv.call.functional",
    "report": "dwconv.reporting",
    "reset": "dwconv.call.functional",
    "revert": "dwconv.model.reverting",
    "summary": "dwconv.model.conversion",
    "DwconvError": "dwconv.errors",
    "DwconvWarning": "dwconv.errors",
}

__all__ = [
    "DwconvError", "DwconvWarning", "active", "causal_conv1d", "collect", "conv1d", "conv2d", "conv3d", "convert",
    "explain", "graphed", "layers", "load_pack", "lock", "nn", "report", "reset", "revert", "summary", "tune",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("dwconv")
    if name in _HOMES:
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found
    if not name.startswith("_"):
        try:
            return import_module(f"dwconv.{name}")  # a module; ``tune`` can be called
        except ModuleNotFoundError as error:
            if error.name != f"dwconv.{name}":
                raise
    raise AttributeError(f"module 'dwconv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
