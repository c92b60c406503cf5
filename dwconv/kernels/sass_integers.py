"""Integer arithmetic of machine code, for many threads at once.

Addresses, guards and loop counters of a kernel follow from its thread and block numbers and its arguments. So they can
be computed without a GPU, also where registers of them were spilt to the stack. Floats and values loaded from other
memory are unknown, and so is everything computed from them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dwconv.kernels.sass import Instruction, is_constant
from dwconv.kernels.sass_registers import (
    LONG,
    WORD,
    Decoded,
    Number,
    Operand,
    Registers,
    Truth,
    decode,
    operand,
    signed,
)

_LANES = 32
"""Threads of a warp."""
Action = Callable[[Registers, Truth], None]
"""Changes the registers of the active threads."""


def action(instruction: Instruction) -> Action:
    """The effect of an instruction on integers; the results of all other instructions become unknown."""
    if is_constant(instruction):
        result, value = operand(instruction.operands[0]), _two_halves(instruction)
        return lambda registers, active: registers.set_word(result, value, active)
    return partial(_DOES.get(instruction.base, _unknown), decode(instruction))


_FOUR_WORDS = frozenset({"128", "16816", "1688", "4"})
_TWO_WORDS = frozenset({"64", "2"})
"""Also of sums of matrices, and of matrices loaded."""


def _unknown(decoded: Decoded, registers: Registers, active: Truth) -> None:
    words = 4 if decoded.modifiers & _FOUR_WORDS else 2 if decoded.modifiers & _TWO_WORDS else 1
    if decoded.result is not None:
        for offset in range(words):
            registers.set_word(decoded.result, None, active, offset=offset)
    for each in decoded.truths:
        registers.set_truth(each, None, active)


def _two_halves(instruction: Instruction) -> int:
    high, low = (np.float16(float(text)).view(np.uint16) for text in instruction.operands[3:5])
    return int(high) << 16 | int(low)


# -- what instructions do ------------------------------------------------------------------------------------------


def _mov(d: Decoded, r: Registers, active: Truth) -> None:
    if "64" in d.modifiers and d.result is not None:
        r.set_long(d.result, r.long(d.sources[0]), active)
    elif d.result is not None:
        r.set_word(d.result, r.word(d.sources[0]), active)


def _cs2r(d: Decoded, r: Registers, active: Truth) -> None:
    assert d.result is not None
    zero = 0 if d.sources[0].name == "SRZ" else None
    (r.set_word if "32" in d.modifiers else r.set_long)(d.result, zero, active)


def _ldc(d: Decoded, r: Registers, active: Truth) -> None:
    assert d.result is not None
    source = d.sources[0]
    for i in range(d.words):
        value = r.word(Operand("constant", source.index + 4 * i)) if source.file == "constant" else None
        r.set_word(d.result, value, active, offset=i)


def _carries(d: Decoded, r: Registers) -> Any:
    """Sum of the carries that come in; None if unknown."""
    if not {"X", "EX"} & d.modifiers:
        return 0
    found: Any = 0
    for each in d.conditions:
        truth = r.truth(each)
        if truth is None:
            return None
        found = found + (np.asarray(truth).astype(np.uint64) if isinstance(truth, np.ndarray) else int(truth))
    return found


def _total(d: Decoded, r: Registers, active: Truth, terms: list[Number], minus: list[Operand]) -> None:
    """Result and carries of a sum of 32-bit terms; a term −0 carries, as its two's complement does."""
    assert d.result is not None
    carry = _carries(d, r)
    if carry is None or any(term is None for term in terms):
        _unknown(d, r, active)
        return
    total: Any = carry
    for term, each in zip(terms, minus, strict=True):
        total = total + (((term == 0) * (1 << 32)) + term if each.minus and isinstance(term, int) else term)
        if each.minus and isinstance(term, np.ndarray):
            total = total + (term == 0).astype(np.uint64) * np.uint64(1 << 32)
    r.set_word(d.result, total, active)
    for count, each in enumerate(d.truths, start=1):
        r.set_truth(each, total >= (count << 32), active)


def _iadd(d: Decoded, r: Registers, active: Truth) -> None:
    assert d.result is not None
    if "64" in d.modifiers:
        r.set_long(d.result, _sum_of([r.long(each) for each in d.sources]), active)
        return
    _total(d, r, active, [r.word(each) for each in d.sources], list(d.sources))


def _sum_of(terms: list[Number]) -> Number:
    total: Number = 0
    for term in terms:
        if term is None or total is None:
            return None
        total = (total + term) & LONG
    return total


def _imad(d: Decoded, r: Registers, active: Truth) -> None:
    assert d.result is not None
    a, b, c = d.sources[:3]
    x, y = r.word(a), r.word(b)
    unsigned = "U32" in d.modifiers
    if "WIDE" in d.modifiers or "HI" in d.modifiers:
        z = r.long(c)
        carry = _carries(d, r)
        if x is None or y is None or z is None or carry is None:
            _unknown(d, r, active)
            if "WIDE" in d.modifiers:
                r.set_long(d.result, None, active)
            return
        product = _product(x, y, is_signed=not unsigned)
        total = (product + z + carry) & LONG
        if "WIDE" in d.modifiers:
            r.set_long(d.result, total, active)
            for each in d.truths:
                r.set_truth(each, total < z, active)
        else:
            r.set_word(d.result, total >> 32, active)
        return
    z, carry = r.word(c), _carries(d, r)
    if x is None or y is None or z is None or carry is None:
        _unknown(d, r, active)
        return
    r.set_word(d.result, (((x * y) & LONG) + z + carry) & LONG, active)


def _product(x: Any, y: Any, *, is_signed: bool) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        return (signed(x) * signed(y) if is_signed else x * y) & LONG
    if not is_signed:
        return x * y
    a, b = (np.asarray(signed(each), dtype=np.int64) for each in (x, y))
    return (a * b).view(np.uint64)


def _lea(d: Decoded, r: Registers, active: Truth) -> None:
    assert d.result is not None
    values = [r.word(each) for each in d.sources]
    if any(value is None for value in values):
        _unknown(d, r, active)
        return
    a: Any = values[0]
    shift = values[-1]
    assert isinstance(shift, int)
    if "HI" not in d.modifiers:
        _total(d, r, active, [(a << shift) & WORD, values[1]], [Operand("R"), d.sources[1]])
        return
    if "SX32" in d.modifiers:
        long: Any = (signed(a) if isinstance(a, int) else signed(a).view(np.uint64)) & LONG
    else:
        long = a | (values[2] << 32)
    _total(d, r, active, [((long << shift) & LONG) >> 32, values[1]], [Operand("R"), d.sources[1]])


def _lop3(d: Decoded, r: Registers, active: Truth) -> None:
    assert d.result is not None
    *values, table = (r.word(each) for each in d.sources)
    if any(value is None for value in values) or not isinstance(table, int):
        _unknown(d, r, active)
        return
    found = _look_up(table, values)
    r.set_word(d.result, found, active)
    for each in d.truths:
        r.set_truth(each, (found & WORD) != 0, active)


def _look_up(table: int, values: list[Any]) -> Any:
    """For each bit position, the three values' bits form an index into the truth table; the result has that entry."""
    a, b, c = values
    found: Any = 0
    for row in range(8):
        if table >> row & 1:
            x, y, z = (each if row & bit else WORD ^ each for each, bit in ((a, 4), (b, 2), (c, 1)))
            found = found | (x & y & z & WORD)
    return found


def _plop3(d: Decoded, r: Registers, active: Truth) -> None:
    truths = [r.truth(each) for each in d.conditions[:3]]
    tables = [each.index for each in d.sources]
    for each, table in zip(d.truths, tables, strict=False):
        if any(truth is None for truth in truths):
            r.set_truth(each, None, active)
            continue
        words: list[Any] = [np.asarray(truth).astype(np.uint64) for truth in truths]
        found = np.asarray(_look_up(table, words)) & 1
        r.set_truth(each, bool(found) if found.ndim == 0 else found.astype(bool), active)


def _shf(d: Decoded, r: Registers, active: Truth) -> None:
    assert d.result is not None
    low, amount, high = (r.word(each) for each in d.sources[:3])
    if low is None or amount is None or high is None:
        _unknown(d, r, active)
        return
    value: Any = low | (high << 32)
    amount = amount & (31 if "W" in d.modifiers else 63)
    if "L" in d.modifiers:
        shifted = (value << amount) & LONG
    elif {"S32", "S64"} & d.modifiers:
        wide = np.asarray(np.uint64(0) + value).view(np.int64)
        shifted = (wide >> np.asarray(amount, dtype=np.int64)).view(np.uint64)
    else:
        shifted = value >> amount
    r.set_word(d.result, shifted >> 32 if "HI" in d.modifiers else shifted, active)


_COMPARES: dict[str, Callable[[Any, Any], Any]] = {
    "LT": lambda a, b: a < b, "LE": lambda a, b: a <= b, "GT": lambda a, b: a > b, "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b,
}  # fmt: skip


def _isetp(d: Decoded, r: Registers, active: Truth) -> None:
    a, b = (r.word(each) for each in d.sources[:2])
    given = [r.truth(each) for each in d.conditions]
    if a is None or b is None or any(truth is None for truth in given):
        _unknown(d, r, active)
        return
    if "U32" not in d.modifiers:
        a, b = signed(a), signed(b)
    name = next(name for name in _COMPARES if name in d.modifiers)
    holds = _COMPARES[name](a, b)
    if "EX" in d.modifiers:  # the lower words were compared before
        holds = np.where(a == b, given[-1], _COMPARES[name](a, b))
    with_: Any = given[0] if given else True
    for each, truth in zip(d.truths, (holds, np.logical_not(holds)), strict=False):
        both = truth | with_ if "OR" in d.modifiers else truth ^ with_ if "XOR" in d.modifiers else truth & with_
        r.set_truth(each, bool(both) if np.ndim(both) == 0 else both, active)


def _sel(d: Decoded, r: Registers, active: Truth) -> None:
    assert d.result is not None
    a, b = (r.word(each) for each in d.sources[:2])
    chosen = r.truth(d.conditions[-1])
    if a is None or b is None or chosen is None:
        _unknown(d, r, active)
        return
    r.set_word(d.result, np.where(chosen, np.uint64(0) + a, np.uint64(0) + b), active)


def _minmax(d: Decoded, r: Registers, active: Truth) -> None:
    assert d.result is not None
    values = [r.word(each) for each in d.sources]
    chosen = r.truth(d.conditions[-1]) if d.conditions else None
    if any(value is None for value in values) or chosen is None:
        _unknown(d, r, active)
        return
    whole: list[Any] = values
    if len(whole) == 3:  # VIADDMNMX
        whole = [(whole[0] + whole[1]) & WORD, whole[2]]
    a, b = whole if "U32" in d.modifiers else map(signed, whole)
    found = np.where(chosen, np.minimum(a, b), np.maximum(a, b))
    r.set_word(d.result, found.astype(np.int64).view(np.uint64) & WORD, active)


def _prmt(d: Decoded, r: Registers, active: Truth) -> None:
    assert d.result is not None
    low, selector, high = (r.word(each) for each in d.sources[:3])
    if low is None or high is None or not isinstance(selector, int):
        _unknown(d, r, active)
        return
    value: Any = low | (high << 32)
    found: Any = 0
    for byte in range(4):
        nibble = selector >> 4 * byte & 0xF
        picked = value >> (8 * (nibble & 7)) & 0xFF
        if nibble & 8:  # the byte is its sign bit, repeated
            picked = (picked >> 7) * 0xFF
        found = found | picked << 8 * byte
    r.set_word(d.result, found, active)


def _idp(d: Decoded, r: Registers, active: Truth) -> None:
    """``IDP.2A.LO.U16.U8``: the two halves of a word times two bytes of another, the lower ones or the upper, added."""
    assert d.result is not None
    halves, octets, added = (r.word(each) for each in d.sources[:3])
    is_known = {"2A", "U16", "U8"} <= d.modifiers
    if halves is None or octets is None or added is None or not is_known:
        _unknown(d, r, active)
        return
    octets = octets >> (16 if "HI" in d.modifiers else 0)
    products = (halves & 0xFFFF) * (octets & 0xFF) + (halves >> 16) * (octets >> 8 & 0xFF)
    r.set_word(d.result, (products + added) & WORD, active)


def _iabs(d: Decoded, r: Registers, active: Truth) -> None:
    assert d.result is not None
    value = r.word(d.sources[0])
    found = None if value is None else np.abs(np.asarray(signed(value), dtype=np.int64)).view(np.uint64)
    r.set_word(d.result, found, active)


def _p2r(d: Decoded, r: Registers, active: Truth) -> None:
    assert d.result is not None
    before, mask = r.word(d.sources[-2]), r.word(d.sources[-1])
    truths = [r.truth(Operand("P", index)) for index in range(7)]
    if before is None or not isinstance(mask, int) or any(truths[i] is None for i in range(7) if mask >> i & 1):
        _unknown(d, r, active)
        return
    shift = 8 * int(d.result.name[1]) if d.result.name[:1] == "B" else 0
    found: Any = before & (WORD ^ (mask << shift))
    for index, truth in enumerate(truths):
        if mask >> index & 1:
            found = found | (np.asarray(truth).astype(np.uint64) << np.uint64(index + shift))
    r.set_word(d.result, found, active)


def _r2p(d: Decoded, r: Registers, active: Truth) -> None:
    # ``R2P PR, R5.B1, 0x7f``: the destination is all predicates
    source, mask = d.sources[-2], r.word(d.sources[-1])
    value = r.word(source)
    shift = 8 * int(source.name[1]) if source.name[:1] == "B" else 0
    for index in range(7):
        if isinstance(mask, int) and mask >> index & 1:
            bit: Any = None if value is None else (value >> (index + shift)) & 1 != 0
            r.set_truth(Operand("P", index), bit, active)


def _vote(d: Decoded, r: Registers, active: Truth) -> None:
    """``VOTEU.ALL UP0, P5``: whether P5 is true in all active threads of a warp; ``ANY``: in one of them."""
    *named, source = [operand(text) for text in d.texts]
    if len(named) > 1 or not {"ALL", "ANY"} & d.modifiers:  # also a word with a bit of each thread
        r.set_word(named[0], None, active)
        r.set_truth(named[-1], None, active)
        return
    found, of_all = r.truth(source), "ALL" in d.modifiers
    if isinstance(found, np.ndarray):
        counts = np.broadcast_to(np.asarray(True if active is None else active), found.shape)
        of_warps = np.where(counts, found, of_all).reshape(-1, _LANES)
        found = np.repeat(of_warps.all(axis=1) if of_all else of_warps.any(axis=1), _LANES)
    r.set_truth(named[0], found, active)


# -- registers that were spilt ---------------------------------------------------------------------------------------


def _ldl(d: Decoded, r: Registers, active: Truth) -> None:
    assert d.result is not None
    span = r.stack_span(d.texts[1])
    for offset in range(d.words):
        word = r.word(Operand("stack", span.start + 4 * offset)) if span is not None and len(span) == 1 else None
        r.set_word(d.result, word, active, offset=offset)


def _stl(d: Decoded, r: Registers, active: Truth) -> None:
    source, span = operand(d.texts[1]), r.stack_span(d.texts[0])
    if span is None or len(span) > 1:  # it may be any of them
        r.forget_stack(None if span is None else range(span.start, span.stop + 4 * (d.words - 1)))
        return
    for offset in range(d.words):
        index = source.index + offset if source.index >= 0 else -1
        r.set_word(Operand("stack", span.start + 4 * offset), r.word(Operand(source.file, index)), active)


_DOES: dict[str, Callable[[Decoded, Registers, Truth], None]] = {
    **dict.fromkeys(("MOV", "UMOV", "MOV32I", "S2R", "S2UR", "R2UR"), _mov),
    "CS2R": _cs2r,
    **dict.fromkeys(("LDC", "ULDC", "LDCU"), _ldc),
    **dict.fromkeys(("IADD3", "UIADD3", "IADD", "UIADD", "VIADD", "UVIADD"), _iadd),
    **dict.fromkeys(("IMAD", "UIMAD"), _imad),
    **dict.fromkeys(("LEA", "ULEA"), _lea),
    **dict.fromkeys(("LOP3", "ULOP3"), _lop3),
    **dict.fromkeys(("PLOP3", "UPLOP3"), _plop3),
    **dict.fromkeys(("SHF", "USHF"), _shf),
    **dict.fromkeys(("ISETP", "UISETP"), _isetp),
    **dict.fromkeys(("SEL", "USEL"), _sel),
    **dict.fromkeys(("IMNMX", "UIMNMX", "VIMNMX", "UVIMNMX", "VIADDMNMX"), _minmax),
    **dict.fromkeys(("PRMT", "UPRMT"), _prmt),
    "IDP": _idp,
    "IABS": _iabs,
    "P2R": _p2r,
    "R2P": _r2p,
    **dict.fromkeys(("VOTE", "VOTEU"), _vote),
    "LDL": _ldl,
    "STL": _stl,
}
