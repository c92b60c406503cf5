"""Tally: weights are distinguished as long as they exist, and make room when they are gone."""

from __future__ import annotations

import itertools

import torch

from dwconv.call import tally as tally_module
from dwconv.call.tally import Tally


def test_a_weight_at_the_address_of_an_earlier_one_counts_for_itself(monkeypatch):
    monkeypatch.setattr(tally_module, "id", lambda _: 7, raising=False)
    tally = Tally()
    gone, here = torch.ones(1), torch.ones(1)
    for _ in range(3):
        tally.count(gone, for_x=True, for_w=True)
    del gone
    tally.count(here, for_x=False, for_w=True)
    (counted,) = tally.counted()
    assert counted.weight is here and dict(counted.passes) == {"fprop": 1, "dgrad": 0, "wgrad": 1}


def test_weights_that_are_made_anew_in_every_call_fill_no_memory(monkeypatch):
    places = itertools.count()
    monkeypatch.setattr(tally_module, "id", lambda _: next(places), raising=False)
    tally = Tally()
    for _ in range(100):
        tally.count(torch.ones(1), for_x=False, for_w=False)
    assert len(tally._of_weights) <= 2 and tally.counted() == []
