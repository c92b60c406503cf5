"""Concurrency tuned at run time: independent operators of a step run side by side, each with the number of threads that
suits it.

    model = torch.compile(model, backend="dwconv_concurrent")   # chosen in the first step, by measurement
    print(dwconv.concurrency.explain(model))                    # what runs, and why
    python -m dwconv.concurrency counters                       # what this machine can count

    a graph in tasks     task_graph, operator_groups, tasks, split_gradients
    their times          task_timer, hill_climbing, time_regression, learners, counters
    the machine          machine_costs, second_threads, interference
    schedules            list_scheduling, fill_in, strategies, schedules_to_try
    running one          lanes, engine (in Python); instructions, segments, compiled_graph (in C++); program
    choosing one         options, choose_schedule, timed_schedules, choice; backend runs these steps
    showing one          timeline, explain_schedules

Nothing in the rest of dwconv imports this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dwconv.concurrency.explain_schedules import explain as explain

__all__ = ["explain"]


def __getattr__(name: str) -> Any:
    if name == "explain":  # PyTorch comes with the first use
        return import_module("dwconv.concurrency.explain_schedules").explain
    if name == "main":  # of ``dwconv concurrency``
        return import_module("dwconv.concurrency.__main__").main
    raise AttributeError(f"module 'dwconv.concurrency' has no attribute {name!r}")
