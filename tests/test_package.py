"""The package as users get it: a wheel in a clean environment, and the street that imports run down."""

from __future__ import annotations

import ast
import importlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests import forked

ROOT = Path(__file__).resolve().parent.parent
STALE = "dwconv/of_an_earlier_build.py"
_BASE = "dwconv/kernels/base/avx2"
BROUGHT = (
    f"{_BASE}/manifest.json",
    f"{_BASE}/records.jsonl",
    f"{_BASE}/kernels/a.kernel",
    "dwconv/native/prebuilt/a.so",
)
"""What ``make dist`` puts into the package."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # a copy, so that no build folder is left in the tree
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    files = listed.stdout.split() if listed.returncode == 0 else []
    for name in files or [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file() and ".venv" not in p.parts]:
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name, follow_symlinks=False)
    for name in BROUGHT:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).touch()
    stale = source / "build/lib" / STALE
    stale.parent.mkdir(parents=True)
    stale.touch()
    pip(sys.executable, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    return next(folder.glob("dwconv-*.whl"))


@pytest.fixture(scope="module")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A new environment with the wheel, and with what it depends on borrowed from this one."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    pip(sys.executable, "--python", python, "install", "--no-deps", str(wheel))
    site = next(folder.glob("lib/python*/site-packages"))
    # A path in a .pth file lends the packages, but not the .pth files among them: no editable install comes along.
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


def pip(python: str, *arguments: str) -> None:
    done = subprocess.run(
        [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def run_clean(python: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Nothing of this environment but the run's cache: the C++ is not compiled once more."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DWCONV"))}
    environment = own | {"DWCONV_CACHE": os.environ["DWCONV_CACHE"]}
    return subprocess.run(
        [python, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=1200
    )


def test_wheel_holds_every_room_and_nothing_stale(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert STALE not in names
    for path in [path for kind in ("py", "ll", "h", "cc") for path in ROOT.glob(f"dwconv/**/*.{kind}")]:
        assert str(path.relative_to(ROOT)) in names
    for folder in ("schedules", "tuning_logs"):
        for path in [*ROOT.glob(f"{folder}/**/*.py"), *ROOT.glob(f"{folder}/*.jsonl")]:
            assert f"dwconv/{path.relative_to(ROOT)}" in names
    assert names.issuperset(BROUGHT)
    assert not any(name.startswith(("tests/", "bench/")) for name in names)


@pytest.mark.slow
def test_wheel_builds_and_runs_a_kernel_in_a_clean_environment(clean_python, tmp_path):
    program = (
        "import torch, dwconv, dwconv.schedules, sys\n"
        "from dwconv.kernels import build\n"
        "from dwconv.kernels.kernel import Kernel\n"
        "from dwconv.schedules.template import Candidate, templates_for\n"
        "from dwconv.problems.target import cpu_target\n"
        "from dwconv.problems.workload import Workload\n"
        "workload = Workload(pass_='fprop', batch=1, channels=8, input_size=(6, 6), kernel=(3, 3), layout='nhwc')\n"
        "target = cpu_target()\n"
        "template = templates_for(workload, target)[0]\n"
        "kernel = Kernel.load(build(Candidate(workload, template.space(workload, target).default), target))\n"
        "x, w = torch.randn(1, 8, 6, 6), torch.randn(8, 1, 3, 3)\n"
        "torch.testing.assert_close(kernel(x, w), torch.nn.functional.conv2d(x, w, groups=8))\n"
        "print(dwconv.__file__)\n"
    )
    done = run_clean(clean_python, tmp_path, "-c", program)
    assert done.returncode == 0, done.stderr
    assert str(ROOT) not in done.stdout


HELP = """
import os, runpy, sys
import dwconv.commands.command_line

script, *commands = sys.argv[1:]
for command in commands:
    for way in ("script", "module"):
        if os.fork() == 0:
            os.dup2(os.open(f"{command} by its {way}", os.O_WRONLY | os.O_CREAT), 1)
            sys.argv, code = [script, command, "--help"] if way == "script" else ["", "--help"], 1
            try:
                if way == "script":
                    runpy.run_path(script, run_name="__main__")
                else:
                    runpy.run_module(f"dwconv.{command}", run_name="__main__", alter_sys=True)
            except SystemExit as ended:
                code = ended.code or 0
            sys.stdout.flush()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
"""
"""Processes that are forked, as each would import for half a second."""


def test_console_script_and_module_print_help(clean_python, tmp_path):
    options = {"tune": "--shape", "show": "--shape", "merge": "--out", "export": "--put", "portfolio": "--without"}
    script = str(Path(clean_python).with_name("dwconv"))
    done = run_clean(clean_python, tmp_path, "-c", HELP, script, *options)
    assert done.returncode == 0, done.stderr
    for command, option in options.items():
        by_script, by_module = ((tmp_path / f"{command} by its {way}").read_text() for way in ("script", "module"))
        assert option in by_script and by_script == by_module
    by_itself = subprocess.run([script, "merge", "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=1200)
    assert (by_itself.returncode, by_itself.stdout) == (0, (tmp_path / "merge by its script").read_text())
    done = run_clean(clean_python, tmp_path, "-m", "dwconv.merge", "--help")
    assert (done.returncode, done.stdout) == (0, by_itself.stdout)


def test_the_version_is_that_of_the_changelog():
    done = subprocess.run([sys.executable, "-m", "dwconv", "--version"], capture_output=True, text=True, check=True)
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert done.stdout.startswith(f"dwconv {version}, torch 2.")
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == version


def test_unknown_command_is_one_line():
    done = subprocess.run([sys.executable, "-m", "dwconv", "fly"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == "error: command=fly is unknown; use one of tune, show, merge, export, concurrency, portfolio\n"
    )


def test_patterns_end_where_the_text_ends():
    """``$`` takes a line break after it: what is checked is matched as a whole, or up to ``\\Z``."""
    sources = [path for folder in ("dwconv", "bench", "schedules") for path in (ROOT / folder).rglob("*.py")]
    lines = [(path, line) for path in sources for line in path.read_text().splitlines()]
    assert len(lines) > 10_000
    ending = re.compile(r"""(?<!\\)\$["']""")
    assert [(path.name, line) for path, line in lines if ending.search(line) and "re.M" not in line] == []


@cache
def parsed(*more: str) -> dict[Path, ast.Module]:
    """All of the product, where ``dwconv/schedules`` is a link, and of ``more`` folders."""
    paths = [path for folder in ("dwconv", "schedules", *more) for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path: ast.parse(path.read_text()) for path in paths}


def test_an_error_shows_its_cause_only_where_that_is_in_code_of_the_users():
    """Or of TVM's: elsewhere the line says it all, and no other line stands above it."""
    chained = [
        (path.relative_to(ROOT / "dwconv"), ast.unparse(node.exc))
        for path, tree in parsed().items()
        if path.is_relative_to(ROOT / "dwconv")
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and node.exc and node.cause and not isinstance(node.cause, ast.Constant)
    ]
    told = ("described_error(", "first_line(", "telling_line(", "_why(module, error)", "StageFailed(", "RankLost(")
    wrong = [f"{path}: {raised}" for path, raised in chained if not any(each in raised for each in told)]
    assert wrong == ["kernels/entry.py: ValueError(f'not a message: {error}')"] and len(chained) > len(wrong)


FILES = ("cut", "estimate", "kernel", "space")
"""Of each family of templates."""
ENDINGS = ("ing", "er", "or", "ed", "ation", "ator", "ate", "ive")


@cache
def _stems(word: str) -> set[str]:
    """What ``word`` may be a form of: ``make`` of ``maker``, ``cut`` of ``cutting``."""
    word = word[:-1] if word.endswith("s") and not word.endswith(("ss", "us")) else word
    rests = [word.removesuffix(each) for each in ENDINGS if word.endswith(each) and len(word) >= len(each) + 3]
    return {word, *rests, *(f"{rest}e" for rest in rests), *(rest[:-1] for rest in rests if rest[-2:-1] == rest[-1])}


def _differ_by_endings(one: str, other: str) -> bool:
    words = one.split("_"), other.split("_")
    return len(words[0]) == len(words[1]) and all(_stems(a) & _stems(b) for a, b in zip(*words, strict=True))


def _modules() -> list[tuple[str, Path]]:
    """The name of each module and package, and the folder that it is in."""
    paths = [path.relative_to(ROOT) for each in ("dwconv", "schedules") for path in sorted((ROOT / each).rglob("*.py"))]
    paths = [path for path in paths if path.parts[:2] != ("dwconv", "schedules")]  # a link
    named = [path.parent if path.stem == "__init__" else path.with_suffix("") for path in paths]
    return [(path.name, path.parent) for path in named if path.name != "__main__"]


def _mean_one_thing(one: tuple[str, Path], other: tuple[str, Path]) -> bool:
    """A package, and the module in it or beside it that is its door: ``tuner`` and ``tune``."""
    packages = [name for name, folder in (one, other) if (ROOT / folder / name).is_dir()]
    return len(packages) == 1 and any(a[1] in (b[1], b[1] / b[0]) for a, b in ((one, other), (other, one)))


def test_no_two_modules_have_names_that_differ_by_an_ending():
    """Nor one name; but each family of templates has the files that CONTRIBUTING lists."""
    modules = _modules()
    assert len(modules) > 300, "else nothing was looked at"
    wrong = set()
    for one, other in itertools.combinations(modules, 2):
        in_families = [folder.parts[:1] == ("schedules",) and len(folder.parts) > 1 for _, folder in (one, other)]
        usual = any(inside and name in FILES for inside, (name, _) in zip(in_families, (one, other), strict=True))
        same = one[0] == other[0] and not any(in_families)
        alike = one[0] != other[0] and not usual and _differ_by_endings(one[0], other[0])
        if (same or alike) and not _mean_one_thing(one, other):
            wrong.add((f"{one[1]}/{one[0]}", f"{other[1]}/{other[0]}"))
    assert wrong == set()


def _classes(*more: str) -> list[tuple[str, str]]:
    """The name of each class, and its file. Names with an underscore are of one file, and are read there."""
    return [
        (node.name, str(path.resolve().relative_to(ROOT)))
        for path, tree in parsed(*more).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def test_a_name_of_a_class_leads_to_one_place():
    """Names that differ by an ending stand in one room, as ``Launch`` and ``Launcher``."""
    classes = _classes()
    assert len(classes) > 300, "else nothing was looked at"
    wrong = set()
    for (one, file), (other, other_file) in itertools.combinations(classes, 2):
        rooms = {tuple(each.split("/")[:2]) for each in (file, other_file)}
        words = [re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", each).lower() for each in (one, other)]
        if one == other or (len(rooms) > 1 and _differ_by_endings(*words)):
            wrong.add((f"{file}: {one}", f"{other_file}: {other}"))
    assert wrong == set()
    homes = defaultdict(set)
    for name, file in _classes("bench"):
        homes[name].add(file)
    assert not {name: files for name, files in homes.items() if len(files) > 1}


PERSONS = re.compile(r"(?<![\w`.])(who|whom|nobody|somebody|anybody|asks|wants|told)(?![\w`(])", re.IGNORECASE)
"""Words for people: programs compute, request, need and print."""


def test_docstrings_say_what_a_thing_is_and_what_programs_do():
    """``The same`` sends a reader elsewhere."""
    trees = {**parsed(), **{path: ast.parse(path.read_text()) for path in sorted((ROOT / "bench").rglob("*.py"))}}
    texts = {}
    for path, tree in trees.items():
        alone = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
        strings = [node for node in alone if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        texts |= {f"{path.relative_to(ROOT)}:{node.lineno}": str(node.value) for node in strings}
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    assert len(texts) > 3000 and len(pages) > 15, "else nothing was looked at"
    assert [at for at, text in texts.items() if text.lstrip().startswith("The same")] == []
    texts |= {page.name: page.read_text() for page in pages}
    assert {at: found[0] for at, text in texts.items() if (found := PERSONS.search(text))} == {}


def test_importing_dwconv_leaves_tvm_alone():
    program = "import sys, dwconv; dwconv.conv2d; print('tvm' in sys.modules)"
    done = forked.run([sys.executable, "-c", program], text=True)
    assert done.stdout == "False\n"


def test_the_wrong_tvm_ffi_is_named_with_the_way_out(tmp_path):
    """0.1.15 ends in a segmentation fault much later; the import must say so at once."""
    fake = tmp_path / "apache_tvm_ffi-0.1.15.dist-info"
    fake.mkdir()
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: apache-tvm-ffi\nVersion: 0.1.15\n")
    done = subprocess.run(
        [sys.executable, "-c", "import dwconv.schedules"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode != 0
    assert "BrokenInstallation: apache-tvm-ffi 0.1.15 is installed" in done.stderr
    assert "pip install 'apache-tvm-ffi>=0.1.14,<0.1.15'" in done.stderr


@pytest.mark.parametrize("module", ["root", "kernels", "train"])
def test_what_runs_on_arm_imports(module):
    """Beside the suite nothing else would notice a name that moved."""
    importlib.import_module(f"tests.arm.{module}")
