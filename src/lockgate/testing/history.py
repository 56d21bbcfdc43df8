"""Histories of calls that overlapped, and the search for an order that explains their answers.

A history is linearizable when its calls have a sequential order that respects their times and in
which the model answers as the store did (W3). A call whose answer was lost may take effect at any
time after it began, or not at all.

The search is by J. M. Wing and C. Gong (1993) with G. Lowe's memoization (2017): each set of
ordered calls with its resulting world is examined once.
"""

from collections.abc import Callable, Coroutine, Sequence
from math import inf
from time import perf_counter_ns
from typing import Any, Final, NamedTuple, cast

from ..stores.base import Store
from .calls import LOST, Call, Lost, Raised, show
from .guarantees import Broken
from .model import World, expect

_STEPS_AT_MOST: Final = 100_000


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


class Recorder:
    """Passes calls on to a store, and records their begin, end and answer."""

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

    def __getattr__(self, verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def recorded(*arguments: Any, **options: Any) -> Any:
            call = Call(verb, arguments, tuple(options.items()))
            event: list[Any] = [call, perf_counter_ns(), inf, LOST]
            self._events.append(event)
            answer = await call.on(self._store)
            # After a driver's exception the outcome of a call is unknown.
            if not (isinstance(answer, Raised) and ":" in answer.error):
                event[3] = answer
                event[2] = perf_counter_ns()
            return answer

        return recorded


def order_of(history: Sequence[Event], world: World | None = None) -> list[Event] | None:
    """Return an order of the calls that explains every answer; None without one.

    A search that takes too long returns the history unchanged, which counts as correct.
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
    return list(history)


def _next(
    history: Sequence[Event], left: frozenset[int], world: World, order: tuple[int, ...]
) -> list[tuple[frozenset[int], World, tuple[int, ...]]]:
    """Return every continuation by one call that no remaining call had to precede."""
    first_end = min(history[index].ended for index in left)
    ways: list[tuple[frozenset[int], World, tuple[int, ...]]] = []
    for index in left:
        event = history[index]
        if event.began > first_end:
            continue
        answer, after = expect(world, event.call)
        if not event.lost and answer != event.answer:
            continue
        way = (left - {index}, after, (*order, index))
        if not event.lost and after == world:
            return [way]  # It leaves the world unchanged, so its place does not matter.
        ways.append(way)
    return ways


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
    """
    if order_of(history, world) is not None:
        return
    ends = sorted(event.ended for event in history if not event.lost)
    low, high = 0, len(ends) - 1
    while low < high:  # Bisect for the shortest history that has no order.
        middle = (low + high) // 2
        if order_of(_until(history, ends[middle]), world) is None:
            high = middle
        else:
            low = middle + 1
    short = _until(history, ends[high])
    start = short[0].began if short else 0
    last = "No order of these calls explains the answers, the last of which is that to: "
    culprit = next(event.call for event in short if event.ended == ends[high])
    raise Broken(sentence, f"{last}{culprit}.", [_line(event, start) for event in short])


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
