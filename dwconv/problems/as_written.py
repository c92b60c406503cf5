"""Workloads as users write them: padding and sizes for each axis, and the command that tunes one."""

from __future__ import annotations

from collections.abc import Sequence

from dwconv.errors import InvalidWorkload
from dwconv.problems.workload import AXES, Padding, Pair, Pass, Sizes, Workload, by


def resolve_padding(padding: int | str | Sizes | None, *, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Padding:
    """Padding as PyTorch takes it: an int, one int for each axis, ``"same"`` or ``"valid"``; None keeps the size for
    odd kernels: (kernel−1)·dilation÷2, rounded down. Returns (before, after) for each axis."""
    spread = [dil * (k - 1) for k, dil in zip(kernel, dilation, strict=True)]
    if padding is None:
        return tuple((taps // 2, taps // 2) for taps in spread)
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding == "same":
        if any(step != 1 for step in stride):
            raise InvalidWorkload(f"padding=same needs stride 1, not {by(stride)}; give the padding as a number")
        return tuple((taps // 2, taps - taps // 2) for taps in spread)
    if isinstance(padding, str):
        raise InvalidWorkload(f"padding={padding!r} is unknown; use a number, 'same' or 'valid'")
    return tuple((side, side) for side in along("padding", padding, axes=len(kernel)))


def tensorflow_padding(size: int, *, kernel: int, stride: int, dilation: int) -> Pair:
    """Before and after, along an axis, where the output has ceil(size / stride) elements: as TensorFlow pads. The odd
    one is after."""
    both = max((-(-size // stride) - 1) * stride + dilation * (kernel - 1) + 1 - size, 0)
    return both // 2, both - both // 2


def transposed_size(
    size: Sizes, *, kernel: Sizes, stride: Sizes, padding: Padding, output_padding: Sizes, dilation: Sizes
) -> Sizes:
    """What a transposed convolution makes of ``size``: the size that a convolution with these numbers makes that of, if
    ``output_padding`` is below the stride."""
    return tuple(
        (size[axis] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1
        + output_padding[axis] - sum(padding[axis])
        for axis in range(len(size))
    )  # fmt: skip


def along(name: str, value: int | Sizes, *, axes: int) -> Sizes:
    """``3`` or ``(3, 5)`` as a number for each of ``axes``."""
    if isinstance(value, int):
        return (value,) * axes
    sizes = tuple(value)
    if len(sizes) not in (1, axes) or not all(type(size) is int for size in sizes):
        raise InvalidWorkload(f"{name}={value!r} is not one integer or {axes} ({', '.join(AXES[-axes:])})")
    return sizes * axes if len(sizes) == 1 else sizes


# -- on a command line ---------------------------------------------------------------------------------------------


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
