"""ExampleStep: one step of a model on an example, forward and backward, without an optimizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.autograd.function import BackwardCFunction

from dwconv.discovery.unchanged import held, without_gradients
from dwconv.errors import InvalidArgument, InvalidWorkload
from dwconv.system import given


@dataclass(frozen=True, kw_only=True)
class ExampleStep:
    """Call it to take the step."""

    model: nn.Module
    positional: tuple[Any, ...]
    keywords: Mapping[str, Any]
    trains: bool | None
    """None: a backward pass if grad mode is on and an output requires a gradient."""
    is_counted: bool = False
    """True if the model is in a DistributedDataParallel that counts the gradients of its first step."""

    @classmethod
    def of(cls, model: nn.Module, example_inputs: Any, *, trains: bool | None) -> ExampleStep:
        """Raises InvalidArgument for what is no model and for a ``trains`` that is no flag; InvalidWorkload for an
        example that is not on the model's device, or of another kind."""
        check_model(model)
        trains = None if trains is None else given.flag("trains", trains)
        _check_no_shape(example_inputs)
        positional: tuple[Any, ...] = ()
        keywords: Mapping[str, Any] = {}
        if isinstance(example_inputs, Tensor):
            positional = (example_inputs,)
        elif isinstance(example_inputs, (tuple, list)):
            positional = tuple(example_inputs)
        elif isinstance(example_inputs, Mapping):
            keywords = example_inputs
        else:
            raise InvalidWorkload(
                f"example_inputs is of type {type(example_inputs).__name__}; give a tensor, a tuple of positional "
                "arguments, or a dict of keyword arguments"
            )
        step = cls(
            model=unwrapped(model),
            positional=positional,
            keywords=keywords,
            trains=trains,
            is_counted=any(getattr(each, "static_graph", False) for each in _wrappers(model)),
        )
        _check_devices(step)
        return step

    @property
    def tensors(self) -> list[Tensor]:
        return list(tensors_in((self.positional, self.keywords)))

    @property
    def device(self) -> torch.device:
        first = next(iter([*self.model.parameters(), *self.model.buffers(), *self.tensors]), None)
        return torch.device("cpu") if first is None else first.device

    def __call__(self) -> None:
        wanted = torch.is_grad_enabled() if self.trains is None else self.trains
        twins = _twins(self.model) if self.is_counted else nullcontext()
        with torch.set_grad_enabled(wanted), without_replays(self.model), twins:
            outputs = outputs_in(self.model(*self.positional, **self.keywords))
            if outputs and wanted:
                _backward(outputs)
        if self.trains and not outputs:
            raise InvalidWorkload(
                f"no output of {type(self.model).__name__} requires a gradient, so it cannot train; "
                "use trains=False, or unfreeze a parameter"
            )


def outputs_in(result: Any) -> list[Tensor]:
    """The tensors in a model's result that require a gradient, also those inside any object, such as a distribution."""
    return [tensor for tensor in held(result, Tensor, but=nn.Module) if tensor.requires_grad]


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in containers and dataclasses, however deep."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):  # first: outputs of transformers are dataclasses too
        for each in value.values():
            yield from tensors_in(each)
    elif isinstance(value, (tuple, list, set, frozenset)):
        for each in value:
            yield from tensors_in(each)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name))


def unwrapped(model: nn.Module) -> nn.Module:
    """The module that DistributedDataParallel, DataParallel or torch.compile was given."""
    *_, inner = _wrappers(model)
    return inner


def _wrappers(model: nn.Module) -> Iterator[nn.Module]:
    """The model, and what is in it as long as it is a wrapper."""
    while True:
        yield model
        compiled = getattr(model, "_orig_mod", None)
        if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            model = model.module
        elif isinstance(compiled, nn.Module):
            model = compiled
        else:
            return


@contextmanager
def without_replays(model: nn.Module) -> Iterator[None]:
    """What a CUDA graph replays is not seen: the modules that were captured run their own forward passes."""
    own: list[Any] = [vars(module).get("forward") for module in model.modules()]
    forwards = [forward for forward in own if hasattr(forward, "is_paused")]
    for forward in forwards:
        forward.is_paused = True
    try:
        yield
    finally:
        for forward in forwards:
            forward.is_paused = False


def check_model(model: object) -> None:
    """Raises InvalidArgument for what is no ``nn.Module``."""
    if isinstance(model, nn.Module):
        return
    if isinstance(model, type):
        way_out = f"make one: {model.__name__}(…)" if issubclass(model, nn.Module) else "give a torch.nn.Module"
        raise InvalidArgument(f"model is the class {model.__name__}, not a model; {way_out}")
    if isinstance(module := getattr(model, "module", None), (type(check_model), MethodType)) and callable(module):
        way_out = "give the module that was exported, before the export"
    elif callable(model):
        way_out = "give the torch.nn.Module that it runs; dwconv.conv2d is the function"
    elif isinstance(model, Mapping):
        way_out = "load it into a torch.nn.Module, and give that"
    elif isinstance(model, (list, tuple)):
        way_out = "give one torch.nn.Module, such as torch.nn.Sequential(*model)"
    else:
        way_out = "give one"
    raise InvalidArgument(f"model={given.shown(model)} is not a torch.nn.Module; {way_out}")


def _check_no_shape(example_inputs: object) -> None:
    """Raises InvalidArgument for sizes where a tensor of these sizes is meant."""
    found = example_inputs
    while isinstance(found, (tuple, list)) and len(found) == 1:
        found = found[0]
    if isinstance(found, torch.Size) or (
        isinstance(found, (tuple, list))
        and len(found) >= _FEWEST_SIZES
        and all(isinstance(size, int) and not isinstance(size, bool) for size in found)
    ):
        sizes = ", ".join(map(str, found))
        raise InvalidArgument(
            f"example_inputs=({sizes}) is a shape; give a tensor of it, such as torch.randn({sizes}), or numbers that "
            "are arguments as a dict of keyword arguments"
        )


_FEWEST_SIZES = 3
"""Of an input, (C, L)'s being rare: fewer numbers may be arguments."""


def _check_devices(step: ExampleStep) -> None:
    known = dict.fromkeys(str(parameter.device) for parameter in step.model.parameters())
    for tensor in step.tensors:
        if known and str(tensor.device) not in known:
            raise InvalidWorkload(
                f"the example is on {tensor.device}, the parameters are on {' and '.join(known)}; "
                f"move the example with .to({next(iter(known))!r})"
            )


@contextmanager
def _twins(model: nn.Module) -> Iterator[None]:
    """Parameters of the same memory are in the place of its own, so that nothing waits for their gradients."""
    twins: dict[Tensor, nn.Parameter] = {}
    own: list[tuple[dict[str, nn.Parameter | None], str, nn.Parameter]] = []
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.requires_grad and type(parameter) is nn.Parameter:
                own.append((module._parameters, name, parameter))
                if parameter not in twins:
                    twins[parameter] = nn.Parameter(parameter.detach())
                    vars(twins[parameter]).update(vars(parameter))
    try:
        for parameters, name, parameter in own:
            parameters[name] = twins[parameter]
        yield
    finally:
        for parameters, name, parameter in own:
            parameters[name] = parameter


def _backward(outputs: Iterable[Tensor]) -> None:
    """The gradients of the sum of the outputs, of every tensor that ``backward()`` would give one to; kept nowhere. No
    hook on a parameter runs, as those of DistributedDataParallel, and of optimizers that step in the backward pass.

    A checkpoint may call ``backward`` within the backward pass, which PyTorch refuses unless gradients are added to
    ``grad``. So they are then, and ``grad`` is what it was at the end."""
    reached = [output for output in outputs if output.grad_fn is not None]
    nodes = _nodes_of(reached)
    leaves = [node.variable for node in nodes if hasattr(node, "variable")]
    adds = any(map(_may_call_backward, nodes))
    gradients = tuple(map(_gradient, reached))
    if leaves:
        with without_gradients([leaf for leaf in leaves if adds or leaf._backward_hooks]):
            # As torch.autograd.grad, which is one function to modes, and hides from them what runs in it.
            Variable._execution_engine.run_backward(
                tuple(reached), gradients, False, False, () if adds else tuple(leaves),
                allow_unreachable=True, accumulate_grad=adds,
            )  # fmt: skip


def _gradient(output: Tensor) -> Tensor:
    """Ones. Not all that is sparse or nested has such: then half the sum of the squares is what has the gradient."""
    is_usual = output.layout is torch.strided and not output.is_nested
    return torch.ones_like(output) if is_usual else output.detach().clone()


def _nodes_of(outputs: Iterable[Tensor]) -> list[Any]:
    """The graph that the outputs were computed by. Its leaves are parameters, of the model or not, and inputs."""
    waiting: list[Any] = [output.grad_fn for output in outputs]
    seen = dict.fromkeys(waiting)
    while waiting:
        node = waiting.pop()
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen[following] = None
                waiting.append(following)
    return list(seen)


def _may_call_backward(node: Any) -> bool:
    """Of a function in Python: a checkpoint of PyTorch's, or a function of another library's."""
    if not isinstance(node, BackwardCFunction):
        return False
    package, _, rest = str(node._forward_cls.__module__).partition(".")  # type: ignore[attr-defined]
    return package not in ("torch", "dwconv") or rest == "utils.checkpoint"
