"""Every workload has a CUDA template, and each of them a default that it may run."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dwconv.errors import NoTemplate
from dwconv.problems.block import Block
from dwconv.problems.workload import BLOCK_PASSES, DTYPES, ITEMSIZE, LAYOUTS, PASSES, DType, Layout, Pass, Workload
from dwconv.schedules.template import templates_for
from tests.schedules.cuda_layers import SM_90
from tests.schedules.test_cuda_block import BLOCKS, BOTH_GRADIENTS

CASES = [*itertools.product(PASSES, LAYOUTS), ("forward", "nhwc"), ("backward", "nhwc"), ("backward", "nchw")]


@st.composite
def workloads(draw: st.DrawFn, pass_: Pass, layout: Layout) -> Workload:
    """Small kernels and little padding, and once in a while much more."""
    is_block = pass_ in BLOCK_PASSES

    def pair(most: int, *, least: int = 1) -> st.SearchStrategy[tuple[int, int]]:
        return st.tuples(st.integers(least, most), st.integers(least, most))

    kernel = draw(pair(9) if is_block else pair(9) | pair(31))
    stride, dilation = draw(pair(9 if layout == "nhwc" else 3)), draw(pair(1 if is_block else 2))
    padding = draw(st.tuples(*[pair(5, least=0) if is_block else pair(3, least=0) | pair(15, least=0)] * 2))
    least = [max(0, d * (k - 1) - sum(pad)) for k, d, pad in zip(kernel, dilation, padding, strict=True)]
    size = tuple(at + more for at, more in zip(least, draw(pair(40)), strict=True))
    both = [BOTH_GRADIENTS] if pass_ == "backward" else []
    text = draw(st.sampled_from([*both, *(BLOCKS if layout == "nhwc" else [])])) if is_block else None
    return Workload(
        pass_=pass_, batch=1, channels=draw(st.sampled_from([1, 2, 3, 5, 8, 20, 30, 58, 96])), input_size=size,
        kernel=kernel, stride=stride, dilation=dilation, padding=padding, layout=layout,
        multiplier=1 if is_block else draw(st.sampled_from([1, 1, 2, 3])), dtype=draw(st.sampled_from(DTYPES)),
        block=Block.parse(text) if text else None,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("pass_", "layout"), CASES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_what_fits_has_a_default(pass_: Pass, layout: Layout, data: st.DataObject) -> None:
    workload = data.draw(workloads(pass_, layout))
    try:
        fitting = templates_for(workload, SM_90)
    except NoTemplate:
        assert (pass_, layout) == ("backward", "nchw"), "the others have one for every workload"
        return
    for template in fitting:
        space = template.space(workload, SM_90)
        assert space.why_illegal(space.default) is None, template.name
        threads = [space.default.to_dict().get(name, 1) for name in ("threads_c", "threads_w", "threads_h")]
        assert threads[-1] <= 64, "CUDA allows 64 threads on z"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [3, 20, 58, 96])
def test_a_thread_has_as_many_channels_as_whole_vectors_of_16_bytes_take(dtype: DType, channels: int) -> None:
    """No load is wider, and none goes from the channels of one pixel to those of the next."""
    of: list[tuple[Pass, str | None]] = [*((pass_, None) for pass_ in PASSES)]
    of += [("forward", BLOCKS[0]), ("backward", BLOCKS[0]), ("backward", BOTH_GRADIENTS)]
    seen = set()
    for pass_, text in of:
        workload = Workload(
            pass_=pass_, batch=1, channels=channels, input_size=(14, 14), kernel=(3, 3), padding=((1, 1), (1, 1)),
            layout="nhwc", dtype=dtype, block=Block.parse(text) if text else None,
        )  # fmt: skip
        most = 16 // ITEMSIZE[dtype]
        for template in templates_for(workload, SM_90):
            for knob in template.space(workload, SM_90).knobs:
                if knob.name == "vector_c":
                    seen.add(template.name)
                    assert all(lanes <= most and channels % lanes == 0 for lanes in knob.values), template.name
                    assert math.gcd(channels, most) in knob.values, template.name
    assert len(seen) >= 5
