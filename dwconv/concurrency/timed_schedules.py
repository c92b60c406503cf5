"""TimedSchedules: plain execution and schedules, timed in turns, and which of them runs.

    plain   S1+S3   S3   S2+S3   S1        three or five turns, each step on threads of its own
    plain           S3   S2+S3             the better half goes on, the order of a turn is reversed
    plain           S3                     turn after turn, until it has won, or has lost, or the time is up

A schedule wins by a bet. It begins with one coin, and stakes a share of what it has on being faster in the next turn:
the more, the clearer the turns before were. If it is as fast as plain execution, one turn has its gain as often as its
loss, so no bet makes money on average, and the chance that it ever has n coins is one in n, however often that is
looked at (Ville's inequality). It runs once it has a hundred coins for each schedule that was compared: a schedule that
is not faster is chosen in one of a hundred measurements, at most. In the same way a schedule has lost once bets on less
than the least gain have twenty coins.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dwconv.concurrency.engine import workers
from dwconv.concurrency.options import PLAIN
from dwconv.concurrency.task_timer import TimeLeft
from dwconv.errors import OutOfTime
from dwconv.measure.clock.timing import Call, Clock, Lap
from dwconv.records.record import CONTENDED, Measurement

_LEAST_GAIN = 0.01
"""A smaller gain is not worth a thing that can go wrong."""
_WINS, _LOSES = 100.0, 20.0
"""Coins: one in so many that seem to be faster, or slower, is not."""
_LEAST_TURNS, _MOST_TURNS, _DISTURBED_TURNS = 3, 60, 15
"""To compare anything; at most; and at most if other work disturbs nearly all of them."""
_BLOCKS = (5, 3)
"""Turns before the slower half of the schedules is left out: as many as there is time for."""
_WARM_UP = 2
"""Calls before one that is timed: the first starts the threads that it needs, and the next still finds new memory."""
_MOST_LAPS = 3
"""Calls that are timed in a turn, at most; that of median time counts."""
_SURE_TURNS, _TURNS = 10, 20
"""About as many as a win takes; and as many as there is to be time for if several schedules are compared."""


@dataclass(frozen=True, kw_only=True)
class TimedSchedules:
    """What ran how fast. ``steps``: by name, plain execution among them."""

    winner: str
    """``plain``, or the schedule that runs."""
    reason: str
    steps: dict[str, Measurement]
    trusted: bool
    """False if other work disturbed the times, or there were too few: plain execution runs, and nothing is kept."""


def rest() -> None:
    """End the threads of the last run. Teams of OpenMP that idle workers still have count as threads of the process;
    where these are more than the cores, OpenMP's threads sleep at every join, and plain execution takes up to twice as
    long."""
    workers.end()


def lap_apart(clock: Clock, call: Call, *, laps: int = 1) -> Lap:
    """One call of a step, on threads of its own, which some calls before have warmed up; of several ``laps``, the one
    of median time."""
    rest()
    for _ in range(_WARM_UP):
        call()
    return sorted((clock.lap(call, times=1) for _ in range(laps)), key=lambda lap: lap.seconds)[laps // 2]


# -- bets --------------------------------------------------------------------------------------------------------------


_STAKES = ((0.5, 1.0), (0.9, 2.0))
"""Of two players the share that is staked at most, and how fast it grows with the gain. One wins much by small gains in
many turns, the other one by large gains in few. Neither loses all by a single turn."""
_FIRST_SCALE = 0.05
"""Before any turn: by how much a step differs from turn to turn."""


class Bets:
    """Of one schedule: what it has gained over plain execution, turn by turn, and what bets on that have won."""

    def __init__(self) -> None:
        self.gains: list[float] = []
        """By turn, the logarithm of how many times as fast it was."""
        self._scale_sum = _FIRST_SCALE
        self._on_faster, self._on_slower = [1.0] * len(_STAKES), [1.0] * len(_STAKES)

    def turn(self, gain: float) -> None:
        scale = self._scale_sum / (len(self.gains) + 1)  # by the turns before: a stake may not know its own turn
        for player, (most, slope) in enumerate(_STAKES):
            self._on_faster[player] *= 1 + most * math.tanh(slope * gain / scale)
            self._on_slower[player] *= 1 - most * math.tanh(slope * (gain - _LEAST_GAIN) / scale)
        self._scale_sum += abs(gain)
        self.gains.append(gain)

    @property
    def gain(self) -> float:
        """The share by which a step is shorter, in the median turn; negative if it is longer."""
        return -math.expm1(-statistics.median(self.gains)) if self.gains else 0.0

    @property
    def faster_turns(self) -> int:
        return sum(gain > 0 for gain in self.gains)

    @property
    def coins(self) -> float:
        """What a coin on being faster has become."""
        return statistics.mean(self._on_faster)

    def has_won(self, *, among: int) -> bool:
        """True if it is sure that it is faster than plain execution, the best of so many schedules, and by enough."""
        return self.gain > _LEAST_GAIN and self.coins >= _WINS * among

    @property
    def has_lost(self) -> bool:
        return statistics.mean(self._on_slower) >= _LOSES


# -- turns -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Turn:
    laps: Mapping[str, Lap]
    lost: float
    """The share of the time that other work took."""

    @property
    def contended(self) -> bool:
        return self.lost > CONTENDED or any(lap.contended for lap in self.laps.values())


class _Turns:
    """Steps of plain execution and of schedules, in turns."""

    def __init__(self, calls: Mapping[str, Call], *, clock: Clock, laps: int) -> None:
        self._calls, self._clock, self._laps = calls, clock, laps
        self._taken: list[_Turn] = []
        self._lost = clock.overall()
        self.bets = {name: Bets() for name in calls if name != PLAIN}

    @property
    def count(self) -> int:
        return len(self._taken)

    @property
    def are_disturbed(self) -> bool:
        """True if other work leaves hardly any turn alone."""
        quiet = sum(not turn.contended for turn in self._taken)
        return self.count >= _DISTURBED_TURNS and quiet < _LEAST_TURNS

    def take(self, names: Sequence[str]) -> None:
        """One turn of plain execution and ``names``. Its order is the reverse of the one before: what one step leaves
        behind slows each of its neighbours as often."""
        order = [PLAIN, *names][:: -1 if self.count % 2 else 1]
        lost = self._clock.overall()
        laps = {name: lap_apart(self._clock, self._calls[name], laps=self._laps) for name in order}
        turn = _Turn(laps=laps, lost=lost())
        self._taken.append(turn)
        if not turn.contended:
            for name in names:
                self.bets[name].turn(math.log(laps[PLAIN].seconds / laps[name].seconds))

    def ranked(self, names: Sequence[str]) -> list[str]:
        """The fastest first, as turns compare them with plain execution. Disturbed turns count where there are no
        others."""
        return sorted(names, key=lambda name: -self._gain(name))

    def _gain(self, name: str) -> float:
        if bets := self.bets[name].gains:
            return statistics.median(bets)
        shares = [math.log(turn.laps[PLAIN].seconds / turn.laps[name].seconds) for turn in self._with(name)]
        return statistics.median(shares)

    def _with(self, name: str) -> list[_Turn]:
        """The turns that have it; if other work left enough of them alone, only those."""
        turns = [turn for turn in self._taken if name in turn.laps]
        quiet = [turn for turn in turns if not turn.contended]
        return quiet if len(quiet) >= _LEAST_TURNS else turns

    @property
    def steps(self) -> dict[str, Measurement]:
        """By name, what a step took."""
        lost = self._lost()
        return {name: measurement([turn.laps[name] for turn in self._with(name)], lost=lost) for name in self._calls}


def measurement(laps: Sequence[Lap], *, lost: float) -> Measurement:
    """Of laps of one call each. ``lost``: the share of their time that other work took."""
    contention = max(lost, statistics.mean(lap.lost for lap in laps))
    return Measurement.of([lap.seconds * 1e6 for lap in laps], contention=contention)


# -- the fastest -------------------------------------------------------------------------------------------------------


def fastest(calls: Mapping[str, Call], *, clock: Clock, budget: TimeLeft, fall_back: bool) -> TimedSchedules:
    """Time ``calls``, of which one is ``plain`` and the first ones of the others are the most promising. Without
    ``fall_back`` plain execution is measured beside the others, but does not win. Raises OutOfTime, at most one call
    late, if there is too little time to compare anything."""
    calls = {name: budget.bounded(call) for name, call in calls.items()}
    if len(calls) < 2:
        return TimedSchedules(winner=PLAIN, reason="no schedule was offered", steps={}, trusted=True)
    effort = _affordable(calls, budget)
    turns = _Turns({name: calls[name] for name in (PLAIN, *effort.names)}, clock=clock, laps=effort.laps)
    best = _last_one(turns, effort, budget=budget, fall_back=fall_back)
    steps, bets = turns.steps, turns.bets[best]
    lost = max(steps[PLAIN].contention, steps[best].contention)
    if lost > CONTENDED or not bets.gains:
        said = f"other work took {lost:.0%} of the time while it was measured, so no schedule counts"
        return TimedSchedules(winner=PLAIN, reason=said, steps=steps, trusted=False)
    wins = bets.has_won(among=len(effort.names))
    reason = _reason(best, bets, wins=wins)
    return TimedSchedules(
        winner=best if wins or not fall_back else PLAIN,
        reason=reason if wins or fall_back else f"{reason}; plain execution was ruled out",
        steps=steps,
        trusted=True,
    )


@dataclass(frozen=True, kw_only=True)
class _Effort:
    """What there is time for."""

    names: tuple[str, ...]
    """The schedules that are compared."""
    block: int
    """Turns before half of them are left out."""
    laps: int


def _affordable(calls: Mapping[str, Call], budget: TimeLeft) -> _Effort:
    """By a first step of plain execution. Raises OutOfTime if there is no time to compare anything."""
    others = [name for name in calls if name != PLAIN]
    left_s = budget.left_s
    calls[PLAIN]()
    took_s = left_s - budget.left_s
    steps = budget.left_s / max(took_s, 1e-9)
    if steps < 2 * _LEAST_TURNS * (_WARM_UP + 1):
        raise OutOfTime("there is no time to compare steps")
    *_, few = _BLOCKS
    several = [count for count in range(3, len(others) + 1) if _laps_of(count, few) * (_WARM_UP + 2) <= steps]
    two = len(others) > 1 and _laps_of(2, few, turns=_SURE_TURNS) * (_WARM_UP + 1) <= steps
    count = max(several, default=2 if two else 1)
    block = next((each for each in _BLOCKS if _laps_of(count, each) * (_WARM_UP + 2) <= steps), few)
    laps = int(steps / _laps_of(count, block)) - _WARM_UP
    return _Effort(names=tuple(others[:count]), block=block, laps=max(1, min(_MOST_LAPS, laps)))


def _laps_of(count: int, block: int, *, turns: int = _TURNS) -> int:
    """Laps of so many turns, of plain execution and at first so many schedules."""
    found = 0
    while count > 1:
        found, turns = found + block * (count + 1), turns - block
        count = math.ceil(count / 2)
    return found + 2 * max(block, turns)


def _last_one(turns: _Turns, effort: _Effort, *, budget: TimeLeft, fall_back: bool) -> str:
    """Take turns until it is known what runs, or the time is up. The schedule that is the fastest."""
    left = list(effort.names)
    while turns.count < _MOST_TURNS and not turns.are_disturbed and (turns.count < _LEAST_TURNS or budget.left_s):
        try:
            turns.take(left)
        except OutOfTime:
            if turns.count < _LEAST_TURNS:
                raise
            break
        if turns.count < _LEAST_TURNS:
            continue
        if fall_back:
            left = [name for name in left if not turns.bets[name].has_lost] or turns.ranked(left)[:1]
        left = turns.ranked(left)
        best = turns.bets[left[0]]
        if fall_back and (best.has_won(among=len(effort.names)) or best.has_lost):
            break
        if turns.count % effort.block == 0:
            if len(left) == 1 and not fall_back:
                break
            left = left[: math.ceil(len(left) / 2)]
    won = [name for name in left if turns.bets[name].has_won(among=len(effort.names))]
    return (won or left)[0]


def _reason(best: str, bets: Bets, *, wins: bool) -> str:
    share, turns = f"{abs(bets.gain):.1%}", len(bets.gains)
    if bets.gain <= 0:
        return f"{best}, the fastest schedule, is {share} slower than plain execution"
    said = f"{best} is {share} faster than plain execution"
    if wins:
        return said
    if bets.gain <= _LEAST_GAIN:
        return f"{said}, which may be noise: {_LEAST_GAIN:.0%} and less does not count"
    more = "; give it more seconds" if turns < _SURE_TURNS else ""
    return f"{said}, which may be noise: it was in {bets.faster_turns} of {turns} turns{more}"
