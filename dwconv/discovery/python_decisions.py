"""What Python decides in a forward pass while it is traced, and whether that can change unseen.

A trace is frozen Python. It may replace a forward pass that reads only the modes and the plain attributes of its
modules, which the guard of a trace checks. What it reads is taken from the code that ran.
"""

from __future__ import annotations

import dis
import enum
import gc
import importlib
import random
import sys
from collections.abc import Mapping
from types import CodeType, FrameType, ModuleType
from typing import Any

import torch
from torch import nn

from dwconv.call.frozen_forward import is_constant

_OPEN = ("torch", "math", "typing", "functools", "collections", "operator", "enum", "abc", "contextlib", "types")
"""Packages whose functions are taken to depend on what they are given alone."""
_KNOWN = {*_OPEN, *sys.stdlib_module_names, "dwconv", "torchgen"}
"""Packages whose code is not followed: a forward pass itself names what it reads of them."""
_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]
"""A graph shows what a function of one's own computes, and nothing of its gradient."""
_OF_TYPES = ("isinstance", "issubclass", "type", "hasattr", "id", "callable")
"""Functions that return something else for a traced value than for a tensor."""
_EFFECTS = ("print", "input", "open", "exec", "eval", "setattr", "delattr", "vars", "globals", "locals")
"""Functions that a graph does not show."""
_CHANGING = ("os", "posix", "sys", "time", "datetime", "random", "secrets", "uuid", "threading", "platform", "logging")
"""Packages whose functions do not give the same in every call."""
_TOOLS = (
    "is_compiling", "is_dynamo_compiling", "is_exporting", "is_tracing", "is_scripting", "is_in_onnx_export",
    "_get_tracing_state", "_is_tracing",
)  # fmt: skip
"""Functions that say whether a tool runs the code."""
_MODES = (
    "is_grad_enabled", "is_inference_mode_enabled", "is_inference", "is_autocast_enabled", "is_autocast_cpu_enabled",
    "get_autocast_dtype", "get_autocast_gpu_dtype", "get_default_dtype", "are_deterministic_algorithms_enabled",
    "get_num_threads", "is_initialized", "get_rank", "get_world_size", "current_device", "current_stream",
    "is_tensor", "is_tensor_like", "is_fx_tracing", "is_fx_symbolic_tracing", "_is_compiling_flag",
    "_is_exporting_flag", "_is_fx_tracing_flag", "__dict__",
)  # fmt: skip


class Decided:
    """While it is entered, it follows the code that runs. ``why_not`` is what such a trace would freeze; empty if
    nothing."""

    def __init__(self, through: set[nn.Module]) -> None:
        self.why_not = ""
        self.tests_for_none = False
        self.tools: set[str] = set()
        """Those of ``_TOOLS`` that it calls."""
        self._through = through
        self._function, self._called = "", ""
        self._codes: dict[CodeType, Mapping[str, Any]] = {}

    def __enter__(self) -> Decided:
        self._drawn = _drawn()
        self._before, self._collects = sys.getprofile(), gc.isenabled()
        gc.disable()  # callbacks of the collector are no part of a forward pass
        sys.setprofile(self._follow)
        return self

    def __exit__(self, *error: object) -> None:
        before: Any = self._before
        sys.setprofile(before if callable(before) else None)
        if hasattr(before, "enable"):  # it follows the code in C, as cProfile.Profile does
            before.enable()
        if self._collects:
            gc.enable()
        if error[0] is not None:
            return
        if _drawn() != self._drawn:
            self.why_not = "draws numbers at random"
        self.why_not = self.why_not or self._function or why_decorated(self._through)
        for code, scope in self._codes.items():
            self.why_not = self.why_not or self._why_not(code, scope)
        self.why_not = self.why_not or self._called

    def _follow(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            self._calls(frame, argument.__name__, _module_of(argument))
        if event != "call":
            return
        if frame.f_code is _APPLY:
            self._function = f"runs {frame.f_locals['cls'].__name__}, whose gradient is its own"
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _KNOWN:
            self._codes.setdefault(frame.f_code, frame.f_globals)
        if frame.f_back is not None:
            self._calls(frame.f_back, frame.f_code.co_name, module)

    def _calls(self, caller: FrameType, name: str, module: str) -> None:
        """By whatever name the caller has it."""
        package, by = (each.partition(".")[0] for each in (module, str(caller.f_globals.get("__name__", ""))))
        if package == "torch" and name in _TOOLS and by not in ("torch", "dwconv"):
            self.tools.add(name)
        if by in _KNOWN:
            return
        if (package == "torch" and name in _MODES) or (package == "builtins" and name in _OF_TYPES):
            self._called = self._called or f"decides by {name}"
        if package in _CHANGING or (package in ("builtins", "io", "_io") and name in _EFFECTS):
            self._called = self._called or f"calls {name} in its forward pass"

    def _why_not(self, code: CodeType, scope: Mapping[str, Any]) -> str:
        steps = [*dis.get_instructions(code)]
        for number, step in enumerate(steps):
            name = str(step.argval)
            if step.opname in ("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL"):
                return f"writes {name} in its forward pass"
            if step.opname in ("BEFORE_WITH", "SETUP_WITH", "LOAD_SPECIAL"):
                return "enters a context in its forward pass"
            if step.opname in ("PUSH_EXC_INFO", "SETUP_FINALLY"):
                return "catches errors in its forward pass"
            if step.opname in ("MATCH_SEQUENCE", "MATCH_MAPPING", "MATCH_CLASS"):
                return "decides by the kind of what it matches"
            if "IF_NONE" in step.opname or "IF_NOT_NONE" in step.opname:
                self.tests_for_none = True
            if step.opname == "IS_OP":
                if not _is_of_enum(steps[:number], scope) and not _is_none(steps[number - 1]):
                    return "decides by whether two objects are one"
                self.tests_for_none = True
            if step.opname == "IMPORT_NAME" and name.partition(".")[0] in _CHANGING:
                return f"reads {name}, which may change"
            if step.opname == "LOAD_GLOBAL" and (name in _OF_TYPES or (name in scope and not _is_fixed(scope[name]))):
                return f"decides by {name}" if name in _OF_TYPES else f"reads {name}, which may change"
            if name in _MODES and step.opname.startswith("LOAD_"):
                return f"decides by {name}"
            if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and any(_may_change(each, name) for each in self._through):
                return f"reads {name}, which may change"
        if code.co_freevars and set(code.co_freevars) != {"__class__"}:
            return f"reads {code.co_freevars[0]}, which may change"
        return ""


def _module_of(function: Any) -> str:
    """Of one in C; of a method that of its object."""
    holder = getattr(function, "__self__", None)
    kind = holder if isinstance(holder, type) else type(holder)
    return str(getattr(function, "__module__", None) or kind.__module__)


def _is_none(step: dis.Instruction) -> bool:
    return step.opname.startswith("LOAD_C") and step.argval is None


def _is_of_enum(steps: list[dis.Instruction], scope: Mapping[str, Any]) -> bool:
    """Whether a member of an Enum was read last: what is traced never is one."""
    if len(steps) < 2 or steps[-1].opname != "LOAD_ATTR" or steps[-2].opname != "LOAD_GLOBAL":
        return False
    kind = scope.get(steps[-2].argval)
    return isinstance(kind, type) and issubclass(kind, enum.Enum)


def _may_change(module: nn.Module, name: str) -> bool:
    """Whether a guard does not check an attribute of a module: it checks modules, tensors and constants of the
    instance."""
    if name in vars(module):
        value = vars(module)[name]
        return not (is_constant(value) or name.startswith("_") or isinstance(value, nn.Module))
    for kind in type(module).__mro__:
        if name in vars(kind):
            value = vars(kind)[name]
            return is_constant(value) and not callable(value) and kind.__module__.partition(".")[0] != "torch"
    return False


def why_decorated(through: set[nn.Module]) -> str:
    """A decorator may enter a context that a graph does not show."""
    decorated = any(hasattr(type(module).forward, "__wrapped__") for module in through)
    return "has a decorated forward pass" if decorated else ""


def _is_fixed(value: Any) -> bool:
    """Whether a global gives the same in every call."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in _OPEN
    return callable(value) or (isinstance(value, tuple) and is_constant(value) and not value)


def _drawn() -> Any:
    numpy = sys.modules.get("numpy")
    state = numpy.random.get_state()[1].tobytes() if numpy is not None and hasattr(numpy, "random") else None
    return random.getstate(), torch.random.get_rng_state().numpy().tobytes(), state


def names_of(scope: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """How a source finds what it reads: name, module, name in the module. Raises ValueError for what has no name."""
    found = []
    for name, value in scope.items():
        if name in ("torch", "inf", "nan", "NoneType") or name.startswith("dwconv_block_") or value is None:
            continue
        if isinstance(value, ModuleType):
            found.append((name, value.__name__, ""))
            continue
        module, inside = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        candidates = [(module, inside), ("torch", inside), ("torch.nn.functional", inside), ("torch._C._nn", inside)]
        for place, path in candidates:
            if place and path and _resolves(place, path) is value:
                found.append((name, place, path))
                break
        else:
            raise ValueError(f"{name} has no name to find it by")
    return tuple(found)


def _resolves(module: str, path: str) -> Any:
    try:
        value: Any = importlib.import_module(module)
        for each in path.split("."):
            value = getattr(value, each)
    except (ImportError, AttributeError):
        return None
    return value
