"""The link between the ranks: bandwidth and latency come out of the times of messages, the same on every rank."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from dwconv.errors import InvalidChoice
from dwconv.parallel.planning import measured_link as timing
from dwconv.parallel.planning.measured_link import measured_link
from tests.parallel.ranks import needs_gloo

pytestmark = needs_gloo


@pytest.mark.parametrize(
    ("gb_s", "latency_us", "most_s"),
    [(10, 20, 0.5), (1.2, 100, 3), (0.125, 50, 3), (0.0125, 100, 3), (0.001, 9000, 5), (0.05, 60_000, 20)],
)
def test_bandwidth_and_latency_are_found_from_messages(one_rank, monkeypatch, gb_s, latency_us, most_s):
    """On links of any speed, in some seconds."""
    spent_s = []

    def message_s(message, *, count=1):
        taken_s = latency_us / 1e6 + message.nbytes / (1e9 * gb_s)
        spent_s.append(2 * count * taken_s)
        return taken_s

    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(timing, "_message_s", message_s)
    found = measured_link()
    assert found.gb_s == pytest.approx(gb_s, rel=0.01)
    assert found.latency_us == pytest.approx(latency_us, rel=0.1, abs=5)
    assert sum(spent_s) < most_s


def of_this_link():
    return measured_link()


def test_all_ranks_find_the_same(two_ranks):
    first, second = two_ranks.run(of_this_link)
    assert first == second and first.gb_s > 0 and first.latency_us > 0


def test_one_rank_has_no_link(one_rank):
    with pytest.raises(
        InvalidChoice, match="there is one rank, so there is no link; start more ranks, or state the link"
    ):
        measured_link()


def test_outside_of_a_job_there_is_none():
    with pytest.raises(InvalidChoice, match="has not joined a job"):
        measured_link()
