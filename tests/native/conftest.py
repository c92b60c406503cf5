"""A compiler that takes no time, and one process after the other in place of many."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from logging.handlers import BufferingHandler
from pathlib import Path

import pytest

from dwconv import native, settings
from dwconv.native import build_once
from tests.native_needed import as_in_a_new_process
from tests.stub_compiler import StubCompiler, make_extension


@pytest.fixture(scope="session")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the stub copies."""
    compiler = settings.cpp_compiler() or ""
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C++ compiler {compiler}")
    return make_extension(tmp_path_factory.mktemp("extension"), compiler=compiler)


@pytest.fixture
def logged() -> Iterator[Callable[[], list[str]]]:
    """What is seen so far of what dwconv logs, where nothing configures it."""
    handler, logger = BufferingHandler(1000), logging.getLogger("dwconv")
    handler.setLevel(logging.WARNING)
    logger.addHandler(handler)
    yield lambda: [record.getMessage() for record in handler.buffer]
    logger.removeHandler(handler)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: Path) -> Iterator[StubCompiler]:
    """In use, with a cache that starts empty, in a process that has not loaded the extension yet."""
    stub = StubCompiler(tmp_path, extension)
    monkeypatch.setenv("CXX", str(stub.path))
    monkeypatch.delenv("DWCONV_NATIVE", raising=False)
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(build_once, "_NICENESS", 0)  # on a busy machine it might wait for minutes
    as_in_a_new_process(monkeypatch)
    yield stub
    stub.go.touch()
    if native._background is not None:  # before the state that it writes to is another test's
        native._background.join()
