"""Machine code as text: the instructions that NVRTC and ptxas made of a kernel, each with the class of work it is.

The disassembler is nvdisasm from pip; no CUDA toolkit, no GPU.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dwconv.errors import BrokenInstallation, BuildError
from dwconv.system import versions

CLASSES = ("fma", "tensor", "conversion", "integer", "shared", "global", "control", "other")
"""Classes of instructions, in this order: multiply-adds of the convolution; the same of whole
matrices, on tensor cores; half precision to and from float32;
addresses, moves and comparisons; shared memory and shuffles; global memory; branches and barriers; the rest, spills
included."""

_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Instruction:
    """``@!P0 LDG.E.128 R4, desc[UR4][R2.64+0x10]``: guard ``!P0``, opcode ``LDG.E.128``, two operands."""

    address: int
    opcode: str
    operands: tuple[str, ...]
    guard: str = ""
    target: int | None = None
    """Position of the instruction that it may jump to."""

    @cached_property
    def base(self) -> str:
        """``LDG`` of ``LDG.E.128``."""
        return self.opcode.partition(".")[0]

    @cached_property
    def modifiers(self) -> frozenset[str]:
        return frozenset(self.opcode.split(".")[1:])

    @cached_property
    def kind(self) -> str:
        """One of CLASSES."""
        return _kind(self)

    def __str__(self) -> str:
        guard = f"@{self.guard} " if self.guard else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip()


@dataclass(frozen=True)
class Code:
    """The instructions of one kernel, in the order of their addresses."""

    kernel: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def loops(self) -> list[tuple[int, int]]:
        """(first, last) instruction of every loop: a jump backwards and its target."""
        last: dict[int, int] = {}
        for position, instruction in enumerate(self.instructions):
            if instruction.target is not None and instruction.base == "BRA" and instruction.target < position:
                last[instruction.target] = max(position, last.get(instruction.target, 0))
        return sorted(last.items())

    @cached_property
    def leaders(self) -> list[int]:
        """Positions where a basic block begins: after a jump, and at the target of one."""
        found = {0}
        for position, instruction in enumerate(self.instructions):
            if instruction.target is not None:
                found.add(instruction.target)
            if instruction.base in ENDS_A_BLOCK:
                found.add(position + 1)
        return sorted(position for position in found if position < len(self.instructions))

    @cached_property
    def text(self) -> str:
        """One instruction a line, with its address; a line with a label begins each basic block."""
        leaders = set(self.leaders)
        lines = []
        for position, instruction in enumerate(self.instructions):
            jump = "" if instruction.target is None else f"  -> {self.instructions[instruction.target].address:04x}"
            if position in leaders:
                lines.append(f"{self.kernel}+{instruction.address:04x}:")
            lines.append(f"  {instruction.address:04x}  {instruction.kind:10}  {instruction}{jump}")
        return "\n".join(lines)


ENDS_A_BLOCK = frozenset({"BRA", "EXIT", "CALL", "RET", "BRX", "JMP", "JMX", "KILL"})


def disassemble(cubin: bytes) -> dict[str, Code]:
    """The kernels of a cubin by name. Raises BrokenInstallation without nvdisasm, BuildError for what it refuses."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [_nvdisasm(), "--print-code", "--no-dataflow", file.name]
        try:
            finished = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
        except OSError as error:
            raise _missing(str(error)) from None
        except subprocess.TimeoutExpired:
            raise BuildError(f"nvdisasm took more than {_TIMEOUT_S:g} s") from None
    if finished.returncode:
        words = finished.stderr.strip().splitlines() or [f"exit code {finished.returncode}"]
        raise BuildError(f"nvdisasm: {words[0]}")
    return {code.kernel: code for code in _kernels(finished.stdout)}


def _nvdisasm() -> str:
    """Path of nvdisasm: the one from pip or, where that is missing or cannot be run, the one on PATH."""
    package = importlib.util.find_spec("nvidia.cu13")
    folders = [str(Path(folder, "bin")) for folder in (package.submodule_search_locations or ())] if package else []
    found = shutil.which("nvdisasm", path=os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise _missing("no file of that name in site-packages or on PATH may be run")
    return found


def _missing(reason: str) -> BrokenInstallation:
    return BrokenInstallation(f"machine code as text needs nvdisasm ({reason}); run: {versions.install_cuda()}")


# -- reading it ----------------------------------------------------------------------------------------------------

_KERNEL = re.compile(r"\.text\.(\w+):")
_LABEL = re.compile(r"(\.L_\w+):")
_LINE = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_JUMP = re.compile(r"`\((\.L_\w+)\)")


def _kernels(text: str) -> Iterator[Code]:
    for part in re.split(r"^(?=\.text\.\w+:)", text, flags=re.MULTILINE)[1:]:
        name = _KERNEL.match(part)
        assert name is not None
        found: list[tuple[int, str, str, str]] = []
        labels: dict[str, int] = {}
        for line in part.splitlines():
            if label := _LABEL.match(line):
                labels[label[1]] = len(found)
            elif match := _LINE.match(line):
                found.append((int(match[1], 16), match[2] or "", match[3], match[4]))
        yield Code(name[1], tuple(_instruction(*fields, labels=labels) for fields in found))


def _instruction(address: int, guard: str, opcode: str, operands: str, *, labels: dict[str, int]) -> Instruction:
    jump = _JUMP.search(operands)
    # BSSY names the place where threads converge again; it does not jump.
    jumps = jump is not None and opcode.partition(".")[0] in ("BRA", "CALL")
    return Instruction(
        address=address,
        guard=guard,
        opcode=opcode,
        operands=tuple(operand.strip() for operand in operands.split(",")) if operands else (),
        target=labels.get(jump[1]) if jump and jumps else None,
    )


_SHARED = frozenset({"LDS", "STS", "LDSM", "STSM", "ATOMS", "SHFL"})
_GLOBAL = frozenset({"LDG", "STG", "LDGSTS", "LD", "ST", "RED", "ATOM", "ATOMG", "UBLKCP", "UTMALDG", "UTMASTG"})
_CONTROL = frozenset({
    "BRA", "EXIT", "BAR", "BSSY", "BSYNC", "BREAK", "WARPSYNC", "DEPBAR", "LDGDEPBAR", "RET", "CALL", "NOP", "YIELD",
    "NANOSLEEP", "BMOV", "VOTE", "VOTEU", "MEMBAR", "ERRBAR", "CCTL", "ELECT", "BRX", "JMP", "SYNCS", "ACQBULK",
})  # fmt: skip
_FMA = frozenset({"FFMA", "FFMA2", "FMUL", "FMUL2", "FADD", "FADD2", "FFMA32I", "HFMA2", "HMUL2", "HADD2"})
_TENSOR = frozenset({"HMMA"})
_OTHER = frozenset({"LDL", "STL", "MUFU", "FSEL", "FMNMX", "FSETP", "FSET", "HSETP2", "HMNMX2", "DADD", "DMUL", "DFMA"})
_CONVERSION = frozenset({"F2F", "F2FP", "F2I", "I2F", "I2FP", "PRMT", "HADD"})
_OPCODES = {"shared": _SHARED, "global": _GLOBAL, "control": _CONTROL, "tensor": _TENSOR, "other": _OTHER}
# Splitting a word into two halves: the upper half is a float as it stands, the lower half is shifted up.
_HALVES = frozenset({"0x10000", "0xffff0000", "-0x10000"})


def _kind(instruction: Instruction) -> str:
    base = instruction.base
    for kind, opcodes in _OPCODES.items():
        if base in opcodes:
            return kind
    if base in _FMA:
        if base == "HADD2" and "F32" in instruction.modifiers:
            return "conversion"
        return "integer" if is_constant(instruction) else "fma"
    shifted = base in ("IMAD", "LOP3") and _HALVES.intersection(instruction.operands)
    if base in _CONVERSION or shifted or (base == "SHF" and instruction.operands[2:] == ("0x10", "RZ")):
        return "conversion"
    return "integer"


def is_constant(instruction: Instruction) -> bool:
    """True of ``HFMA2 R3, -RZ, RZ, 0, 5.96e-08``: the multiplier's way to load an integer."""
    return instruction.base == "HFMA2" and instruction.operands[1:3] == ("-RZ", "RZ")
