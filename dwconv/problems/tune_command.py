"""A workload as it is named on a command line."""

from __future__ import annotations

from collections.abc import Sequence

from dwconv.problems.workload import Pass, Sizes, Workload, resolve_padding


def tune_command(workload: Workload, passes: Sequence[Pass] | None = None) -> str:
    """The command that tunes ``workload``, or several of its passes."""
    return f"python -m dwconv.tune {workload_options(workload)} --passes {','.join(passes or [workload.pass_])}"


def workload_options(workload: Workload) -> str:
    """The options that name a workload on a command line: ``--shape 8,144,56,56 --kernel 3``.

    Options at their default are left out, the pass too.
    """
    options = ["--shape", ",".join(map(str, workload.input_shape)), "--kernel", short_sizes(workload.kernel)]
    for name in ("stride", "dilation"):
        if any(size != 1 for size in getattr(workload, name)):
            options += [f"--{name}", short_sizes(getattr(workload, name))]
    sizes = {"kernel": workload.kernel, "stride": workload.stride, "dilation": workload.dilation}
    if workload.padding != resolve_padding(None, **sizes):
        befores, afters = zip(*workload.padding, strict=True)
        sides = ",".join(f"{before},{after}" for before, after in workload.padding)
        options += ["--padding", short_sizes(befores) if befores == afters else sides]
    for name, usual in (("multiplier", 1), ("dtype", "float32"), ("layout", "nchw")):
        if getattr(workload, name) != usual:
            options += [f"--{name}", str(getattr(workload, name))]
    options += ["--bias"] * workload.bias
    options += ["--epilogue", workload.epilogue] * (workload.epilogue != "none")
    return " ".join(options + ["--block", str(workload.block)] * (workload.block is not None))


def short_sizes(sizes: Sizes) -> str:
    """``3`` for (3, 3), ``3,5`` for (3, 5)."""
    return ",".join(map(str, sizes[:1] if len(set(sizes)) == 1 else sizes))
