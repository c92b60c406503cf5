"""What passes between processes."""

import dataclasses
import math

import msgspec
import pytest

from dwconv.kernels import entry
from dwconv.kernels.artifact import Argument, Extent
from dwconv.measure.measuring import Measured
from dwconv.records.record import Measurement, Verdict

TIME = Measurement(median_us=1.0, spread_us=0.0, rounds=3)
RIGHT = Verdict(right=True, max_error=0.0, allowed_error=math.inf)


@pytest.mark.parametrize(
    "value",
    [
        Measured(verdict=RIGHT, kernels=(TIME, TIME), providers={"onednn-nhwc": TIME}),
        Measured(),
        Argument("x", "float32", (Extent(), 3, Extent(times=2, over=3))),
        dataclasses.replace(TIME, median_us=2),  # a whole number is a number
        {"plain": (1, "data", None, b"bytes")},
    ],
)
def test_comes_out_as_it_went_in(value):
    assert entry.decode(entry.encode(value)) == value


@pytest.mark.parametrize(
    "wrong",
    [
        {"@": "Measured", "verdict": {"@": "Measurement", "median_us": 1.0, "spread_us": 0.0, "rounds": 3}},
        {"@": "Measured", "kernels": [1.5]},
        {"@": "Measured", "kernels": 1.5},
        {"@": "Measured", "providers": {"onednn-nhwc": "fast"}},
        {"@": "Measurement", "median_us": "1", "spread_us": 0.0, "rounds": 3},
        {"@": "Measurement", "median_us": 1.0, "spread_us": 0.0, "rounds": True},
        {"@": "Verdict", "right": 1, "max_error": 0.0, "allowed_error": 0.0},
        {"@": "Argument", "name": "x", "dtype": "float32", "shape": [1.5]},
        {"@": "Argument", "name": "x"},
        {"@": "Unheard", "of": 1},
        {"@": ["Measured"]},
    ],
)
def test_fields_of_other_types_are_no_message(wrong):
    with pytest.raises(ValueError, match="not a message"):
        entry.decode(msgspec.msgpack.encode(wrong))


def test_endless_nesting_is_no_message():
    with pytest.raises(ValueError, match="not a message"):
        entry.decode(b"\x91" * 100_000)
