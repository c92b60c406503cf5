"""``graphed``: a model whose forward and backward pass are CUDA graphs, with the kernels of dwconv in them.

conditions ──► raced, as convert does ──► kernels built, loaded and checked ──► captured by PyTorch
                                                                                    │
a call like the example   ◄── its graph ────────────────────────────────────────────┘
any other call            ◄── the model's own forward pass
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from dwconv import settings
from dwconv.call.call_plan import decide_open_plans
from dwconv.call.warned_once import warn_once
from dwconv.call.watchers import is_looked_at
from dwconv.discovery import discover
from dwconv.discovery.step import ExampleStep, check_model, outputs_in, without_replays
from dwconv.discovery.unchanged import unchanged
from dwconv.errors import CannotBeCaptured, described_error
from dwconv.model.convert import race_and_build
from dwconv.model.converted_classes import is_functional
from dwconv.system import given

Model = TypeVar("Model", bound=nn.Module)
_MOST_STEPS = 5
"""Until a step runs nothing that is still to be decided."""
_WRAPPERS = (nn.parallel.DistributedDataParallel, nn.DataParallel)


def graphed(model: Model, example_inputs: Any, *, seconds: float | None = None) -> Model:
    """Make the forward and the backward pass of ``model`` CUDA graphs, in place, and return ``model``: a step then
    costs the host two launches, whatever the model consists of.

    ``example_inputs``: a tensor or a tuple of tensors, positional, on the model's GPU, of the sizes and types that
    training has. Call it under ``torch.autocast`` where calls will be. The model takes some steps on it, which change
    nothing in it. What a converted model runs is raced first if it is untuned, for ``seconds``, 60 by default, as
    ``convert`` does; kernels are built, loaded and checked; then ``torch.cuda.make_graphed_callables`` captures both
    passes. Convert before.

    A call like the example replays the graphs. Any other runs the model's own forward pass, and one warning gives the
    reason: other sizes, types or autocast, keyword arguments, gradients of an input that needed none in the example. So
    do, without a warning, a model that was switched between training and evaluation, and modes and transforms that look
    at each op. A graph holds one call at a time: its results are overwritten by the next call, and the backward pass of
    an earlier one raises RuntimeError. Hooks of modules inside run in the capture alone. A copy of the model has no
    graphs; ``revert`` takes them off.

    Raises CannotBeCaptured, in one line, for a model without a GPU or on several, with hooks, lazy parameters, or
    buffers that require a gradient, wrapped or compiled, that is to train where nothing requires a gradient, and where
    the capture fails, as it does if the model reads numbers on the host. Then nothing in the model has changed. Raises
    the model's own error if it fails on the example, InvalidArgument for what is no model, InvalidChoice for
    ``seconds`` that are no time.
    """
    check_model(model)
    seconds = settings.RACE_SECONDS if seconds is None else given.seconds("seconds", seconds)
    name = type(model).__name__
    without_graphs(model)
    step = ExampleStep.of(model, example_inputs, trains=None)
    if reason := _why_not(model, step):
        raise CannotBeCaptured(f"{name} cannot be CUDA graphs: {reason}")
    with torch.cuda.device(step.device):
        discovery = discover(model, example_inputs)
        takes_calls = any(is_functional(type(module)) for module in model.modules())
        race_and_build((discovery if takes_calls else discovery.without_functional()).with_blocks(), seconds=seconds)
        with unchanged(model, step.tensors):
            for _ in range(_MOST_STEPS):  # the first kernel that is loaded may change what is decided
                step()
                if not decide_open_plans():
                    break
            replay = _captured(model, step, name)
    model.forward = GraphedForward(model, step.tensors, replay=replay)
    return model


def without_graphs(module: nn.Module) -> None:
    """Give a module the forward pass back that it had before it was captured."""
    if isinstance(found := vars(module).pop("forward", None), GraphedForward):
        found = found.replaced
    if found is not None:
        module.forward = found


def _why_not(model: nn.Module, step: ExampleStep) -> str:
    devices = {each.device for each in (*model.parameters(), *model.buffers(), *step.tensors)}
    if {device.type for device in devices} != {"cuda"}:
        return f"it is on {' and '.join(sorted(map(str, devices)))}; move it and the example to a GPU"
    if len(devices) > 1:
        return f"it is on {' and '.join(sorted(map(str, devices)))}; capture the part on each by itself"
    if isinstance(model, _WRAPPERS):
        return f"capture the module first, then wrap it in {type(model).__name__}"
    if hasattr(model, "_orig_mod") or model._compiled_call_impl:
        return 'it is compiled; torch.compile(model, mode="reduce-overhead") captures what it compiles'
    if model._forward_hooks or model._forward_pre_hooks or model._backward_hooks or model._backward_pre_hooks:
        return "it has hooks, which a replay would skip; register them after the capture"
    if lazy := [name for name, parameter in model.named_parameters() if is_lazy(parameter)]:
        return f"{lazy[0]} has no sizes yet; run the model once before"
    if learnt := [name for name, buffer in model.named_buffers() if buffer.requires_grad]:
        return f"its buffer {learnt[0]} requires a gradient; make it a parameter"
    if step.keywords or not all(isinstance(each, Tensor) for each in step.positional):
        return "its example is not of tensors alone; give a tensor, or a tuple of positional tensors"
    trains = torch.is_grad_enabled() and any(each.requires_grad for each in (*model.parameters(), *step.tensors))
    if model.training and not trains:
        return "it is in training mode, and nothing requires a gradient; call eval(), or switch gradients on"
    return ""


def _captured(model: nn.Module, step: ExampleStep, name: str) -> Callable[..., Any]:
    """What replays the graphs. Their inputs are copies, so that later batches do not overwrite the example. Raises
    CannotBeCaptured."""
    own = tuple(each.detach().clone().requires_grad_(each.requires_grad) for each in step.tensors)
    usual, around = torch.cuda.current_stream(), _Around(model)
    try:
        with without_replays(model):  # of parts that were captured before
            torch.cuda.make_graphed_callables(around, own, allow_unused_input=True)
    except (RuntimeError, AssertionError) as error:
        torch.cuda.set_stream(usual)
        way_out = "capture a part that runs without it"
        raise CannotBeCaptured(f"{name} cannot be CUDA graphs: {described_error(error)}; {way_out}") from error
    for output in outputs_in(around.result):
        if not output._is_view():
            output.detach_()
    return around.forward


class _Around(nn.Module):
    """A model, and its latest result. PyTorch keeps what it captured, and with its history the nodes of the parameters,
    on the stream of the capture: each gradient of a step would wait for that stream."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.result: Any = None

    def forward(self, *inputs: Tensor) -> Any:
        self.result = self.model(*inputs)
        return self.result


class GraphedForward:
    """The forward pass of a captured module: the graph for calls like the example, else the module's own."""

    def __init__(self, module: nn.Module, example: Sequence[Tensor], *, replay: Callable[..., Any]) -> None:
        self.replaced = vars(module).get("forward")
        """The module's own forward pass, where it is not that of its class."""
        self.is_paused = False
        """True while a step on an example shows what the module runs."""
        self._module, self._replay = module, replay
        self._training, self._trains = module.training, torch.is_grad_enabled()
        self._kinds, self._autocast = [_kind(each) for each in example], _autocast()
        self._needs = [each.requires_grad for each in example]
        self._parameters, self._stolen = tuple(module.parameters()), set[nn.Parameter]()
        self._lies_at = self._address()
        self._calls = 0

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        own = self.replaced or partial(type(self._module).forward, self._module)
        if torch.compiler.is_compiling() or self.is_paused or self._module.training != self._training or is_looked_at():
            return own(*inputs, **keywords)
        if reason := self._why_not(inputs, keywords):
            warn_once(f"{type(self._module).__name__} runs without its CUDA graphs: {reason}")
            return own(*inputs, **keywords)
        result = self._replay(*inputs)
        self._calls += 1
        if recorded := outputs_in(result):
            assert recorded[0].grad_fn is not None, "outputs_in gives those that require a gradient"
            recorded[0].grad_fn.register_prehook(partial(self._before_backward, self._calls))
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of the module has its own forward pass."""
        return (_same, (self.replaced,)) if self.replaced else (getattr, (self._module, "forward"))

    def _why_not(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> str:
        if keywords:
            return f"the argument {next(iter(keywords))} is passed by keyword; pass it by position, as in the example"
        kinds = [_kind(each) for each in inputs]
        if kinds != self._kinds:
            given, captured = (", ".join(map(" ".join, some)) for some in (kinds, self._kinds))
            return f"called with {given}, captured with {captured}; give batches of one size (drop_last=True)"
        if self._address() != self._lies_at:
            return "its parameters have moved in memory since the capture; capture it again"
        if (autocast := _autocast()) != self._autocast:
            return f"called under autocast {autocast}, captured under {self._autocast}; capture as it is called"
        if not torch.is_grad_enabled():
            return ""
        if not self._trains and any(each.requires_grad for each in (*self._module.parameters(), *inputs)):
            return "captured without gradients; capture it with them, or call it under torch.no_grad()"
        if any(each.requires_grad and not needs for each, needs in zip(inputs, self._needs, strict=True)):
            return "an input requires a gradient, that of the example did not; let the example's require one, too"
        return ""

    def _address(self) -> int:
        """Of the first parameter: what moves or casts a module does so with all of them."""
        return self._parameters[0].data_ptr() if self._parameters else 0

    def _before_backward(self, call: int, _: object) -> None:
        """A ``grad`` that autograd took from the graph as it is would be overwritten, not added to."""
        if call != self._calls:
            raise RuntimeError(
                f"the backward pass of an earlier call of {type(self._module).__name__}: its CUDA graphs hold the "
                "latest call alone; run each backward pass before the next call"
            )
        for parameter in self._parameters:
            if parameter.grad is None:
                self._stolen.add(parameter)
            elif parameter in self._stolen:
                self._stolen.remove(parameter)
                parameter.grad = parameter.grad.clone()


def _same(forward: Callable[..., Any]) -> Callable[..., Any]:
    return forward


def _kind(value: Any) -> tuple[str, ...]:
    if not isinstance(value, Tensor):
        return (type(value).__name__,)
    return "×".join(map(str, value.shape)), str(value.dtype).removeprefix("torch."), f"on {value.device}"


def _autocast() -> str:
    return str(torch.get_autocast_dtype("cuda")) if torch.is_autocast_enabled("cuda") else "off"
