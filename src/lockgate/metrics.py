"""Counters of one gate in one process, for Prometheus, OpenTelemetry or a page of the host.

A gate always counts: an addition costs less than asking whether a metrics system is attached.
:mod:`lockgate.prometheus` and :mod:`lockgate.opentelemetry` read the counters when they are
scraped. No label holds a key, an organization, a path or an address, so the number of series is
bounded by the plans and windows that the host names.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Upper bounds of the histogram of store calls, in seconds; the last bucket has none."""

_PLANS_AT_MOST: Final = 200
"""The maximum number of plan labels: a resolver may return any number of plans. Further plans are
counted together, as ``other``."""

_OTHER: Final = "other"


WATCHED: Final = (
    *("unreadable_state", "internal_error", "store_failed", "limits_fell_back"),
    *("key_row_rejected", "key_row_unreadable", "plain_key_used", "plan_unknown", "redis_evicts"),
)
"""Events that alerts watch. Their series exist before the first of them: a counter that appears
with its first event has not increased, to Prometheus, and an alert on its increase would stay
silent."""


class Refused(NamedTuple):
    """Labels of refusals that are counted together."""

    code: str
    """The error code, as clients see it."""
    plan: str
    """The plan's name; empty: the caller was not authenticated."""
    window: str
    """The type of the full window; empty: no limit refused."""
    shadowed: bool
    """Whether shadow mode let the request pass all the same."""


class Tally:
    """The number of refusals with the same labels."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


class Histogram:
    """Durations of calls, in buckets.

    Attributes:
        counts: calls by bucket of :data:`BUCKETS`, with one more for longer ones.
        total: seconds of all calls together.
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count a call by its duration in seconds."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class Pipelines:
    """Pipelines of calls that a store sent to its servers.

    Attributes:
        sent: pipelines.
        calls: calls in them, so ``calls / sent`` is the mean size.
    """

    __slots__ = ("calls", "sent")

    def __init__(self) -> None:
        self.calls = 0
        self.sent = 0


class StoreCall(NamedTuple):
    """A call of a shared store that a request waited for."""

    system: str
    """The kind of database, as OpenTelemetry's ``db.system.name`` calls it."""
    verb: str
    seconds: float
    error: str | None = None
    """The classes of its failure, as the event ``store_failed`` names them; None: it answered."""


class Metrics:
    """Counters of a gate since it was created.

    Threads add without a lock: under contention a count may be short by a few, never too high.

    Attributes:
        admitted: admitted requests by the name of their plan.
        events: events by name.
        store_calls: durations of calls of a shared store by verb.
        batches: transactions of a database that made admissions.
        batched: admissions and other charges in them, so ``batched / batches`` is the mean size.
        pipelines: pipelines to Redis; gates of one store have one counter.
        times_calls: whether calls of a shared store are timed: a collector sets it.
        on_call: receives each timed call when it has ended, in the task or thread of its request.
        repeated_refusals: requests that the refusal cache refused without a call.
        local_decisions: decisions of the local limits, by ``admitted`` and ``refused``.
        open_breakers: when each open circuit breaker opened, by its fields, e.g.
            ``(("store", "RedisStore"),)``.
    """

    def __init__(self) -> None:
        self.admitted: Final[dict[str, int]] = {}
        self._refused: Final[dict[Refused, Tally]] = {}
        self.events: Final[Counter[str]] = Counter()
        self.store_calls: Final[dict[str, Histogram]] = {}
        self.batches = 0
        self.batched = 0
        self.pipelines = Pipelines()
        self.times_calls = False
        self.on_call: Callable[[StoreCall], None] | None = None
        self.repeated_refusals = 0
        self.local_decisions: Final[Counter[str]] = Counter()
        self.open_breakers: Final[set[tuple[tuple[str, str], ...]]] = set()

    def admit(self, plan: str) -> None:
        """Count an admitted request."""
        try:
            self.admitted[plan] += 1
        except KeyError:
            plan = plan if len(self.admitted) < _PLANS_AT_MOST else _OTHER
            self.admitted[plan] = self.admitted.get(plan, 0) + 1

    def refuse(
        self, code: str, plan: str | None, window: str | None, *, shadowed: bool = False
    ) -> None:
        """Count a refused request."""
        self.tally(code, plan, window, shadowed=shadowed).number += 1

    def tally(
        self, code: str, plan: str | None, window: str | None, *, shadowed: bool = False
    ) -> Tally:
        """Return the tally of the refusals with these labels, for a caller that adds to it."""
        labels = Refused(code, plan or "", window or "", shadowed)
        if labels not in self._refused and len(self._refused) >= _PLANS_AT_MOST:
            labels = labels._replace(plan=_OTHER)
        return self._refused.setdefault(labels, Tally())

    @property
    def refused(self) -> Counter[Refused]:
        """Refused requests by their labels, at this moment."""
        tallies = self._refused.copy()
        return Counter({labels: tally.number for labels, tally in tallies.items()})

    def watched_events(self) -> dict[str, int]:
        """Return the events by name, 0 for an event of :data:`WATCHED` that has not happened."""
        return {**dict.fromkeys(WATCHED, 0), **self.events}

    def watched_decisions(self) -> dict[str, int]:
        """Return the decisions of the local limits by outcome, 0 for an outcome without any."""
        return {"admitted": 0, "refused": 0, **self.local_decisions}

    def happen(self, name: str, fields: Mapping[str, object]) -> None:
        """Count an event, and record open breakers."""
        self.events[name] += 1
        if name in {"breaker_opened", "breaker_closed"}:
            about = tuple((n, str(fields[n])) for n in ("store", "node") if n in fields)
            (self.open_breakers.add if name == "breaker_opened" else self.open_breakers.discard)(
                about
            )

    def decide_locally(self, *, admitted: bool) -> None:
        """Count a decision of the local limits while the store is away."""
        self.local_decisions["admitted" if admitted else "refused"] += 1

    def batch(self, size: int) -> None:
        """Count a transaction by its number of charges."""
        self.batches += 1
        self.batched += size

    def call(self, call: StoreCall) -> None:
        """Count a call of a shared store, by its duration if it answered."""
        if call.error is None:
            histogram = self.store_calls.get(call.verb)
            if histogram is None:
                histogram = self.store_calls.setdefault(call.verb, Histogram())
            histogram.observe(call.seconds)
        if self.on_call is not None:
            self.on_call(call)
