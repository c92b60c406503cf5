"""Compile a candidate for the CPU: schedule -> LLVM IR, optimised for this machine.

The IR travels between processes as text and is turned into machine code where it runs: no linker, no compiler
installation is needed.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from dwconv.build.artifact import Argument, Artifact, Extent
from dwconv.errors import BuildError, DwconvError
from dwconv.schedules.template import Candidate
from dwconv.target import CpuTarget


def build_cpu(candidate: Candidate, target: CpuTarget) -> Artifact:
    """Schedule and compile to LLVM IR. Raises InvalidConfig for a config outside the space, BuildError for what TVM or
    LLVM refuses."""
    import tvm

    started = time.perf_counter()
    try:
        schedule = candidate.schedule(target)
        function = schedule.mod["main"]
        with pass_context():
            library = tvm.compile(schedule.mod, target=llvm_target(target))
    except DwconvError:
        raise
    except Exception as error:
        raise BuildError(f"{candidate.config.template}: {first_line(error)}") from error
    return Artifact(
        candidate=candidate,
        kind="cpu",
        source=library.mod.inspect_source("ll"),
        arguments=tuple(describe(buffer) for buffer in function.params),
        build_s=time.perf_counter() - started,
    )


def pass_context() -> Any:
    """TVM's passes, without those that would find nothing to do here.

    The templates already write their kernels as loops, vectors and guards. Passes that analyse scheduled blocks, or
    look for constructs of GPU schedules, would take half of the build time for nothing."""
    import tvm

    return tvm.transform.PassContext(
        opt_level=3,
        config={"tirx.disable_cse_tir": True},
        disabled_pass=[
            "s_tir.CompactBufferAllocation",
            "s_tir.HoistIfThenElse",
            "s_tir.InjectPermutedLayout",
            "s_tir.InjectVirtualThread",
            "s_tir.RenormalizeSplitPattern",
            "tirx.RemoveNoOp",
        ],
    )


def llvm_target(target: CpuTarget) -> Any:
    import tvm

    return tvm.target.Target({"kind": "llvm", "mcpu": _cpu_name(), "num-cores": target.threads})


@cache
def _cpu_name() -> str:
    """LLVM's name of this machine's CPU."""
    import tvm

    return str(tvm.get_global_func("target.llvm_get_system_cpu")())


def describe(buffer: Any) -> Argument:
    """A buffer of a PrimFunc as plain data; its one symbol is the batch."""
    return Argument(buffer.name, str(buffer.dtype), tuple(_size(size) for size in buffer.shape))


def _size(expression: Any) -> int | Extent:
    """A number, or the batch times a number."""
    import tvm_ffi
    from tvm import sym, tirx

    if isinstance(expression, tirx.IntImm):
        return int(expression)
    one = sym.Analyzer()
    tvm_ffi.structural_walk(
        expression, [(tirx.Var, lambda symbol: one.bind(symbol, tirx.IntImm(str(expression.ty.dtype), 1)))]
    )
    return Extent(times=int(one.simplify(expression)))


def first_line(error: BaseException) -> str:
    """The line of an exception that says what happened: TVM's messages begin with a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error:" in line or "Check failed" in line]
    return ((telling or lines or [type(error).__name__])[0])[:300]
