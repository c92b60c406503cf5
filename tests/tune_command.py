"""The tune command with fake templates, a fake CPU and fake runners, for the tests of it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from dwconv import native, show, tune
from dwconv.measure import limits
from dwconv.problems import target
from dwconv.schedules import template as template_module
from dwconv.tuner.search import search_loop
from tests import fake_tuning as fake

SHAPE = ("--shape", "8,96,28,28", "--kernel", "3", "--layout", "nhwc", "--target", "cpu")


class Made(list[fake.FakeRunner]):
    """The runners that were made, by ``factory``."""

    factory = fake.FakeRunner

    def __init__(self) -> None:
        self.native_asked_after: list[int] = []
        """How many runners there were whenever the compiled calls were loaded, which may take half a minute."""


def plant(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Made:
    """Plant templates for fprop and dgrad, a CPU and runners; ``folder`` becomes the current one."""
    made = Made()

    def make_runner(*_: object, **__: object) -> fake.FakeRunner:
        made.append(made.factory())
        return made[-1]

    monkeypatch.chdir(folder)
    monkeypatch.setenv("DWCONV_TUNING_LOGS", "tuning_logs")
    templates = [fake.template(pass_=pass_) for pass_ in ("fprop", "dgrad")]
    monkeypatch.setattr(template_module, "all_templates", lambda: {t.name: t for t in templates})
    real = target.cpu_target
    monkeypatch.setattr(target, "cpu_target", lambda **asked: real(**asked) if asked else fake.TARGET)
    monkeypatch.setattr(limits, "with_limits", lambda target: target)

    def asked(*, may_compile: bool, limit_s: float) -> None:
        assert limit_s < 60, "a run of a minute does not wait for several"
        made.native_asked_after += [len(made)] * may_compile

    monkeypatch.setattr(native, "native", asked)
    monkeypatch.setattr(limits, "doubt", lambda target: None)
    monkeypatch.setattr(search_loop, "make_runner", make_runner)
    return made


def run(*options: object) -> int | str | None:
    """The exit code of the command."""
    try:
        return tune.main([*map(str, options)])
    except SystemExit as exit:  # argparse ends this way
        return exit.code


def shown_next(printed: str) -> list[str]:
    """The ``--what`` of each command that is printed after ``see:``; each command can be pasted as it is."""
    commands = [shlex.split(line.removeprefix("see:")) for line in printed.splitlines() if line.startswith("see:")]
    assert all(command[:3] == ["python", "-m", "dwconv.show"] for command in commands)
    return [show.parser_of_show().parse_args(command[3:]).what for command in commands]


def error_of(capsys: pytest.CaptureFixture[str], *options: object) -> str:
    """The one line that answers bad input."""
    assert run(*options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1 and err.endswith("\n")
    return err
