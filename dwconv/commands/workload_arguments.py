"""The arguments that name a workload, and the target, on a command line."""

from __future__ import annotations

import argparse
import dataclasses
import math
from typing import TYPE_CHECKING

from dwconv.commands.command_line import integers, whole
from dwconv.errors import InvalidChoice, InvalidWorkload
from dwconv.problems.as_written import along, resolve_padding, transposed_size
from dwconv.problems.block import Block
from dwconv.problems.workload import (
    ALL_PASSES,
    BLOCK_PASSES,
    DTYPES,
    EPILOGUES,
    EVAL_PASSES,
    LAYOUTS,
    PASSES,
    TRANSPOSED,
    Padding,
    Pass,
    Sizes,
    Workload,
    by,
)

if TYPE_CHECKING:
    from dwconv.problems.target import Target

_NO_ELEMENTS = 2**31
_NO_TAPS = 2**40
"""Pairs of a row of the output and a row of the kernel, or of columns."""


def add_workload_arguments(parser: argparse.ArgumentParser, *, shape_required: bool = True) -> None:
    """Add ``--shape`` … ``--layout`` and ``--target``; ``workload_from`` and ``parse_target`` read them."""
    group = parser.add_argument_group("workload")
    shape, kernel = "shape of the input; give 1-D as N,C,1,L", "kernel size, such as 3 or 1,31"
    padding = (
        "default (kernel-1)*dilation/2 rounded down: what keeps the size for an odd kernel; in 3-D PD,PH,PW, or "
        "FRONT,BACK before the others"
    )
    block = (
        "norms and activations fused with the convolution, such as bn+relu6,bn+relu6; its passes are forward and "
        "backward, in evaluation inference; default none"
    )
    group.add_argument("--shape", metavar="N,C,H,W|N,C,D,H,W", required=shape_required, help=shape)
    group.add_argument("--kernel", metavar="K|KH,KW|KD,KH,KW", required=shape_required, help=kernel)
    group.add_argument("--stride", metavar="S|SH,SW|SD,SH,SW", default="1", help="default 1")
    group.add_argument("--padding", metavar="P|PH,PW|TOP,BOTTOM,LEFT,RIGHT|same|valid", help=padding)
    group.add_argument("--dilation", metavar="D|DH,DW|DD,DH,DW", default="1", help="default 1")
    multiplier = "output channels per channel, default 1"
    group.add_argument("--multiplier", metavar="M", type=whole, default=1, help=multiplier)
    group.add_argument("--dtype", default="float32", metavar="|".join(DTYPES), help="default float32")
    layout = "layout of tensors in memory; nhwc is channels_last"
    group.add_argument("--layout", default="nchw", metavar="|".join(LAYOUTS), help=layout)
    group.add_argument("--bias", action="store_true", help="fprop adds a bias, wgrad also gives its gradient")
    epilogue = "applied to fprop's sums before they are stored; default none"
    group.add_argument("--epilogue", default="none", metavar="|".join(EPILOGUES), help=epilogue)
    group.add_argument("--block", metavar="BEFORE,AFTER", help=block)
    transposed = "a transposed convolution: the passes of the convolution that undoes it, whose dgrad is its fprop"
    group.add_argument("--transposed", action="store_true", help=transposed)
    over = "of a transposed one, what its output is larger by; default 0"
    group.add_argument("--output-padding", metavar="P|PH,PW|PD,PH,PW", default="0", help=over)
    target = "the device; with a GPU's architecture or a CPU's vectors, what to compile for; default auto"
    parser.add_argument("--target", default="auto", metavar="auto|cpu|cuda|cuda:sm_90|cpu:avx2", help=target)
    arithmetic = "CUDA: flush denormals, divide approximately; default IEEE arithmetic"
    parser.add_argument("--fast-math", action="store_true", help=arithmetic)


def workload_from(args: argparse.Namespace, pass_: str | None) -> Workload:
    """The workload that the arguments name, for one pass, by default its first. Raises InvalidWorkload."""
    shape = integers("shape", args.shape)
    if len(shape) not in (4, 5):
        raise InvalidWorkload(
            f"shape={args.shape} has {len(shape)} sizes, not 4 (N,C,H,W) or 5 (N,C,D,H,W); give 1-D as N,C,1,L"
        )
    batch, channels = shape[:2]
    size = tuple(shape[2:])
    kernel, stride, dilation = (
        along(name, integers(name, getattr(args, name)), axes=len(size)) for name in ("kernel", "stride", "dilation")
    )
    padding = _padding(args.padding, kernel=kernel, stride=stride, dilation=dilation)
    if args.transposed:
        size = _transposed(args, size, kernel=kernel, stride=stride, padding=padding, dilation=dilation)
        channels *= args.multiplier
    elif args.output_padding != "0":
        raise InvalidWorkload(f"output_padding={args.output_padding} goes with --transposed; leave it out")
    block = Block.parse(args.block) if args.block is not None else None
    problem = Workload(
        pass_="forward" if block else "fprop",
        batch=batch,
        channels=channels,
        input_size=size,
        kernel=kernel,
        multiplier=1 if args.transposed else args.multiplier,
        stride=stride,
        padding=padding,
        dilation=dilation,
        dtype=args.dtype,
        layout=args.layout,
        bias=args.bias,
        epilogue=args.epilogue,
        block=block,
    )
    _check_elements(problem)
    named = checked_pass(pass_) if pass_ else problem.pass_
    if not args.transposed:
        return problem.for_pass(named)
    if named not in TRANSPOSED:
        raise InvalidWorkload(f"pass={named}: a transposed convolution has {', '.join(TRANSPOSED)}")
    return problem.for_pass(TRANSPOSED[named])


def _transposed(
    args: argparse.Namespace, size: Sizes, *, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> Sizes:
    """The size of images of the convolution whose dgrad the transposed one of the arguments is. Raises
    InvalidWorkload."""
    for name, usual in (("bias", False), ("epilogue", "none"), ("block", None)):
        if getattr(args, name) != usual:
            raise InvalidWorkload(f"{name}={getattr(args, name)}: kernels of transposed layers have none; leave it out")
    over = along("output_padding", integers("output_padding", args.output_padding), axes=len(size))
    if any(not 0 <= more < step for more, step in zip(over, stride, strict=True)):
        raise InvalidWorkload(
            f"output_padding={args.output_padding} is not from 0 on and below stride={by(stride)}, as kernels need it"
        )
    made = transposed_size(
        size, kernel=kernel, stride=stride, padding=padding, output_padding=over, dilation=dilation
    )  # fmt: skip
    if min(made) < 1 or min(size) < 1:
        raise InvalidWorkload(f"shape={args.shape} makes an output of {by(made)}; use a larger input or less padding")
    return made


def _check_elements(problem: Workload) -> None:
    """Raises InvalidWorkload for tensors that no kernel can index."""
    for name in ("x", "w", "y"):
        if math.prod(shape := problem.shape_of(name)) >= _NO_ELEMENTS:
            raise InvalidWorkload(f"{name} of {by(shape)} has more elements than kernels can index; use smaller sizes")
    if any(out * taps >= _NO_TAPS for out, taps in zip(problem.output_size, problem.kernel, strict=True)):
        raise InvalidWorkload(f"kernel={by(problem.kernel)} is too large for an output of {by(problem.output_size)}")


def with_arithmetic(args: argparse.Namespace, target: Target) -> Target:
    """``target`` with the arithmetic of the arguments."""
    if not args.fast_math:
        return target
    from dwconv.problems.target import CudaTarget

    if not isinstance(target, CudaTarget):
        raise InvalidChoice(f"--fast-math is for CUDA, the target is {target}; leave it out, or use cuda:sm_90")
    return dataclasses.replace(target, fast_math=True)


def checked_pass(name: str) -> Pass:
    """``name`` if it is a pass. Raises InvalidWorkload."""
    for known in ALL_PASSES:
        if name == known:
            return known
    raise InvalidWorkload(
        f"pass={name} is unknown; use one of {', '.join(PASSES)}, and of a block "
        f"{' or '.join((*BLOCK_PASSES, *EVAL_PASSES))}"
    )


def _padding(text: str | None, *, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Padding:
    given = text if text in (None, "same", "valid") else integers("padding", str(text))
    if isinstance(given, tuple) and len(given) == 2 * len(kernel):
        return tuple(zip(given[::2], given[1::2], strict=True))
    return resolve_padding(given, kernel=kernel, stride=stride, dilation=dilation)
