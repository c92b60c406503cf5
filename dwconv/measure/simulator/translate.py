"""CUDA C++ as TVM prints it -> C++ that g++ compiles with kernel.h, line by line.

The source stays as it is, except for what C++ does not have: shared memory, PTX, thread indices, and the numbers of
loop iterations, by which the lanes of a warp are matched.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count

from dwconv.errors import BuildError

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
        raise BuildError("the simulator does not know a declaration of shared memory like this one")
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
        raise BuildError(f"the simulator does not know the PTX {ptx}")
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
