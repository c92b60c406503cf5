"""Models by name: ``timm:NAME``, ``torchvision:NAME``, ``transformers:NAME`` or ``package.module:factory``.

Weights are random and nothing is downloaded. The libraries are imported here alone, and only when they are named.
"""

from __future__ import annotations

import difflib
import importlib
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dwconv.errors import BrokenInstallation, InvalidWorkload, described_error

_CLOSE = 6


def load_model(text: str) -> nn.Module:
    """The model that ``text`` names, on the CPU. Raises InvalidWorkload with close names, and BrokenInstallation
    for a package that is missing."""
    library, _, name = text.partition(":")
    if not library or not name:
        raise InvalidWorkload(
            f"model={text} is unknown; write timm:NAME, torchvision:NAME, transformers:NAME or package.module:factory"
        )
    model = _LIBRARIES[library](name) if library in _LIBRARIES else made_by(library, name)
    if not isinstance(model, nn.Module):
        raise InvalidWorkload(f"model={text} made a {type(model).__name__}, not a torch.nn.Module")
    return model


def _of_timm(name: str) -> Any:
    timm = _library("timm")
    known = timm.list_models()
    if name.partition(".")[0] not in known:  # behind the dot: which pretrained weights
        raise _unknown(f"timm:{name}", known)
    return timm.create_model(name, pretrained=False)


def _of_torchvision(name: str) -> Any:
    models = importlib.import_module(f"{_library('torchvision').__name__}.models")
    known = models.list_models()
    if name not in known:
        raise _unknown(f"torchvision:{name}", known)
    return models.get_model(name, weights=None)


def _of_transformers(name: str) -> Any:
    transformers = _library("transformers")
    known = transformers.CONFIG_MAPPING
    if name not in known:
        raise _unknown(f"transformers:{name}", list(known.keys()))
    config = transformers.AutoConfig.for_model(name)
    try:
        return transformers.AutoModel.from_config(config)
    except ValueError as error:  # a part of other models
        raise InvalidWorkload(f"model=transformers:{name} cannot be made by its name alone: {error}") from None


_LIBRARIES: dict[str, Callable[[str], Any]] = {
    "timm": _of_timm,
    "torchvision": _of_torchvision,
    "transformers": _of_transformers,
}


_WAYS = "timm:NAME, torchvision:NAME, transformers:NAME or package.module:factory"


def made_by(module: str, factory: str, *, option: str = "model", ways: str = _WAYS) -> Any:
    """What a class or function of the user's makes without arguments; a module, or what cannot be called, itself.
    Modules of the current folder are found. ``option``: which names it, with ``ways`` to write it. Raises
    InvalidWorkload."""
    if (folder := str(Path.cwd())) not in sys.path:  # as a console script has it
        sys.path.append(folder)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # of something that the module itself imports
        raise InvalidWorkload(f"{option}={module}:{factory}: there is no module {error.name}; write {ways}") from None
    make = getattr(found, factory, None)
    if make is None:
        raise InvalidWorkload(f"{option}={module}:{factory}: {module} has no {factory}; name a class or function of it")
    if isinstance(make, nn.Module) or not callable(make):
        return make
    try:
        return make()
    except Exception as error:
        raise InvalidWorkload(f"{option}={module}:{factory} could not be made: {described_error(error)}") from error


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError, OSError, AttributeError) as error:  # as of what was built for another PyTorch
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            raise BrokenInstallation(f"{name} is not installed; pip install {name}") from None
        fault = f"{name} cannot be imported: {described_error(error)}"
        raise BrokenInstallation(f"{fault}; {_way_out(name, error)}") from None


_OF_PYTORCHS_VERSION = re.compile(r"(?:operator |ops\.)?(torchvision|torchaudio)(?:::|\.)")
"""In errors of a library whose compiled part was built for another PyTorch, and did not load."""


def _way_out(name: str, error: BaseException) -> str:
    """By the package that failed: what is imported may import another that is missing or broken."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing = error.name.partition(".")[0]
        if missing != name:
            return f"pip install {missing}"
    failed = _failed_in(error) or name
    if found := _OF_PYTORCHS_VERSION.search(str(error)):
        failed = found[1]
    if failed in ("torchvision", "torchaudio"):
        return f"{failed} is of another PyTorch than {torch.__version__}; install the {failed} that goes with it"
    return f"pip install --upgrade {failed}"


def _failed_in(error: BaseException) -> str:
    """The package whose code raised; empty if that is not one of those that depend on PyTorch's version."""
    found = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__")).partition(".")[0]
        if module in ("torchvision", "torchaudio", "timm", "transformers"):
            found = module
    return found


def _unknown(text: str, known: Iterable[str]) -> InvalidWorkload:
    library, _, name = text.partition(":")
    names = list(known)
    near = [each for each in names if name.casefold() in each.casefold()]
    near += [each for each in difflib.get_close_matches(name, names, n=_CLOSE, cutoff=0.5) if each not in near]
    shown = f"did you mean {', '.join(near[:_CLOSE])}?" if near else f"it has {len(names)} others"
    return InvalidWorkload(f"model={text}: {library} has no {name}; {shown}")
