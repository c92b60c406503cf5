"""The cost model's constants are found in measurements that are made with known ones."""

from __future__ import annotations

import dataclasses
import math

import pytest

from bench.gpu import fit as fit_stage
from bench.gpu.fit import MeasuredWork, fit
from dwconv.errors import CannotFit
from dwconv.problems.cost_constants import NAMES
from dwconv.schedules.cuda.gpu.cost import BlockWork, constants_of, total_us
from tests.bench.fitted import CANDIDATES, OTHERWISE, SM_90, WORKLOADS, measured_with, truth


def test_known_constants_are_found_back() -> None:
    found = fit(measured_with(OTHERWISE), SM_90)
    for name in NAMES:
        within = 0.15 if name == "alone" else 0.05  # it does much like not_hidden
        assert getattr(found.constants, name) == pytest.approx(getattr(OTHERWISE, name), rel=within), name
    assert found.undetermined == () and (found.candidates, found.workloads) == (WORKLOADS * CANDIDATES, WORKLOADS)
    assert found.error < 0.01 < found.error_before


def test_noise_and_a_few_that_are_far_off_do_little() -> None:
    measured = measured_with(OTHERWISE, noise=0.03)
    for number in (3, 33, 63):
        measured[number] = dataclasses.replace(measured[number], median_us=20 * measured[number].median_us)
    found = fit(measured, SM_90)
    for name in set(NAMES) - {"not_hidden", "alone"}:
        assert getattr(found.constants, name) == pytest.approx(getattr(OTHERWISE, name), rel=0.15), name


@pytest.mark.parametrize(
    ("name", "by"),
    [("memory_gb_per_s", 0.5), ("cache_gb_per_s", 0.5), ("clock_ghz", 0.5), ("launch_us", 2.0),
     ("dram_latency_cycles", 2.0), ("bytes_in_flight_per_sm", 2.0), ("bytes_in_flight_per_sm", 0.5)],
)  # fmt: skip
def test_a_constant_that_is_wrong_by_two_spoils_the_order_and_the_fit_repairs_it(name: str, by: float) -> None:
    found = fit(measured_with(truth(**{name: by})), SM_90)
    assert found.error_before > 3 * found.error
    assert found.rho >= found.rho_before and found.rho > 0.999
    assert getattr(found.constants, name) == pytest.approx(by * getattr(constants_of(SM_90), name), rel=0.05)


def test_the_order_is_spoilt_before() -> None:
    assert fit(measured_with(truth(cache_gb_per_s=0.5)), SM_90).rho_before < 0.99


def test_what_no_candidate_depends_on_stays() -> None:
    """All wait for memory alone, in one wave of blocks that ask for enough."""
    measured = []
    for number in range(6):
        for cut in range(5):
            size = 10 ** (8 + number / 4 + cut / 16)
            work = BlockWork(
                blocks=1320, threads=128, registers=32, shared_bytes=0, instructions=0, fma=0, lines=0, bank_turns=0,
                dram_bytes=size, cache_bytes=0, bytes_in_flight=128 * 64, waits=0,
            )  # fmt: skip
            there = dataclasses.replace(SM_90, fitted=truth(memory_gb_per_s=0.5))
            us = total_us([work], there, warm=True)
            measured.append(MeasuredWork(workload=str(number), works=(work,), median_us=us))
    found = fit(measured, SM_90)
    assert found.constants.memory_gb_per_s == pytest.approx(0.5 * SM_90.limits.memory_gb_per_s, rel=0.02)
    for name in ("cache_gb_per_s", "bytes_in_flight_per_sm", "dram_latency_cycles", "clock_ghz"):
        assert name in found.undetermined and getattr(found.constants, name) == getattr(constants_of(SM_90), name)


def with_median(median_us: float) -> list[MeasuredWork]:
    first, *others = measured_with(OTHERWISE)
    return [dataclasses.replace(first, median_us=median_us), *others]


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        (measured_with(OTHERWISE, workloads=1), "10 measured candidates of 1 workloads determine no constants"),
        ([], "0 measured candidates of 0 workloads determine no constants; tune until there are 24 of 4"),
        (with_median(math.nan), "median_us=nan of layer 0 is no time"),
        (with_median(-3.0), "median_us=-3.0 of layer 0 is no time"),
        (with_median(0.0), "median_us=0.0 of layer 0 is no time"),
        (with_median(math.inf), "median_us=inf of layer 0 is no time"),
    ],
)
def test_measurements_that_determine_nothing_are_refused(measured: list[MeasuredWork], told: str) -> None:
    with pytest.raises(CannotFit, match=told):
        fit(measured, SM_90)


def test_what_does_not_hold_for_other_workloads_is_not_kept() -> None:
    """Planted: every second workload ran on a device of its own."""
    slow, fast = (measured_with(truth(memory_gb_per_s=by, cache_gb_per_s=by)) for by in (0.3, 1.0))
    second = {f"layer {number}" for number in range(1, WORKLOADS, 2)}
    mixed = [one if one.workload in second else other for one, other in zip(slow, fast, strict=True)]
    with pytest.raises(CannotFit, match="% off on the others, the old ones"):
        fit(mixed, SM_90)


def test_what_fits_on_no_sm_is_left_out() -> None:
    measured = measured_with(OTHERWISE)
    huge = tuple(dataclasses.replace(each, shared_bytes=10**6) for each in measured[0].works)
    found = fit([*measured, dataclasses.replace(measured[0], works=huge)], SM_90)
    assert found.candidates == len(measured)


def test_errors_are_medians_of_how_far_off() -> None:
    measured = [
        dataclasses.replace(each, median_us=each.median_us / 1.5) for each in measured_with(constants_of(SM_90))
    ]
    assert fit_stage._off(measured, constants_of(SM_90), SM_90) == pytest.approx(0.5)
