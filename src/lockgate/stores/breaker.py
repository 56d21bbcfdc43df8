"""The circuit breaker: keeps a store that is away from costing every request its deadline (D28).

Closed, it lets calls pass. After so many failures in a row it opens: calls are refused at once.
After a pause the next call goes through to try, and no other beside it; if it succeeds the breaker
closes, if not it stays open for another pause. Of some tries nobody hears: their event loop was
stopped, or a signal's handler raised. So one that takes too long is none any more.
"""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from ..errors import StoreUnavailable
from ..events import Events
from .failures import named
from .forks import own_lock, tell_of_forks

FAILURES: Final = 3
PAUSE: Final = 1.0
"""Seconds between tries; what ``retryAfter`` of a 503 says."""
_LOST_AFTER: Final = 60.0
"""Seconds that a try may take."""


class Breaker:
    """Counts the failures of one store in one process.

    Args:
        name: the store, for the events ``breaker_opened``, ``breaker_tried`` and
            ``breaker_closed``.
        events: where these are told.
        failures: how many in a row open it.
        pause: seconds until a call may try again.
        clock: gives seconds that never run backwards.
    """

    def __init__(
        self,
        name: str,
        events: Events,
        *,
        failures: int = FAILURES,
        pause: float = PAUSE,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._name = name
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
        tell_of_forks(self)

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
        self._events.tell("breaker_tried", logging.INFO, store=self._name)
        return True

    def obey(self) -> None:
        """Let a call pass that says nothing about the store.

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
            self._events.tell("breaker_closed", logging.WARNING, store=self._name, away=away)

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
            self._try_at = now + self._pause
            if self._opened_at is not None:
                return True
            self._opened_at = now
        error = named(failure)
        self._events.tell("breaker_opened", logging.ERROR, store=self._name, error=error)
        return True

    def dropped(self, trying: bool) -> None:
        """Nothing was learned: whoever asked went away, or asked nonsense."""
        if trying:
            with self._lock:
                self._trying = False
