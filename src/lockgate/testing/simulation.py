"""Simulate a plan: apply the rule to a trace, without server, store or clock."""

from collections.abc import Sequence
from typing import NamedTuple

from ..core.limit_hits import hit_limited
from ..core.limits import Limit, bound, check_limits
from ..core.plans import Plan
from ..core.sliding_window import Cells, Reading, Window, empty_state
from ..errors import ConfigurationError
from .trace import Arrival, Trace, in_order, worst


class Outcome(NamedTuple):
    """The outcome of one call."""

    arrival: Arrival
    reading: Reading

    @property
    def allowed(self) -> bool:
        """Whether the call was admitted."""
        return self.reading.allowed


class Usage(NamedTuple):
    """One window of the plan, or of a named limit, over the whole simulation."""

    name: str
    """``minute``, ``hour`` or ``day``; of a named limit behind its name, as in ``export hour``."""
    limit: int | None
    worst: int
    """The most admitted in any span of its length; of a calendar quota, in any of its periods."""
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

    @property
    def admitted(self) -> list[Arrival]:
        """The calls that were admitted."""
        return [outcome.arrival for outcome in self.outcomes if outcome.allowed]

    @property
    def refused(self) -> list[Arrival]:
        """The calls that were refused."""
        return [outcome.arrival for outcome in self.outcomes if not outcome.allowed]

    @property
    def longest_wait(self) -> int:
        """Return the longest wait of any refusal, in microseconds."""
        return max((outcome.reading.wait for outcome in self.outcomes), default=0)

    def windows(self) -> list[Usage]:
        """Return each window of the plan, then each of the named limits: its limit, the most in any
        span, and its refusals."""
        admitted, by = self.admitted, [outcome.reading.refused_by for outcome in self.outcomes]
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


def simulate(plan: Plan, arrivals: Trace, limits: Sequence[Limit] = ()) -> Simulation:
    """Return the outcome of each call of one organization under a plan.

    Args:
        plan: the organization's plan.
        arrivals: its calls in any order, as instants in microseconds or as arrivals with a cost.
        limits: named limits that all calls are charged for as well, with the same key.

    Raises:
        ConfigurationError: a cost below 1, or limits that no rule can have.
    """
    named = bound(check_limits(limits), "")
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
        outcomes.append(Outcome(arrival, reading))
    return Simulation(plan, tuple(outcomes), tuple(limits))


def _windows(plan: Plan, limits: Sequence[Limit]) -> list[Window]:
    """Return the windows in the order of a reading's ``used``."""
    named = [
        window._replace(name=f"{limit.name} {window.name}")
        for limit in limits
        for window in limit.windows
    ]
    return [*plan.windows, *named]
