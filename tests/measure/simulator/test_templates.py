"""Every CUDA template in every type, on shapes that templates go wrong on: right, without a fault, without conflicts.

Candidates are lowered and run in two worker processes, all that are selected at once; what g++ made is kept between
test runs.
"""

from __future__ import annotations

import getpass
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dwconv.errors import DwconvError, InvalidConfig
from dwconv.measure.process import Pool
from dwconv.measure.simulator.compile import available, compile_runtime
from dwconv.measure.simulator.simulate import Simulation
from dwconv.schedules.template import Candidate, ScheduleTemplate, all_templates
from dwconv.target import CudaTarget, parse_target
from dwconv.workload import DTYPES, Workload
from tests.measure.simulator.handlers import HandlerSetup

SM_90 = parse_target("cuda:sm_90")
assert isinstance(SM_90, CudaTarget)
TEMPLATES = [template for template in all_templates().values() if template.device == "cuda"]
_KEPT_FOR_DAYS = 7

pytestmark = pytest.mark.skipif(not available(), reason="the simulator needs g++ 12 or newer")

SHAPES: dict[str, dict[str, Any]] = {
    "odd": {"channels": 5, "batch": 3, "input_size": (9, 13), "padding": ((1, 1), (1, 1))},
    "aligned": {"channels": 32, "batch": 2, "input_size": (14, 16), "padding": ((1, 1), (1, 1))},
    "stride 2": {"channels": 6, "input_size": (15, 18), "padding": ((0, 1), (2, 1)), "stride": (2, 2)},
    "dilation 2": {"channels": 8, "input_size": (13, 17), "padding": ((2, 2), (3, 1)), "dilation": (2, 2)},
    "multiplier 2": {"channels": 4, "input_size": (10, 9), "padding": ((1, 1), (1, 1)), "multiplier": 2},
    "a bias": {"channels": 10, "input_size": (11, 18), "padding": ((1, 1), (3, 1)), "multiplier": 2, "bias": True},
    "1 × 7": {"channels": 3, "input_size": (1, 40), "kernel": (1, 7), "padding": ((0, 0), (3, 3))},
    "5 × 3, stride 1 and 2": {
        "channels": 16, "input_size": (12, 20), "kernel": (5, 3), "padding": ((2, 2), (1, 0)), "stride": (1, 2)
    },
    "31 × 31": {"channels": 2, "batch": 1, "input_size": (14, 14), "kernel": (31, 31), "padding": ((15, 15), (15, 15))},
}  # fmt: skip
LAYERS: dict[str, dict[str, Any]] = {
    "56² K3": {"channels": 96, "input_size": (56, 56), "kernel": (3, 3)},
    "56² K3 s2": {"channels": 96, "input_size": (56, 56), "kernel": (3, 3), "stride": (2, 2)},
    "14² K3 s2": {"channels": 384, "input_size": (14, 14), "kernel": (3, 3), "stride": (2, 2)},
    "14² K5": {"channels": 192, "input_size": (14, 14), "kernel": (5, 5)},
    "14² K7": {"channels": 384, "input_size": (14, 14), "kernel": (7, 7)},
    "7² K3": {"channels": 960, "input_size": (7, 7), "kernel": (3, 3)},
    "7² K7": {"channels": 768, "input_size": (7, 7), "kernel": (7, 7)},
    "28² K7": {"channels": 192, "input_size": (28, 28), "kernel": (7, 7)},
    "28² K31": {"channels": 64, "input_size": (28, 28), "kernel": (31, 31)},
}
MOST_WAVEFRONTS_PERCENT = 105


def workload(template: ScheduleTemplate, shape: dict[str, Any], dtype: str) -> Workload:
    kernel = shape.get("kernel", (3, 3))
    fields = {"batch": 2, "kernel": kernel, "padding": tuple((k // 2, k // 2) for k in kernel), **shape}
    fprop = Workload(pass_="fprop", layout=template.layout, dtype=dtype, **fields)  # type: ignore[arg-type]
    return fprop.for_pass(template.pass_)


def candidate(template: ScheduleTemplate, shape: dict[str, Any], dtype: str, *, seed: int | None) -> Candidate | None:
    """With the default configuration, or with one drawn by ``seed``; None if the template does not fit."""
    wanted = workload(template, shape, dtype)
    if wanted.bias != shape.get("bias", False) or template.misfit(wanted, SM_90) is not None:
        return None
    space = template.space(wanted, SM_90)
    try:
        config = space.default if seed is None else space.sample(random.Random(seed), attempts=200)
    except InvalidConfig:
        return None
    return Candidate(wanted, config) if config else None


def cases(shapes: dict[str, dict[str, Any]], dtypes: tuple[str, ...], *, drawn: tuple[str, ...] = ()) -> list[Any]:
    """One for each template, shape and type; in a type of ``drawn``, with a drawn configuration too."""
    found = []
    for template in TEMPLATES:
        for name, shape in shapes.items():
            for dtype in dtypes:
                for seed in (None, len(found)) if dtype in drawn else (None,):
                    if chosen := candidate(template, shape, dtype, seed=seed):
                        label = f"{template.name}-{dtype}-{name}" + ("" if seed is None else "-drawn")
                        found.append(pytest.param(chosen, id=label))
    return found


def outcomes(request: pytest.FixtureRequest, test: str, role: str) -> Iterator[dict[Candidate, Any]]:
    """Those of all selected cases of ``test``."""
    folder = Path(tempfile.gettempdir()) / f"dwconv-simulator-{getpass.getuser()}"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.so"):
        if time.time() - old.stat().st_mtime > _KEPT_FOR_DAYS * 86400:
            old.unlink()
    compile_runtime(folder)
    selected = [
        item.callspec.params["chosen"]  # type: ignore[attr-defined]
        for item in request.session.items
        if getattr(item, "originalname", "") == test and item.path == request.path
    ]
    setup = HandlerSetup(target=SM_90, folder=str(folder))  # type: ignore[arg-type]
    pool = Pool(f"tests.measure.simulator.handlers:{role}", setup, size=2, threads=1)
    try:
        yield {selected[position]: outcome for position, outcome in pool.map(selected, timeout_s=60)}
    finally:
        pool.kill()


@pytest.fixture(scope="module")
def verified(request: pytest.FixtureRequest) -> Iterator[dict[Candidate, Simulation | DwconvError]]:
    yield from outcomes(request, "test_clean_and_right", "Verifier")


@pytest.fixture(scope="module")
def sampled(request: pytest.FixtureRequest) -> Iterator[dict[Candidate, Simulation | DwconvError]]:
    yield from outcomes(request, "test_defaults_are_free_of_bank_conflicts", "Sampler")


@pytest.mark.parametrize("chosen", cases(SHAPES, DTYPES, drawn=("float16",)))
def test_clean_and_right(chosen: Candidate, verified: dict[Candidate, Simulation | DwconvError]) -> None:
    outcome = verified[chosen]
    assert isinstance(outcome, Simulation), f"{chosen.config}: {outcome}"
    assert outcome.verdict.right, f"{chosen.config}: {outcome.verdict.reason}"
    assert outcome.resources["in_step"] == 0, f"{chosen.config}: a __syncwarp() is missing"


@pytest.mark.parametrize("chosen", cases(LAYERS, ("float32", "float16")))
def test_defaults_are_free_of_bank_conflicts(
    chosen: Candidate, sampled: dict[Candidate, Simulation | DwconvError]
) -> None:
    outcome = sampled[chosen]
    assert isinstance(outcome, Simulation), f"{chosen.config}: {outcome}"
    assert outcome.verdict.right, f"{chosen.config}: {outcome.verdict.reason}"
    percent = outcome.resources["shared_wavefronts_percent"]
    assert percent <= MOST_WAVEFRONTS_PERCENT, str(chosen.config)


def test_every_template_is_there() -> None:
    """Each has at least one shape to prove itself on, in each type that it is for."""
    proven = {case.values[0].config.template for case in cases(SHAPES, DTYPES)}
    assert proven == {template.name for template in TEMPLATES}
