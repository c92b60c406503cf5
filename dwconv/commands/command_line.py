"""Command-line arguments that name a workload, shared by the commands; and how a command reports an error."""

from __future__ import annotations

import argparse
import codecs
import difflib
import importlib
import io
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dwconv.errors import DwconvError, InvalidWorkload, LogError, one_line, say
from dwconv.system import versions
from dwconv.system.new_file import check_folder, check_replaceable
from dwconv.system.remote_files import is_url

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    from dwconv.records.database import Database

INTERRUPTED_EXIT_CODE = 130
_BAD_INPUT_EXIT_CODE = 2
_MOST_SAID = 1000
"""Characters of an error that are printed, and as many of its end: it may quote all of a bad value."""
_DIGITS = 10
"""A longer whole number is no size and no count."""
_DIGITS_OF_A_SEED = 18
_WHOLE = re.compile(rf"[0-9]{{1,{_DIGITS}}}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,15}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][-+]?[0-9]{1,3})?")


class ArgumentParser(argparse.ArgumentParser):
    """An argparse parser whose errors are one line, ``error: …``, and exit code 2; names cannot be shortened."""

    def __init__(self, *, prog: str, description: str, epilog: str | None = None, keep_lines: bool = False) -> None:
        """``keep_lines``: show description and epilog as they are, instead of filling lines."""
        shown = argparse.RawDescriptionHelpFormatter if keep_lines else argparse.HelpFormatter
        super().__init__(prog=prog, description=description, epilog=epilog, formatter_class=shown, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        start = "unrecognized arguments: "
        if message.startswith(start) and (words := message.removeprefix(start).split()):
            message += did_you_mean(words[0].partition("=")[0], self._option_string_actions)
        self.exit(_BAD_INPUT_EXIT_CODE, f"error: {_told(message)} (see {self.prog} --help)\n")

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """As argparse, but raises OSError where stdout cannot be written."""
        print(self.format_help(), end="", file=file)


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """``; did you mean tune?``; empty if nothing is near."""
    near = difflib.get_close_matches(wrong.casefold(), known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def run(command: Callable[[list[str] | None], int], argv: list[str] | None = None) -> int:
    """Run a command and return its exit code; a DwconvError becomes one line on stderr, and so does a stdout that takes
    no more."""
    _open_standard_streams()
    try:
        try:
            return _exit_code(command, argv)
        finally:
            sys.stdout.flush()
    except OSError:
        error = _error_of_stdout()
        if error is None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python prints what is left at its end
        if isinstance(error, BrokenPipeError):  # the reader of stdout, such as `head`, has gone: no error
            return 0
        say(f"error: stdout cannot be written: {error.strerror}; send it elsewhere")
        return _BAD_INPUT_EXIT_CODE


def _exit_code(command: Callable[[list[str] | None], int], argv: list[str] | None) -> int:
    try:
        return command(argv)
    except DwconvError as error:
        say(f"error: {_told(str(error))}")
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED_EXIT_CODE


def _error_of_stdout() -> OSError | None:
    """Why it takes no line; None if it takes one."""
    try:
        print(flush=True)
    except OSError as error:
        return error
    return None


def _told(message: str) -> str:
    """As one line; what is too long without its middle."""
    text = one_line(message)
    return text if len(text) <= 2 * _MOST_SAID else f"{text[:_MOST_SAID]} … {text[-_MOST_SAID:]}"


def note(what: str) -> None:
    """Say it on stderr."""
    say(f"note: {what}")


def known_records(logs: Sequence[Path]) -> Database:
    """The records of these logs, by default those of the usual places. Raises LogError for one that is not there."""
    from dwconv.records.database import Database

    for log in logs:
        if not os.path.lexists(log):
            raise LogError(f"log={log} does not exist; name one that does")
    known = Database.load(logs) if logs else Database.usual()
    for problem in known.problems:
        note(problem)
    return known


def run_one_of(commands: Mapping[str, str], argv: list[str] | None, *, prog: str, package: str) -> int:
    """Run the command that ``argv`` begins with: ``main`` of the module of that name in ``package``. ``commands``: what
    each does, by name. ``--version`` names what is installed. Returns the exit code: 2 for bad input."""

    def named(arguments: list[str] | None) -> int:
        return _run_one_of(commands, arguments or [], prog=prog, package=package)

    return run(named, sys.argv[1:] if argv is None else argv)


def _run_one_of(commands: Mapping[str, str], arguments: list[str], *, prog: str, package: str) -> int:
    if arguments and arguments[0] in ("-h", "--help"):
        print(f"usage: {prog} COMMAND …\n\ncommands (each has --help):")
        width = max(map(len, commands)) + 2
        for name, purpose in commands.items():
            print(f"  {name:{width}}{purpose}")
        return 0
    if arguments == ["--version"]:
        print(*(f"{name} {version}" for name, version in versions.installed().items()), sep=", ")
        return 0
    if not arguments or arguments[0] not in commands:
        given = f"command={one_line(arguments[0])} is unknown" if arguments else "no command given"
        given += did_you_mean(arguments[0], commands) if arguments else ""
        say(f"error: {given}; use one of {', '.join(commands)}")
        return _BAD_INPUT_EXIT_CODE
    exit_code: int = importlib.import_module(f"{package}.{arguments[0]}").main(arguments[1:])
    return exit_code


def _open_standard_streams() -> None:
    """Open stdin, stdout or stderr on the null device if it is closed. Otherwise the next log or socket would get its
    number, and a library or a worker process would print into it."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, closefd=False, encoding="utf-8"))  # noqa: SIM115  stays open
        if getattr(sys, name) is None:  # Python found it closed, and a file has its number since
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    codecs.register_error(_PLAINLY, _plainly)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_PLAINLY)  # a file's name need not be text that can be printed


_PLAINLY = "dwconv.plainly"
_PLAIN = {"µ": "u", "×": "x", "−": "-", "–": "-", "±": "+", "…": "...", "²": "2", "→": ">", "·": ".", "─": "-"}
"""One letter for each that stands in a table, so that its columns stay in line."""


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """For ``codecs``: what the encoding of a stream lacks, as ``_PLAIN`` has it, or else by its number."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(_PLAIN.get(each) or each.encode("ascii", "backslashreplace").decode() for each in lacking), error.end


def is_whole(text: str) -> bool:
    """True for digits, as people write them: Python also takes ``1_0``, ``١`` and blanks."""
    return _WHOLE.fullmatch(text) is not None


def whole(text: str) -> int:
    """The type of an option that takes 1, 2, 3, …"""
    if is_whole(text) and (number := int(text)) > 0:
        return number
    raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1, of {_DIGITS} digits at most")


def whole_from_0(text: str) -> int:
    """The type of an option that takes 0, 1, 2, …, such as a seed."""
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_OF_A_SEED:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0 on, of up to {_DIGITS_OF_A_SEED} digits")


def above_0(text: str) -> float:
    """The type of an option that takes a finite number above 0."""
    number = _number(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number


def from_0(text: str) -> float:
    """The type of an option that takes a finite number, 0 or more."""
    number = _number(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of 0 or more")
    return number


def _number(text: str) -> float:
    """NaN for what is none."""
    return float(text) if _NUMBER.fullmatch(text) else math.nan


def writable_file(text: str) -> Path:
    """The type of an option that names a file that is written, or replaced, after long work."""
    return _writable(text, check_replaceable, kind="file")


def writable_folder(text: str) -> Path:
    """The type of an option that names a folder that files are written to, and that is made, after long work."""
    return _writable(text, check_folder, kind="folder")


def _writable(text: str, check: Callable[[Path], None], *, kind: str) -> Path:
    path = named_path(text)
    try:
        check(path)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be written: {error.strerror}; name another {kind}") from None
    return path


def path_or_url(text: str) -> Path | str:
    """The type of an option that takes the name of a file or folder, or a URL, which stays text."""
    return text if is_url(text) else named_path(text)


def named_path(text: str) -> Path:
    """The type of an option that names a file or a folder. An empty name would be the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} names no file or folder; give a name, or . for the current folder")
    return Path(text)


def integers(name: str, text: str) -> tuple[int, ...]:
    """``3,5`` as numbers. Raises InvalidWorkload, which calls them ``name``."""
    words = [word.strip(" ") for word in text.split(",")]
    if not all(is_whole(word.removeprefix("-")) for word in words):
        few = f", of {_DIGITS} digits at most" if any(len(word) > _DIGITS for word in words) else ""
        raise InvalidWorkload(f"{name}={text} is not whole numbers separated by commas{few}")
    return tuple(map(int, words))
