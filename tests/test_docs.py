"""Everything that README, CONTRIBUTING and docs/ show exists: links, files, commands and their options."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import itertools
import json
import pkgutil
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import BENCHMARKS, READERS, module_of
from bench.gpu.cuda import PREPARE
from dwconv.__main__ import COMMANDS
from dwconv.concurrency import __main__ as concurrency
from dwconv.parallel import __main__ as parallel
from dwconv.schedules import cpu, cuda
from dwconv.schedules.template import ScheduleTemplate, all_templates
from dwconv.show import WHAT
from tests import forked

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = re.compile(r"(\.venv/bin/)?(python|make|pip|dwconv|compute-sanitizer) |\.ci/run")
"""What commands begin with."""
PARSED = [
    *(f"dwconv.{name}" for name in COMMANDS if name != "concurrency"), *map(module_of, (*BENCHMARKS, *READERS)),
    "tests.mutate", "tests.standin.run", "tests.standin.small_bench", "tests.walks",
    *(f"dwconv.parallel {name}" for name in parallel.COMMANDS),
    *(f"dwconv.concurrency {name}" for name in concurrency.COMMANDS), f"bench.gpu {PREPARE}",
]  # fmt: skip
"""Modules with a command line of their own."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Something that a page shows, and where."""

    page: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


# -- templates -------------------------------------------------------------------------------------------------------


def _families() -> dict[str, tuple[ScheduleTemplate[Any], ...]]:
    """The templates of each folder of ``schedules/cpu`` and ``schedules/cuda`` that has any."""
    found = {}
    for device in (cpu, cuda):
        for module in pkgutil.iter_modules(device.__path__):
            family = importlib.import_module(f"{device.__name__}.{module.name}")
            if templates := getattr(family, "TEMPLATES", ()):
                found[f"{device.__name__.rpartition('.')[2]}/{module.name}"] = templates
    return found


def test_the_table_of_templates_leads_from_each_stored_name_to_its_folder() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    listed = {
        folder: set(re.findall(r"`([a-z0-9_.]+)`", names))
        for folder, names in re.findall(r"^\| `((?:cpu|cuda)/\w+)` \| (.+) \|$", text, re.MULTILINE)
    }
    there = {folder: {each.name for each in templates} for folder, templates in _families().items()}
    assert listed == there
    assert set().union(*there.values()) == set(all_templates()), "else the registry finds more than the folders have"


def _named_after(templates: Sequence[ScheduleTemplate[Any]]) -> str:
    """The folder that stored names lead to. Both gradients in one kernel stand with the weight gradient."""
    parts = [re.fullmatch(rf"(\w+)\.(\w+_)?{each.pass_}_{each.layout}(_\w+)?", each.name) for each in templates]
    (device,), kinds, ways = ({part and part[at] for part in parts} for at in (1, 2, 3))
    (kind,), (way,) = kinds, ways
    passes = dict.fromkeys(each.pass_ for each in templates if each.pass_ != "backward")
    layouts = {each.layout for each in templates}
    layout = f"_{layouts.pop()}" if len(layouts) == 1 else ""
    return f"{device}/{kind.rstrip('_') if kind else '_'.join(passes)}{layout}{way or ''}"


def test_a_folder_of_templates_is_named_after_their_passes_their_layout_and_their_way() -> None:
    folders = {folder: _named_after(templates) for folder, templates in _families().items()}
    assert {folder: after for folder, after in folders.items() if folder != after} == {}


# -- what the pages show ---------------------------------------------------------------------------------------------


def _shown(pattern: str, *, fenced: bool) -> Iterator[Shown]:
    """What ``pattern`` finds in the pages, in fenced blocks or outside of them."""
    for page in PAGES:
        parts = re.split(r"^```.*$", page.read_text(), flags=re.MULTILINE)
        for part in parts[1 if fenced else 0 :: 2]:
            yield from (Shown(page=str(page.relative_to(ROOT)), text=found) for found in re.findall(pattern, part))


def _commands() -> Iterator[Shown]:
    """Lines of blocks, and code in sentences, that begin with the name of a program."""
    for shown in itertools.chain(_shown(r"(?m)^(\S.*)$", fenced=True), _shown(r"`([^`\n]+)`", fenced=False)):
        if PROGRAMS.match(shown.text):
            yield shown


LINKS = list(_shown(r"\]\(([^)\s]+)\)", fenced=False))
OPTIONS = [each for each in _shown(r"`([^`\n]+)`", fenced=False) if each.text.startswith("--")]
FILES = list(_shown(r"`((?:dwconv|schedules|bench|tests|docs|tuning_logs|\.ci)/[^`<*…\s]*)`", fenced=False))
ALL_COMMANDS = list(_commands())


# -- what exists -----------------------------------------------------------------------------------------------------


class _Asked(Exception):
    """The parser of a program that was just about to read its arguments."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


@cache
def _parser(module: str) -> argparse.ArgumentParser:
    """The parser of a module's command line. Nothing is run but what comes before it."""

    def stop(parser: argparse.ArgumentParser, *arguments: object) -> None:
        raise _Asked(parser)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_args", stop)
        package, _, command = module.partition(" ")
        found = importlib.import_module(f"{package}.{command}" if command else package)
        main = getattr(found, "command", None) or found.main
        with pytest.raises(_Asked) as asked:
            main([]) if module.startswith(("dwconv", "bench")) else main()
    return asked.value.parser


@cache
def _pytest_help() -> str:
    command = [sys.executable, "-m", "pytest", "--help"]
    return str(forked.run(command, cwd=ROOT, text=True, check=True).stdout)


@cache
def _anchors(page: Path) -> set[str]:
    """The headings of a page, as a browser's address names them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _check(words: list[str]) -> None:
    """Raises AssertionError if the command could not be started as it is written."""
    program, rest = Path(words[0]).name, words[1:]
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(rest) <= set(targets)
    elif program == "pip":
        extras = {extra for word in rest for extra in re.findall(r"\[(\w+)]", word)}
        assert all(f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text() for extra in extras)
    elif program == "dwconv":
        if rest[0] != "concurrency":
            _parse(f"dwconv.{rest[0]}", rest[1:])
        elif rest[1:]:
            _parse(f"dwconv.concurrency {rest[1]}", rest[2:])
    elif program == "compute-sanitizer":
        _check(rest)
    elif program == "python":
        _check_python(rest)
    else:
        assert (ROOT / words[0]).exists()


def _check_python(words: list[str]) -> None:
    """``words`` after ``python``: a file, or ``-m`` and a module."""
    if words[0] != "-m":
        assert (ROOT / words[0]).exists()
        _parse(words[0].removesuffix(".py").replace("/", "."), words[1:])
    elif words[1] == "pytest":
        named = [word for word in words[2:] if "/" in word]
        options = [word.partition("=")[0] for word in words[2:] if word.startswith("--")]
        assert all((ROOT / name).exists() for name in named)
        assert all(option in _pytest_help() for option in options)
    elif words[1:4] == ["bench", "cuda", PREPARE]:
        _parse(f"bench.gpu {PREPARE}", words[4:])
    elif words[1] == "bench":
        if words[2:]:
            _parse(module_of(words[2]), words[3:])
    elif words[1] in ("dwconv.parallel", "dwconv.concurrency"):
        if words[2:]:
            _parse(f"{words[1]} {words[2]}", words[3:])
    elif words[1].startswith("tvm."):
        assert importlib.util.find_spec(words[1]), "TVM has no such module"
    else:
        _parse(words[1], words[2:])


def _parse(module: str, arguments: list[str]) -> None:
    assert module in PARSED
    if not arguments or arguments == ["--help"]:
        return  # named in a sentence
    try:
        parsed = _parser(module).parse_args(arguments)
    except SystemExit:
        raise AssertionError(f"{module} does not understand {shlex.join(arguments)}") from None
    if module == "tests.standin.run":
        _check(["python", *parsed.command])


# -- the tests -------------------------------------------------------------------------------------------------------


def _check_each(shown: list[Shown], check: Callable[[Shown], None]) -> None:
    """Fails with all that does not pass. It fails, too, if the pages show nothing of the kind."""
    wrong = [] if shown else ["no page shows any"]
    for each in shown:
        try:
            check(each)
        except (AssertionError, ValueError, IndexError) as error:
            wrong.append(f"{each}: {str(error).partition(chr(10))[0]}")
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


def test_links_lead_somewhere():
    def check(link: Shown) -> None:
        path, _, anchor = link.text.partition("#")
        target = (ROOT / link.page).parent / path if path else ROOT / link.page
        assert target.exists(), "there is no such file"
        assert not anchor or anchor in _anchors(target), "there is no such heading"

    _check_each([link for link in LINKS if not link.text.startswith("https://")], check)


def test_files_exist():
    def check(file: Shown) -> None:
        assert (ROOT / file.text).exists(), "there is no such file"

    _check_each(FILES, check)


def test_commands_can_be_pasted():
    def check(command: Shown) -> None:
        words = shlex.split(command.text, comments=True)
        assert not {"|", "…", ">", "<"} & set(words), "a shell would take it for something else"
        _check(words)

    _check_each(ALL_COMMANDS, check)


def test_each_result_names_the_commands_that_make_it_and_others_are_in_the_archive():
    results = ROOT / "bench" / "results"
    shown = []
    for path in sorted(results.glob("*.json")):
        command = json.loads(path.read_text()).get("command", "")
        parts = [part.strip() for part in re.findall(r"python -m bench [^;]+", command)]
        shown += [Shown(page=path.name, text=part) for part in parts or ["no command"]]

    def check(command: Shown) -> None:
        words = shlex.split(command.text)
        assert not any(word.startswith("/") for word in words), "the folder is of one machine"
        assert words[:3] == ["python", "-m", "bench"], "no command makes it"
        _check(words)

    _check_each(shown, check)
    archived = (results / "archive" / "README.md").read_text()
    assert all(path.name.partition("-")[0] in archived for path in (results / "archive").glob("*.json"))


def test_options_belong_to_a_command():
    known = {name for module in PARSED for name in _parser(module)._option_string_actions}

    def check(option: Shown) -> None:
        assert option.text.split()[0] in known, "no command has it"

    _check_each(OPTIONS, check)


def test_every_dotted_name_works_after_one_import():
    names = set()
    for page in PAGES:
        for line in page.read_text().splitlines():
            if not line.startswith("from ") and "dwconv" in line:
                names |= set(re.findall(r"(?<![\w./-])dwconv(?:\.[A-Za-z]\w*)+(?![\w/])", line))
    assert {"dwconv.discovery.discover", "dwconv.errors.Untuned"} <= names
    code = "import dwconv, operator\nfor name in NAMES: operator.attrgetter(name.partition('.')[2])(dwconv)"
    done = forked.run([sys.executable, "-c", f"NAMES = {sorted(names)}\n{code}"], text=True)
    assert done.returncode == 0, done.stderr


def test_the_words_for_passes_are_explained_where_a_page_first_has_them():
    """A reader may begin with any page."""
    for page in PAGES:
        before, paragraph = "", ""
        for paragraph in re.split(r"\n\n", page.read_text()):
            before += f"{paragraph}\n"
            if re.search(r"\b(fprop|dgrad|wgrad)\b", paragraph):
                words = " ".join(before.split())
                assert "gradient of the input" in words, f"{page.name}: {paragraph[:80]}"
                break


def test_every_page_variable_command_benchmark_and_answer_is_documented():
    linked = {link.text.partition("#")[0] for link in LINKS if link.page == "README.md"}
    assert {str(page.relative_to(ROOT)) for page in PAGES} - {"README.md"} <= linked
    read = re.findall(r"environ\.get\(\"(\w+)\"", (ROOT / "dwconv" / "settings.py").read_text())
    pages = {page.name: page.read_text() for page in PAGES}
    assert read and all(f"`{name}`" in pages["environment.md"] for name in read)
    assert all(f"python -m dwconv.{name}`" in pages["commands.md"] for name in COMMANDS)
    assert all(f"| `{what}` |" in pages["commands.md"] for what in WHAT)
    assert all(f"python -m bench {name} " in pages["benchmarks.md"] for name in (*BENCHMARKS, *READERS))


def test_python_in_the_makefile_finds_its_names():
    """``make dist`` runs at a release alone."""
    programs = re.findall(r"-c (?:\\\n\s*)?'([^']*)'", (ROOT / "Makefile").read_text())
    names = {}
    for program in programs:
        tree = ast.parse(program)
        modules = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dwconv"):
                for each in node.names:
                    package = importlib.import_module(node.module)
                    if not hasattr(package, each.name):
                        importlib.import_module(f"{node.module}.{each.name}")
                    modules[each.asname or each.name] = getattr(package, each.name)
        used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
        names |= {f"{each.value.id}.{each.attr}": modules[each.value.id] for each in used if each.value.id in modules}
    assert len(programs) > 3 and {"packs.are_for_every_layer", "native.why_not"} <= set(names)
    assert [name for name, module in names.items() if not hasattr(module, name.partition(".")[2])] == []


# -- the house, as CONTRIBUTING draws it -----------------------------------------------------------------------------

HOUSE = ROOT / "dwconv"
NAMED = re.compile(r"(?<![\w/.])[\w/]+(?:\.py|/)(?![\w/])")
"""Files and folders of the product."""


def _tables(page: str) -> Iterator[tuple[str, list[list[str]]]]:
    """The first cell of each table's head, and the cells of its rows."""
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        yield head[0], rows


def _python_files(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("*.py")} - {"__init__.py", "__main__.py"}


def _rooms(folder: Path) -> set[str]:
    """Packages in a folder that hold more than their own ``__init__.py``."""
    packages = [file.parent for file in folder.glob("*/__init__.py")]
    return {f"{room.name}/" for room in packages if any(file.name != "__init__.py" for file in room.rglob("*.py"))}


def _differences(page: str) -> list[str]:
    """What the page says of the house and is not so, and what it leaves out: rooms, and rooms in them."""
    (picture,) = re.findall(r"^## The house in one picture\n.*?^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    drawn = set(NAMED.findall(picture))
    places = {first.strip("`"): does for head, rows in _tables(page) if head == "place" for first, does in rows}
    wrong = [f"there is no dwconv/{name}" for name in sorted(drawn | set(places)) if not (HOUSE / name).exists()]
    missing = _python_files(HOUSE) | _rooms(HOUSE)
    wrong += [f"{name} is not in the picture" for name in sorted(missing - drawn)]
    wrong += [f"{name} is not in the table" for name in sorted(_rooms(HOUSE) - set(places))]
    for place in sorted(set(places) & _rooms(HOUSE)):
        inner, named = _rooms(HOUSE / place), set(re.findall(r"`(\w+/|\w+\.py)`", places[place]))
        wrong += [f"there is no dwconv/{place}{name}" for name in sorted(named) if not (HOUSE / place / name).exists()]
        wrong += [f"dwconv/{place}{name} is not in the table" for name in sorted(inner - named)]
    return wrong


def test_contributing_draws_the_house_as_it_is():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert not _differences(page), "\n".join(_differences(page))
