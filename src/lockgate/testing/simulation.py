"""Simulate a plan: apply the rule to a trace, without server, store or clock."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ..core.budgets import Budget
from ..core.holds import HoldAnswer, Settle, Take, apply, budgets
from ..core.limit_hits import hit_limited
from ..core.limit_windows import LimitWindows
from ..core.limits import Limit, bound, check_limits, check_names
from ..core.plans import Plan
from ..core.sliding_window import LARGEST, Cells, Reading, Window, empty_state
from ..core.timestamps import MINUTE
from ..errors import ConfigurationError
from .trace import Arrival, Trace, in_order, worst

HOLDS_AT_MOST: Final = 1000
"""The most holds that one window has at a time, as :class:`~lockgate.options.StoreOptions` has it
unless it is given another number."""


class Holding(NamedTuple):
    """Units that each admitted call holds, and settles later (D41)."""

    limits: tuple[Limit, ...]
    """The limits that the units are taken of, by organization or by key."""
    units: int
    """Of each limit, as the most that the call can use."""
    used: int
    """Of each limit, when the call ends."""
    span: int
    """From the call until it ends, in microseconds. The hold is renewed until then."""


class Outcome(NamedTuple):
    """The outcome of one call."""

    arrival: Arrival
    reading: Reading
    hold: HoldAnswer | None = None
    """The answer to the taking of its hold; None: it takes none, or was refused before."""

    @property
    def allowed(self) -> bool:
        """Whether the call was admitted, and its units were taken."""
        return self.reading.allowed and (self.hold is None or self.hold.done)

    @property
    def wait(self) -> int:
        """The microseconds after which a refused call may fit; 0: it was admitted."""
        return self.reading.wait if self.hold is None else self.hold.wait


class Usage(NamedTuple):
    """One window of the plan, or of a named limit, over the whole simulation."""

    name: str
    """``minute``, ``hour`` or ``day``; of a named limit behind its name, as in ``export hour``."""
    limit: int | None
    worst: int
    """The most admitted in any span of its length; of a calendar quota, in any of its periods; of
    a limit that units are held of, the most used and held at any call."""
    refused: int
    """The number of calls that this window refused."""


class Bucket(NamedTuple):
    """The calls between two instants."""

    start: int
    admitted: int
    refused: int
    used: tuple[int, ...]
    """The most that each window counted in it; without a call, the last count."""


class Simulation(NamedTuple):
    """The outcome of a trace of calls under a plan."""

    plan: Plan
    outcomes: tuple[Outcome, ...]
    limits: tuple[Limit, ...] = ()
    holding: Holding | None = None

    @property
    def admitted(self) -> list[Arrival]:
        """The calls that were admitted, and whose units were taken."""
        return [outcome.arrival for outcome in self.outcomes if outcome.allowed]

    @property
    def refused(self) -> list[Arrival]:
        """The calls that were refused."""
        return [outcome.arrival for outcome in self.outcomes if not outcome.allowed]

    @property
    def longest_wait(self) -> int:
        """Return the longest wait of any refusal, in microseconds."""
        return max((outcome.wait for outcome in self.outcomes), default=0)

    def windows(self) -> list[Usage]:
        """Return each window of the plan, then each of the named limits, then those of holds: its
        limit, the most in any span, and its refusals."""
        charged = [one.arrival for one in self.outcomes if one.reading.allowed]
        by = [outcome.reading.refused_by for outcome in self.outcomes]
        return [*self._charged(charged, by), *self._held()]

    def _charged(self, admitted: list[Arrival], by: list[int | None]) -> list[Usage]:
        """Return the windows that each call is charged for."""
        return [
            Usage(
                window.name,
                limit,
                worst(admitted, window.span).admitted if window.grain >= 0 else self._most(index),
                by.count(index),
            )
            for index, (window, limit) in enumerate(
                zip(_windows(self.plan, self.limits), self._marks(), strict=True)
            )
        ]

    def _held(self) -> Iterator[Usage]:
        """Yield the windows that units are held of."""
        if self.holding is None:
            return
        answers = [outcome.hold for outcome in self.outcomes if outcome.hold is not None]
        by = [answer.refused_by for answer in answers]
        named = _budgets_of(self.holding)
        for index, name in enumerate(named.names):
            most = max((answer.used[index] for answer in answers), default=0)
            title = f"{name} {named.windows[index].name}"
            yield Usage(title, named.marks[index], most, by.count(index))

    def _most(self, index: int) -> int:
        """Return the most that one period of a calendar quota counted."""
        return max((outcome.reading.used[index] for outcome in self.outcomes), default=0)

    def _marks(self) -> list[int | None]:
        """Return the limit of each window, those of soft quotas included."""
        named = bound(self.limits, "")
        return [*(w.limit for w in self.plan.windows), *(() if named is None else named.marks)]

    def timeline(self, buckets: int = 60) -> list[Bucket]:
        """Return the simulation in ``buckets`` parts of equal length."""
        if not self.outcomes:
            return []
        start, end = self.outcomes[0].arrival.at, self.outcomes[-1].arrival.at
        length = max(1, -(-(end - start + 1) // buckets))
        used = (0,) * len(_windows(self.plan, self.limits))
        parts: list[Bucket] = []
        inside: list[Outcome] = []
        rest = iter(self.outcomes)
        following = next(rest, None)
        for number in range(-(-(end - start + 1) // length)):
            until = start + (number + 1) * length
            inside.clear()
            while following is not None and following.arrival.at < until:
                inside.append(following)
                following = next(rest, None)
            if inside:
                counts = [outcome.reading.used for outcome in inside]
                used = tuple(map(max, zip(*counts, strict=True)))
            admitted = sum(outcome.allowed for outcome in inside)
            parts.append(Bucket(until - length, admitted, len(inside) - admitted, used))
        return parts


def simulate(
    plan: Plan, arrivals: Trace, limits: Sequence[Limit] = (), holding: Holding | None = None
) -> Simulation:
    """Return the outcome of each call of one organization under a plan.

    Args:
        plan: the organization's plan.
        arrivals: its calls in any order, as instants in microseconds or as arrivals with a cost.
        limits: named limits that all calls are charged for as well, with the same key.
        holding: units that each call holds once it is admitted. A call whose units do not fit is
            refused, and stays charged.

    Raises:
        ConfigurationError: a cost below 1, or limits or units that no rule or hold can have.
    """
    limits = check_limits(limits)
    held = None if holding is None else _Held(holding, limits)
    named = bound(limits, "")
    state, cells = empty_state(plan.windows), dict[str, Cells]()
    outcomes: list[Outcome] = []
    for arrival in in_order(arrivals):
        if arrival.cost < 1:
            raise ConfigurationError(f"A cost is at least 1, not {arrival.cost}.")
        present = None if named is None else named.at(arrival.at, "")
        fields, extra = ((), ()) if present is None else (present.fields, present.windows)
        before = [cells.get(field) for field in fields]
        reading, state, after = hit_limited(
            state, plan.windows, before, extra, arrival.at, arrival.cost
        )
        cells.update(zip(fields, after, strict=True))
        hold = held.take(arrival.at) if held is not None and reading.allowed else None
        outcomes.append(Outcome(arrival, reading, hold))
    return Simulation(plan, tuple(outcomes), limits, holding)


class _Held:
    """The holds of a simulation that are out, and the budgets that they are taken of."""

    def __init__(self, holding: Holding, limits: Sequence[Limit]) -> None:
        _, units, used, span = holding
        check_limits(holding.limits, "A hold has")
        if not holding.limits or not all(limit.is_inside for limit in holding.limits):
            raise ConfigurationError("A hold takes units of limits by organization or by key.")
        names = check_names(limits)
        if both := [limit.name for limit in holding.limits if limit.name in names]:
            raise ConfigurationError(
                f"The limit {both[0]!r} is charged and held of, which count apart: rename one."
            )
        if not (1 <= units <= LARGEST and 0 <= used <= LARGEST and span >= 0):
            raise ConfigurationError("A hold takes 1 to 2**53 - 1 units, and uses 0 to 2**53 - 1.")
        self._named = _budgets_of(holding)
        self._holding = holding
        self._budgets: tuple[Budget | None, ...] = (None,) * len(self._named.fields)
        self._out = deque[tuple[int, str]]()
        """The instants at which holds are settled, and their ids."""
        self._taken = 0

    def take(self, now: int) -> HoldAnswer:
        """Settle the holds that have ended until an instant, then take one."""
        named, (_, units, used, span) = self._named, self._holding
        number = len(named.fields)
        while self._out and self._out[0][0] <= now:
            at, id = self._out.popleft()
            settle = Settle(id, named.fields, (used,) * number, named.quotas)
            _, self._budgets = apply(settle, self._budgets, at)
        self._taken += 1
        id = f"{self._taken:032x}"
        lasts = max(span + 1, MINUTE)  # A deadline after the end of the call.
        take = Take(id, named, (units,) * number, lasts, HOLDS_AT_MOST)
        answer, self._budgets = apply(take, self._budgets, now)
        if answer.done:
            self._out.append((now + span, id))
        return answer


def _budgets_of(holding: Holding) -> LimitWindows:
    """Return the windows of the limits that units are held of."""
    named = bound(holding.limits, "")
    assert named is not None, "each of the limits is by organization or by key"
    return budgets(named).of("")


def _windows(plan: Plan, limits: Sequence[Limit]) -> list[Window]:
    """Return the windows in the order of a reading's ``used``."""
    named = [
        window._replace(name=f"{limit.name} {window.name}")
        for limit in limits
        for window in limit.windows
    ]
    return [*plan.windows, *named]
