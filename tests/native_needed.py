"""Which way calls take in a test: the compiled one, the one through Python, or as it comes in a process that is new."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from dwconv import native, settings
from dwconv.system import forks

both_ways = pytest.mark.parametrize("way", ["compiled", "interpreted"], indirect=True)
_soon = native.soon
PATIENCE_S = 1800.0
"""It takes half a minute of a core, of which a busy machine leaves little."""


def needs_native() -> None:
    """Tests of the compiled way are left out where nothing compiles, but not where compiling fails."""
    compiler = settings.cpp_compiler()
    if compiler is None or shutil.which(compiler) is None:
        pytest.skip(f"there is no C++ compiler {compiler}")
    assert compiled_way() is not None, native.why_not


def compiled_way() -> Any | None:
    """The compiled way, as soon as it is there; None where nothing compiles."""
    return native.native(limit_s=PATIENCE_S)


def wait_for_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call waits until the compiled way is there: what a test sees must not depend on when that is."""
    monkeypatch.setattr(native, "soon", compiled_way)


def go_through_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls do not block until it is compiled, nor take it if it is."""
    monkeypatch.setattr(native, "native", lambda **options: None)
    monkeypatch.setattr(native, "module", None)
    monkeypatch.setattr(native, "run_traced", native._no_result)


def as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not needed yet, and calls do not block."""
    monkeypatch.setattr(native, "soon", _soon)
    for name in native.FUNCTIONS:
        monkeypatch.setattr(native, name, native._no_result)
    monkeypatch.setattr(native, "module", None)
    monkeypatch.setattr(native, "why_not", native._NOT_TRIED)
    monkeypatch.setattr(native, "_settled", False)
    monkeypatch.setattr(native, "_background", None)
    monkeypatch.setattr(native, "_not_kept", "")
    monkeypatch.setattr(native, "_failed", "")
    monkeypatch.setattr(native, "_lock", forks.Lock())
