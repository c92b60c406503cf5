"""Installs the stand-in as soon as a process imports a module that it replaces or watches."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def install() -> None:
    """Call this before PyTorch or dwconv is imported."""
    sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if name not in _AROUND:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, *_AROUND[name])
        return spec


class _Loader(importlib.abc.Loader):
    """A loader that runs a function before and one after loading."""

    def __init__(self, own: Any, before: Callable[[], None], after: Callable[[ModuleType], None]) -> None:
        self._own, self._before, self._after = own, before, after

    def create_module(self, spec: Any) -> ModuleType | None:
        module: ModuleType | None = self._own.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._before()
        self._own.exec_module(module)
        self._after(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def _nothing() -> None:
    pass


def _before_torch() -> None:
    from tests.standin.device import device

    device()


def _after_torch(module: ModuleType) -> None:
    from tests.standin.torch_cuda import install

    install()


def _after_launch(module: ModuleType) -> None:
    from tests.standin.launches import watch

    watch(module)


def _after_host(module: ModuleType) -> None:
    from tests.standin.rest import rest_while_timed

    rest_while_timed(module)


def _after_starting(module: ModuleType) -> None:
    from tests import forked

    if forked.FOLDER in os.environ:
        is_worker = module.__name__.endswith("started_process")
        module.subprocess = forked.shim(preload=forked.WORKERS if is_worker else forked.PYTORCH)  # type: ignore[attr-defined]


_AROUND: dict[str, tuple[Callable[[], None], Callable[[ModuleType], None]]] = {
    "torch": (_before_torch, _after_torch),
    "dwconv.kernels.launch": (_nothing, _after_launch),
    "dwconv.measure.processes.started_process": (_nothing, _after_starting),
    "bench.process": (_nothing, _after_starting),
    "bench.gpu.host_turns": (_nothing, _after_host),
}
"""Functions that run before and after a module is imported."""
