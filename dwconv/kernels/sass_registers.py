"""Operands of machine code, and the registers of many threads at once: integers and truths, or unknown."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwconv.kernels.sass import Instruction

Number = Any
"""An unsigned 32-bit value in every thread: an int if it is the same in all, an array of uint64 with one for each
thread, or None if it is unknown."""
Truth = bool | NDArray[np.bool_] | None

WORD = 0xFFFFFFFF
SIGN_BIT = 0x80000000
LONG = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True)
class Operand:
    file: str
    """``R``, ``UR``, ``P``, ``UP``; ``number``, ``constant`` (of the launch), ``stack``, ``special`` or ``other``."""
    index: int = -1
    """Number of the register, −1 for RZ and PT; the value of a number; the offset of a constant; the address of a word
    of the stack."""
    minus: bool = False
    inverted: bool = False
    name: str = ""
    """Name of a special register; the suffix of a register, such as ``64`` or ``X4``."""

    @property
    def is_register(self) -> bool:
        return self.file in ("R", "UR", "stack")

    @property
    def is_predicate(self) -> bool:
        return self.file in ("P", "UP")


_REGISTER = re.compile(r"([-~!|]*)(UR|R|UP|P)(\d+|Z|T)((?:\.\w+)*)\|?")
_CONSTANT = re.compile(r"([-~|]*)c\[0x0\]\[(0x[0-9a-f]+)\]((?:\.\w+)*)\|?")
_STACK = re.compile(r"\[(R\d+)(?:\+(-?0x[0-9a-f]+))?\]")
_NUMBER = re.compile(r"(-?)(0x[0-9a-f]+|\d+)")


@lru_cache(maxsize=65536)
def operand(text: str) -> Operand:
    """Read ``-R4.reuse``, ``!P0``, ``c[0x0][0x210]``, ``0x10``, ``SR_TID.X``."""
    if match := _REGISTER.fullmatch(text):
        signs, file, index, suffix = match.groups()
        name = ".".join(part for part in suffix.split(".") if part not in ("", "reuse"))
        number = -1 if index in "ZT" else int(index)
        return Operand(file, number, "-" in signs, "~" in signs or "!" in signs, name)
    if match := _CONSTANT.fullmatch(text):
        return Operand("constant", int(match[2], 16), "-" in match[1], "~" in match[1])
    if match := _NUMBER.fullmatch(text):
        value = int(match[2], 0)
        return Operand("number", (-value if match[1] else value) & WORD)
    if text.startswith("SR_") or text == "SRZ":
        return Operand("special", name=text)
    return Operand("other", name=text)


@dataclass(frozen=True)
class Decoded:
    """An instruction's operands by what they are for."""

    modifiers: frozenset[str]
    result: Operand | None
    truths: tuple[Operand, ...]
    """Predicates that it sets."""
    sources: tuple[Operand, ...]
    conditions: tuple[Operand, ...]
    """Predicates that it reads."""
    texts: tuple[str, ...]

    @property
    def words(self) -> int:
        """Words that are loaded or stored."""
        return 4 if "128" in self.modifiers else 2 if "64" in self.modifiers else 1


_SETS_PREDICATES_ONLY = frozenset({"ISETP", "UISETP", "FSETP", "HSETP2", "PLOP3", "UPLOP3", "DSETP"})


def decode(instruction: Instruction) -> Decoded:
    operands = [operand(text) for text in instruction.operands]
    position = 0
    truths: list[Operand] = []

    def take_predicates() -> None:
        nonlocal position
        while position < len(operands) and operands[position].is_predicate and not operands[position].inverted:
            truths.append(operands[position])
            position += 1

    result = None
    if instruction.base in _SETS_PREDICATES_ONLY:
        truths, position = operands[:2], 2
    else:
        take_predicates()
        if position < len(operands):
            result = operands[position]
            position += 1
            if instruction.base != "SEL":
                take_predicates()
    rest = operands[position:]
    return Decoded(
        modifiers=instruction.modifiers,
        result=result,
        truths=tuple(truths),
        sources=tuple(each for each in rest if not each.is_predicate),
        conditions=tuple(each for each in rest if each.is_predicate),
        texts=instruction.operands,
    )


class Registers:
    """The registers and predicates of all threads. Those never written are zero."""

    def __init__(self, *, constants: Callable[[int], int], special: Callable[[str], Number]) -> None:
        self.reading: bool | NDArray[np.bool_] = True
        """The threads that read now: what is unknown of the registers of others does not concern them."""
        self._words: dict[tuple[str, int], Number] = {}
        self._unknown: dict[tuple[str, int], NDArray[np.bool_]] = {}
        """Threads that do not know a register that others know: those that have parted use it for something else."""
        self._truths: dict[tuple[str, int], Truth] = {}
        self._constants = constants
        self._special = special

    def truth(self, each: Operand) -> Truth:
        value = True if each.index < 0 else self._truths.get((each.file, each.index), False)
        return value if value is None or not each.inverted else np.logical_not(value)

    def word(self, each: Operand) -> Number:
        """The operand's 32 bits, with its sign applied."""
        value: Number
        if each.is_register:
            value = 0 if each.index < 0 else self._read((each.file, each.index))
        elif each.file == "number":
            return each.index
        elif each.file == "constant":
            value = self._constants(each.index)
        elif each.file == "special":
            value = self._special(each.name)
        else:
            return None
        return _signed_operand(value, each, WORD)

    def _read(self, key: tuple[str, int]) -> Number:
        unknown = self._unknown.get(key)
        if unknown is not None and np.any(unknown & self.reading):
            return None
        return self._words.get(key, 0)

    def long(self, each: Operand) -> Number:
        """The operand's 64 bits: a pair of registers."""
        if each.file == "number":
            return int(signed(each.index)) & LONG
        if each.file in ("R", "UR", "constant") and (each.index >= 0):
            step = 4 if each.file == "constant" else 1
            low, high = (self.word(Operand(each.file, each.index + i)) for i in (0, step))
            if low is None or high is None:
                return None
            return _signed_operand(low | (high << 32), each, LONG)
        return _signed_operand(0, each, LONG)

    def set_word(self, each: Operand, value: Number, active: Truth, *, offset: int = 0) -> None:
        if each.index < 0 or not each.is_register:
            return
        key = (each.file, each.index + offset)
        if active is True or active is None:
            self._words[key] = None if value is None or active is None else value & WORD
            self._unknown.pop(key, None)
            return
        before = self._words.get(key, 0)
        unknown = self._unknown.pop(key, False) if before is not None else True
        if value is None:
            unknown = np.logical_or(unknown, active)
        else:
            unknown = np.logical_and(unknown, np.logical_not(active))
            self._words[key] = np.where(
                active, np.uint64(0) + (value & WORD), np.uint64(0) + (0 if before is None else before)
            )
        if np.any(unknown) and self._words.get(key, 0) is not None:
            self._unknown[key] = unknown

    def forget_stack(self, addresses: range | None) -> None:
        """The words of the stack at these addresses become unknown, or all of them."""
        for file, index in list(self._words):
            if file == "stack" and (addresses is None or index in addresses):
                self._words[file, index] = None
                self._unknown.pop((file, index), None)

    def set_long(self, each: Operand, value: Number, active: Truth) -> None:
        self.set_word(each, None if value is None else value & WORD, active)
        self.set_word(each, None if value is None else value >> 32, active, offset=1)

    def set_truth(self, each: Operand, value: Truth, active: Truth) -> None:
        if each.index < 0:
            return
        key = (each.file, each.index)
        if active is not True:
            before = self._truths.get(key, False)
            unknown = value is None or active is None
            value = None if unknown else np.where(active, value, False if before is None else before)  # type: ignore[arg-type]
        self._truths[key] = value

    def stack_span(self, address: str) -> range | None:
        """From the least to the greatest address of the stack that a thread names; None if they are unknown."""
        match = _STACK.fullmatch(address)
        base = self.word(operand(match[1])) if match else None
        if match is None or base is None:
            return None
        named = np.atleast_1d(base)[self.reading if isinstance(base, np.ndarray) and self.reading is not True else ...]
        if not named.size:
            return None
        least, greatest = (int(each) + int(match[2] or "0", 0) & WORD for each in (named.min(), named.max()))
        return range(least, greatest + 1)


def signed(value: Any) -> Any:
    """The 32 bits as a signed number."""
    if isinstance(value, int):
        return value - (1 << 32) if value & SIGN_BIT else value
    return ((value ^ SIGN_BIT).astype(np.int64)) - SIGN_BIT


def _signed_operand(value: Number, each: Operand, mask: int) -> Number:
    if value is None:
        return None
    if each.minus:
        return (~value + 1) & mask
    return ~value & mask if each.inverted else value
