"""The backend: ``torch.compile(model, backend="dwconv_concurrent", options={…})``.

PyTorch finds it by its entry point wherever dwconv is installed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException
from torch.fx import GraphModule

from dwconv.concurrency.choosing.options import read
from dwconv.concurrency.compiled_graph import CompiledGraph
from dwconv.errors import DwconvWarning, InvalidChoice, one_line

_MOST_SHOWN = 300
_KNOWN_TENSORS = (Tensor, torch.nn.Parameter, torch.nn.Buffer, torch._subclasses.FakeTensor)


def dwconv_concurrent(
    module: GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """What runs one graph of a model. What is wrong with the options is raised by the first call as InvalidChoice: here
    torch.compile would bury it in a report of its own."""
    try:
        if mode not in (None, "default"):
            raise InvalidChoice(f"mode {mode!r} is unknown to dwconv_concurrent; use options={{…}}")
        chosen = read(options)
    except InvalidChoice as error:
        return _that_raises(error)
    graph = CompiledGraph(chosen, why_plain=_why_plain(inputs))
    try:
        graph.trace(module, inputs)
    except TorchDynamoException:
        raise
    except RuntimeError as error:  # tracing names the operator that it cannot follow
        if any(isinstance(node.target, torch._ops.HigherOrderOperator) for node in module.graph.nodes):
            raise  # called as it is, it may compute something else
        said = one_line(str(error), most=_MOST_SHOWN)
        graph.leave_untraced(module, f"AOTAutograd cannot trace the graph: {said}")
    if graph.why_plain:
        _say_once(graph.why_plain)

    def run(*args: Any) -> Any:
        return graph(*args)

    return run


def _why_plain(inputs: Sequence[Any]) -> str:
    """Why no schedule can be made for a graph of such inputs; empty if one can."""
    for each in inputs:
        if isinstance(each, torch.SymInt) or (isinstance(each, Tensor) and _has_symbols(each)):
            return "a graph of sizes that change runs plainly; torch.compile(…, dynamic=False) makes one for each size"
        if isinstance(each, Tensor) and type(each) not in _KNOWN_TENSORS:
            return f"a graph takes a {type(each).__name__} and runs plainly; schedules are for plain tensors"
    return ""


def _has_symbols(tensor: Tensor) -> bool:
    return any(not isinstance(size, int) for size in tensor.shape)


def _that_raises(error: InvalidChoice) -> Callable[..., Any]:
    def refuse(*args: Any) -> Any:
        raise error

    return refuse


_said: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        warnings.warn(text, DwconvWarning, stacklevel=2)
