"""Options: what is unknown is refused in one line that says what there is."""

from __future__ import annotations

import pytest

from dwconv.concurrency.choosing.options import Options, read
from dwconv.errors import InvalidChoice


@pytest.mark.parametrize(
    "given, said",
    [
        ({"strategies": ("S1", "S9")}, "strategy 'S9' is unknown; use any of S1, S2, S3, S4, gradients"),
        ({"strategies": 3}, "strategies=3 is not a list of names"),
        ({"strategies": [1]}, "strategy 1 is unknown"),
        ({"model": "guess"}, "model 'guess' is unknown; use one of hill_climbing, regression"),
        ({"model": 7}, "option model=7 is not a name"),
        ({"workers": 0}, "workers=0 is too few"),
        ({"workers": 2.5}, "option workers=2.5 is not a whole number"),
        ({"memory": -0.1}, "memory=-0.1 is negative"),
        ({"memory": float("nan")}, "memory=nan is negative"),
        ({"seconds": "x"}, "option seconds='x' is not a number of seconds"),
        ({"fall_back": 1}, "option fall_back=1 is not True or False"),
        (
            {"schedule": "S7"},
            "schedule 'S7' is unknown; use plain, gradients, strategies such as S1+S3, or random:SEED",
        ),
        ({"schedule": "S1+S1"}, "schedule 'S1+S1' is unknown"),
        ({"schedule": "S1+gradients"}, "is unknown"),
        ({"schedule": "random:"}, "schedule 'random:' is unknown"),
        ({"schedule": "random:x"}, "schedule 'random:x' is unknown"),
        ({"schedule": "random:-1"}, "schedule 'random:-1' is unknown"),
        ({"schedule": "random:²"}, "with a whole number"),
        ({"schedule": ""}, "schedule '' is unknown"),
        ({"schedule": "plain\n" * 99}, "is unknown"),
        ({"schedule": 3}, "option schedule=3 is not a name"),
        ({"strategy": "S1"}, "option 'strategy' is unknown; use any of fall_back, log, memory, model"),
        ({"a\nb" * 99: 1}, "unknown"),
    ],
)
def test_bad_options_are_refused_in_a_line(given, said):
    with pytest.raises(InvalidChoice) as caught:
        read(given)
    assert said in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_good_options_are_taken():
    assert read(None) == read({}) == Options()
    assert read({"strategies": "S1"}).strategies == ("S1",)
    found = read({"strategies": ["S3", "S1"], "model": "regression", "workers": 3, "memory": 0, "seconds": 2})
    assert (found.strategies, found.workers, found.memory) == (("S3", "S1"), 3, 0)
    assert found.asked == read({"strategies": ["S1", "S3"], "model": "regression", "workers": 3, "memory": 0}).asked
    assert found.asked != Options().asked
    for name in ("plain", "gradients", "S1", "S4", "S1+S3", "S3+S1", "random:0", "random:123456789012345678901"):
        assert read({"schedule": name}).schedule == name
