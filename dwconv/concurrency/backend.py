"""The backend: ``torch.compile(model, backend="dwconv_concurrent", options={…})``.

PyTorch finds it by its entry point wherever dwconv is installed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from dwconv.concurrency.choosing.options import read
from dwconv.concurrency.compiled_graph import CompiledGraph
from dwconv.errors import CannotBeCut, DwconvWarning, InvalidChoice

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
    graph = CompiledGraph(module, chosen)
    try:
        _check(inputs)
        graph.trace(inputs)
    except CannotBeCut as error:
        graph.run_plainly(str(error))
        _say_once(str(error))

    def run(*args: Any) -> Any:
        return graph(*args)

    return run


def _check(inputs: Sequence[Any]) -> None:
    """Raises CannotBeCut for a graph that no schedule can be made for."""
    for each in inputs:
        if isinstance(each, torch.SymInt) or (isinstance(each, Tensor) and _has_symbols(each)):
            raise CannotBeCut(
                "a graph of sizes that change runs plainly; torch.compile(…, dynamic=False) makes one for each size"
            )
        if isinstance(each, Tensor) and type(each) not in _KNOWN_TENSORS:
            kind = type(each).__name__
            raise CannotBeCut(f"a graph takes a {kind} and runs plainly; schedules are for plain tensors")


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
