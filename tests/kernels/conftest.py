"""Kernels are loaded as the product loads them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dwconv.kernels import llvm, load_cpu


@pytest.fixture(scope="module", autouse=True)
def _compiled_here() -> Iterator[None]:
    """LLVM compiles each, in this process."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(load_cpu, "module_of", llvm.module_of)
        yield
