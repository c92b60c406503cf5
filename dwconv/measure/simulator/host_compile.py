"""CUDA C++ as TVM prints it -> a shared object that runs it on the CPU, with g++ and the runtime beside this file.

The source stays as it is, line by line, except for what C++ does not have: shared memory, PTX, thread indices, and the
numbers of loop iterations, by which the lanes of a warp are matched. kernel.h has the rest.

Each shared object carries its own runtime, so that no state of one kernel's run is left for the next. They are loaded
by path, so they are kept only in a folder in which no other user can write.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from itertools import count
from pathlib import Path

from dwconv import settings
from dwconv.errors import BrokenInstallation, BuildError
from dwconv.kernels.artifact import Launch
from dwconv.system.private_files import check_private, write

_SHARED = re.compile(
    r"(?P<extern>extern )?__shared__ (?:(?:alignas|__align__)\(\d+\) )*"
    r"(?P<type>[\w ]+?) (?P<name>\w+)\[(?P<size>[^\]]*)\];"
)
_ASSEMBLY = re.compile(r"\b(?:asm|__asm__)\s*(?:volatile|__volatile__)?\s*\((.*?)\)\s*;", re.DOTALL)
_LOOP = re.compile(r"^( *for \((?:const )?(?:unsigned |long )*\w+ (\w+) = [^;]*;[^;]*;[^;{]*\) \{)$", re.MULTILINE)
_HEAD = r"(__global__ [^;{}]*\b%s\([^)]*\) \{)"
_INDICES = (
    " const sim_index threadIdx = sim_thread_index(), blockIdx = sim_block_index(), blockDim = sim_block_size(),"
    " gridDim = sim_grid_size();"
)


def translate(source: str, kernels: Sequence[str]) -> str:
    """The translated source, with a function ``sim_call_<kernel>`` for each of ``kernels``. Raises BuildError for
    constructs that it does not know."""
    text = re.sub(r"^#include .*$", "", source, flags=re.MULTILINE)
    numbers = count(1)
    text = _SHARED.sub(lambda match: _shared(match, numbers), text)
    if "__shared__" in text:
        raise BuildError("the simulator does not support this declaration of shared memory")
    text = _ASSEMBLY.sub(_assembly, text)
    text = _LOOP.sub(r"\1 sim::Iteration \2_iteration(\2);", text)
    callers = ""
    for kernel in dict.fromkeys(kernels):
        text, heads = re.subn(_HEAD % re.escape(kernel), rf"\1{_INDICES}", text)
        if heads != 1:
            raise BuildError(f"no kernel {kernel} in the source")
        callers += f'extern "C" void sim_call_{kernel}() {{ sim::call({kernel}); }}\n'
    return f'#include "kernel.h"\n#line 1 "kernel.cc"\n{text}\n#line 1 "callers"\n{callers}'


def _shared(match: re.Match[str], numbers: count[int]) -> str:
    """A declaration that replaces a shared array by a pointer to memory that the runtime watches."""
    kind, name = match["type"], match["name"]
    if match["extern"]:
        return f'{kind}* {name} = ({kind}*)sim_shared(0, "{name}", 0);'
    return f'{kind}* {name} = ({kind}*)sim_shared({next(numbers)}, "{name}", sizeof({kind}) * ({match["size"]}));'


# -- PTX -------------------------------------------------------------------------------------------------------------

_COPY = re.compile(
    r"(?P<on>@p )?cp\.async\.c[ag]\.shared(?:::cta)?\.global(?:\.L2::\w+)* "
    r"\[%(?P<to>\d+)(?P<to_offset>\+\d+)?\], \[%(?P<from>\d+)(?P<from_offset>\+\d+)?\], "
    r"(?P<bytes>%?\d+)(?:, (?P<valid>%?\d+))?;"
)
_PREDICATE = re.compile(r"setp\.(?P<how>eq|ne)\.\w+ p, %(?P<what>\d+), (?P<number>\d+);")
_MULTIPLY = re.compile(
    r"mma\.sync\.aligned\.m16n8k(?P<depth>8|16)\.row\.col\.f32\.(?P<dtype>f16|bf16)\.(?P=dtype)\.f32 "
    r"\{(?P<d>[^}]*)\}, \{(?P<a>[^}]*)\}, \{(?P<b>[^}]*)\}, \{(?P<c>[^}]*)\};"
)
_LOAD_MATRICES = re.compile(
    r"ldmatrix\.sync\.aligned\.m8n8\.x(?P<count>[124])(?P<trans>\.trans)?\.shared(?:::cta)?\.b16 "
    r"\{(?P<into>[^}]*)\}, \[(?P<from>%\d+)\];"
)
_ZERO_FILL = re.compile(r"@!p st\.shared[\w.]* \[%\d+\], \{[^}]*\};")


def _assembly(match: re.Match[str]) -> str:
    """A call of the runtime for a PTX instruction, or for a few that belong together."""
    ptx, operands = _parts(match[1])
    lines = "\n" * match[0].count("\n")

    def value(word: str) -> str:
        return f"({operands[int(word[1:])]})" if word.startswith("%") else word

    if ptx == "cp.async.commit_group;":
        return f"sim_commit_group();{lines}"
    if ptx == "cp.async.wait_all;":
        return f"sim_commit_group(); sim_wait_group(0);{lines}"
    if wait := re.fullmatch(r"cp\.async\.wait_group (%?\d+);", ptx):
        return f"sim_wait_group({value(wait[1])});{lines}"
    if product := _MULTIPLY.fullmatch(ptx):
        d, a, b, c = ([value(word) for word in product[name].split(", ")] for name in "dabc")
        parts = f"{{{{{', '.join(a)}}}}}, {{{{{', '.join(b)}}}}}, {{{{{', '.join(c)}}}}}"
        called = f"sim_multiply({product['depth']}, {int(product['dtype'] == 'bf16')}, {parts})"
        return f"{_taken('sim_tile', called, d)}{lines}"
    if loaded := _LOAD_MATRICES.fullmatch(ptx):
        into = [value(word) for word in loaded["into"].split(", ")]
        called = f"sim_load_matrices({loaded['count']}, {int(bool(loaded['trans']))}, {value(loaded['from'])})"
        return f"{_taken('sim_matrices', called, into)}{lines}"
    copy, predicate, zero_fill = _COPY.search(ptx), _PREDICATE.search(ptx), _ZERO_FILL.search(ptx)
    if copy is None or _without(ptx, copy, predicate, zero_fill) or bool(copy["on"]) != bool(predicate):
        raise BuildError(f"the simulator does not support the PTX {ptx}")
    wanted = "1"
    if predicate:
        wanted = f"{value('%' + predicate['what'])} {'==' if predicate['how'] == 'eq' else '!='} {predicate['number']}"
    size = value(copy["bytes"])
    valid, issued = value(copy["valid"] or copy["bytes"]), wanted
    if zero_fill:
        valid, issued = f"({wanted}) ? {valid} : 0", "1"
    to = f"{value('%' + copy['to'])}{copy['to_offset'] or ''}"
    source = f"(const char*){value('%' + copy['from'])}{copy['from_offset'] or ''}"
    return f"sim_copy_async({to}, {source}, {size}, {valid}, {issued});{lines}"


def _taken(kind: str, called: str, into: Sequence[str]) -> str:
    """A call that gives several values, and where they go."""
    return f"{{ {kind} taken = {called}; {' '.join(f'{to} = taken.part[{i}];' for i, to in enumerate(into))} }}"


def _without(ptx: str, *known: re.Match[str] | None) -> str:
    """``ptx`` without the parts that are known."""
    for match in known:
        ptx = ptx.replace(match[0], "") if match else ptx
    return ptx.replace(".reg .pred p;", "").strip(" {}")


def _parts(text: str) -> tuple[str, list[str]]:
    """The instructions of an asm statement in one line, and the expressions of its operands."""
    ptx, operands, rest = "", list[str](), text
    while match := re.match(r'\s*"((?:[^"\\]|\\.)*)"', rest):
        ptx += match[1].replace("\\n", " ").replace("\\t", " ")
        rest = rest[match.end() :]
    while match := re.search(r'"[^"]*"\s*\(', rest):
        start = end = match.end()
        depth = 1
        while depth and end < len(rest):
            depth += {"(": 1, ")": -1}.get(rest[end], 0)
            end += 1
        operands.append(rest[start : end - 1])
        rest = rest[end:]
    return re.sub(r"\s+", " ", ptx).strip(), operands


_HERE = Path(__file__).parent
_OLDEST = 12  # g++ that fills local variables with a pattern

# Without -fno-gnu-unique all shared objects of a process would share one runtime, and none could be unloaded.
_COMMON = ("-std=c++17", "-fPIC", "-w", "-fno-exceptions", "-U_FORTIFY_SOURCE", "-fno-gnu-unique")
_KERNEL = (
    "-O1",
    "-g1",  # source lines for faults
    "-fsanitize=thread",  # a hook before every access
    "-fsanitize=bounds",
    "-ftrivial-auto-var-init=pattern",  # a variable used before it is set must not look right
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fwrapv",
    # One access in the source is one in the machine code, at one place.
    *("-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-fno-store-merging"),
    *("-fno-thread-jumps", "-fno-crossjumping", "-fno-tree-sra"),
)
_RUNTIME = ("-O2", "-fcf-protection=none")


def available() -> bool:
    """True if there is a g++ that can compile for the simulator."""
    return _version() >= _OLDEST


def compile_kernels(source: str, launches: Sequence[Launch], *, folder: Path) -> Path:
    """A shared object with the kernels of ``launches`` and their own runtime, in ``folder``; compiled only if it is not
    there yet. Raises BrokenInstallation without g++, BuildError for a source that it does not understand, NotKept if
    others can write in ``folder``."""
    check_compiler()
    check_private(folder)
    code = translate(source, [launch.kernel for launch in launches])
    key = hashlib.sha256("\0".join([code, _runtime_text(), *_COMMON, *_KERNEL]).encode()).hexdigest()[:32]
    finished = folder / f"{key}.so"
    if finished.exists():
        return finished
    runtime = compile_runtime(folder)
    with tempfile.TemporaryDirectory(prefix="dwconv-") as name:
        work = Path(name)
        (work / "kernel.cc").write_text(code, encoding="utf-8")
        _run("g++", *_COMMON, *_KERNEL, "-I", str(_HERE), "-c", "kernel.cc", "-o", "kernel.o", folder=work)
        _run("g++", "-shared", "-Wl,-Bsymbolic", "kernel.o", str(runtime), "-o", "kernel.so", folder=work)
        write(finished, (work / "kernel.so").read_bytes(), durable=True)  # half a file would end the process
    return finished


def source_lines(library: Path, offsets: Sequence[int]) -> list[int]:
    """The line of the CUDA source that each of these places in ``library`` was compiled from; 0 if unknown."""
    reader = settings.program("addr2line")
    if not offsets or reader is None:
        return [0] * len(offsets)
    # A hook has its return address: the call is just before it.
    places = [hex(max(offset - 1, 0)) for offset in offsets]
    found: list[int] = []
    for place in places:  # one by one: an answer has as many lines as functions were inlined
        done = subprocess.run(
            [reader, "-i", "-e", str(library), place], capture_output=True, encoding="utf-8", errors="replace"
        )
        line = re.search(r"kernel\.cc:(\d+)", done.stdout)
        found.append(int(line[1]) if line else 0)
    return found


def compile_runtime(folder: Path) -> Path:
    """The runtime's object file, the same for all kernels. Raises NotKept if others can write in ``folder``."""
    check_private(folder)
    finished = folder / f"runtime-{hashlib.sha256(_runtime_text().encode()).hexdigest()[:32]}.o"
    if not finished.exists():
        with tempfile.TemporaryDirectory(prefix="dwconv-") as name:
            work = Path(name)
            _run("g++", *_COMMON, *_RUNTIME, "-c", str(_HERE / "runtime.cc"), "-o", "r.o", folder=work)
            write(finished, (work / "r.o").read_bytes(), durable=True)
    return finished


@cache
def _runtime_text() -> str:
    files = sorted([*_HERE.glob("*.h"), *_HERE.glob("*.cc")])
    return "".join(file.read_text(encoding="utf-8") for file in files) + str(_version())


def _run(*command: str, folder: Path) -> None:
    done = subprocess.run(
        ["env", "LC_ALL=C", *command], cwd=folder, capture_output=True, encoding="utf-8", errors="replace"
    )
    if done.returncode:
        complaint = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
        raise BuildError(f"g++ for the simulator: {complaint.strip()}")


def check_compiler() -> None:
    """Raises BrokenInstallation without a g++ that is new enough."""
    if not available():
        found = f"there is version {_version()}" if _version() else "there is none"
        raise BrokenInstallation(f"the simulator needs g++ {_OLDEST} or newer, {found}; install it (apt install g++)")


@cache
def _version() -> int:
    """Major version of g++; 0 without one."""
    if (compiler := settings.program("g++")) is None:
        return 0
    done = subprocess.run([compiler, "-dumpfullversion"], capture_output=True, encoding="utf-8", errors="replace")
    number = done.stdout.partition(".")[0]
    return int(number) if number.isdecimal() else 0
