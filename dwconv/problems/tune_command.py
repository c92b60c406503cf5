"""A workload as it is named on a command line."""

from __future__ import annotations

from collections.abc import Sequence

from dwconv.problems.workload import Pass, Workload, resolve_padding


def tune_command(workload: Workload, passes: Sequence[Pass] | None = None) -> str:
    """The command that tunes ``workload``, or several of its passes."""
    return f"python -m dwconv.tune {workload_options(workload)} --passes {','.join(passes or [workload.pass_])}"


def workload_options(workload: Workload) -> str:
    """The options that name a workload on a command line: ``--shape 8,144,56,56 --kernel 3``.

    Options at their default are left out, the pass too.
    """
    usual = Workload(pass_="fprop", batch=1, channels=1, input_size=(1, 1), kernel=(1, 1))
    options = ["--shape", ",".join(map(str, workload.input_shape)), "--kernel", short_pair(workload.kernel)]
    for name in ("stride", "dilation"):
        if getattr(workload, name) != getattr(usual, name):
            options += [f"--{name}", short_pair(getattr(workload, name))]
    sizes = {"kernel": workload.kernel, "stride": workload.stride, "dilation": workload.dilation}
    if workload.padding != resolve_padding(None, **sizes):
        (top, bottom), (left, right) = workload.padding
        even = (top, left) == (bottom, right)
        options += ["--padding", short_pair((top, left)) if even else f"{top},{bottom},{left},{right}"]
    for name in ("multiplier", "dtype", "layout"):
        if getattr(workload, name) != getattr(usual, name):
            options += [f"--{name}", str(getattr(workload, name))]
    return " ".join(options + ["--bias"] * workload.bias)


def short_pair(pair: tuple[int, int]) -> str:
    """``3`` for (3, 3), ``3,5`` for (3, 5)."""
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]},{pair[1]}"
