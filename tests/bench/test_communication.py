"""bench communication: what is printed follows from what ranks measured, and ranks answer."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from bench import communication as bench
from bench import links
from bench.__main__ import main
from bench.communication import CommunicationJob, Pictures, summary
from dwconv.parallel import Communication
from dwconv.parallel.data.ways import CommunicationReport, WayTimes

CONTROL, DEFAULT = Communication(collective="after-backward"), Communication()
REDUNDANT, BFLOAT16 = Communication(collective="redundant", bucket_mb=5), Communication(compressed=True)


def times(way, exposed_ms, **more):
    exposed_us = 1e3 * exposed_ms
    return WayTimes(
        communication=way, step_us=100e3 + exposed_us, exposed_us=exposed_us, exposed_share=exposed_ms / 100, rounds=3,
        **more,
    )  # fmt: skip


def report(**changed):
    rows = (times(DEFAULT, 50), times(CONTROL, 80, transfer_us=70e3), times(BFLOAT16, 10), times(REDUNDANT, 30))
    facts = {"chosen": REDUNDANT, "reason": "", "world": 2, "gradient_bytes": 10, "local_us": 100e3, "rows": rows}
    return CommunicationReport(**{**facts, **changed})


def test_what_a_way_hides_is_counted_from_the_control():
    found = summary(report())
    assert found["hidden"] == pytest.approx(1 - 30 / 80) and found["chosen_exposed_ms"] == 30
    assert found["control_exposed_ms"] == 80 and found["default_exposed_ms"] == 50 and found["sum_ms"] == 70
    of_finals = summary(report(finals=(times(DEFAULT, 60), times(REDUNDANT, 20))))
    assert of_finals["hidden"] == pytest.approx(1 - 20 / 80) and of_finals["default_exposed_ms"] == 60


def test_the_best_exact_way_stands_beside_a_compressed_one():
    found = summary(report(chosen=BFLOAT16))
    assert found["hidden"] == pytest.approx(1 - 10 / 80)
    assert found["exact"] == str(REDUNDANT) and found["exact_hidden"] == pytest.approx(1 - 30 / 80)
    without = summary(REPORT_WITHOUT_CONTROL)
    assert without["hidden"] is without["sum_ms"] is without["exact_hidden"] is None
    assert summary(report(rows=(times(DEFAULT, 1), times(CONTROL, 0)), chosen=DEFAULT))["hidden"] == 0
    assert summary(report(rows=(times(DEFAULT, -9), times(CONTROL, 10)), chosen=DEFAULT))["hidden"] == 1


REPORT_WITHOUT_CONTROL = report(rows=(times(DEFAULT, 50), times(BFLOAT16, 10)), chosen=BFLOAT16)


def planted(job, found=None):
    found = found or report()
    link = {"link_gb_s": 0.12, "latency_us": 90.0, "sum_by_link_ms": 75.0, "told": "the table of ways"}
    about = {**asdict(job), "name": job.name}
    return {**about, **link, **summary(found), **asdict(found)}


def test_a_line_for_each_link_and_the_reason_where_there_is_none(monkeypatch, tmp_path, capsys):
    measured = bench.measured
    monkeypatch.setattr(bench, "measured", lambda job: planted(job) if job.rate == "loopback" else measured(job))
    monkeypatch.setattr(bench, "why_not", lambda: "links cannot be limited without tc")
    run = [
        "communication",
        "--model",
        "MobileNetV3-Large",
        "--ranks",
        "2",
        "--rates",
        "loopback,1",
        "--out",
        str(tmp_path),
    ]
    assert main(run) == 0
    out = capsys.readouterr().out
    assert "62%  redundant, buckets of 5 MiB\n" in out and "the table of ways" in out
    assert "1 Gbit/s    links cannot be limited without tc" in out
    (written,) = tmp_path.glob("communication-2-ranks-*.json")
    assert [row.get("failed") for row in json.loads(written.read_text())["rows"]] == [None, bench.why_not()]


def test_a_line_has_blanks_for_what_there_was_no_time_for():
    job = CommunicationJob(network="ResNet-50", batch=8, image=96, world=4, rate="0.1", seconds=100, steps=0)
    line = bench._line(planted(job, REPORT_WITHOUT_CONTROL))
    assert line.endswith("50.0     10.0         buckets of 1, then 25 MiB, as bfloat16")


def test_slow_links_get_the_larger_part_of_the_time(monkeypatch, tmp_path, capsys):
    """By what their steps take; and all of it is used, and little more."""
    now, taken = [0.0], {}
    monkeypatch.setattr(links.time, "monotonic", lambda: now[0])

    def measured(job):
        now[0] += job.seconds
        taken[job.network, job.world, job.rate] = job.seconds
        return {**planted(job), "told": ""}

    monkeypatch.setattr(bench, "measured", measured)
    assert main(["communication", "--rates", "1,0.1", "--seconds", "1500", "--out", str(tmp_path)]) == 0
    assert 1400 < now[0] <= 1501 and len(taken) == 8
    of_50 = [taken["ResNet-50", world, rate] for world, rate in ((2, "1"), (2, "0.1"), (4, "0.1"))]
    assert of_50[0] < of_50[1] / 3 < of_50[2] / 3
    assert taken["MobileNetV3-Large", 2, "0.1"] < of_50[1] / 2


def test_bad_input_is_one_line(capsys):
    for options, said in (
        (("--model", "Mamba-like"), "its inputs are no images"),
        (("--model", "VGG"), "write one of"),
        (("--seconds", "1"), "too short for a network; give "),
    ):
        assert main(["communication", *options]) == 2
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1
    for option, said in (("--ranks=1,2", "has one rank, which sends nothing"), ("--batch=0", "--batch")):
        with pytest.raises(SystemExit):
            main(["communication", option])
        assert said in capsys.readouterr().err


def test_pictures_are_of_their_size_and_differ():
    pictures = Pictures(4, size=8)
    assert len(pictures) == 4 and all(pictures[index][0].shape == (3, 8, 8) for index in range(4))
    assert not pictures[0][0].equal(pictures[1][0])


@pytest.mark.slow
@pytest.mark.parametrize("rate", ["loopback", "1"])
def test_two_ranks_answer(rate):
    """The bytes that leave a rank are those that the collective has, with little more."""
    if rate != "loopback" and links.why_not():
        pytest.skip(links.why_not())
    of_job = {"network": "MobileNetV3-Large", "batch": 2, "image": 32, "world": 2, "rate": rate, "steps": 2}
    for seconds in (40.0, 160.0, 640.0):  # more on a busy machine
        row = bench.measured(CommunicationJob(**of_job, seconds=seconds))
        if "failed" not in row:
            break
    assert row["link_gb_s"] > 0 and row["local_ms"] > 0 and row["reason"] in row["told"]
    if rate == "loopback":
        assert row["seen_bytes"] is None and set(row["waiting"]) == {"plain", "prefetch"}
        return
    assert row["link_gb_s"] < 0.14 and not row["waiting"]
    sent = {json.dumps(each["communication"]): each["sent_bytes"] for each in row["rows"]}
    chosen = json.dumps(row["chosen"])
    assert row["seen_bytes"] > 0.99 * sent[chosen]
    if '"powersgd_rank": null' in chosen:  # PowerSGD sends whole gradients in its first steps
        assert row["seen_bytes"] < 1.2 * sent[chosen]
