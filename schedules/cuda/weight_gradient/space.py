"""The space of the weight gradient, in either layout: what is legal. No TVM here."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.gpu.bounds import LEAST_THREADS, MOST_PADDED, MOST_WORKSPACE_BYTES
from dwconv.schedules.cuda.gpu.code_limits import WEIGHT_GRADIENT as MOST_PRODUCTS
from dwconv.schedules.cuda.gpu.occupancy import registers_left
from dwconv.schedules.cuda.weight_gradient.cut import Cut
from dwconv.schedules.cuda.weight_gradient.knobs import edges, knobs_of
from dwconv.schedules.cuda.weight_gradient.start import preferred
from dwconv.schedules.cuda.weight_gradient.thread_work import products_of, registers_of
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule
from dwconv.schedules.taps import WIDTH

WIDEST_KERNEL = 96
"""The sums of one kernel row, which a thread keeps in registers."""


def kernel_misfit(workload: Workload, target: CudaTarget) -> str | None:
    """Why the templates cannot run a workload; None if they can."""
    if workload.kernel[WIDTH] > WIDEST_KERNEL:
        return f"a kernel row of {workload.kernel[WIDTH]} sums takes more registers than there are; {WIDEST_KERNEL} fit"
    return None


def weight_gradient_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    return ConfigSpace(
        name,
        *(Knob(knob, values) for knob, values in knobs_of(workload).items()),
        Knob("edge", edges(workload)),
        rules=_rules(workload, target),
        preferred=lambda: preferred(workload, target),
    )


# -- what cannot run, or cannot be fast ----------------------------------------------------------------------------


def _rules(workload: Workload, target: CudaTarget) -> list[Rule]:
    @lru_cache(maxsize=4)
    def cut(config: Config) -> Cut:
        return Cut.of(workload, config)

    def rule(reason: str, broken: Callable[[Cut], bool]) -> Rule:
        return Rule(reason, lambda config: broken(cut(config)))

    def starved(cut: Cut) -> bool:
        return registers_of(cut) > registers_left(target, threads=cut.threads, blocks=cut.blocks_per_sm)

    return [
        Rule("unroll_h does not divide tile_h", lambda config: config.tile_h % config.unroll_h != 0),
        rule(f"more than {target.threads_per_block} threads", lambda cut: cut.threads > target.threads_per_block),
        rule(f"fewer than {LEAST_THREADS} threads", lambda cut: cut.threads < LEAST_THREADS),
        rule("too many threads without work", lambda cut: cut.padded > MOST_PADDED),
        rule(
            f"more than {MOST_PRODUCTS} products unrolled",
            lambda cut: products_of(cut) > MOST_PRODUCTS,
        ),
        rule("more threads than an SM has", lambda cut: cut.threads * cut.blocks_per_sm > target.threads_per_sm),
        rule("more registers than there are", starved),
        rule(
            f"more than {MOST_WORKSPACE_BYTES >> 20} MiB of partial sums",
            lambda cut: cut.split_n > 1 and cut.workspace_bytes > MOST_WORKSPACE_BYTES,
        ),
    ]
