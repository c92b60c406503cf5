"""Load machine code of a CPU artifact, with what is added to its LLVM IR: PyTorch's threads, and a cheap way in."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from importlib import resources
from typing import Any

from dwconv.errors import BuildError
from dwconv.kernels.artifact import BATCH, Argument, Artifact, Extent, size_names
from dwconv.kernels.llvm import module_of
from dwconv.system.bytes_as_file import bytes_as_file
from dwconv.system.openmp import openmp_is_here

ANY_NUMBER = 2**31 - 1
"""Of threads."""
ENTRY = "dwconv_run"
"""The one name that a shared library of a kernel has."""
_DTYPES = {"float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16), "int32": (0, 32)}
"""DLPack's code and bits."""


def load_cpu(artifact: Artifact) -> tuple[Callable[..., Any], int]:
    """A function of the batch and the addresses of ``artifact.arguments``, all dense, run on PyTorch's OpenMP threads;
    and the address of the same in machine code, ``int32_t (*)(int64_t batch, void* const* addresses)``, which is there
    as long as the function is.

    Raises BuildError if the machine code cannot be made, or does not run here."""
    if artifact.library:
        return load_library(artifact.library)
    try:
        return load_ir(artifact.source, artifact.arguments, most_threads=most_threads(artifact))
    except BuildError as error:
        raise BuildError(f"LLVM cannot load the kernel of {artifact.candidate.config}: {error}") from None


def load_ir(
    source: str, arguments: tuple[Argument, ...], *, most_threads: int | None = None
) -> tuple[Callable[..., Any], int]:
    """Load LLVM IR with a ``main`` of these arguments, which ``most_threads`` threads run at most."""
    # A parallel loop of one turn is compiled to none: such a kernel has no threads to start.
    on_openmp = openmp_is_here() and "@__TVMBackendParallelLaunch" in source
    ir = source + addresses_ir(arguments)
    if on_openmp:
        ir += openmp_ir(most_threads=most_threads or ANY_NUMBER)
    try:
        module = module_of(ir)
    except RuntimeError as error:
        raise BuildError(str(error)) from None
    if on_openmp:
        module["use_openmp"]()
    call: Callable[..., Any] = module["call_with_addresses"]  # keeps the module alive
    return call, module["entry"]()


def load_library(library: bytes) -> tuple[Callable[..., Any], int]:
    """Load the bytes of a shared library that ``dwconv.kernels.library`` made. Needs no TVM."""
    if not openmp_is_here():
        raise BuildError("this PyTorch brings no OpenMP runtime with GNU's entry points; its Linux packages do")
    try:
        with bytes_as_file(library, name=ENTRY) as path:
            loaded = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
        run = loaded[ENTRY]
    except (OSError, AttributeError) as error:
        raise BuildError(f"the system cannot load the kernel: {error}") from None
    run.argtypes, run.restype = (ctypes.c_int64, ctypes.c_void_p), ctypes.c_int32

    def call(batch: int, *addresses: int) -> None:
        if run(batch, (ctypes.c_void_p * len(addresses))(*addresses)):
            raise BuildError("the kernel failed")

    address = ctypes.cast(run, ctypes.c_void_p).value
    assert address is not None, "a function has an address"
    return call, address


def can_load_libraries() -> bool:
    """True where ``load_library`` can be used: on Linux."""
    return hasattr(os, "memfd_create") and openmp_is_here()


def addresses_ir(arguments: tuple[Argument, ...]) -> str:
    """``call_with_addresses(batch, address…)``: calls ``main`` with tensors that it describes itself. ``entry()``: the
    address of ``int32_t (*)(int64_t batch, void* const* addresses)``, which does the same.

    Numbers cross from Python at a third of what tensors cost, which each take an object of their own; and what the
    shapes are is known here."""
    count, numbers = len(arguments), size_names(arguments)
    lines = [
        "",
        "; A tensor is DLPack's: data, device (1 is the CPU) and its number, axes, dtype (code, bits, lanes), sizes,",
        "; strides (none: it is dense), offset. An argument is its kind, padding, and what it holds; 7 is a tensor,",
        "; 1 a number.",
        "%dwconv.tensor = type { ptr, i32, i32, i32, i8, i8, i16, ptr, ptr, i64 }",
        "%dwconv.argument = type { i32, i32, ptr }",
        "define internal i32 @dwconv.enter(i64 %n, ptr %addresses) {",
        f"  %taken = alloca [{count} x %dwconv.argument], align 8",
        "  %result = alloca %dwconv.argument, align 8",
        "  store %dwconv.argument zeroinitializer, ptr %result, align 8",
    ]
    for number, name in enumerate(numbers, count):
        lines += [
            f"  %size.{name}.given = getelementptr i64, ptr %addresses, i32 {number}",
            f"  %size.{name} = load i64, ptr %size.{name}.given, align 8",
        ]
    for number, argument in enumerate(arguments):
        lines += _tensor_ir(number, argument)
    lines += [
        f"  %status = call i32 @__tvm_ffi_main(ptr null, ptr %taken, i32 {count}, ptr %result)",
        "  ret i32 %status",
        "}",
        "",
        "define dllexport i32 @__tvm_ffi_call_with_addresses(ptr %self, ptr %given, i32 %count, ptr %result) {",
        "  %batch_at = getelementptr %dwconv.argument, ptr %given, i32 0, i32 2",
        "  %n = load i64, ptr %batch_at, align 8",
        f"  %addresses = alloca [{count + len(numbers)} x ptr], align 8",
    ]
    for number in range(count + len(numbers)):
        lines += [
            f"  %given{number} = getelementptr %dwconv.argument, ptr %given, i32 {number + 1}, i32 2",
            f"  %address{number} = load ptr, ptr %given{number}, align 8",
            f"  %address{number}.at = getelementptr ptr, ptr %addresses, i32 {number}",
            f"  store ptr %address{number}, ptr %address{number}.at, align 8",
        ]
    lines += [
        "  %status = call i32 @dwconv.enter(i64 %n, ptr %addresses)",
        "  ret i32 %status",
        "}",
        "",
        "define dllexport i32 @__tvm_ffi_entry(ptr %self, ptr %given, i32 %count, ptr %result) {",
        "  %held = getelementptr %dwconv.argument, ptr %result, i32 0, i32 2",
        "  store %dwconv.argument { i32 1, i32 0, ptr null }, ptr %result, align 8",
        "  store ptr @dwconv.enter, ptr %held, align 8",
        "  ret i32 0",
        "}",
        "",
    ]
    return "\n".join(lines)


def _tensor_ir(number: int, argument: Argument) -> list[str]:
    """Describes an argument, and puts it among those that main takes."""
    code, bits = _DTYPES[argument.dtype]
    this, axes = f"%t{number}", len(argument.shape)
    lines = [
        f"  {this} = alloca %dwconv.tensor, align 8",
        f"  {this}.sizes = alloca [{axes} x i64], align 8",
        f"  {this}.given = getelementptr ptr, ptr %addresses, i32 {number}",
        f"  {this}.address = load ptr, ptr {this}.given, align 8",
        f"  {this}.whole.0 = insertvalue %dwconv.tensor "
        f"{{ ptr poison, i32 1, i32 0, i32 {axes}, i8 {code}, i8 {bits}, i16 1, ptr poison, ptr null, i64 0 }}, "
        f"ptr {this}.address, 0",
        f"  {this}.whole.1 = insertvalue %dwconv.tensor {this}.whole.0, ptr {this}.sizes, 7",
        f"  store %dwconv.tensor {this}.whole.1, ptr {this}, align 8",
        f"  {this}.kind = getelementptr %dwconv.argument, ptr %taken, i32 {number}, i32 0",
        f"  {this}.held = getelementptr %dwconv.argument, ptr %taken, i32 {number}, i32 2",
        f"  store i32 7, ptr {this}.kind, align 8",
        f"  store ptr {this}, ptr {this}.held, align 8",
    ]
    for axis, size in enumerate(argument.shape):
        value, at = f"{this}.size{axis}", f"{this}.size{axis}.at"
        if isinstance(size, Extent):
            lines += [
                f"  {value}.times = mul i64 %{'n' if size.of == BATCH else f'size.{size.of}'}, {size.times}",
                f"  {value}.more = add i64 {value}.times, {size.over - 1}",
                f"  {value} = udiv i64 {value}.more, {size.over}",
            ]
        lines += [
            f"  {at} = getelementptr i64, ptr {this}.sizes, i32 {axis}",
            f"  store i64 {value if isinstance(size, Extent) else size}, ptr {at}, align 8",
        ]
    return lines


def most_threads(artifact: Artifact) -> int | None:
    """How many threads the configuration takes at most; None if it has no such knob."""
    threads = artifact.candidate.config.to_dict().get("threads")
    assert threads is None or isinstance(threads, int)
    return threads


def openmp_ir(*, most_threads: int) -> str:
    """What points a kernel at OpenMP's threads."""
    text = resources.files("dwconv.kernels").joinpath("openmp.ll").read_text(encoding="utf-8")
    return f"{text}\n@dwconv.most_threads = internal constant i32 {most_threads}\n"
