"""The right answer of a block, and the error that a kernel is allowed.

Everything is computed in float64. Beside each value goes a bound on the error that float32 arithmetic may leave in it;
what is computed of values takes their errors along, to first order. Near a kink of an activation, as near as the error
of what it is applied to, either derivative is right.

    forward    x ─norm1─► z1 ─act1─► a ─conv─► y ─norm2─► z2 ─act2─► z          in inference with given statistics
    backward   dz ─act2′(z2)─► d2 ─norm2─► g2 ─dgrad─► t ─act1′(z1)─► d1 ─norm1─► dx,  dw = wgrad(a, g2)

After a frozen norm g2 = scale · d2, and of y only Σ d2 · y is needed, for dγ2. It is Σ w · wgrad(a, d2) over the taps,
since y is a sum of w · a: kernels need no y for it.

A LayerNorm after the convolution takes y as it is stored: so do kernels in both passes, and PyTorch's op. The backward
pass of an InstanceNorm computes its statistics again, of what it is given.

Tensors have PyTorch's shapes, and those of channels (C,), or (N, C) of the channels of each image.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dwconv.problems.block import Activation, LayerNorm, Norm
from dwconv.problems.workload import DType, Pass, Workload

ROUNDING = 2.0**-24
"""The relative error of one float32 operation."""
_SHORT_SUM = 8.0
"""Rounding errors of a sum of n terms grow like sqrt(n), if they are independent; the constant covers short sums."""
_FEW = 8.0
"""Roundings of what is no sum."""
_STORE_ROUNDING: dict[DType, float] = {"float32": ROUNDING, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""The relative error of storing a number."""
SMALLEST_STEP: dict[DType, float] = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
"""What numbers below the smallest normal one of a type are rounded to."""
_SMALLEST_STEP = SMALLEST_STEP["float32"]


@dataclass(frozen=True, kw_only=True)
class ActivationBounds:
    """What of an activation bounds errors."""

    apply: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]
    steepest: float
    """Its derivative is at most so large."""
    most_curved: float
    """The derivative changes by at most so much for each unit, but for the kinks."""
    kinks: tuple[tuple[float, float], ...] = ()
    """Where the derivative jumps, and by how much."""


def _silu_derivative(z: Tensor) -> Tensor:
    sigmoid = torch.sigmoid(z)
    return sigmoid * (1 + z * torch.sigmoid(-z))


def _gelu_derivative(z: Tensor) -> Tensor:
    return 0.5 * torch.erfc(-z / math.sqrt(2)) + z * torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)


KINDS: dict[Activation, ActivationBounds] = {
    "identity": ActivationBounds(apply=lambda z: z, derivative=torch.ones_like, steepest=1, most_curved=0),
    "relu": ActivationBounds(
        apply=F.relu, derivative=lambda z: (z > 0).to(z.dtype), steepest=1, most_curved=0, kinks=((0, 1),)
    ),
    "relu6": ActivationBounds(
        apply=F.relu6,
        derivative=lambda z: ((z > 0) & (z < 6)).to(z.dtype),
        steepest=1,
        most_curved=0,
        kinks=((0, 1), (6, 1)),
    ),
    "hardswish": ActivationBounds(
        apply=F.hardswish,
        derivative=lambda z: torch.where(z <= -3, 0.0, torch.where(z < 3, z / 3 + 0.5, 1.0)).to(z.dtype),
        steepest=1.5,
        most_curved=1 / 3,
        kinks=((-3, 0.5), (3, 0.5)),
    ),
    "silu": ActivationBounds(apply=F.silu, derivative=_silu_derivative, steepest=1.1, most_curved=0.5),
    "gelu": ActivationBounds(apply=F.gelu, derivative=_gelu_derivative, steepest=1.13, most_curved=0.8),
}


@dataclass(frozen=True)
class About:
    """Numbers, and how far a kernel's may be off, to first order."""

    value: Tensor
    error: Tensor

    @property
    def magnitude(self) -> Tensor:
        return self.value.abs() + self.error


def stored(dtype: DType, value: Tensor, error: Tensor) -> Tensor:
    """The error of numbers that are rounded to a type when they already have ``error``."""
    return error + _STORE_ROUNDING[dtype] * (value.abs() + error) + SMALLEST_STEP[dtype]


def results(workload: Workload, *inputs: Tensor, convolve: Callable[..., Tensor]) -> dict[str, About]:
    """Every result by its name. ``convolve``: the pass of a convolution's workload in float64."""
    given = {name: tensor.double() for name, tensor in zip(workload.inputs, inputs, strict=True)}
    block = _Block(workload, given, convolve)
    return block.backward() if workload.pass_ == "backward" else block.forward()


@dataclass(frozen=True)
class _Block:
    workload: Workload
    given: dict[str, Tensor]
    convolve: Callable[..., Tensor]

    def forward(self) -> dict[str, About]:
        block, given = self.workload.block, self.given
        assert block is not None
        found: dict[str, About] = {}
        before = _exact(given["x"])
        if block.norm1:
            found["mean1"], found["var1"] = self._statistics(before, block.norm1, "1")
            before = self._normalised(before, block.norm1, "1", found["mean1"], found["var1"])
        a = _activated(block.act1, before)
        y = self._convolved("fprop", a, _exact(given["w"]), terms=math.prod(self.workload.kernel))
        found["y"] = y = self._with_bias(y)
        if block.layer_norm:
            pixels = _Pixels.of(self._read(y), block.layer_norm)
            found["z"] = pixels.normalised(*(_over_space(given[name], y) for name in ("gamma2", "beta2")))
        elif norm2 := block.batch_norm2:
            found["mean2"], found["var2"] = self._statistics(y, norm2, "2")
            read = y if norm2.is_frozen else self._read(y)
            z2 = self._normalised(read, norm2, "2", found["mean2"], found["var2"])
            found["z"] = _activated(block.act2, z2)
        return found

    def backward(self) -> dict[str, About]:
        workload, block, given = self.workload, self.workload.block, self.given
        assert block is not None
        found: dict[str, About] = {}
        if block.layer_norm:
            pixels = _Pixels.of(_exact(given["y"]), block.layer_norm)
            dz = given["dz"]
            g2 = pixels.gradient(dz, _over_space(given["gamma2"], pixels.off))
            found["dgamma2"], found["dbeta2"] = _sum(pixels.slopes(dz)), _sum(_exact(dz))
            found["dbias"] = _sum(g2)
        elif norm2 := block.batch_norm2:
            d2 = self._after_norm2(norm2)
            if not norm2.is_frozen:
                g2, found["dgamma2"], found["dbeta2"] = self._before_norm(d2, d2, _exact(given["y"]), norm2, "2")
        else:
            g2 = _exact(given["dy"])
        z1 = x = _exact(given["x"])
        if block.norm1:
            z1 = self._normalised(x, block.norm1, "1", *self._statistics(x, block.norm1, "1"))
        a = _activated(block.act1, z1)
        is_frozen2 = block.batch_norm2 is not None and block.batch_norm2.is_frozen
        if is_frozen2:
            g2 = d2
        t = self._convolved("dgrad", g2, _exact(given["w"]), terms=math.prod(workload.kernel))
        found["dw"] = self._convolved("wgrad", a, g2, terms=math.prod(workload.output_size) * workload.batch)
        if block.batch_norm2 and is_frozen2:
            scale, found["dgamma2"], found["dbeta2"] = self._of_frozen2(block.batch_norm2, d2, found["dw"])
            t = _product(_spread_out(scale, t), t)
            of_taps = About(*(each.view(-1, *(1,) * (1 + workload.axes)) for each in (scale.value, scale.error)))
            found["dw"] = _product(of_taps, found["dw"])
        d1 = found["dx"] = _through(block.act1, z1, t)
        if block.norm1 and block.norm1.is_frozen:
            off = self._off(x, "1")
            scale, inverse = self._scale(block.norm1, "1")
            found["dgamma1"] = _product(inverse, _sum(_product(d1, off)))
            found["dbeta1"], found["dx"] = _sum(d1), _product(_spread_out(scale, d1), d1)
        elif block.norm1:
            found["dx"], found["dgamma1"], found["dbeta1"] = self._before_norm(d1, self._kept(d1), x, block.norm1, "1")
        return found

    def _after_norm2(self, norm: Norm) -> About:
        """The gradient of what the second norm gives."""
        block, given = self.workload.block, self.given
        assert block is not None
        dz = _exact(given["dz"])
        if not block.kept:
            return dz
        if block.kept == "z":
            return _exact(dz.value * KINDS[block.act2].derivative(given["z"]))
        y = _exact(given["y"])
        return _through(block.act2, self._normalised(y, norm, "2", *self._statistics(y, norm, "2")), dz)

    def _of_frozen2(self, norm: Norm, d2: About, dw: About) -> tuple[About, About, About]:
        """γ / √(var + eps), and the gradients of γ and β. ``dw``: that of ``d2``."""
        scale, inverse = self._scale(norm, "2")
        total = _sum(d2)
        products = _product(_exact(self.given["w"]), dw)
        of_y = _sum(About(*(part.movedim(0, 1) for part in (products.value, products.error))))
        of_mean = _product(_exact(self.given["mean2"]), total)
        rounded = ROUNDING * (of_y.magnitude + of_mean.magnitude)
        dot = About(of_y.value - of_mean.value, of_y.error + of_mean.error + rounded)
        return scale, _product(inverse, dot), total

    def _scale(self, norm: Norm, number: str) -> tuple[About, About]:
        """γ / √(var + eps), and it without γ."""
        value = 1 / (self.given[f"var{number}"] + norm.eps).sqrt()
        inverse = About(value, _FEW * ROUNDING * value)
        return _product(_exact(self.given[f"gamma{number}"]), inverse), inverse

    def _off(self, x: About, number: str) -> About:
        """x − mean"""
        mean = _over_space(self.given[f"mean{number}"], x)
        return About(x.value - mean, x.error + ROUNDING * (x.value.abs() + mean.abs()))

    def _statistics(self, x: About, norm: Norm, number: str) -> tuple[About, About]:
        if norm.is_of_images:
            return _moments(x, _of_an_image(x.value))
        if self.workload.pass_ == "forward" and not norm.is_frozen:
            return _moments(x, _all_but_channels(x.value))
        return _exact(self.given[f"mean{number}"]), _exact(self.given[f"var{number}"])

    def _read(self, y: About) -> About:
        """As the second norm reads it: from memory, or where it was summed."""
        return self._kept(y) if self.workload.pass_ == "forward" else y

    def _convolved(self, pass_: Pass, first: About, second: About, *, terms: int) -> About:
        """A pass of the convolution: of what it is given, of the errors, and of its own roundings."""
        workload = dataclasses.replace(self.workload.convolution(pass_), bias=False)
        value = self.convolve(workload, first.value, second.value)
        carried = self.convolve(workload, first.error, second.magnitude)
        carried = carried + self.convolve(workload, first.value.abs(), second.error)
        magnitude = self.convolve(workload, first.value.abs(), second.value.abs())
        own = ROUNDING * (_SHORT_SUM + math.sqrt(terms)) * (magnitude + carried) + terms * _SMALLEST_STEP
        return About(value, carried + own)

    def _with_bias(self, y: About) -> About:
        if not self.workload.bias:
            return y
        value = y.value + _over_space(self.given["bias"], y)
        return About(value, y.error + ROUNDING * (value.abs() + y.error))

    def _kept(self, image: About) -> About:
        if self.workload.dtype == "float32":
            return image
        return About(image.value, stored(self.workload.dtype, image.value, image.error))

    def _normalised(self, x: About, norm: Norm, number: str, mean: About, var: About) -> About:
        """γ · (x − mean) / √(var + eps) + β, which kernels compute as x · scale + shift."""
        gamma, beta = (_over_space(self.given[f"{name}{number}"], x) for name in ("gamma", "beta"))
        mean, var = _spread_out(mean, x), _spread_out(var, x)
        scale = gamma / (var.value + norm.eps).sqrt()
        of_scale = var.error / (2 * (var.value + norm.eps)) + _FEW * ROUNDING
        centred = x.value - mean.value
        moved = scale.abs() * (x.error + mean.error + of_scale * centred.abs())
        terms = (scale * x.value).abs() + (scale * mean.value).abs() + beta.abs()
        return About(scale * centred + beta, moved + _FEW * ROUNDING * terms + _SMALLEST_STEP)

    def _before_norm(self, d: About, kept: About, x: About, norm: Norm, number: str) -> tuple[About, About, About]:
        """The gradient of a norm's input, of γ and of β; ``d``: the gradient of its result, of which sums are taken;
        ``kept``: the same as it is read again.

        scale · (d − Σd / N − (x − mean) · Σ(d · (x − mean)) / (var + eps) / N)"""
        gamma, (mean, var) = self.given[f"gamma{number}"], self._statistics(x, norm, number)
        axes = _of_an_image(x.value) if norm.is_of_images else _all_but_channels(x.value)
        count = _count(x.value, axes)
        inverse = 1 / (var.value + norm.eps).sqrt()
        of_scale = var.error / (2 * (var.value + norm.eps))
        centred, off = x.value - _over_space(mean.value, x), _over_space(mean.error, x)
        size = x.value.abs() + _over_space(mean.value, x).abs()
        dbeta = _sum(d, axes)
        product = About(d.value * centred, d.error * centred.abs() + d.value.abs() * (off + _FEW * ROUNDING * size))
        dot = _sum(product, axes)
        dgamma = About(
            dot.value * inverse, dot.error * inverse + (_FEW * ROUNDING + of_scale) * (dot.value * inverse).abs()
        )
        scale, inverse, of_scale = (_over_space(each, x) for each in (gamma * inverse, inverse, of_scale))
        first, second = _spread_out(dbeta, x), _spread_out(dot, x)
        value = scale * (d.value - first.value / count - centred * inverse**2 * second.value / count)
        carried = kept.error + first.error / count + centred.abs() * inverse**2 * second.error / count
        carried = carried + off * inverse**2 * second.value.abs() / count
        terms = d.value.abs() + first.value.abs() / count + size * inverse**2 * second.value.abs() / count
        dx = About(value, scale.abs() * (carried + (2 * _FEW * ROUNDING + 3 * of_scale) * terms) + _SMALLEST_STEP)
        return (dx, _sum(dgamma, (0,)), _sum(dbeta, (0,))) if norm.is_of_images else (dx, dgamma, dbeta)


@dataclass(frozen=True, kw_only=True)
class _Pixels:
    """What LayerNorm takes from each pixel: y − its mean over the channels, and one over its deviation. Kernels sum
    squares about the mean, so that no sum is larger than the pixel's spread makes it."""

    off: About
    inverse: About

    @classmethod
    def of(cls, y: About, norm: LayerNorm) -> _Pixels:
        rounding = _rounding_of_means(y.value)
        mean = y.value.mean(1, keepdim=True)
        of_mean = y.error.mean(1, keepdim=True) + rounding * y.magnitude.mean(1, keepdim=True)
        off = About(y.value - mean, y.error + of_mean + ROUNDING * (y.value - mean).abs())
        var = (off.value**2).mean(1, keepdim=True)
        terms = 2 * off.value.abs() * off.error + off.error**2
        of_var = terms.mean(1, keepdim=True) + (rounding + _FEW * ROUNDING) * var
        inverse = 1 / (var + norm.eps).sqrt()
        most = 1 / ((var - of_var).clamp(min=0) + norm.eps).sqrt()
        return cls(off=off, inverse=About(inverse, most - inverse + _FEW * ROUNDING * most))

    def normalised(self, gamma: Tensor, beta: Tensor) -> About:
        """γ · (y − mean) / σ + β"""
        share = self._shares()
        rounded = _FEW * ROUNDING * ((gamma * share.value).abs() + beta.abs())
        return About(gamma * share.value + beta, gamma.abs() * share.error + rounded + _SMALLEST_STEP)

    def slopes(self, dz: Tensor) -> About:
        """What of dγ comes from each pixel: dz · (y − mean) / σ"""
        share = self._shares()
        return About(dz * share.value, dz.abs() * (share.error + _FEW * ROUNDING * share.value.abs()))

    def gradient(self, dz: Tensor, gamma: Tensor) -> About:
        """(dz · γ − mean of dz · γ − (y − mean) · mean of (dz · γ · (y − mean)) / σ²) / σ"""
        off, inverse, rounding = self.off, self.inverse, _rounding_of_means(dz) + _FEW * ROUNDING
        scaled = dz * gamma
        mean = About(scaled.mean(1, keepdim=True), rounding * scaled.abs().mean(1, keepdim=True))
        of_dot = scaled.abs() * (off.error + rounding * off.value.abs())
        dot = About((scaled * off.value).mean(1, keepdim=True), of_dot.mean(1, keepdim=True))
        along = _product(off, _product(dot, _product(inverse, inverse)))
        inner = scaled - mean.value - along.value
        terms = scaled.abs() + mean.value.abs() + along.value.abs()
        found = _product(About(inner, mean.error + along.error + _FEW * ROUNDING * terms), inverse)
        return About(found.value, found.error + _SMALLEST_STEP)

    def _shares(self) -> About:
        return _product(self.off, self.inverse)


def _rounding_of_means(image: Tensor) -> float:
    return ROUNDING * (_SHORT_SUM + math.sqrt(image.shape[1]))


def _product(first: About, second: About) -> About:
    value = first.value * second.value
    carried = first.error * second.magnitude + first.value.abs() * second.error
    return About(value, carried + _FEW * ROUNDING * value.abs())


def _spread_out(channels: About, x: About) -> About:
    return About(_over_space(channels.value, x), _over_space(channels.error, x))


def _exact(value: Tensor) -> About:
    return About(value, torch.zeros_like(value))


def _moments(x: About, axes: tuple[int, ...]) -> tuple[About, About]:
    """The mean of each channel over ``axes``, and its variance. Kernels sum what is left beside a pixel of the channel,
    or of a part of it, so that no sum is larger than the channel's spread makes it."""
    mean = x.value.mean(axes)
    off = (x.value - _over_space(mean, x)).abs()
    spread = off + _over_space(off.amax(axes), x)
    rounding = ROUNDING * (_SHORT_SUM + math.sqrt(_count(x.value, axes)))
    of_mean = x.error.mean(axes) + rounding * spread.mean(axes) + _FEW * ROUNDING * mean.abs()
    carried = x.error + _over_space(of_mean, x)
    of_var = (2 * off * carried + carried**2).mean(axes) + rounding * (spread**2).mean(axes) + _SMALLEST_STEP
    return About(mean, of_mean), About((off**2).mean(axes), of_var)


def _sum(x: About, axes: tuple[int, ...] | None = None) -> About:
    """Over ``axes``; by default all but that of the channels."""
    axes = axes or _all_but_channels(x.value)
    count = _count(x.value, axes)
    own = ROUNDING * (_SHORT_SUM + math.sqrt(count)) * x.magnitude.sum(axes) + count * _SMALLEST_STEP
    return About(x.value.sum(axes), x.error.sum(axes) + own)


def _count(image: Tensor, axes: tuple[int, ...]) -> int:
    """Elements along these axes."""
    return math.prod(image.shape[axis] for axis in axes)


def _activated(act: Activation, z: About) -> About:
    kind = KINDS[act]
    a = kind.apply(z.value)
    own = 0.0 if act in ("identity", "relu", "relu6") else _FEW * ROUNDING * (a.abs() + _SMALLEST_STEP)
    if act == "gelu":  # whose 1 + erf(z) cancels out for negative z, in PyTorch, too
        own = own + _FEW * ROUNDING * z.value.abs()
    return About(a, kind.steepest * z.error + own)


def _through(act: Activation, z: About, gradient: About) -> About:
    """``gradient`` · act′(z)"""
    kind = KINDS[act]
    slope = kind.derivative(z.value)
    off = kind.most_curved * z.error + (0.0 if kind.most_curved == 0 else _FEW * ROUNDING * (1 + slope.abs()))
    for at, jump in kind.kinks:
        off = off + jump * ((z.value - at).abs() <= z.error)
    return About(gradient.value * slope, gradient.error * (slope.abs() + off) + gradient.value.abs() * off)


def _over_space(channels: Tensor, like: About) -> Tensor:
    return channels.view(*channels.shape, *(1,) * (like.value.dim() - 2))


def _all_but_channels(image: Tensor) -> tuple[int, ...]:
    return (0, *_of_an_image(image))


def _of_an_image(image: Tensor) -> tuple[int, ...]:
    """The axes of its pixels."""
    return tuple(range(2, image.dim()))
