"""Depthwise convolution in training, tuned for the device it runs on.

    y = dwconv.conv2d(x, w, padding=1)      # F.conv2d(x, w, padding=1, groups=x.shape[1]), on tuned kernels
    model = dwconv.convert(model)           # the depthwise layers of a model run on them, in place
    model = dwconv.graphed(model, x)        # on a GPU: forward and backward pass as CUDA graphs
    dwconv.ready(model, x)                  # waits until their kernels are built
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
    from dwconv import nn
    from dwconv.call.causal import causal_conv1d
    from dwconv.call.causal_update import causal_conv1d_update
    from dwconv.call.cross_correlation import cross_correlation
    from dwconv.call.function_mode import active
    from dwconv.call.functional import conv1d, conv2d, conv3d
    from dwconv.call.process_decisions import lock, reset
    from dwconv.call.transposed import conv_transpose1d, conv_transpose2d, conv_transpose3d
    from dwconv.errors import DwconvError, DwconvWarning
    from dwconv.model.conversion import summary
    from dwconv.model.convert import convert
    from dwconv.model.graphed import graphed
    from dwconv.model.layers import collect, layers
    from dwconv.model.ready import ready
    from dwconv.model.reverting import revert
    from dwconv.packs.read_pack import load_pack
    from dwconv.reporting import report
    from dwconv.reporting.explanation import explain
    from dwconv.tune import tune

    __version__: str

_NAMES = {
    "call.causal": ("causal_conv1d",),
    "call.causal_update": ("causal_conv1d_update",),
    "call.cross_correlation": ("cross_correlation",),
    "call.function_mode": ("active",),
    "call.functional": ("conv1d", "conv2d", "conv3d"),
    "call.process_decisions": ("lock", "reset"),
    "call.transposed": ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    "errors": ("DwconvError", "DwconvWarning"),
    "model.conversion": ("summary",),
    "model.convert": ("convert",),
    "model.graphed": ("graphed",),
    "model.layers": ("collect", "layers"),
    "model.ready": ("ready",),
    "model.reverting": ("revert",),
    "packs.read_pack": ("load_pack",),
    "reporting": ("report",),
    "reporting.explanation": ("explain",),
}
_HOMES = {name: f"dwconv.{module}" for module, names in _NAMES.items() for name in names}

__all__ = [
    "DwconvError", "DwconvWarning", "active", "causal_conv1d", "causal_conv1d_update", "collect", "conv1d",
    "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convert", "cross_correlation",
    "explain", "graphed", "layers", "load_pack", "lock", "nn", "ready", "report", "reset", "revert", "summary", "tune",
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
