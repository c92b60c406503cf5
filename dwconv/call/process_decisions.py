"""What this process has decided: ``lock`` writes it to a file, ``reset`` forgets it."""

from __future__ import annotations

from pathlib import Path

from dwconv.call import arriving, block_ops, call_plan
from dwconv.dispatch import locked
from dwconv.errors import InvalidSetting, warn
from dwconv.system import given


def lock(path: Path | str) -> None:
    """Write what runs each pass of the convolutions that this process has called. Call it after some steps: a warning
    counts the passes whose kernels are still being built. With ``DWCONV_LOCK=path`` another process, or another rank,
    runs the same on a device of that name, and gives the same bits on as many threads; one line names what cannot run
    there, or another number of threads. Raises InvalidSetting, naming the file, if it cannot be written."""
    file = given.path("path", path)
    calls = {
        (plan.problem, plan.target): {pass_: (made, plan.kernels.code(pass_)) for pass_, made in plan.decisions.items()}
        for plan in call_plan.plans()
        if plan.target is not None
    }
    try:
        locked.write(file, calls)
    except OSError as error:
        raise InvalidSetting(f"lock={path} cannot be written: {error.strerror}; name another file") from None
    made = [each for of_call in calls.values() for each, _ in of_call.values()]
    if building := sum(each.reason == arriving.UNTIL_READY for each in made):
        warn(
            f"lock={path} has {building} of {len(made)} passes on PyTorch's op because their kernels are still being "
            "built; take more steps, and write it again"
        )


def reset() -> None:
    """Forget all decisions, kernels and warnings, and read the tuning logs again when they are next needed."""
    call_plan.forget()
    block_ops.forget()
