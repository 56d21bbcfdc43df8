"""A document from elsewhere: fetched once for all callers, cached, and fetched again in time."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Final, Generic, TypeVar

from ...sync import outcome
from .process_hooks import own_lock

T = TypeVar("T")
Part = TypeVar("Part")

_RETRY: Final = 5.0
"""Seconds between failed fetches while the cached document is too old to use."""
_LOST: Final = 60.0
"""Seconds after which a fetch is abandoned; its thread may have been lost in a fork."""


class NothingFetched(OSError):
    """The fetch failed, and no cached document is recent enough to use."""


class Withdrawn(ValueError):
    """The source answered that its document no longer has the cached part."""


class SharedFetch(Generic[T]):
    """A document that many callers read parts of.

    One fetch runs at a time, in its own thread, and all callers wait for it. A part that the cached
    document lacks may be new, so it causes a fetch, at most one per cool-down, since anyone may ask
    for a part that does not exist.

    Args:
        fetch: returns the document, or raises. :class:`Withdrawn` drops the cached document; after
            any other exception it is used until it is too old.
        thread: the name of the threads.
        max_age: seconds after which the document is fetched again.
        stale_for: seconds after ``max_age`` for which it is used while fetches fail.
        cool_down: seconds from one fetch to the next.
        timeout: seconds that a caller waits for a fetch.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        fetch: Callable[[], T],
        *,
        thread: str,
        max_age: float,
        stale_for: float,
        cool_down: float,
        timeout: float,
        clock: Callable[[], float],
    ) -> None:
        self._load = fetch
        self._thread = thread
        self._max_age = max_age
        self._stale_for = stale_for
        self._cool_down = cool_down
        self._timeout = timeout
        self._clock = clock
        self._lock = own_lock()
        self._document: T | None = None
        self._fetched_at: float | None = None
        self._started_at: float | None = None
        self._give_up_at = 0.0
        self._fetching: Future[None] | None = None
        self._failed = False

    async def find(self, part: Callable[[T], Part | None], *, renews: bool = True) -> Part | None:
        """Return a part of the document, or None if the newest document has none.

        Args:
            part: returns the part, or None.
            renews: whether a part that is missing in a fresh document causes a fetch.

        Raises:
            NothingFetched: no document is available.
        """
        age = self._age()
        fresh = age is not None and age < self._max_age
        found = self._part(part)
        if fresh and (found is not None or not renews):
            return found
        fetching = self._fetch_if_due(fresh=fresh)
        # A source that hangs delays callers once, not once per cool-down.
        at_hand = found is not None and self._failed and self._usable()
        if fetching is not None and not at_hand:
            try:
                await outcome(fetching, self._patience())
            except TimeoutError:
                self._failed = True
        if not self._usable():
            raise NothingFetched
        return self._part(part)

    def peek(self, part: Callable[[T], Part | None]) -> Part | None:
        """Return a part of the cached document, without a fetch; None also if it is too old."""
        return self._part(part) if self._usable() else None

    def _part(self, part: Callable[[T], Part | None]) -> Part | None:
        document = self._document
        return None if document is None else part(document)

    def _age(self) -> float | None:
        return None if self._fetched_at is None else self._clock() - self._fetched_at

    def _patience(self) -> float:
        """Return the seconds to wait for the running fetch; a hanging one delays callers once."""
        return max(0.0, self._give_up_at - time.monotonic())

    def _usable(self) -> bool:
        age = self._age()
        return age is not None and age < self._max_age + self._stale_for

    def _fetch_if_due(self, *, fresh: bool) -> "Future[None] | None":
        """Return the running fetch, or start one; None during the cool-down."""
        with self._lock:
            if self._fetching is not None and time.monotonic() < self._give_up_at + _LOST:
                return self._fetching
            now = self._clock()
            rest = min(self._cool_down, _RETRY) if self._failed and not fresh else self._cool_down
            if self._started_at is not None and now - self._started_at < rest:
                return None
            self._started_at = now
            self._give_up_at = time.monotonic() + self._timeout
            fetching: Future[None] = Future()
            fetching.set_running_or_notify_cancel()
            thread = Thread(target=self._fetch, args=[fetching], name=self._thread, daemon=True)
            thread.start()
            self._fetching = fetching
            return fetching

    def _fetch(self, fetching: "Future[None]") -> None:
        document: T | None = None
        withdrawn = False
        try:
            document = self._load()
        except BaseException as failure:  # Any failure must reach the waiting callers.
            withdrawn = isinstance(failure, Withdrawn)
        with self._lock:
            if self._fetching is fetching:  # Otherwise it was abandoned for a later one.
                self._failed = document is None
                if document is not None or withdrawn:  # A failed fetch keeps the cached document.
                    self._document = document
                    self._fetched_at = None if document is None else self._clock()
                self._fetching = None
        fetching.set_result(None)
