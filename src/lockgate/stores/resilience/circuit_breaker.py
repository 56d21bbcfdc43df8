"""The circuit breaker: fail calls at once while a store is away, without their deadline (D28).

Closed, it lets calls pass. After three failures in a row it opens: calls are refused at once. After
a pause one call probes the store; if the probe succeeds the breaker closes, otherwise it stays open
for another pause. A probe in a stopped event loop never ends, so a probe expires after a minute.

Failures of concurrent calls count once: after a failure, the next to count is a call that started
later. So a burst that waits for one connection, or for one lock, opens no breaker.

A store of several servers has a breaker for each of them (:class:`CircuitBreakers`), and operates
them itself: only the store knows the server of each call.
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
"""Seconds between probes; also ``retryAfter`` of a 503."""
_LOST_AFTER: Final = 60.0
"""Seconds after which a probe has expired."""
NODE_PAUSE: Final = 0.25
"""Seconds between probes of one of several servers: another may have taken its place."""
_PRUNED_EVERY: Final = 1.0


class Teller(Protocol):
    """Receives events: :class:`~lockgate.events.Events`, or several of them."""

    def emit(self, name: str, level: int = ..., **fields: object) -> None:
        """Report an event."""


class CircuitBreaker:
    """Counts the failures of one store, or of one of its servers, in one process.

    Args:
        name: the store, for the events ``breaker_opened``, ``breaker_tried`` and
            ``breaker_closed``.
        events: receives these events.
        node: the server, for the same events; empty: the store has one breaker.
        failures: the number of failures in a row that opens the breaker.
        pause: seconds until the next probe.
        clock: returns monotonic seconds.
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
        """Failures in a row; 0: the breaker is closed, and callers need not report a success."""
        self._failed_at = -inf
        """The instant at which the latest failure was counted, in monotonic seconds."""
        self._opened_at: float | None = None
        self._try_at = 0.0
        self._trying = False
        after_fork_in_child(self)

    def forked(self) -> None:
        """Leave a probe in progress to the parent process, which alone sees its end."""
        self._trying = False

    @property
    def is_open(self) -> bool:
        """Whether calls are refused, except for a probe after each pause."""
        return self._opened_at is not None

    def enter(self) -> bool:
        """Admit a call; return whether it is the probe: its outcome must be reported.

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
        """Admit a call that does not count for the breaker.

        Raises:
            StoreUnavailable: the breaker is open.
        """
        if self.is_open:
            raise StoreUnavailable

    def succeeded(self, trying: bool) -> None:
        """Report that a call was answered."""
        if not trying:
            if self.failures:
                with self._lock:  # Another thread may be opening the breaker.
                    if self._opened_at is None:
                        self.failures = 0
            return
        with self._lock:
            opened_at, self._opened_at = self._opened_at, None
            self._trying = False
            self.failures = 0
        if opened_at is not None:
            away = round(self._clock() - opened_at, 3)
            self._events.emit("breaker_closed", logging.WARNING, **self._about, away=away)

    def failed(self, trying: bool, failure: BaseException, asked_at: float) -> bool:
        """Report that a call failed, or was late; return whether the breaker is open now.

        Args:
            trying: whether it was the probe.
            failure: its exception.
            asked_at: its start, by the breaker's clock.
        """
        with self._lock:
            now = self._clock()
            if trying:
                self._trying = False
            elif self._opened_at is not None or asked_at < self._failed_at:
                return False  # It started before another call failed, perhaps by the same cause.
            self.failures += 1
            self._failed_at = now
            if self.failures < self._threshold and not trying:
                return False
            # Probes start a pause apart, independently of their duration.
            self._try_at = max(now, self._try_at + self._pause) if trying else now + self._pause
            if self._opened_at is not None:
                return True
            self._opened_at = now
        error = kind_of(failure)
        self._events.emit("breaker_opened", logging.ERROR, **self._about, error=error)
        return True

    def dropped(self, trying: bool) -> None:
        """Report a call without information about the store: it was cancelled or invalid."""
        if trying:
            with self._lock:
                self._trying = False


class CircuitBreakers:
    """A circuit breaker for each server of a store, by the server's name.

    There are no breakers until a gate calls :meth:`watch`. The deadline of a call decides whether
    its failure counts: with less than half of a request's deadline, the failure may not be the
    server's; with more, the call serves no request. Such calls only obey the breaker.

    Args:
        name: the store, for the events.
        clock: returns monotonic seconds.
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
        """The breakers of servers whose latest call failed. Empty: callers need not report a
        success."""

    def watch(self, events: Events, deadline: float) -> None:
        """Operate breakers from now on.

        Args:
            events: receives ``breaker_opened``, ``breaker_tried`` and ``breaker_closed``.
            deadline: seconds for a call of a request.
        """
        self._watching = *self._watching, events
        self._shortest = min(self._shortest, deadline)
        self._longest = max(self._longest, deadline)

    def emit(self, name: str, level: int = logging.DEBUG, **fields: object) -> None:
        """Report an event to every gate that called :meth:`watch`."""
        for events in self._watching:
            events.emit(name, level, **fields)

    def enter(self, node: str) -> bool:
        """Admit a call to a server; return whether it is the probe, as
        :meth:`CircuitBreaker.enter`.

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
        """Report that a server answered."""
        breaker = self.failing.get(node)
        if breaker is not None:
            breaker.succeeded(trying)
            if not breaker.failures:
                self.failing.pop(node, None)

    def failed(
        self, node: str, failure: BaseException, asked_at: float, trying: bool = False
    ) -> bool:
        """Report that a server did not answer; return whether its breaker is open now.

        Args:
            node: the server.
            failure: the exception.
            asked_at: the start of the call, in monotonic seconds.
            trying: whether :meth:`enter` returned True.
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
        return breaker.failed(trying, failure, asked_at)

    def dropped(self, node: str, trying: bool) -> None:
        """Report a call without information about its server."""
        if trying and (breaker := self.failing.get(node)) is not None:
            breaker.dropped(trying)

    def prune(self, nodes: Callable[[], Set[str]]) -> None:
        """Close the breakers of servers that have left, once a second.

        Args:
            nodes: returns the present servers; empty: they are not known.
        """
        now = self._clock()
        if now < self._prune_at:
            return
        self._prune_at = now + _PRUNED_EVERY
        held = nodes()
        for node in list(self.failing) if held else ():
            if node not in held and (breaker := self.failing.pop(node, None)) is not None:
                breaker.succeeded(trying=True)
