"""The link between the ranks: bandwidth and latency come out of the times of messages, the same on every rank."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from dwconv.errors import InvalidChoice
from dwconv.parallel.planning import measured_link as timing
from dwconv.parallel.planning.measured_link import measured_link
from tests.parallel.ranks import needs_gloo

pytestmark = needs_gloo


@pytest.mark.parametrize(
    ("gb_s", "both_ways", "latency_us", "most_s"),
    [
        (10, 0.4, 20, 1.5), (1.2, 1, 100, 5), (0.125, 0.5, 50, 8), (0.0125, 0.9, 100, 6), (0.001, 1, 9000, 12),
        (0.05, 0.5, 60_000, 40),
    ],
)  # fmt: skip
def test_bandwidth_and_latency_are_found_from_messages(one_rank, monkeypatch, gb_s, both_ways, latency_us, most_s):
    """On links of any speed, in some seconds. ``both_ways``: the share of the bandwidth that each way then gets."""
    spent_s = []

    def seconds(message, share=1.0):
        return latency_us / 1e6 + message.nbytes / (1e9 * gb_s * share)

    def message_s(message, *, count=1):
        spent_s.append(2 * count * seconds(message))
        return seconds(message)

    def both_ways_s(message, *, count):
        spent_s.append(count * seconds(message, both_ways))
        return seconds(message, both_ways)

    def sum_s(message):
        """On two ranks, of which each sends half of it twice, and adds and copies at 1 GB/s; it takes half as much."""
        spent_s.append(18 * seconds(message, both_ways))
        rounds_s = 2 * latency_us / 1e6 + message.nbytes / (1e9 * gb_s * both_ways)
        return rounds_s + message.nbytes / 1e9, message.nbytes / 2e9

    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(timing, "_message_s", message_s)
    monkeypatch.setattr(timing, "_both_ways_s", both_ways_s)
    monkeypatch.setattr(timing, "_sum_s", sum_s)
    found = measured_link()
    assert found.gb_s == pytest.approx(gb_s, rel=0.01)
    assert found.both_ways_gb_s == pytest.approx(both_ways * gb_s, rel=0.01)
    assert found.latency_us == pytest.approx(latency_us, rel=0.1, abs=5)
    assert found.summing_us_a_mb == pytest.approx(1000, rel=0.1, abs=5)
    assert found.crowding_us_a_mb == pytest.approx(500)
    assert sum(spent_s) < most_s


def of_this_link():
    return measured_link()


def test_all_ranks_find_the_same(two_ranks):
    first, second = two_ranks.run(of_this_link)
    assert first == second and first.gb_s >= first.both_ways_gb_s > 0 and first.latency_us > 0


def without_core(cores, threads):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(timing.os, "sched_getaffinity", lambda _: {*range(cores)})
        patched.setattr(torch, "get_num_threads", lambda: threads)
        return timing._without_core()


@pytest.mark.parametrize(
    ("cores", "threads", "share"), [(2, 1, 1.0), (1, 1, 1.0), (3, 1, 0.5), (4, 1, 0.0), (4, 2, 1.0)]
)
def test_ranks_have_a_core_beside_those_that_compute_or_not(two_ranks, cores, threads, share):
    assert two_ranks.run(without_core, cores, threads) == [share, share]


def where_all_cores_compute():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(timing, "_without_core", lambda: 1.0)
        return timing._sum_s(torch.zeros(2**18))


def test_a_sum_takes_its_cpu_time_where_all_cores_compute(two_ranks):
    first, second = two_ranks.run(where_all_cores_compute)
    assert first == second and all(seconds > 0 for seconds in first)


def exchanged():
    """What each rank has at the end of a message each way at once, and how long it took."""
    mine = torch.full((1000,), float(dist.get_rank()))
    taken_s = timing._both_ways_s(mine, count=3)
    return mine.unique().tolist(), taken_s


def test_both_ways_a_message_goes_in_each(two_ranks):
    first, second = two_ranks.run(exchanged)
    assert first[0] == [0.0] and second[0] == [1.0] and first[1] == second[1] > 0


def test_one_rank_has_no_link(one_rank):
    with pytest.raises(
        InvalidChoice, match="there is one rank, so there is no link; start more ranks, or state the link"
    ):
        measured_link()


def test_outside_of_a_job_there_is_none():
    with pytest.raises(InvalidChoice, match="has not joined a job"):
        measured_link()
