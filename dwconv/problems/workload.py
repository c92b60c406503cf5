"""Workload: one pass of one depthwise convolution; its sizes, its FLOPs, its bytes, its key.

Spatial sizes are ``(height, width)`` or, in 3-D, ``(depth, height, width)``; a 1-D convolution is one of height 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from dwconv.errors import InvalidWorkload
from dwconv.problems.block import NOTHING, Block
from dwconv.system.forks import cached_property

Pass = Literal["fprop", "dgrad", "wgrad", "forward", "backward", "inference"]
"""The passes of a convolution, and those of a block, which has a convolution inside: two of training, and one of
evaluation."""
Layout = Literal["nchw", "nhwc"]
DType = Literal["float32", "float16", "bfloat16"]
Epilogue = Literal["none", "silu", "silu_gradient"]
"""What fprop makes of its sums z before it stores them: nothing; y = silu(z); or, from dy, the gradient
dz = dy · silu′(z), for which z is computed again rather than kept."""
Pair = tuple[int, int]
Sizes = tuple[int, ...]
"""A number for each axis: (height, width) or (depth, height, width)."""
Padding = tuple[Pair, ...]
"""(before, after) for each axis."""

PASSES: tuple[Pass, ...] = ("fprop", "dgrad", "wgrad")
TRANSPOSED: dict[Pass, Pass] = {"fprop": "dgrad", "dgrad": "fprop", "wgrad": "wgrad"}
"""The pass of a convolution that each pass of a transposed one is: it computes x from y."""
BLOCK_PASSES: tuple[Pass, ...] = ("forward", "backward")
"""Of a block that trains."""
EVAL_PASSES: tuple[Pass, ...] = ("inference",)
"""Of one in evaluation."""
ALL_PASSES = (*PASSES, *BLOCK_PASSES, *EVAL_PASSES)
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
DTYPES: tuple[DType, ...] = get_args(DType)
EPILOGUES: tuple[Epilogue, ...] = get_args(Epilogue)
ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}

AXES = ("depth", "height", "width")
"""The names of axes; 2-D has the last two."""
SIDES = ("front", "back", "top", "bottom", "left", "right")
"""Those of the sides that padding is on; 2-D has the last four."""

IMAGES = ("x", "dx", "y", "dy", "z", "dz")
"""Tensors with a batch, which have the workload's layout; the others are parameters of the layer."""
_TENSORS: dict[tuple[Pass, bool], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("fprop", False): (("x", "w"), ("y",)),
    ("fprop", True): (("x", "w", "bias"), ("y",)),
    ("dgrad", False): (("dy", "w"), ("dx",)),
    ("wgrad", False): (("x", "dy"), ("dw",)),
    ("wgrad", True): (("x", "dy"), ("dw", "dbias")),
}
"""Inputs and results of a pass, without a bias and with one, in calling order."""
_READ_AGAIN: dict[Pass, tuple[list[str], list[str]]] = {
    "forward": (["x"], ["y"]),
    "backward": (["x", "dx", "dx"], ["dz", "y"]),
    "inference": ([], []),
}
"""Images that a pass of a block moves once more for its first norm, and for its second, where these have the statistics
of the batch."""
_MAY_BE_ABSENT = ("bias", "epilogue", "block", "x_pitch", "any_size", "any_channels", "also_at")
"""Fields that are written only where they have another value than the default."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One pass (``fprop``, ``dgrad``, ``wgrad``) of one depthwise convolution.

    ``input_size``, ``kernel``, ``stride`` and ``dilation`` are (height, width); ``padding`` is
    ((top, bottom), (left, right)). In 3-D each begins with that of the depth, and layouts mean NCDHW and NDHWC.
    Output channel ``c * multiplier + m`` is computed from input channel ``c``.
    With ``bias``, fprop adds a bias and wgrad also gives its gradient, the sum of dy in each channel; dgrad has none.
    ``epilogue``: what fprop does with its sums before it stores them; the other passes have none.
    ``block``: the norms and activations around the convolution in ``forward``, ``backward`` and ``inference``, its
    passes.
    ``x_pitch``: x is a slice of the channels of a dense tensor of that many, in x's layout; 0: x is dense itself.
    Records are of dense tensors, and hold for slices; only kernels are built for one.
    ``any_size``: the kernel takes the sizes of images with each call; ``input_size`` is one of them, for which it is
    cut. Its record has the time there; with ``also_at``, those of these sizes as well.
    ``any_channels``: it takes the number of channels, too, from a vector of them on: as many as a register holds, or as
    ``channels`` fill, if these are fewer.
    Raises InvalidWorkload, naming the value, if this is no convolution.
    """

    pass_: Pass
    batch: int
    channels: int
    input_size: Sizes
    kernel: Sizes
    multiplier: int = 1
    stride: Sizes = (1, 1)
    padding: Padding = ((0, 0), (0, 0))
    dilation: Sizes = (1, 1)
    dtype: DType = "float32"
    layout: Layout = "nchw"
    bias: bool = False
    epilogue: Epilogue = "none"
    block: Block | None = None
    x_pitch: int = 0
    any_size: bool = False
    any_channels: bool = False
    also_at: tuple[Sizes, ...] = ()

    def __post_init__(self) -> None:
        _one_of("pass", self.pass_, (*BLOCK_PASSES, *EVAL_PASSES) if self.block else PASSES)
        _one_of("epilogue", self.epilogue, EPILOGUES)
        if self.epilogue != "none" and self.pass_ != "fprop":
            raise InvalidWorkload(f"epilogue={self.epilogue}: {self.pass_} has none; leave it out")
        _one_of("dtype", self.dtype, DTYPES)
        _one_of("layout", self.layout, LAYOUTS)
        if type(self.bias) is not bool:
            raise InvalidWorkload(f"bias={self.bias!r} must be true or false")
        if self.block and self.bias and not self.block.layer_norm:
            what = f"the block {self.block}"
            if (self.block, self.pass_) == (NOTHING, "backward"):
                what = "backward, both gradients in one kernel,"
            raise InvalidWorkload(f"bias=True: {what} has none; leave it out")
        if not self.block and (self.pass_, self.bias) not in _TENSORS:
            raise InvalidWorkload(f"bias={self.bias}: {self.pass_} does not depend on a bias; leave it out")
        for name in ("batch", "channels", "multiplier"):
            _at_least(name, getattr(self, name), 1)
        _at_least("x_pitch", self.x_pitch, self.channels + 1 if self.x_pitch else 0)
        if self.x_pitch and (self.block or "x" not in self.inputs):
            raise InvalidWorkload(f"x_pitch={self.x_pitch}: {self.pass_} reads no slice of x; leave it out")
        if self.any_size and self.block == NOTHING:
            raise InvalidWorkload("any_size=True: a kernel of both gradients is built for one size; leave it out")
        if self.also_at and not self.any_size:
            raise InvalidWorkload(f"also_at={self.also_at}: a kernel of one size runs at no other; leave it out")
        if self.any_channels and not (self.any_size and not self.x_pitch):
            raise InvalidWorkload("any_channels=True needs any_size=True and no x_pitch; leave it out")
        if self.axes not in (2, 3):
            raise InvalidWorkload(f"input_size={by(self.input_size)} is not (height, width) or (depth, height, width)")
        for name in ("kernel", "stride", "padding", "dilation"):
            if len(getattr(self, name)) != self.axes:
                raise InvalidWorkload(f"{name}={getattr(self, name)} is not of the {self.axes} axes of the input")
        for name in ("kernel", "stride", "dilation"):
            for value in getattr(self, name):
                _at_least(name, value, 1)
        for before, after in self.padding:
            _at_least("padding", before, 0)
            _at_least("padding", after, 0)
        self._check_size()
        for size in self.also_at:
            if len(size) != self.axes:
                raise InvalidWorkload(f"also_at={by(size)} is not of the {self.axes} axes of the input")
            dataclasses.replace(self, input_size=size, also_at=())

    def _check_size(self) -> None:
        if len(self.input_size) != len(self.kernel):
            raise InvalidWorkload(f"input_size={by(self.input_size)} has other axes than kernel={by(self.kernel)}")
        for value in self.input_size:
            _at_least("input_size", value, 1)
        for axis, out in zip(AXES[-self.axes :], self.output_size, strict=True):
            if out < 1:
                raise InvalidWorkload(
                    f"kernel={by(self.kernel)} with dilation={by(self.dilation)} is larger than the padded input "
                    f"{by(self.input_size)} in {axis}; use a smaller kernel or more padding"
                )

    # -- tensors -----------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors that the pass reads, in calling order; of a block ``Block.inputs``."""
        if self.block:
            return self.block.inputs(self.pass_, bias=self.bias)
        of_pass = _TENSORS[self.pass_, self.bias][0]
        return (*of_pass, "dy") if self.epilogue == "silu_gradient" else of_pass

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the tensors that it writes, which follow the inputs; of a block ``Block.results``."""
        if self.block:
            return self.block.results(self.pass_, bias=self.bias)
        return ("dz",) if self.epilogue == "silu_gradient" else _TENSORS[self.pass_, self.bias][1]

    def shape_of(self, name: str) -> tuple[int, ...]:
        """PyTorch's shape of a tensor, whatever the layout in memory: (N, C, H, W) of x and dx, (N, C·multiplier, OH,
        OW) of y, dy, z and dz, (C·multiplier, 1, KH, KW) of w and dw, (C·multiplier,) of bias and dbias, and of what
        norms have of each channel; in 3-D with D, OD and KD before the height."""
        if name in ("x", "dx"):
            return self.input_shape
        if name in IMAGES:
            return self.output_shape
        return (self.out_channels, 1, *self.kernel) if name in ("w", "dw") else (self.out_channels,)

    def dtype_of(self, name: str) -> DType:
        """The type of a tensor: what norms have of each channel is float32, whatever images and parameters of the
        convolution are."""
        of_convolution = name in IMAGES or name in ("w", "dw", "bias", "dbias")
        return self.dtype if self.block is None or of_convolution else "float32"

    # -- sizes -------------------------------------------------------------------------------------------------

    @property
    def axes(self) -> int:
        return len(self.input_size)

    @property
    def is_row(self) -> bool:
        """Whether it is 1-D: images and kernels of height 1, which stays so."""
        return self.axes == 2 and self.input_size[0] == self.output_size[0] == self.kernel[0] == 1

    @property
    def out_channels(self) -> int:
        return self.channels * self.multiplier

    @property
    def result_channels(self) -> int:
        """Those of the image whose pixels a kernel goes through."""
        return self.channels if self.pass_ in ("dgrad", "backward") else self.out_channels

    @property
    def output_size(self) -> Sizes:
        """(height, width) of the output, or (depth, height, width)."""
        return tuple(
            (size + sum(pad) - dilation * (kernel - 1) - 1) // stride + 1
            for size, pad, dilation, kernel, stride in zip(
                self.input_size, self.padding, self.dilation, self.kernel, self.stride, strict=True
            )
        )

    @property
    def result_size(self) -> Sizes:
        """That of the image whose pixels a kernel goes through: dx, y or, in wgrad, dy."""
        return self.input_size if self.pass_ in ("dgrad", "backward") else self.output_size

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(N, C, H, W) of x and dx, in 3-D (N, C, D, H, W), whatever the layout in memory."""
        return (self.batch, self.channels, *self.input_size)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """(N, C·multiplier, OH, OW) of y and dy, in 3-D with OD before them, whatever the layout in memory."""
        return (self.batch, self.out_channels, *self.output_size)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """(C·multiplier, KH, KW) of w and dw: PyTorch's weight without its axis of size 1."""
        return (self.out_channels, *self.kernel)

    # -- work --------------------------------------------------------------------------------------------------

    @property
    def flops(self) -> int:
        """Multiplications and additions on taps inside the input, the same in every pass of a convolution; with a bias,
        one more addition for each output. A backward pass of a block has twice as many; its norms and activations are
        not counted."""
        taps = math.prod(self._taps_in_bounds(axis) for axis in range(self.axes)) * (1 + (self.pass_ == "backward"))
        return 2 * self.batch * self.out_channels * taps + self.bias * math.prod(self.output_shape)

    @property
    def bytes(self) -> int:
        """Least traffic: every input and every result moved once; in a block an image once more for each time that all
        of it must be read before it is used."""
        moved = [*self.inputs, *self.results]
        if self.block:  # statistics come before what they normalise; gradients of norms are sums
            norms = (self.block.norm1, self.block.batch_norm2)
            for norm, again in zip(norms, _READ_AGAIN[self.pass_], strict=True):
                moved += again if norm and norm.statistics == "batch" else []
        return sum(ITEMSIZE[self.dtype_of(name)] * math.prod(self.shape_of(name)) for name in moved)

    def _taps_in_bounds(self, axis: int) -> int:
        """Pairs of (output position, tap) along ``axis`` that read inside the input."""
        size, before = self.input_size[axis], self.padding[axis][0]
        outs, taps = (self.output_size[axis], self.stride[axis]), (self.kernel[axis], self.dilation[axis])
        (few, far), (many, near) = sorted((outs, taps))
        reaches = (before - step * far for step in range(few))
        return sum(max(0, min(many, (size - 1 + reach) // near + 1) - max(0, -(-reach // near))) for reach in reaches)

    # -- names -------------------------------------------------------------------------------------------------

    @property
    def op(self) -> str:
        """The torch op that runs it, as a profile shows it: ``dwconv::dgrad``, of a block ``dwconv::block_forward``."""
        return f"dwconv::{'block_' * (self.block not in (None, NOTHING))}{self.pass_}"

    @property
    def key(self) -> str:
        """A stable, readable name: ``fprop-n8-c144-56x56-k3x3-s1x1-p1x1-d1x1-m1-float32-nhwc``, then ``-bias``, then
        ``-silu`` or ``-bn+relu6,bn+relu6``, then ``-pitch288``, then ``-any``, then ``-channels``."""
        return f"{self.pass_}-n{self.batch}-{self._batchless()}"

    @property
    def batchless_key(self) -> str:
        """The key without the batch size: what one kernel can run."""
        return f"{self.pass_}-{self._batchless()}"

    @property
    def layer(self) -> str:
        """The key without the batch and input sizes: what a layer has in common at every size."""
        return f"{self.pass_}-c{self.channels}-{self._sizeless}"

    @property
    def layer_kind(self) -> str:
        """The key without batch, sizes and channels: what a kernel that takes all of them with each call is built
        for."""
        sizeless = self._sizeless.removesuffix("-channels").removesuffix("-any")
        return f"{self.pass_}-{'row-' * self.is_row}{sizeless}"

    def _batchless(self) -> str:
        return f"c{self.channels}-{_key(self.input_size)}-{self._sizeless}"

    @cached_property
    def _sizeless(self) -> str:
        padding = "x".join(str(a) if a == b else f"{a}.{b}" for a, b in self.padding)
        return (
            f"k{_key(self.kernel)}-s{_key(self.stride)}-p{padding}"
            f"-d{_key(self.dilation)}-m{self.multiplier}-{self.dtype}-{self.layout}{'-bias' * self.bias}"
            f"{'' if self.epilogue == 'none' else f'-{self.epilogue}'}{f'-{self.block}' if self.block else ''}"
            f"{f'-pitch{self.x_pitch}' if self.x_pitch else ''}{'-any' * self.any_size}"
            f"{'-channels' * self.any_channels}"
        )

    def for_pass(self, pass_: Pass) -> Workload:
        """Another pass of the problem. Start from fprop: dgrad drops the facts of bias and x, and only fprop has an
        epilogue. ``backward`` of a convolution alone is both gradients in one kernel, that of a block of ``NOTHING``
        else. It raises InvalidWorkload if there is a bias, whose gradient it does not give.
        """
        has_bias = pass_ in BLOCK_PASSES or (pass_, True) in _TENSORS
        bias, epilogue = self.bias and has_bias, self.epilogue if pass_ == "fprop" else "none"
        x_pitch = self.x_pitch if pass_ not in ("dgrad", "backward") else 0
        block = self.block or (NOTHING if pass_ == "backward" else None)
        return dataclasses.replace(self, pass_=pass_, bias=bias, epilogue=epilogue, x_pitch=x_pitch, block=block)

    def convolution(self, pass_: Pass) -> Workload:
        return dataclasses.replace(self, pass_="fprop", block=None).for_pass(pass_)

    def with_epilogue(self, epilogue: Epilogue) -> Workload:
        return dataclasses.replace(self, epilogue=epilogue)

    def with_any_size(self) -> Workload:
        """The workload of kernels that take the sizes of images with each call. Raises InvalidWorkload where there are
        none."""
        return dataclasses.replace(self, any_size=True)

    @property
    def of_one_size(self) -> Workload:
        return dataclasses.replace(self, any_size=False, also_at=()) if self.any_size else self

    @property
    def at_each_size(self) -> tuple[Workload, ...]:
        """The workload alone; or with ``also_at`` one of each of the sizes that it is measured at, its own first."""
        alone = dataclasses.replace(self, also_at=()) if self.also_at else self
        return (alone, *(alone.with_input_size(size) for size in self.also_at))

    def with_input_size(self, input_size: Sizes) -> Workload:
        """The problem at another size, alone. Raises InvalidWorkload if the kernel is larger."""
        made = object.__new__(Workload)  # a training step may meet a new size: all else was checked, and is kept
        made.__dict__.update(self.__dict__, input_size=input_size, also_at=())
        made._check_size()
        return made

    @property
    def image_sizes(self) -> dict[str, int]:
        """What kernels of any size take, by the names that these sizes have in their shapes: ``d``, ``h`` and ``w`` of
        x, ``od``, ``oh`` and ``ow`` of y; and ``c``, the channels of the result."""
        names = "dhw"[-self.axes :]
        of_x = dict(zip(names, self.input_size, strict=True))
        of_y = {f"o{name}": size for name, size in zip(names, self.output_size, strict=True)}
        return of_x | of_y | {"c": self.result_channels}

    def with_batch(self, batch: int) -> Workload:
        return dataclasses.replace(self, batch=batch)

    def to_dict(self) -> dict[str, Any]:
        """Plain integers, strings and lists; ``Workload.from_dict`` reads it back. Some fields are written only if they
        have another value than in logs from before they were there."""
        fields = dataclasses.asdict(self) | {"block": str(self.block) if self.block else None}
        for name in _MAY_BE_ABSENT:
            if fields[name] == getattr(Workload, name):
                del fields[name]
        return {"pass": fields.pop("pass_"), **fields}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Workload:
        """The workload that ``to_dict`` wrote. Raises InvalidWorkload for a missing, unknown or malformed field."""
        try:
            given = {name: _as_tuples(value) for name, value in fields.items()}
            block = Block.parse(given.pop("block")) if "block" in given else None
            return cls(pass_=given.pop("pass"), block=block, **given)
        except InvalidWorkload:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidWorkload(f"not a workload: {error}") from None


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidWorkload(f"{name}={value} is unknown; use one of {', '.join(known)}")


def _at_least(name: str, value: object, least: int) -> None:
    if type(value) is not int or value < least:
        raise InvalidWorkload(f"{name}={value!r} must be a whole number of at least {least}")


def by(sizes: Iterable[int]) -> str:
    """Sizes as text: ``8×144×56×56``."""
    return "×".join(map(str, sizes))


def _key(sizes: Sizes) -> str:
    return "x".join(map(str, sizes))
