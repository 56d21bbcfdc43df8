"""The circuit breaker: keeps a store that is away from costing every request its deadline (D28).

Closed, it lets calls pass. After so many failures in a row it opens: calls are refused at once.
After a pause the next call goes through to try, and no other beside it; if it succeeds the breaker
closes, if not it stays open for another pause. Of some tries nobody hears: their event loop was
stopped, or a signal's handler raised. So one that takes too long is none any more.

A store whose servers fail one by one has a breaker for each (:class:`CircuitBreakers`), and works
them itself: only the store knows which server a call goes to.
"""

import logging
from collections.abc import Callable, Set
from math import inf
from time import monotonic
from typing import Final, Protocol

from ...errors import StoreUnavailable
from ...events import Events
from ..runtime.process_hooks import after_fork_in_child, own_lock
from .deadlines import UNTIL, left
from .failures import kind_of

FAILURES: Final = 3
PAUSE: Final = 1.0
"""Seconds between tries; what ``retryAfter`` of a 503 says."""
_LOST_AFTER: Final = 60.0
"""Seconds that a try may take."""
NODE_PAUSE: Final = 0.25
"""Seconds between tries of one server of several: another may have taken its place."""
_PRUNED_EVERY: Final = 1.0


class Teller(Protocol):
    """Told of events: :class:`~lockgate.events.Events`, or several of them."""

    def emit(self, name: str, level: int = ..., **fields: object) -> None:
        """Tell an event."""


class CircuitBreaker:
    """Counts the failures of one store, or of one of its servers, in one process.

    Args:
        name: the store, for the events ``breaker_opened``, ``breaker_tried`` and
            ``breaker_closed``.
        events: where these are told.
        node: the server, for the same events; empty: the store has one breaker.
        failures: how many in a row open it.
        pause: seconds until a call may try again.
        clock: gives seconds that never run backwards.
    """

    def __init__(
        self,
        name: str,
        events: Teller,
        node: str = "",
        *,
        failures: int = FAILURES,
        pause: float = PAUSE,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._about = {"store": name, "node": node} if node else {"store": name}
        self._events = events
        self._threshold = failures
        self._pause = pause
        self._clock = clock
        self._lock = own_lock()
        self.failures = 0
        """In a row, so far. None: calls pass, and success is no news."""
        self._opened_at: float | None = None
        self._try_at = 0.0
        self._trying = False
        after_fork_in_child(self)

    def forked(self) -> None:
        """Leave a try that is under way to the parent: nobody here would hear how it went."""
        self._trying = False

    @property
    def is_open(self) -> bool:
        """Whether calls are refused, but for one that tries now and then."""
        return self._opened_at is not None

    def enter(self) -> bool:
        """Let a call pass. True: it is the one that tries, and must say how it went.

        Raises:
            StoreUnavailable: the breaker is open.
        """
        if self._opened_at is None:
            return False
        with self._lock:
            now = self._clock()
            if now < self._try_at + (_LOST_AFTER if self._trying else 0):
                raise StoreUnavailable
            self._trying = True
            self._try_at = now
        self._events.emit("breaker_tried", logging.INFO, **self._about)
        return True

    def obey(self) -> None:
        """Let a call pass whose outcome does not count for the breaker.

        Raises:
            StoreUnavailable: the breaker is open.
        """
        if self.is_open:
            raise StoreUnavailable

    def succeeded(self, trying: bool) -> None:
        """A call was answered."""
        if not trying:
            if self.failures and self._opened_at is None:
                self.failures = 0
            return
        with self._lock:
            opened_at, self._opened_at = self._opened_at, None
            self._trying = False
            self.failures = 0
        if opened_at is not None:
            away = round(self._clock() - opened_at, 3)
            self._events.emit("breaker_closed", logging.WARNING, **self._about, away=away)

    def failed(self, trying: bool, failure: BaseException) -> bool:
        """A call was not answered, or too late. True: by this one the breaker is open."""
        with self._lock:
            if trying:
                self._trying = False
            elif self._opened_at is not None:
                return False  # It was on its way when the breaker opened.
            self.failures += 1
            if self.failures < self._threshold and not trying:
                return False
            now = self._clock()
            # Tries begin a pause apart, however long each of them takes.
            self._try_at = max(now, self._try_at + self._pause) if trying else now + self._pause
            if self._opened_at is not None:
                return True
            self._opened_at = now
        error = kind_of(failure)
        self._events.emit("breaker_opened", logging.ERROR, **self._about, error=error)
        return True

    def dropped(self, trying: bool) -> None:
        """Nothing was learned: whoever asked went away, or asked nonsense."""
        if trying:
            with self._lock:
                self._trying = False


class CircuitBreakers:
    """A circuit breaker for each server of a store, by the server's name.

    There are none until a gate watches. A call is judged by the time it has: with as much as a
    request's, its failure counts; with less than half of that it says nothing about the server;
    with more it is no request's, and obeys only.

    Args:
        name: the store, for the events.
        clock: gives seconds that never run backwards.
    """

    def __init__(self, name: str, clock: Callable[[], float] = monotonic) -> None:
        self._name: Final = name
        self._clock: Final = clock
        self._lock: Final = own_lock()
        self._watching: tuple[Events, ...] = ()
        self._shortest = inf
        self._longest = 0.0
        self._prune_at = 0.0
        self.failing: Final[dict[str, CircuitBreaker]] = {}
        """The breakers of servers whose latest call failed. Empty: all is well, and success is no
        news."""

    def watch(self, events: Events, deadline: float) -> None:
        """Work breakers from now on.

        Args:
            events: told when one opens, tries and closes.
            deadline: seconds for a call on the way of a request.
        """
        self._watching = *self._watching, events
        self._shortest = min(self._shortest, deadline)
        self._longest = max(self._longest, deadline)

    def emit(self, name: str, level: int = logging.DEBUG, **fields: object) -> None:
        """Tell every gate that watches."""
        for events in self._watching:
            events.emit(name, level, **fields)

    def enter(self, node: str) -> bool:
        """Let a call to a server pass. True: it is the one that tries, and must say how it went.

        Raises:
            StoreUnavailable: the server's breaker is open.
        """
        breaker = self.failing.get(node)
        if breaker is None:
            return False
        seconds = left()
        if seconds is None or not self._shortest / 2 <= seconds <= self._longest:
            breaker.obey()
            return False
        return breaker.enter()

    def succeeded(self, node: str, trying: bool = False) -> None:
        """A server answered."""
        breaker = self.failing.get(node)
        if breaker is not None:
            breaker.succeeded(trying)
            if not breaker.failures:
                self.failing.pop(node, None)

    def failed(
        self, node: str, failure: BaseException, asked_at: float, trying: bool = False
    ) -> bool:
        """A server did not answer. True: by this call its breaker is open.

        Args:
            node: the server.
            failure: why.
            asked_at: when it was asked, by the clock that never steps.
            trying: whether :meth:`enter` said so.
        """
        until = UNTIL.get()
        if until is None or not self._shortest / 2 <= until - asked_at <= self._longest:
            self.dropped(node, trying)
            return False
        with self._lock:
            breaker = self.failing.get(node)
            if breaker is None:
                breaker = CircuitBreaker(
                    self._name, self, node, pause=NODE_PAUSE, clock=self._clock
                )
                self.failing[node] = breaker
        return breaker.failed(trying, failure)

    def dropped(self, node: str, trying: bool) -> None:
        """Nothing was learned of a server."""
        if trying and (breaker := self.failing.get(node)) is not None:
            breaker.dropped(trying)

    def prune(self, nodes: Callable[[], Set[str]]) -> None:
        """Close the breakers of servers that hold nothing any more, once a second.

        Args:
            nodes: gives those that do; none: that is not known.
        """
        now = self._clock()
        if now < self._prune_at:
            return
        self._prune_at = now + _PRUNED_EVERY
        held = nodes()
        for node in list(self.failing) if held else ():
            if node not in held and (breaker := self.failing.pop(node, None)) is not None:
                breaker.succeeded(trying=True)
