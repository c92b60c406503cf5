"""Stage ``fit``: the constants of the cost model, from the candidates that stage rank ranks.

They are written beside the run's tuning log. Where that log is read, as with DWCONV_TUNING_LOGS, or ships, they count.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from bench.fitting import Fitted, MeasuredWork, fit
from bench.gpu.rank import MOST, measured_candidates
from bench.gpu.run import Ended, Run, say
from bench.ranking import costs_of
from dwconv.errors import CannotFit
from dwconv.problems.cost_constants import constants_file, write_constants
from dwconv.problems.target import CudaTarget
from dwconv.schedules.cuda.gpu.cost import constants_of


def fit_stage(run: Run) -> Ended:
    """The run does not fail where too little is measured: the constants stay. Raises BrokenInstallation where machine
    code cannot be read."""
    assert isinstance(run.target, CudaTarget)
    known = measured_candidates(run)
    measured: list[MeasuredWork] = []
    for key, records in known.items():
        if not run.pace.fits:
            break
        with run.pace.item():
            for cost, median_us in costs_of(records[:MOST], run.target, enough=lambda: run.pace.left_s <= 0):
                works = tuple(kernel.work for kernel in cost.kernels)
                measured.append(MeasuredWork(workload=key, works=works, median_us=median_us))
    try:
        fitted = fit(measured, run.target)
    except CannotFit as error:
        return Ended(line=f"the constants stay: {error}")
    path = run.out / constants_file(run.target.device)
    write_constants(
        path, fitted.constants, device=run.target.device, candidates=fitted.candidates, workloads=fitted.workloads
    )
    run.state.put("fit", "device", _answer(fitted))
    before = dataclasses.asdict(constants_of(run.target))
    for name, value in dataclasses.asdict(fitted.constants).items():
        same = ", on which nothing depends" if name in fitted.undetermined else f", was {before[name]:.4g}"
        say("fit", f"{name} {value:.4g}{same}")
    say("fit", f"to use them: cp {path} tuning_logs/, or DWCONV_TUNING_LOGS={run.out}")
    return Ended(
        line=f"{fitted.candidates} candidates of {fitted.workloads} workloads: computed times are {fitted.error:.0%} "
        f"off, were {fitted.error_before:.0%}; ρ {fitted.rho:.2f}, was {fitted.rho_before:.2f}; written to {path}"
    )


def _answer(fitted: Fitted) -> dict[str, Any]:
    return {**dataclasses.asdict(fitted), "undetermined": list(fitted.undetermined)}
