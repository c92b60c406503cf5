"""The interpreter that runs processes of dwconv's own. A frozen application, or another program with Python inside, has
none: started as one, it would start itself once more."""

from __future__ import annotations

import json
import os
import re
import sys
from multiprocessing import spawn
from pathlib import Path

_AT_FIRST = sys.executable or ""
_PYTHON = re.compile(r"\.?(python|pypy)[\d.]*[dmtuw]*(_d)?(-dbg|-intel64|-arm64|-wrapped)?(\.exe)?", re.IGNORECASE)
"""Names of interpreters."""
_WAY_OUT = "name a Python interpreter with multiprocessing.set_executable(path)"
_IMPORTS = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "


def interpreter() -> str | None:
    """That of ``multiprocessing.set_executable``, or else this process's own; None if this process has none."""
    chosen = os.fsdecode(spawn.get_executable() or "")
    if chosen and chosen != _AT_FIRST:
        return chosen
    return sys.executable if runs_python() else None


def runs_python() -> bool:
    """False if this process is a program with Python inside."""
    return not getattr(sys, "frozen", False) and bool(_PYTHON.fullmatch(Path(sys.executable or "").name))


def why_none() -> str:
    """Why no process can be started, and the way out; empty if one can."""
    if interpreter() is not None:
        return ""
    is_frozen = "is a frozen application" if getattr(sys, "frozen", False) else "is no Python interpreter"
    return f"{sys.executable or 'this program'} {is_frozen}; {_WAY_OUT}"


def command(program: str, *arguments: str) -> list[str]:
    """The command that runs ``program``, Python text, with the import path of this process: with -m it would also
    import from the current folder. Its own arguments begin at ``sys.argv[2]``. Raises FileNotFoundError if there is no
    interpreter."""
    python = interpreter()
    if python is None:
        raise FileNotFoundError(why_none())
    path = [str(entry) or str(Path.cwd()) for entry in sys.path]
    return [python, "-c", _IMPORTS + program, json.dumps(path), *arguments]
