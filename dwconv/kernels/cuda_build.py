"""Compile a candidate for CUDA: schedule -> CUDA C++ and its launches -> cubin. Needs no GPU and no CUDA toolkit.

The launches are read off the host code that TVM generates for its own runtime. So the source can be compiled and
launched elsewhere, with the grid, block, shared bytes and arguments listed, in that order.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dwconv.errors import BuildError, DwconvError
from dwconv.kernels.artifact import Argument, Artifact, Extent, Launch, Scalar
from dwconv.kernels.cpu_build import describe, extent, telling_line
from dwconv.kernels.nvrtc import compile_cubin
from dwconv.problems.target import CudaTarget
from dwconv.schedules.cuda.gpu.hardware import COPIES_VECTORS
from dwconv.schedules.template import Candidate
from dwconv.system import forks


def build_cuda(candidate: Candidate, target: CudaTarget) -> Artifact:
    """Schedule, lower and compile to a cubin. Raises InvalidConfig for a config outside the space, BuildError for what
    TVM or NVRTC refuses, BrokenInstallation without the ``cuda`` extra."""
    started = time.perf_counter()
    try:
        function = candidate.schedule(target).mod["main"]
        arguments = tuple(describe(buffer) for buffer in function.params)
        source, launches = lower(function, arguments, arch=target.arch)
    except DwconvError:
        raise
    except Exception as error:
        raise BuildError(f"{candidate.config.template}: {telling_line(error)}") from error
    compiled = compile_cubin(source, arch=target.arch, fast_math=target.fast_math)
    dynamic = max(launch.shared_bytes for launch in launches)
    return Artifact(
        candidate=candidate,
        kind="cuda",
        source=source,
        arguments=arguments,
        cubin=compiled.cubin,
        launches=launches,
        resources={**compiled.resources, "shared_bytes": compiled.resources["shared_bytes"] + dynamic},
        kernel_resources={launch.kernel: _with_dynamic(compiled.kernels, launch) for launch in launches},
        build_s=time.perf_counter() - started,
    )


def _with_dynamic(kernels: dict[str, dict[str, int]], launch: Launch) -> dict[str, int]:
    reported = kernels.get(launch.kernel, {})
    return {**reported, "shared_bytes": reported.get("shared_bytes", 0) + launch.shared_bytes}


def lower(function: Any, arguments: tuple[Argument, ...], *, arch: str) -> tuple[str, tuple[Launch, ...]]:
    """CUDA C++ of a scheduled PrimFunc, and its launches in the order they run."""
    return generated(function, arguments, arch)


def generated(function: Any, arguments: tuple[Argument, ...], arch: str) -> tuple[str, tuple[Launch, ...]]:
    """What ``lower`` returns: one function, by position, that tests can keep the results of."""
    import tvm
    from tvm import tirx
    from tvm.tirx.build import codegen_build, split_host_device_mods

    _check_threads(function)
    target = tvm.target.Target({"kind": "cuda", "arch": arch}, host="llvm")
    module = tirx.transform.BindTarget(target)(tvm.IRModule({"main": function}))
    pipeline, _, finish_device = tirx.get_tir_pipeline("s_tir")
    # Common-subexpression elimination leaves dead variables and, with a symbolic grid, an extra kernel argument.
    options = {"tirx.disable_cse_tir": True, "tirx.use_async_copy": True}
    if COPIES_VECTORS in (function.attrs or {}):
        options["tirx.disable_storage_rewrite"] = True
    disabled = [] if _has_blocks(function) else _NOTHING_TO_DO
    with target, tvm.transform.PassContext(opt_level=3, config=options, disabled_pass=disabled):
        module = pipeline(module)
    host, devices = split_host_device_mods(module)
    ((device_target, device),) = devices.items()
    with _compiled_by_nobody():
        source = codegen_build(finish_device()(device), device_target).inspect_source()
    return self_contained(source), tuple(_launches(host, arguments))


_NOTHING_TO_DO = [
    "s_tir.CompactBufferAllocation",
    "s_tir.HoistIfThenElse",
    "s_tir.LowerAsyncDMA",
    "tirx.RemoveNoOp",
]
"""Passes for scheduled blocks and other devices. Programs that are written as loops allocate what they need: to look
through them takes half of the time of lowering."""


def _has_blocks(function: Any) -> bool:
    import tvm_ffi
    from tvm import s_tir

    found: list[Any] = []
    tvm_ffi.structural_walk(function.body, [(s_tir.SBlock, found.append)])
    return bool(found)


@contextmanager
def _compiled_by_nobody() -> Iterator[None]:
    """Keep TVM from compiling the source that it generates.

    Where there is a GPU, TVM compiles it with a CUDA toolkit of its own choice, and fails without one. Here the source
    is enough."""
    import tvm_ffi

    name = "tvm_callback_cuda_compile"
    with _LOWERING:
        usual = tvm_ffi.get_global_func(name, allow_missing=True)
        tvm_ffi.register_global_func(name, lambda source, *options: b"", override=True)
        try:
            yield
        finally:
            if usual is None:
                tvm_ffi.registry.remove_global_func(name)
            else:
                tvm_ffi.register_global_func(name, usual, override=True)


_LOWERING = forks.Lock()
"""The callback belongs to the whole process, so only one thread may replace it at a time."""


def _check_threads(function: Any) -> None:
    """Raises BuildError where a kernel binds loops of different lengths to one axis of its threads: TVM would launch as
    many threads as one of the loops has turns."""
    import tvm_ffi
    from tvm import s_tir, tirx

    body = function.body
    while isinstance(body, s_tir.SBlockRealize):
        body = body.block.body
    for kernel in _kernels(body):
        lengths: dict[str, dict[str, str]] = {}

        def visit(loop: Any, lengths: dict[str, dict[str, str]] = lengths) -> None:
            tag = str(loop.thread_binding.thread_tag) if loop.thread_binding is not None else ""
            if tag.startswith("threadIdx"):
                lengths.setdefault(tag, {}).setdefault(str(loop.extent), str(loop.loop_var.name))

        tvm_ffi.structural_walk(kernel, [(tirx.For, visit)])
        for tag, loops in lengths.items():
            if len(loops) > 1:
                named = " and ".join(f"{name} of {length}" for length, name in loops.items())
                raise BuildError(f"{tag} is bound to loops of different lengths, {named}; give them one length")


def _kernels(body: Any) -> list[Any]:
    """The kernels of a function in which every statement is a loop over blocks; else all of it, as one."""
    from tvm import tirx

    statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    loops = [statement for statement in statements if isinstance(statement, tirx.For)]
    tags = [str(loop.thread_binding.thread_tag) if loop.thread_binding is not None else "" for loop in loops]
    return loops if loops and all(tag.startswith("blockIdx") for tag in tags) else [body]


def self_contained(source: str) -> str:
    """TVM's source without its header, which needs the C++ library of a CUDA toolkit: the kernels, and
    before them only what they use."""
    kernels = re.sub(r'^extern "C" __global__ [^{]*;\n', "", source, flags=re.MULTILINE)
    for name, shorter in _SHORTER.items():
        kernels = re.sub(name, shorter, kernels)
    start = kernels.find('extern "C" __global__')
    if start < 0:
        raise BuildError("TVM generated no kernel")
    body = kernels[start:].rstrip() + "\n"
    used = set(re.findall(r"\w+", body))
    own = [text for text in _FUNCTION.findall(kernels[:start]) if re.findall(r"\w+(?=\()", text)[0] in used]
    used |= set(re.findall(r"\w+", "".join(own)))
    known = [text for name, text in _DEFINITIONS.items() if name in used]
    return "\n".join([_FIXED_WIDTH_INTEGERS, *known, *own, body])


_SHORTER = {
    r"\btvm_builtin_ptx_cp_async_(?:wait|commit)_group_(?=async_)": "",
    r"\bptx_cp_async_legacy_pred_c[ag]_": "async_copy_or_zero_",
    r"\bptx_cp_async_legacy_c[ag]_": "async_copy_",
    # One instruction that reads no byte and fills with zeros, not one of two.
    r'__asm__ __volatile__\(\s*"\{\\n"\s*" \.reg \.pred p;\\n"\s*" setp\.eq\.u32 p, %3, 1;\\n"\s*'
    r'" @p (cp\.async\.c[ag]\.shared\.global \[%0\], \[%1\], %2);\\n"\s*" @!p [^\n]*\\n"\s*"\}\\n"\s*'
    r':: ("r"\(dst_addr\), "l"\(src_p\), "n"\((\d+)\)), "r"\(predicate\)[^\n]*\n  \);': r"""asm volatile("\1, %3;" ::
    \2, "r"(predicate ? \3 : 0));""",
}
_FUNCTION = re.compile(
    r"^__forceinline__ __device__ (?:void|unsigned int) [^;{]*\{\n.*?^\}\n", re.MULTILINE | re.DOTALL
)
"""Asynchronous copies, which TVM defines where it needs them."""


_FIXED_WIDTH_INTEGERS = """\
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#else
#include <cstdint>
#endif
"""

# Words that TVM's kernels use beyond CUDA's own, each with what it needs.
_DEFINITIONS = {
    "uchar": "typedef unsigned char uchar;\n",
    "half": "#include <cuda_fp16.h>\n",
    "nv_bfloat16": "#include <cuda_bf16.h>\n",
    # Two words, not four halves: halves would be loaded one by one and packed again.
    "half4": """\
struct alignas(8) half4 { unsigned low, high; };
static __device__ half4 make_half4(half x, half y, half z, half w) {
  return {(unsigned)__half_as_ushort(y) << 16 | __half_as_ushort(x),
          (unsigned)__half_as_ushort(w) << 16 | __half_as_ushort(z)};
}
""",
    "nv_bfloat164": """\
struct alignas(8) nv_bfloat164 { unsigned low, high; };
static __device__ nv_bfloat164 make_nv_bfloat164(nv_bfloat16 x, nv_bfloat16 y, nv_bfloat16 z, nv_bfloat16 w) {
  return {(unsigned)__bfloat16_as_ushort(y) << 16 | __bfloat16_as_ushort(x),
          (unsigned)__bfloat16_as_ushort(w) << 16 | __bfloat16_as_ushort(z)};
}
""",
    "make_nv_bfloat162": """\
static __device__ nv_bfloat162 make_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return __halves2bfloat162(x, y); }
""",
    "__pack_half2": """\
static __device__ unsigned __pack_half2(half x, half y) {
  return (unsigned)__half_as_ushort(y) << 16 | __half_as_ushort(x);
}
""",
    "__pack_nv_bfloat162": """\
static __device__ unsigned __pack_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) {
  return (unsigned)__bfloat16_as_ushort(y) << 16 | __bfloat16_as_ushort(x);
}
""",
    "__asm__": "#define __asm__ asm\n",
    "uint": "typedef unsigned int uint;\n",
    "__volatile__": "#define __volatile__ volatile\n",
    "TVM_ENABLE_L2_PREFETCH": "#define TVM_ENABLE_L2_PREFETCH 1\n",
}


# -- launches ------------------------------------------------------------------------------------------------------


def _launches(host: Any, arguments: tuple[Argument, ...]) -> Iterator[Launch]:
    """Every kernel call in TVM's host code: its name, its arguments, then its launch parameters."""
    import tvm
    import tvm_ffi

    calls: list[Any] = []

    def visit(call: Any) -> None:
        if call.op.name == "tirx.call_ffi_kernel":
            calls.append(call)

    for function in host.functions.values():
        tvm_ffi.structural_walk(function.body, [(tvm.ir.Call, visit)])
    tensors = {argument.name: argument for argument in arguments}
    for call in calls:
        name, *values = call.args
        tags = call.attrs.launch_params
        passed, counts = values[: -len(tags)], values[-len(tags) :]
        sizes = {str(tag): extent(count) for tag, count in zip(tags, counts, strict=True)}
        shared_bytes = sizes.pop("tirx.use_dyn_shared_memory", 0)
        grid_x, grid_y, grid_z = (sizes.pop(f"blockIdx.{axis}", 1) for axis in "xyz")
        block_x, block_y, block_z = (sizes.pop(f"threadIdx.{axis}", 1) for axis in "xyz")
        if sizes:
            raise BuildError(f"{name.value}: launch parameter {', '.join(sizes)} is unknown")
        yield Launch(
            kernel=str(name.value),
            grid=(grid_x, grid_y, grid_z),
            block=(_constant(block_x), _constant(block_y), _constant(block_z)),
            shared_bytes=_constant(shared_bytes),
            arguments=tuple(_passed(value, tensors) for value in passed),
        )


def _passed(value: Any, tensors: dict[str, Argument]) -> Argument | Scalar:
    """An argument as TVM passes it: the data of a tensor, or a size."""
    from tvm import tirx

    if isinstance(value, tirx.Var):
        return Scalar(str(value.name), Extent(of=str(value.name)))
    if value.op.name == "tirx.buffer_data":
        return tensors[value.args[0].name]
    raise BuildError(f"a kernel takes {value}, which is neither a tensor nor a size")


def _constant(size: int | Extent) -> int:
    if isinstance(size, Extent):
        raise BuildError(f"a block of {size} threads or bytes depends on a size")
    return size
