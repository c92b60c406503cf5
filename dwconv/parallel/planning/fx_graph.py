"""Trace a module by torch.fx; where it cannot be traced, name the operation and the line that is in the way."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, fx, nn

from dwconv.errors import CannotBeCut, DwconvError, described_error, one_line

_TORCH = str(Path(torch.__file__).parent)
_MOST_SHOWN = 120
"""Characters of a line of code to quote."""


def has_hooks(module: nn.Module) -> bool:
    """True for hooks of its own, which run only if the module itself is called."""
    return any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks))


def takes_functions(module: nn.Module) -> bool:
    """True if ``dwconv.convert`` made its class, to take the functions that its code calls; a trace would lose that."""
    return "plain_class" in vars(type(module))


@contextmanager
def runs(name: str, example: Tensor) -> Iterator[None]:
    """Turns any error of the model's code inside into CannotBeCut, one line."""
    try:
        yield
    except DwconvError:
        raise
    except Exception as error:
        sizes = "×".join(map(str, example.shape))
        raise CannotBeCut(f"{name} does not run on {sizes}: {described_error(error)}") from error


def traced(module: nn.Module) -> fx.GraphModule:
    """The graph of ``module``, whose layers and parameters stay the same objects.

    A layer without children is one operation, so is one of PyTorch's own, and one with hooks. A layer that cannot be
    traced becomes one, too. Raises CannotBeCut if the code of ``module`` itself cannot be traced."""
    if takes_functions(module) and list(module.children()):
        raise CannotBeCut(
            f"{type(module).__name__} was converted, with the functions that its code calls; dwconv.revert it, cut it, "
            "and dwconv.convert its pieces"
        )
    whole: set[nn.Module] = set()
    while True:
        tracer = _Tracer(whole)
        try:
            graph = tracer.trace(module, concrete_args=_defaults(module))
        except Exception as error:
            if tracer.inside:  # its innermost module is the one that cannot be traced
                whole.add(tracer.inside[-1])
                continue
            raise CannotBeCut(_why(module, error)) from error
        _leave_one_input(module, graph)
        return fx.GraphModule(module, graph, class_name=type(module).__name__)


class _Untraceable(Exception):
    """A value that is known only when the model runs, where the code needs it now."""

    def __init__(self, node: fx.Node, need: str) -> None:
        super().__init__(f"{need} {_operation(node)}")


class _Tracer(fx.Tracer):
    def __init__(self, whole: set[nn.Module]) -> None:
        super().__init__()
        self._whole = whole
        self.inside: list[nn.Module] = []
        """The modules whose code is running; after a failure, those in which it happened."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if m in self._whole or has_hooks(m) or takes_functions(m) or not list(m.children()):
            return True
        return super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        is_leaf = self.is_leaf_module(m, "")
        if not is_leaf:
            self.inside.append(m)
        result = super().call_module(m, forward, args, kwargs)
        if not is_leaf:
            self.inside.pop()
        return result

    def to_bool(self, obj: fx.Proxy) -> bool:
        raise _Untraceable(obj.node, "a branch needs the value of")

    def iter(self, obj: fx.Proxy) -> Any:
        # Unpacking a result is traced by PyTorch; it fails for a loop.
        try:
            return super().iter(obj)
        except fx.proxy.TraceError:
            raise _Untraceable(obj.node, "a loop runs over") from None


def _defaults(module: nn.Module) -> dict[str, Any]:
    """The arguments that have a default, which they keep."""
    parameters = inspect.signature(module.forward).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}


def _leave_one_input(module: nn.Module, graph: fx.Graph) -> None:
    """Take out what torch.fx adds for arguments with a default: an input that nothing but assertions read."""
    given = {str(node.target): node for node in graph.nodes if node.op == "placeholder"}
    needed = [name for name in given if name in inspect.signature(module.forward).parameters.keys() - _defaults(module)]
    if len(needed) != 1:
        raise CannotBeCut(
            f"{type(module).__name__} takes {len(needed)} inputs ({', '.join(needed)}); only a model that takes one "
            "tensor can be cut, so wrap it in a module that does"
        )
    for name, node in given.items():
        if name not in needed:
            _erase(graph, node)


def _erase(graph: fx.Graph, node: fx.Node) -> None:
    """Take out a node, after all that read it."""
    for user in list(node.users):
        _erase(graph, user)
    graph.erase_node(node)


def _why(module: nn.Module, error: BaseException) -> str:
    reason = one_line(str(error)) or type(error).__name__
    return (
        f"{type(module).__name__} cannot be traced: {reason}{_where(error.__traceback__)}; give that part a module of "
        "its own, which then stays whole, or write the model as an nn.Sequential"
    )


def _where(trace: TracebackType | None) -> str:
    """The line of the model's own code that failed."""
    own = [frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith((_TORCH, __file__, "<"))]
    if not own:
        return ""
    frame = own[-1]
    code = f", `{one_line(frame.line, most=_MOST_SHOWN)}`" if frame.line else ""
    return f" ({Path(frame.filename).name}:{frame.lineno}{code})"


def _operation(node: fx.Node) -> str:
    """The operation that gives the value of ``node``, and its name in the graph."""
    name = operation_name(node)
    return name if name == node.name else f"{name} ({node.name})"


def operation_name(node: fx.Node) -> str:
    """The layer, function or method that ``node`` calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", node.name)
