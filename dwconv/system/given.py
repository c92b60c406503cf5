"""Arguments of public functions, checked: numbers, flags, paths. Each check returns the argument as it is used, or
raises InvalidArgument, a TypeError, for another type, InvalidChoice for a value that makes no sense."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from dwconv.errors import InvalidArgument, InvalidChoice, one_line

_MOST_SHOWN = 60


def shown(value: object) -> str:
    """``'yes'``, ``3``, ``a list``: a value in a message."""
    if value is None or isinstance(value, (str, bytes, int, float, complex)):
        return one_line(repr(value), most=_MOST_SHOWN)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def number(name: str, value: Any, *, way_out: str) -> float:
    """A number, NaN excluded; one of numpy, or a tensor of one, counts. ``way_out``: what to give instead."""
    try:
        found = math.nan if isinstance(value, (bool, str, bytes, bytearray)) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        found = math.nan
    if math.isnan(found):
        kind = InvalidChoice if isinstance(value, float) else InvalidArgument
        raise kind(f"{name}={shown(value)} is not a number; {way_out}")
    return found


def seconds(name: str, value: Any) -> float:
    """Seconds from 0 on."""
    found = number(name, value, way_out="give seconds, 0 or more")
    if found < 0:
        raise InvalidChoice(f"{name}={shown(value)} is not a time; use 0 or more")
    return found


def whole(name: str, value: Any, *, least: int, way_out: str = "") -> int:
    """A whole number of at least ``least``; one of numpy counts. ``way_out``: what to give instead."""
    way_out = way_out or f"give a whole number of at least {least}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidArgument(f"{name}={shown(value)} is not a whole number; {way_out}")
    try:
        found = value.__index__()
    except (TypeError, ValueError):  # as of an array of several
        raise InvalidArgument(f"{name}={shown(value)} is not a whole number; {way_out}") from None
    if found < least:
        raise InvalidChoice(f"{name}={found} is below {least}; {way_out}")
    return int(found)


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):  # numpy's, too
        return bool(value)
    raise InvalidArgument(f"{name}={shown(value)} is not True or False; give one of them")


def path(name: str, value: Any) -> Path:
    """The name of a file or folder; an empty one would be the current folder."""
    if not isinstance(value, (str, os.PathLike)):
        raise InvalidArgument(f"{name}={shown(value)} is not a path; give a str or a pathlib.Path")
    text = os.fspath(value)
    if not isinstance(text, str):
        raise InvalidArgument(f"{name}={shown(value)} is not a path; give a str or a pathlib.Path")
    if not text.strip():
        raise InvalidChoice(f"{name}={text!r} names no file; give its name")
    return Path(text)
