"""Tests of the compiled way of calls are left out where nothing compiles, but not where compiling fails."""

from __future__ import annotations

import shutil

import pytest

from dwconv import native, settings


def needs_native() -> None:
    compiler = settings.cpp_compiler()
    if compiler is None or shutil.which(compiler) is None:
        pytest.skip(f"there is no C++ compiler {compiler}")
    assert native.native() is not None, native.why_not
