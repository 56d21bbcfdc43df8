"""Histories of calls that overlapped, and the search for an order that explains their answers.

A history is linearizable when its calls have a sequential order that respects their times and in
which the model answers as the store did (W3). A call whose answer was lost may take effect at any
time after it began, or not at all.

The search is by J. M. Wing and C. Gong (1993) with G. Lowe's memoization (2017): each set of
ordered calls with its resulting world is examined once.
"""

from collections.abc import Sequence
from math import inf
from time import perf_counter_ns
from typing import Any, Final, NamedTuple, cast

from ..errors import ConfigurationError
from ..stores.base import Store
from .calls import LOST, Call, Lost, Raised, show
from .guarantees import Broken
from .model import World, expect, unjudged

_STEPS_AT_MOST: Final = 100_000
_REFUSALS: Final = frozenset({"HandleTaken", "KeyLimitReached"})
"""The errors that are answers of the contract."""


class Undecided(Exception):
    """The search for an order gave up: the history is neither explained nor refuted."""


class Event(NamedTuple):
    """One call of a history, with its begin and end by a clock that all callers share."""

    call: Call
    began: float
    ended: float
    answer: Any

    @property
    def lost(self) -> bool:
        """Whether the call's outcome is unknown."""
        return isinstance(self.answer, Lost)


_UNRECORDED: Final = frozenset({"io", "close", "ready", "now"})
"""Attributes of a store that a :class:`Recorder` passes on: they change no state."""


class Recorder:
    """Passes calls on to a store, and records their begin, end and answer.

    It refuses calls whose answers the model cannot know: calls without ``now`` go by the store's
    clock, walks are no single step, and verbs such as ``scan`` are no part of the model.
    """

    def __init__(self, store: object) -> None:
        self._store = store
        self._events: list[list[Any]] = []

    @property
    def store(self) -> Store:
        """The recorder, to be called like the store."""
        return cast(Store, self)

    @property
    def history(self) -> list[Event]:
        """Return the recorded calls by their begin; a call without an end is lost."""
        return sorted((Event(*event) for event in self._events), key=lambda event: event.began)

    def __getattr__(self, verb: str) -> Any:
        if verb in _UNRECORDED or verb.startswith("_"):
            return getattr(self._store, verb)

        async def recorded(*arguments: Any, **options: Any) -> Any:
            call = Call(verb, arguments, tuple(options.items()))
            if reason := unjudged(call):
                raise ConfigurationError(f"A Recorder cannot judge {call}: {reason}.")
            event: list[Any] = [call, perf_counter_ns(), inf, LOST]
            self._events.append(event)
            answer = await call.on(self._store)
            # After any other exception the outcome of a call is unknown.
            if not isinstance(answer, Raised) or answer.error in _REFUSALS:
                event[3] = answer
                event[2] = perf_counter_ns()
            return answer

        return recorded


def order_of(history: Sequence[Event], world: World | None = None) -> list[Event] | None:
    """Return an order of the calls that explains every answer; None without one.

    Raises:
        Undecided: the search takes too long.
    """
    world = world or World()
    everything = frozenset(range(len(history)))
    seen: set[object] = set()
    stack: list[tuple[frozenset[int], World, tuple[int, ...]]] = [(everything, world, ())]
    for _ in range(_STEPS_AT_MOST):
        if not stack:
            return None
        left, world, order = stack.pop()
        if all(history[index].lost for index in left):
            return [history[index] for index in order]
        state = (left, world.fingerprint())
        if state in seen:
            continue
        seen.add(state)
        stack += _next(history, left, world, order)
    raise Undecided(
        f"After {_STEPS_AT_MOST} steps no order of these {len(history)} calls is found, and some "
        "orders are left: record fewer calls, or fewer that overlap."
    )


def _next(
    history: Sequence[Event], left: frozenset[int], world: World, order: tuple[int, ...]
) -> list[tuple[frozenset[int], World, tuple[int, ...]]]:
    """Return every continuation by one call that no remaining call had to precede.

    The last are those that leave the world unchanged. They are tried first, but not alone: a call
    that changes nothing here, such as the renewal of a hold, may explain others at a later place.
    """
    first_end = min(history[index].ended for index in left)
    ways: list[tuple[frozenset[int], World, tuple[int, ...]]] = []
    unchanged: list[tuple[frozenset[int], World, tuple[int, ...]]] = []
    for index in left:
        event = history[index]
        if event.began > first_end:
            continue
        answer, after = expect(world, event.call)
        if not event.lost and answer != event.answer:
            continue
        way = (left - {index}, after, (*order, index))
        (ways if event.lost or after != world else unchanged).append(way)
    return ways + unchanged


def assert_linearizable(
    history: Sequence[Event], world: World | None = None, sentence: str = "W3"
) -> None:
    """Check that some order of the calls explains the history.

    Args:
        history: the calls, as :class:`Recorder` records them.
        world: the world before the first of them.
        sentence: the id of the guarantee to name if no order exists.

    Raises:
        Broken: with the calls up to the first answer that no order explains.
        Undecided: the search takes too long.
    """
    if order_of(history, world) is not None:
        return
    ends = sorted(event.ended for event in history if not event.lost)
    low, high = 0, len(ends) - 1
    while low < high:  # Bisect for the shortest history that has no order.
        middle = (low + high) // 2
        if _is_refuted(_until(history, ends[middle]), world):
            high = middle
        else:
            low = middle + 1
    short = _until(history, ends[high])
    start = short[0].began if short else 0
    last = "No order of these calls explains the answers, the last of which is that to: "
    culprit = next(event.call for event in short if event.ended == ends[high])
    raise Broken(sentence, f"{last}{culprit}.", [_line(event, start) for event in short])


def _is_refuted(history: Sequence[Event], world: World | None) -> bool:
    try:
        return order_of(history, world) is None
    except Undecided:
        return False


def _until(history: Sequence[Event], end: float) -> list[Event]:
    """Return the history as of an instant; calls that had not ended are lost."""
    return [
        event if event.ended <= end else event._replace(ended=inf, answer=LOST)
        for event in history
        if event.began <= end
    ]


def _line(event: Event, start: float) -> str:
    began = (event.began - start) / 1000
    ended = "......." if event.ended == inf else f"{(event.ended - start) / 1000:7.0f}"
    return f"[{began:7.0f} {ended}] {event.call} -> {show(event.answer)}"
