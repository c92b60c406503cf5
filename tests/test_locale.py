"""A locale that is not UTF-8, and names that are not ASCII. Files and pipes do not go by the locale."""

from __future__ import annotations

import ast
import codecs
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_OPENS = {"open", "fdopen", "NamedTemporaryFile", "TemporaryFile", "SpooledTemporaryFile"}


def without_encoding(source: str) -> list[str]:
    """The calls in it that read or write text as the locale has it."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and "encoding" not in {each.arg for each in node.keywords} and _is_text(node)
    ]


def _is_text(call: ast.Call) -> bool:
    function, options = call.func, {each.arg: each.value for each in call.keywords}
    if not isinstance(function, ast.Attribute | ast.Name):
        return False
    name = function.attr if isinstance(function, ast.Attribute) else function.id
    if name == "read_text":
        return not call.args
    if name == "write_text":
        return len(call.args) < 2
    if name in _OPENS and ast.unparse(function) not in ("os.open", "State.open", "Image.open"):
        given = [options.get("mode"), *call.args]
        modes = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        return not any("b" in mode for mode in modes) and (bool(modes) or not name.endswith("TemporaryFile"))
    asked = [options.get("text"), options.get("universal_newlines"), options.get("errors")]
    return any(each is not None and ast.unparse(each) != "False" for each in asked) and name in (
        "run",
        "Popen",
        "check_output",
    )


@pytest.mark.parametrize(
    "source",
    ["path.read_text()", "path.write_text('é')", "open(name)", "path.open('a')", "os.fdopen(3, 'w')",
     "path.open(mode='w')",
     "subprocess.run(command, text=True)", "subprocess.Popen(command, universal_newlines=True)",
     "tempfile.NamedTemporaryFile('w')"],
)  # fmt: skip
def test_text_without_an_encoding_is_noticed(source):
    assert without_encoding(source)
    assert not without_encoding(f"{source[:-1]}, encoding='utf-8')".replace("(, ", "("))


def test_the_product_names_the_encoding_of_all_text():
    files = [path for folder in ("dwconv", "schedules", "bench") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 300
    found = {path.relative_to(ROOT): without_encoding(path.read_text(encoding="utf-8")) for path in files}
    assert {str(path): calls for path, calls in found.items() if calls} == {}


def _locales() -> list[str]:
    """C, which is everywhere; and of those that are installed, one of each other encoding."""
    done = subprocess.run(["locale", "-a"], capture_output=True, encoding="utf-8", errors="replace", check=False)
    others = {}
    for name in done.stdout.split():
        encoding = name.partition(".")[2].partition("@")[0].lower()
        if encoding and "utf" not in encoding and _is_known(encoding):
            others.setdefault(encoding, name)
    return ["C", *others.values()]


def _is_known(encoding: str) -> bool:
    try:
        codecs.lookup(encoding)
    except LookupError:
        return False
    return True


_PROGRAM = """
import codecs, dataclasses, locale
assert codecs.lookup(locale.getpreferredencoding(False)).name != "utf-8"
from dwconv import settings
from dwconv.kernels.cpu_build import assembly
from dwconv.kernels.library import shared_library
from dwconv.kernels.load_cpu import load_cpu
from dwconv.measure.build_worker import BuildSetup
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.simulator.host_compile import _runtime_text
from dwconv.native.compile import Extension
from dwconv.problems.layer_files import shipped_networks
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import Workload
from dwconv.schedules.template import Candidate, templates_for

workload = Workload(pass_="fprop", batch=1, channels=8, input_size=(6, 6), kernel=(3, 3), layout="nhwc")
target = cpu_target()
template = templates_for(workload, target)[0]
worker = IsolatedProcess("dwconv.measure.build_worker:BuildHandler", BuildSetup(target=target), threads=1)
artifact = worker.call(Candidate(workload, template.space(workload, target).default), timeout_s=60)
worker.kill()
load_cpu(artifact)
assert assembly(artifact) and Extension() and _runtime_text() and shipped_networks()
if settings.program(settings.linker()):
    load_cpu(dataclasses.replace(artifact, library=shared_library(artifact)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux")
@pytest.mark.parametrize("locale", _locales())
def test_a_worker_builds_a_kernel_and_it_is_loaded(locale, tmp_path):
    """With cache and home in a folder that has a name in UTF-8, and temporary files in one that has none."""
    home, temporary = (os.path.join(os.fsencode(tmp_path), name) for name in ("hömé".encode(), "中".encode("gbk")))  # noqa: PTH118
    os.mkdir(home)  # noqa: PTH102  bytes
    os.mkdir(temporary)  # noqa: PTH102
    own = ("PYTHON", "XDG_", "DWCONV_", "LC_")
    kept = {name: value for name, value in os.environb.items() if not os.fsdecode(name).startswith(own)}
    environment = kept | {
        b"PYTHONUTF8": b"0", b"PYTHONCOERCECLOCALE": b"0", b"LC_ALL": locale.encode(), b"PYTHONPATH": os.fsencode(ROOT),
        b"HOME": home, b"DWCONV_CACHE": home, b"TMPDIR": temporary,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, cwd=ROOT, capture_output=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
