"""CallWatch: every depthwise convolution of a step, the passes that it ran, and the module that made it.

A call is recorded twice: as a function, where its padding still is the caller's, and where PyTorch's op runs calls of
dwconv's functions, so that both look alike; and as an op below autograd and autocast, which includes TorchScript, and
shows which gradients a backward pass computes. A backward pass belongs to the call with the same tensors; where these
were moved meanwhile, to the latest call of its sizes without one, since autograd runs in that order. Under such modes
torch.compile does not compile the model.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils.parametrize import is_parametrized
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from dwconv.call import causal, functional, transposed
from dwconv.call.arguments import Call, CallArguments
from dwconv.call.causal import causal_conv1d
from dwconv.call.deferred import cuts, is_causal, swaps
from dwconv.call.frozen_forward import plain_class
from dwconv.call.function_mode import AXES, TRANSPOSED_AXES, arguments_of, transposed_arguments_of
from dwconv.call.signature import NoSignature, Signature, are_tensors
from dwconv.call.transposed_call import TransposedArguments, TransposedCall
from dwconv.discovery.same_padding import SamePadding, pads_the_same, same_padding
from dwconv.errors import InvalidWorkload
from dwconv.problems.problem import Problem, memory_format
from dwconv.problems.workload import TRANSPOSED, Pass


@dataclass(kw_only=True)
class WatchedCall:
    name: str
    """Of the layer, or of the module that makes it; empty for the model itself."""
    caller: str
    is_functional: bool
    """True for a call of PyTorch's function, which ``dwconv.active`` would take."""
    problem: Problem
    device: torch.device
    is_transposed: bool = False
    """True for a transposed convolution; problem and passes are those of the convolution that it is the dgrad of."""
    passes: set[Pass] = field(default_factory=set)
    silu_next: bool = False
    """True if SiLU comes next, and takes no more of the result than causal convolutions need."""


@dataclass(frozen=True, kw_only=True)
class FirstCall:
    """The first call of a module."""

    given: Signature | NoSignature
    gives_tensors: bool
    """Whether its result is a tensor, or a container of tensors."""
    reads_channels_last: bool
    """Whether its first argument is an image that lies so."""

    @classmethod
    def of(cls, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> FirstCall:
        given: Signature | NoSignature
        plain: Any = plain_class(type(module))
        try:
            if isinstance(module, torch.jit.ScriptModule):  # its class has no forward
                raise NoSignature("it is scripted")
            given = Signature.of(plain.forward, args, kwargs)
        except NoSignature as error:
            given = error
        x = args[0] if args else None
        axes = x.dim() - 2 if isinstance(x, Tensor) and x.layout is torch.strided else 0
        lies_last = axes in (2, 3) and x.is_contiguous(memory_format=memory_format("nhwc", axes=axes))  # type: ignore[union-attr]
        return cls(given=given, gives_tensors=are_tensors(result), reads_channels_last=lies_last)

    @property
    def signature(self) -> Signature:
        """Raises NoSignature."""
        if isinstance(self.given, NoSignature):
            raise self.given
        return self.given


_WITH_KEYWORDS: dict[int, bool] = vars(nn.modules.module)["_global_forward_hooks_with_kwargs"]


class CallWatch:
    """While it is entered, ``calls`` grows by every depthwise convolution that ``model`` runs. No tensor is kept. Calls
    of layers that are to be ``converted`` count as those of converted ones."""

    def __init__(self, model: nn.Module, *, converted: Collection[nn.Module] = ()) -> None:
        self.calls: list[WatchedCall] = []
        self._names = {module: name for name, module in model.named_modules()}
        self._layers = {name for name, module in model.named_modules() if isinstance(module, _LAYERS)}
        self._pad_the_same = {
            name: module
            for name, module in model.named_modules()
            if not isinstance(module, SamePadding) and pads_the_same(module)
        }
        """The layers that convert takes together with the padding that they do themselves."""
        self._of_weights: dict[int, str] = {
            id(module.weight): name
            for name, module in model.named_modules()
            if isinstance(module, _LAYERS) and not is_parametrized(module)
        }
        """The layer that a weight is of: others may call a function on it."""
        self._converted = {name for module, name in self._names.items() if module in converted}
        self._running: list[tuple[nn.Module | None, str, object]] = [(None, "", ())]
        """The modules that are running, with their names, and what they were called with."""
        self.ran: dict[str, FirstCall] = {}
        self._waiting: dict[object, list[tuple[object, WatchedCall]]] = defaultdict(list)
        """Calls whose backward pass may come, by the sizes of their op, with the addresses of its tensors."""
        self._sums: Any = WeakTensorKeyDictionary()
        """Results that SiLU may come to: the call, and how many of its last elements are still to be cut off."""
        self._within: list[_Op] | None = None
        """The ops that the function that is running has run."""
        self._entered = ExitStack()

    def __enter__(self) -> CallWatch:
        pre_hook = register_module_forward_pre_hook(self._enter_module)
        self._entered.callback(pre_hook.remove)
        hook = register_module_forward_hook(self._leave_module, with_kwargs=True, always_call=True)
        self._entered.callback(hook.remove)
        self._entered.callback(_WITH_KEYWORDS.pop, hook.id, None)  # ``remove`` leaves it there
        self._entered.enter_context(_Functions(self))
        ops = _OpsBesideCompiler if "torch._dynamo" in sys.modules else _Ops
        self._entered.enter_context(ops(self))
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.close()

    def _enter_module(self, module: nn.Module, inputs: object) -> None:
        self._running.append((module, self._names.get(module, self._inside), inputs))

    def _leave_module(self, module: nn.Module, inputs: tuple[Any, ...], *ended: Any) -> None:
        """``ended``: the keyword arguments and the result; the result alone where an error ends the call, which the
        model may handle, and go on."""
        name = self._names.get(module)
        if len(ended) == 2 and name is not None and name not in self.ran:
            keywords, outputs = ended
            self.ran[name] = FirstCall.of(module, inputs, keywords, outputs)
        entered = [place for place, (running, _, _) in enumerate(self._running) if running is module]
        if entered:  # not if a hook before ours raised the error
            del self._running[entered[-1]]

    @property
    def _inside(self) -> str:
        """The name of the module that is running."""
        return self._running[-1][1]

    # -- what the two modes find ---------------------------------------------------------------------------------------

    def function(
        self, run: Callable[[], Tensor], given: CallArguments | TransposedArguments, *, is_ours: bool
    ) -> Tensor:
        """A call of ``conv1d``, ``conv_transpose1d`` or the like, PyTorch's or dwconv's; its result."""
        _, inside, inputs = self._running[-1]
        layer = self._pad_the_same.get(inside)
        if layer and isinstance(given, CallArguments) and isinstance(inputs, tuple) and inputs:
            given = _with_its_padding(layer, given, inputs[0])
        if is_ours:  # first: it raises what the function itself would
            Call.of(given) if isinstance(given, CallArguments) else TransposedCall.of(given)
        with self._ops_within() as ops:
            result = run()
        problem = _problem_of(given, is_ours=is_ours)
        if problem is None:
            for op in ops:
                self.op(op)
            return result
        is_transposed = isinstance(given, TransposedArguments)
        watched = self._add(
            problem,
            given.input.device,
            weight=given.weight,
            is_functional=not is_ours and inside not in self._converted,
            is_transposed=is_transposed,
        )
        if isinstance(given, CallArguments) and is_causal(given):
            self._sums[result] = watched, given.weight.shape[-1] - 1
        for op in ops:
            self._waiting[op.sizes].append((op.pointers, watched))
        return result

    def other_function(self, run: Callable[[], Any], func: Any, args: Any, kwargs: Any) -> Any:
        """A call of another function, perhaps with the result of a convolution; its result."""
        result = run()
        if args and isinstance(args[0], Tensor) and (known := self._sums.get(args[0])):
            watched, beyond = known
            if func is Tensor.__getitem__ and cuts(args[1], args[0].shape[-1], beyond=beyond):
                self._sums[result] = watched, 0
            elif swaps(func, args):
                self._sums[result] = watched, beyond
            elif func is F.silu and not beyond:
                watched.silu_next = True
        return result

    def op(self, op: _Op) -> None:
        """A convolution below autograd, of any kind."""
        if self._within is not None:
            self._within.append(op)
        elif op.problem is not None:
            watched = self._add(op.problem, op.device, is_transposed=op.is_transposed)
            self._waiting[op.sizes].append((op.pointers, watched))

    def gradients(self, op: _Op, passes: set[Pass]) -> None:
        """A backward pass below autograd, of an op that may not be depthwise; ``passes`` are those of the op."""
        if op.is_transposed:
            passes = {TRANSPOSED[pass_] for pass_ in passes}
        if waiting := self._waiting.get(op.sizes):
            same = [position for position, (pointers, _) in enumerate(waiting) if pointers == op.pointers]
            _, watched = waiting.pop(same[-1] if same else -1)
            watched.passes.update(passes)
        elif op.problem is not None and passes:  # once more for the same forward pass
            self._add(op.problem, op.device, passes=passes, is_transposed=op.is_transposed)

    def _add(
        self,
        problem: Problem,
        device: torch.device,
        *,
        passes: set[Pass] | None = None,
        weight: Tensor | None = None,
        is_functional: bool = False,
        is_transposed: bool = False,
    ) -> WatchedCall:
        caller = self._inside
        forward: Pass = TRANSPOSED["fprop"] if is_transposed else "fprop"
        watched = WatchedCall(
            name=caller if caller in self._layers else self._layer_of(weight) or caller,
            caller=caller,
            is_functional=is_functional,
            problem=problem,
            device=device,
            is_transposed=is_transposed,
            passes={forward} if passes is None else passes,
        )
        self.calls.append(watched)
        return watched

    def _layer_of(self, weight: Tensor | None) -> str:
        """The layer whose weight it is, or a view of it; empty if there is none."""
        if weight is None:
            return ""
        shown = weight._base if weight._is_view() else weight
        return self._of_weights.get(id(shown), "")

    @contextmanager
    def _ops_within(self) -> Iterator[list[_Op]]:
        ops = self._within = []
        try:
            yield ops
        finally:
            self._within = None


# -- as functions ----------------------------------------------------------------------------------------------------

_AXES: dict[object, int] = {**AXES, functional.conv1d: 1, functional.conv2d: 2, functional.conv3d: 3}
_TRANSPOSED: dict[object, int] = {**TRANSPOSED_AXES, **{ours: axes for axes, ours in transposed.FUNCTIONS.items()}}
_OURS = (functional.conv1d, functional.conv2d, functional.conv3d, *transposed.FUNCTIONS.values())
_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class _Functions(TorchFunctionMode):
    def __init__(self, watch: CallWatch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is causal_conv1d:
            with self:  # its parts are seen like others
                return causal.computed(*args, **kwargs)
        given: CallArguments | TransposedArguments
        if (axes := _AXES.get(func)) is not None:
            given = arguments_of(axes, *args, **kwargs)
        elif (axes := _TRANSPOSED.get(func)) is not None:
            given = transposed_arguments_of(axes, *args, **kwargs)
        else:
            return self._watch.other_function(lambda: func(*args, **kwargs), func, args, kwargs)
        if func in _OURS:
            return self._watch.function(given.on_pytorch, given, is_ours=True)
        return self._watch.function(lambda: func(*args, **kwargs), given, is_ours=False)


def _with_its_padding(layer: nn.Module, given: CallArguments, x: Tensor) -> CallArguments:
    """The call of a convolution in a layer that pads by itself, as if it were called with what the layer is given."""
    assert isinstance(layer, nn.Conv2d)
    return given._replace(input=x, padding=same_padding(layer, (x.shape[-2], x.shape[-1])))


def _problem_of(given: CallArguments | TransposedArguments, *, is_ours: bool = False) -> Problem | None:
    """None if it is no depthwise convolution, as in ``convert``: with one channel it is a dense one, unless the
    function is ours. None, too, of a transposed one that always is PyTorch's."""
    if given.groups == 1 and not is_ours:
        return None
    try:
        if isinstance(given, CallArguments):
            return Call.of(given).problem
        call = TransposedCall.of(given)
        return call.problem if call.is_ours else None
    except InvalidWorkload:
        return None


# -- as ops ----------------------------------------------------------------------------------------------------------

_FORWARD = (torch.ops.aten.convolution.default, torch.ops.aten._convolution.default)
_BACKWARD = torch.ops.aten.convolution_backward.default


class _Ops(TorchDispatchMode):  # type: ignore[no-untyped-call]
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch would import its compiler at the first op, to keep it from this mode: it takes some seconds."""
        return False

    def __init__(self, watch: CallWatch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _FORWARD:
            x, w, bias, *geometry = args
            self._watch.op(_Op.of(x, w, geometry, bias=bias))
        elif func is _BACKWARD:
            _, x, w, bias_sizes, *geometry, (needs_dx, needs_dw, _) = args
            # Of a bias only its sizes are known here: any tensor that has them stands for it.
            bias = w.new_empty(1).expand(bias_sizes) if bias_sizes else None
            passes: dict[Pass, bool] = {"dgrad": needs_dx, "wgrad": needs_dw}
            op = _Op.of(x, w, geometry, bias=bias)
            self._watch.gradients(op, {pass_ for pass_, needed in passes.items() if needed})
        return result


class _OpsBesideCompiler(_Ops):  # type: ignore[no-untyped-call]
    """Where the compiler is imported already, it is kept from this mode."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_dispatch__(func, types, args, kwargs)


@dataclass(frozen=True, kw_only=True)
class _Op:
    """A convolution of any kind, as aten has it."""

    sizes: object
    """What its backward pass has in common with it."""
    pointers: object
    """The addresses of its tensors; other ones in the backward pass, if they were moved meanwhile."""
    device: torch.device
    problem: Problem | None
    """None if it is not depthwise."""
    is_transposed: bool

    @classmethod
    def of(cls, x: Tensor, w: Tensor, geometry: Any, *, bias: Tensor | None) -> _Op:
        stride, padding, dilation, is_transposed, over, groups, *_ = geometry
        ints = tuple(tuple(each) for each in (x.shape, w.shape, stride, padding, dilation))
        given: CallArguments | TransposedArguments
        if is_transposed:
            given = TransposedArguments(x, w, bias, stride, padding, over, groups, dilation, x.dim() - 2)
        else:
            given = CallArguments(x, w, bias, stride, padding, dilation, groups, x.dim() - 2)
        return cls(
            sizes=(*ints, is_transposed, groups, x.dtype),
            pointers=(x.data_ptr(), w.data_ptr()),
            device=x.device,
            problem=_problem_of(given) if x.dim() in (3, 4, 5) and groups == x.shape[1] else None,
            is_transposed=is_transposed,
        )
