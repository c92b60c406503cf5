"""One warning for all untuned layers of a model.

``convert`` names the layers of its example. Once the first step has run them all, one line lists those that are
untuned. Of any other layers a line names the first, and the command that lists the rest.
"""

from __future__ import annotations

import atexit
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dwconv.dispatch.decision import DispatchDecision
from dwconv.errors import warn
from dwconv.problems.as_written import tune_command
from dwconv.problems.problem import Problem
from dwconv.problems.workload import Pass
from dwconv.system import versions

_GB_PER_S = 20.0
"""Where nothing is expected of a kernel. Only the order of layers depends on it."""
_MOST_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class UntunedLayer:
    """The passes of a layer that run on PyTorch's own op because they are untuned."""

    problem: Problem
    decisions: Mapping[Pass, DispatchDecision]
    names: Sequence[str] = ()
    """The layers of the model that it is of; empty for any."""

    @property
    def layers(self) -> int:
        return max(1, len(self.names))

    @property
    def to_win_us(self) -> float:
        """About what tuning wins of a step, in all of its layers."""
        return self.layers * sum(self._to_win_us(pass_, each) for pass_, each in self.decisions.items())

    def _to_win_us(self, pass_: Pass, decision: DispatchDecision) -> float:
        if decision.expected:
            return decision.expected.us * max(0.0, decision.expected.gain - 1)
        return self.problem.workload(pass_).bytes / _GB_PER_S / 1e3

    @property
    def named(self) -> str:
        return f"{', '.join(self.decisions)} of {self.problem}"

    @property
    def reasons(self) -> str:
        return "; ".join(dict.fromkeys(each.reason for each in self.decisions.values()))

    @property
    def command(self) -> str:
        """The command that tunes it."""
        return tune_command(self.problem.workload("fprop"), list(self.decisions))

    def __str__(self) -> str:
        where = versions.where_to_tune()
        return f"{self.named} run on PyTorch's own op: {self.reasons}; tune them{where}: {self.command}"


class UntunedWarnings:
    """``expected``: the names of layers, by ``sizes_of`` the problems that they may run. Any one of a layer's problems
    counts."""

    def __init__(self, expected: Mapping[str, Collection[str]] | None = None) -> None:
        self._expected = {sizes: frozenset(names) for sizes, names in (expected or {}).items()}
        self._left = frozenset().union(*self._expected.values())
        self._found: list[UntunedLayer] = []
        self._named_one = False

    @property
    def is_incomplete(self) -> bool:
        """True if some of the expected layers have not run."""
        return bool(self._left)

    def met(self, sizes: str, problem: Problem, decisions: Mapping[Pass, DispatchDecision]) -> str:
        """Takes sizes that run for the first time, with the decisions that leave an untuned pass to PyTorch's op.
        Returns the warning to give now; empty if there is none."""
        names = self._expected.pop(sizes, frozenset())
        untuned = UntunedLayer(problem=problem, decisions=decisions, names=sorted(names)) if decisions else None
        if not self._left:
            return self._of_one(untuned) if untuned else ""
        self._found += [untuned] if untuned else []
        self._left -= names
        return "" if self._left else self.rest()

    def rest(self) -> str:
        """The warning of the layers found so far, even if some expected layers have not run."""
        found, self._found, self._left = self._found, [], frozenset()
        if len(found) < 2 and sum(each.layers for each in found) < 2:
            return str(found[0]) if found else ""
        layers = sum(each.layers for each in found)
        passes = sum(each.layers * len(each.decisions) for each in found)
        most = sorted(found, key=lambda each: each.to_win_us, reverse=True)[:_MOST_NAMED]
        names = ", ".join(each.names[0] if each.names else str(each.problem) for each in most)
        return (
            f"{passes} passes of {layers} depthwise layers run on PyTorch's own op, untuned; most to win in {names}; "
            f"tune them{versions.where_to_tune()}: dwconv.tune(model, example_inputs); dwconv.report(model) lists all"
        )

    def _of_one(self, untuned: UntunedLayer) -> str:
        if self._named_one:
            return ""
        self._named_one = True
        return f"{untuned}; others are not named: dwconv.report(model) lists those of a model"


def sizes_of(problem: Problem) -> str:
    """The same for all batch sizes of a layer, with a bias or without."""
    return problem.alone.workload("fprop").for_pass("dgrad").batchless_key


_untuned = UntunedWarnings()
"""Of this process."""


def expect(layers: Mapping[str, Collection[Problem]]) -> None:
    """These layers, by their names, with what each may run as, are named in one warning if they are untuned, when they
    have run. An earlier warning may be repeated."""
    global _untuned
    expected: dict[str, set[str]] = {}
    for name, problems in layers.items():
        for problem in problems:
            expected.setdefault(sizes_of(problem), set()).add(name)
    _untuned = UntunedWarnings(expected)


def some_are_expected() -> bool:
    """True if some of the expected layers have not run."""
    return _untuned.is_incomplete


def note(sizes: str, problem: Problem, decisions: Mapping[Pass, DispatchDecision]) -> None:
    """Give the warning that ``UntunedWarnings.met`` returns."""
    if warning := _untuned.met(sizes, problem, decisions):
        warn(warning)


@atexit.register
def _warn_of_the_rest() -> None:
    """When the process ends: of layers that were expected, some never ran."""
    if warning := _untuned.rest():
        warn(warning)


# -- other warnings --------------------------------------------------------------------------------------------------

_named: set[str] = set()
"""The warnings that were given."""


def is_first(name: str) -> bool:
    """True the first time in this process."""
    first = name not in _named
    _named.add(name)
    return first


def warn_of_first(kind: str, message: str) -> None:
    """Warn once of what may happen in every layer of a model."""
    if is_first(kind):
        warn(f"{message}; others are not named: dwconv.report(model) lists those of a model")


def kind_of(fault: str) -> str:
    """The fault of a kernel, without the part that differs between kernels."""
    return fault.partition(":")[0]


def warn_once(message: str) -> None:
    """Warn, the first time in this process, where the user called."""
    if is_first(message):
        warn(message)


def forget() -> None:
    """Give all warnings again."""
    _named.clear()
    expect({})
