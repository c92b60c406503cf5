"""Compile a candidate for the CPU: schedule -> LLVM IR, optimised for this machine.

The IR travels between processes as text and is turned into machine code where it runs: no linker, no compiler
installation is needed.
"""

from __future__ import annotations

import re
import time
from functools import cache
from typing import Any

from dwconv.errors import BuildError, DwconvError
from dwconv.kernels.artifact import Argument, Artifact, Extent, product
from dwconv.kernels.llvm import module_of
from dwconv.problems.target import CpuTarget
from dwconv.schedules.template import Candidate


def build_cpu(candidate: Candidate, target: CpuTarget) -> Artifact:
    """Schedule and compile to LLVM IR. Raises InvalidConfig for a config outside the space, BuildError for what TVM or
    LLVM refuses."""
    started = time.perf_counter()
    try:
        module = candidate.schedule(target).mod
        source = generated(module, llvm_target(target))
    except DwconvError:
        raise
    except Exception as error:
        raise BuildError(f"{candidate.config.template}: {telling_line(error)}") from error
    return Artifact(
        candidate=candidate,
        kind="cpu",
        source=_without_addresses(_needed_alone(source)),
        arguments=tuple(describe(buffer) for buffer in module["main"].params),
        build_s=time.perf_counter() - started,
    )


def generated(module: Any, target: Any) -> str:
    """LLVM IR of a scheduled program, for a target of TVM."""
    import tvm

    with pass_context():
        return str(tvm.compile(module, target=target).mod.inspect_source("ll"))


def _needed_alone(ir: str) -> str:
    """``ir`` without what LLVM would compile for nothing each time that a kernel is loaded: what debuggers read, and
    what converts float16, where there is none."""
    ir = _PLACES.sub("", ir)
    without = _CONVERSIONS.sub("", ir)
    return ir if _FLOAT16.search(without) else without


_PLACES = re.compile(r"^    #dbg_\w+\(.*\)\n|,? !dbg !\d+|^!llvm\.dbg\.cu = .*\n", re.MULTILINE)
_CONVERSIONS = re.compile(r"^define weak [^\n]* @__(?:truncsfhf2|extendhfsf2)\(.*?^\}\n", re.MULTILINE | re.DOTALL)
_FLOAT16 = re.compile(r"^(?!declare).*\bhalf\b", re.MULTILINE)


def _without_addresses(ir: str) -> str:
    """``ir`` as every process has it: TVM names buffers, for LLVM's alias analysis, by their place in its memory."""
    names: dict[str, str] = {}
    return re.sub(r'(?<=!")0x[0-9a-f]+', lambda address: names.setdefault(address[0], f"buffer{len(names)}"), ir)


def pass_context() -> Any:
    """TVM's passes, without those that would find nothing to do here.

    The templates already write their kernels as loops, vectors and guards. Passes that analyse scheduled blocks, or
    look for constructs of GPU schedules, would take half of the build time for nothing. So would checks of tensors: all
    that a kernel is called with is described by ``load_cpu``."""
    import tvm

    return tvm.transform.PassContext(
        opt_level=3,
        config={"tirx.disable_cse_tir": True, "tirx.disable_assert": True},
        disabled_pass=[
            "s_tir.CompactBufferAllocation",
            "s_tir.HoistIfThenElse",
            "s_tir.InjectPermutedLayout",
            "s_tir.InjectVirtualThread",
            "s_tir.RenormalizeSplitPattern",
            "s_tir.StmtSimplify",
            "tirx.RemoveNoOp",
        ],
    )


def llvm_target(target: CpuTarget) -> Any:
    """TVM's target: this machine's CPU, or the least one with the requested vector set."""
    import tvm

    machine = _LEAST_CPUS[target.vector_set] if target.vector_set else {"mcpu": _cpu_name()}
    if target.mcpu:
        machine = {**machine, "mcpu": target.mcpu}
    if target.present:  # the system's own triple, under which the kernel is loaded
        machine = {name: value for name, value in machine.items() if name != "mtriple"}
    return tvm.target.Target({"kind": "llvm", **machine, "num-cores": target.threads})


_LEAST_CPUS: dict[str, dict[str, object]] = {
    "avx512": {"mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64-v4"},
    "avx2": {"mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64-v3"},
    "neon": {"mtriple": "aarch64-unknown-linux-gnu", "mcpu": "generic", "mattr": ["+neon"]},
}


@cache
def _cpu_name() -> str:
    """LLVM's name of this machine's CPU."""
    import tvm

    return str(tvm.get_global_func("target.llvm_get_system_cpu")())


def assembly(artifact: Artifact) -> str:
    """The machine code of a CPU artifact as text, without what the loader adds."""
    return str(module_of(artifact.source).inspect_source("asm"))


def describe(buffer: Any) -> Argument:
    """A buffer of a PrimFunc as plain data."""
    return Argument(buffer.name, str(buffer.dtype), tuple(extent(size) for size in buffer.shape))


def extent(expression: Any) -> int | Extent:
    """A size in terms of the batch, ``ceil(n · times / over)``, or of another symbol: found from its divisors,
    then checked. A product of several is taken apart."""
    import tvm_ffi
    from tvm import sym, tirx

    if isinstance(expression, tirx.IntImm):
        return int(expression)
    symbols: list[Any] = []
    divisors = [1]
    tvm_ffi.structural_walk(
        expression,
        [(tirx.Var, symbols.append), (tirx.FloorDiv, lambda division: divisors.append(int(division.b)))],
    )

    def at(number: int) -> int:
        analyzer = sym.Analyzer()
        for symbol in symbols:
            analyzer.bind(symbol, tirx.IntImm("int32", number))
        return int(analyzer.simplify(expression))

    for over in divisors if len({symbol.name for symbol in symbols}) == 1 else ():
        found = Extent(times=at(over), over=over, of=str(symbols[0].name))
        tried = {*range(1, 50), over + 1, 2 * over - 1, 2 * over, 2 * over + 1, 97}
        if all(found.at(number) == at(number) for number in tried):
            return found
    if isinstance(expression, tirx.Mul):
        return product(extent(expression.a), extent(expression.b))
    raise BuildError(f"the size {expression} is not a multiple of {symbols[0].name}")


def telling_line(error: BaseException) -> str:
    """The line of an exception with the error: TVM's messages begin with a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error:" in line or "Check failed" in line]
    return ((telling or lines or [type(error).__name__])[0])[:300]
