"""What all tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from dwconv import plan

Golden = Callable[[Path, str], None]

# How fast this machine is, and how lucky it is in drawing, says nothing about what is tested.
settings.register_profile(
    "dwconv",
    parent=settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.load_profile("dwconv")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the pinned programs instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a text with the one pinned in a file; with ``--update-golden`` writes it there."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; make it with --update-golden"
        assert text == path.read_text(), f"{path.name} changed; if it was meant, rewrite it with --update-golden"

    return check


@pytest.fixture(autouse=True)
def _no_log_of_the_developer(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was tuned on this machine changes a test, and no test writes there."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.getbasetemp() / "data"))


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only folder where dispatch looks for tuning logs; empty at first. Nothing of other tests is remembered."""
    folder = tmp_path / "logs"
    folder.mkdir()
    monkeypatch.setenv("DWCONV_TUNING_LOGS", str(folder))
    plan.reset()
    yield folder
    plan.reset()
