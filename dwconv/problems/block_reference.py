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

from torch import Tensor

from dwconv.problems.block import LayerNorm, Norm
from dwconv.problems.rounding import (
    FEW,
    KINDS,
    ROUNDING,
    SHORT_SUM,
    SMALLEST,
    About,
    activated,
    all_but_channels,
    count_along,
    exact,
    moments,
    over_pixels,
    pixel_axes,
    product,
    rounding_of_means,
    spread_out,
    stored,
    sum_of,
    through,
)
from dwconv.problems.workload import Pass, Workload


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
        before = exact(given["x"])
        if block.norm1:
            found["mean1"], found["var1"] = self._statistics(before, block.norm1, "1")
            before = self._normalised(before, block.norm1, "1", found["mean1"], found["var1"])
        a = activated(block.act1, before)
        y = self._convolved("fprop", a, exact(given["w"]), terms=math.prod(self.workload.kernel))
        found["y"] = y = self._with_bias(y)
        if block.layer_norm:
            pixels = _Pixels.of(self._read(y), block.layer_norm)
            found["z"] = pixels.normalised(*(over_pixels(given[name], y) for name in ("gamma2", "beta2")))
        elif norm2 := block.batch_norm2:
            found["mean2"], found["var2"] = self._statistics(y, norm2, "2")
            read = y if norm2.is_frozen else self._read(y)
            z2 = self._normalised(read, norm2, "2", found["mean2"], found["var2"])
            found["z"] = activated(block.act2, z2)
        return found

    def backward(self) -> dict[str, About]:
        workload, block, given = self.workload, self.workload.block, self.given
        assert block is not None
        found: dict[str, About] = {}
        if block.layer_norm:
            pixels = _Pixels.of(exact(given["y"]), block.layer_norm)
            dz = given["dz"]
            g2 = pixels.gradient(dz, over_pixels(given["gamma2"], pixels.off))
            found["dgamma2"], found["dbeta2"] = sum_of(pixels.slopes(dz)), sum_of(exact(dz))
            found["dbias"] = sum_of(g2)
        elif norm2 := block.batch_norm2:
            d2 = self._after_norm2(norm2)
            if not norm2.is_frozen:
                g2, found["dgamma2"], found["dbeta2"] = self._before_norm(d2, d2, exact(given["y"]), norm2, "2")
        else:
            g2 = exact(given["dy"])
        z1 = x = exact(given["x"])
        if block.norm1:
            z1 = self._normalised(x, block.norm1, "1", *self._statistics(x, block.norm1, "1"))
        a = activated(block.act1, z1)
        is_frozen2 = block.batch_norm2 is not None and block.batch_norm2.is_frozen
        if is_frozen2:
            g2 = d2
        t = self._convolved("dgrad", g2, exact(given["w"]), terms=math.prod(workload.kernel))
        found["dw"] = self._convolved("wgrad", a, g2, terms=math.prod(workload.output_size) * workload.batch)
        if block.batch_norm2 and is_frozen2:
            scale, found["dgamma2"], found["dbeta2"] = self._of_frozen2(block.batch_norm2, d2, found["dw"])
            t = product(spread_out(scale, t), t)
            of_taps = About(*(each.view(-1, *(1,) * (1 + workload.axes)) for each in (scale.value, scale.error)))
            found["dw"] = product(of_taps, found["dw"])
        d1 = found["dx"] = through(block.act1, z1, t)
        if block.norm1 and block.norm1.is_frozen:
            off = self._off(x, "1")
            scale, inverse = self._scale(block.norm1, "1")
            found["dgamma1"] = product(inverse, sum_of(product(d1, off)))
            found["dbeta1"], found["dx"] = sum_of(d1), product(spread_out(scale, d1), d1)
        elif block.norm1:
            found["dx"], found["dgamma1"], found["dbeta1"] = self._before_norm(d1, self._kept(d1), x, block.norm1, "1")
        return found

    def _after_norm2(self, norm: Norm) -> About:
        """The gradient of what the second norm gives."""
        block, given = self.workload.block, self.given
        assert block is not None
        dz = exact(given["dz"])
        if not block.kept:
            return dz
        if block.kept == "z":
            return exact(dz.value * KINDS[block.act2].derivative(given["z"]))
        y = exact(given["y"])
        return through(block.act2, self._normalised(y, norm, "2", *self._statistics(y, norm, "2")), dz)

    def _of_frozen2(self, norm: Norm, d2: About, dw: About) -> tuple[About, About, About]:
        """γ / √(var + eps), and the gradients of γ and β. ``dw``: that of ``d2``."""
        scale, inverse = self._scale(norm, "2")
        total = sum_of(d2)
        products = product(exact(self.given["w"]), dw)
        of_y = sum_of(About(*(part.movedim(0, 1) for part in (products.value, products.error))))
        of_mean = product(exact(self.given["mean2"]), total)
        rounded = ROUNDING * (of_y.magnitude + of_mean.magnitude)
        dot = About(of_y.value - of_mean.value, of_y.error + of_mean.error + rounded)
        return scale, product(inverse, dot), total

    def _scale(self, norm: Norm, number: str) -> tuple[About, About]:
        """γ / √(var + eps), and it without γ."""
        value = 1 / (self.given[f"var{number}"] + norm.eps).sqrt()
        inverse = About(value, FEW * ROUNDING * value)
        return product(exact(self.given[f"gamma{number}"]), inverse), inverse

    def _off(self, x: About, number: str) -> About:
        """x − mean"""
        mean = over_pixels(self.given[f"mean{number}"], x)
        return About(x.value - mean, x.error + ROUNDING * (x.value.abs() + mean.abs()))

    def _statistics(self, x: About, norm: Norm, number: str) -> tuple[About, About]:
        if norm.is_of_images:
            return moments(x, pixel_axes(x.value))
        if self.workload.pass_ == "forward" and not norm.is_frozen:
            return moments(x, all_but_channels(x.value))
        return exact(self.given[f"mean{number}"]), exact(self.given[f"var{number}"])

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
        own = ROUNDING * (SHORT_SUM + math.sqrt(terms)) * (magnitude + carried) + terms * SMALLEST
        return About(value, carried + own)

    def _with_bias(self, y: About) -> About:
        if not self.workload.bias:
            return y
        value = y.value + over_pixels(self.given["bias"], y)
        return About(value, y.error + ROUNDING * (value.abs() + y.error))

    def _kept(self, image: About) -> About:
        if self.workload.dtype == "float32":
            return image
        return About(image.value, stored(self.workload.dtype, image.value, image.error))

    def _normalised(self, x: About, norm: Norm, number: str, mean: About, var: About) -> About:
        """γ · (x − mean) / √(var + eps) + β, which kernels compute as x · scale + shift."""
        gamma, beta = (over_pixels(self.given[f"{name}{number}"], x) for name in ("gamma", "beta"))
        mean, var = spread_out(mean, x), spread_out(var, x)
        scale = gamma / (var.value + norm.eps).sqrt()
        of_scale = var.error / (2 * (var.value + norm.eps)) + FEW * ROUNDING
        centred = x.value - mean.value
        moved = scale.abs() * (x.error + mean.error + of_scale * centred.abs())
        terms = (scale * x.value).abs() + (scale * mean.value).abs() + beta.abs()
        return About(scale * centred + beta, moved + FEW * ROUNDING * terms + SMALLEST)

    def _before_norm(self, d: About, kept: About, x: About, norm: Norm, number: str) -> tuple[About, About, About]:
        """The gradient of a norm's input, of γ and of β; ``d``: the gradient of its result, of which sums are taken;
        ``kept``: the same as it is read again.

        scale · (d − Σd / N − (x − mean) · Σ(d · (x − mean)) / (var + eps) / N)"""
        gamma, (mean, var) = self.given[f"gamma{number}"], self._statistics(x, norm, number)
        axes = pixel_axes(x.value) if norm.is_of_images else all_but_channels(x.value)
        count = count_along(x.value, axes)
        inverse = 1 / (var.value + norm.eps).sqrt()
        of_scale = var.error / (2 * (var.value + norm.eps))
        centred, off = x.value - over_pixels(mean.value, x), over_pixels(mean.error, x)
        size = x.value.abs() + over_pixels(mean.value, x).abs()
        dbeta = sum_of(d, axes)
        product = About(d.value * centred, d.error * centred.abs() + d.value.abs() * (off + FEW * ROUNDING * size))
        dot = sum_of(product, axes)
        dgamma = About(
            dot.value * inverse, dot.error * inverse + (FEW * ROUNDING + of_scale) * (dot.value * inverse).abs()
        )
        scale, inverse, of_scale = (over_pixels(each, x) for each in (gamma * inverse, inverse, of_scale))
        first, second = spread_out(dbeta, x), spread_out(dot, x)
        value = scale * (d.value - first.value / count - centred * inverse**2 * second.value / count)
        carried = kept.error + first.error / count + centred.abs() * inverse**2 * second.error / count
        carried = carried + off * inverse**2 * second.value.abs() / count
        terms = d.value.abs() + first.value.abs() / count + size * inverse**2 * second.value.abs() / count
        dx = About(value, scale.abs() * (carried + (2 * FEW * ROUNDING + 3 * of_scale) * terms) + SMALLEST)
        return (dx, sum_of(dgamma, (0,)), sum_of(dbeta, (0,))) if norm.is_of_images else (dx, dgamma, dbeta)


@dataclass(frozen=True, kw_only=True)
class _Pixels:
    """What LayerNorm takes from each pixel: y − its mean over the channels, and one over its deviation. Kernels sum
    squares about the mean, so that no sum is larger than the pixel's spread makes it."""

    off: About
    inverse: About

    @classmethod
    def of(cls, y: About, norm: LayerNorm) -> _Pixels:
        rounding = rounding_of_means(y.value)
        mean = y.value.mean(1, keepdim=True)
        of_mean = y.error.mean(1, keepdim=True) + rounding * y.magnitude.mean(1, keepdim=True)
        off = About(y.value - mean, y.error + of_mean + ROUNDING * (y.value - mean).abs())
        var = (off.value**2).mean(1, keepdim=True)
        terms = 2 * off.value.abs() * off.error + off.error**2
        of_var = terms.mean(1, keepdim=True) + (rounding + FEW * ROUNDING) * var
        inverse = 1 / (var + norm.eps).sqrt()
        most = 1 / ((var - of_var).clamp(min=0) + norm.eps).sqrt()
        return cls(off=off, inverse=About(inverse, most - inverse + FEW * ROUNDING * most))

    def normalised(self, gamma: Tensor, beta: Tensor) -> About:
        """γ · (y − mean) / σ + β"""
        share = self._shares()
        rounded = FEW * ROUNDING * ((gamma * share.value).abs() + beta.abs())
        return About(gamma * share.value + beta, gamma.abs() * share.error + rounded + SMALLEST)

    def slopes(self, dz: Tensor) -> About:
        """What of dγ comes from each pixel: dz · (y − mean) / σ"""
        share = self._shares()
        return About(dz * share.value, dz.abs() * (share.error + FEW * ROUNDING * share.value.abs()))

    def gradient(self, dz: Tensor, gamma: Tensor) -> About:
        """(dz · γ − mean of dz · γ − (y − mean) · mean of (dz · γ · (y − mean)) / σ²) / σ"""
        off, inverse, rounding = self.off, self.inverse, rounding_of_means(dz) + FEW * ROUNDING
        scaled = dz * gamma
        mean = About(scaled.mean(1, keepdim=True), rounding * scaled.abs().mean(1, keepdim=True))
        of_dot = scaled.abs() * (off.error + rounding * off.value.abs())
        dot = About((scaled * off.value).mean(1, keepdim=True), of_dot.mean(1, keepdim=True))
        along = product(off, product(dot, product(inverse, inverse)))
        inner = scaled - mean.value - along.value
        terms = scaled.abs() + mean.value.abs() + along.value.abs()
        found = product(About(inner, mean.error + along.error + FEW * ROUNDING * terms), inverse)
        return About(found.value, found.error + SMALLEST)

    def _shares(self) -> About:
        return product(self.off, self.inverse)
