"""Slow checks: whether a key is the one that another system hashed by a password hash.

Such a check takes up to half a second on purpose, so it is done outside of any lock or transaction,
in a few threads of its own, and whoever could make them useless to others is bounded:

- an address has a budget of failures, and what it has in progress counts as spent;
- a handle keeps at most two checks busy, so that who knows one does not fill the threads;
- no more than some checks wait; beyond that the answer is 503, at once;
- the same key presented many times at once is checked once.
"""

import os
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from threading import RLock
from typing import Final, NamedTuple

from ..errors import StoreUnavailable
from ..rules.headers import rate_limit_exceeded
from ..rules.plans import Plan
from ..stores.forks import tell_of_forks
from ..stores.local import Clock
from .anonymous import Anonymous
from .hashes import Hashes

FAILURES: Final = Plan("unproven", rpm=10, rph=100, rpd=500, concurrent=0)
"""Wrong keys of another system that one client address may show."""

_AT_ONCE: Final = max(1, min(4, (os.cpu_count() or 1) // 2))
_AT_MOST: Final = 64
_FOR_A_HANDLE: Final = 2


class _Id(NamedTuple):
    """What is being checked: two of the same are one."""

    handle: str
    hashed: bytes
    digest: bytes


class SlowChecks:
    """Checks digests in threads, within bounds.

    Args:
        hashes: how.
        clock: gives the present in microseconds.
    """

    def __init__(self, hashes: Hashes, clock: Clock | None) -> None:
        self._hashes = hashes
        self._failures = Anonymous(FAILURES, clock)
        self._begin()
        tell_of_forks(self)

    def forked(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lock = RLock()  # Closing cancels what waits, which tells us so while we hold it.
        self._pool = ThreadPoolExecutor(_AT_ONCE, "lockgate-legacy")
        self._running: dict[_Id, Future[bool]] = {}
        self._by_address: Counter[str] = Counter()
        self._by_handle: Counter[str] = Counter()

    def check(
        self, handle: str, scheme: str, hashed: bytes, digest: bytes, address: str
    ) -> "Future[bool]":
        """Whether this was hashed to that digest; the future may be shared.

        Raises:
            RateLimitExceeded: the address has shown too many wrong keys.
            StoreUnavailable: too many checks wait: it or its handle has its share in progress.
        """
        id = _Id(handle, sha256(hashed).digest(), digest)
        with self._lock:
            running = self._running.get(id)
            if running is not None:
                return running
            self._refuse_spent(address)
            if self._by_handle[handle] >= _FOR_A_HANDLE or len(self._running) >= _AT_MOST:
                raise StoreUnavailable
            check = self._pool.submit(self._hashes.verify, scheme, hashed, digest.decode())
            self._running[id] = check
            self._by_address[address] += 1
            self._by_handle[handle] += 1
        # Whoever asked may be gone by then: the failure is charged all the same.
        check.add_done_callback(partial(self._done, id, address))
        return check

    def close(self) -> None:
        """Forget the checks that wait, and let the threads end."""
        with self._lock:  # Before the pool's own, as where checks are begun.
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _refuse_spent(self, address: str) -> None:
        left = self._failures.look(address)
        if not left.allowed:
            refusal = rate_limit_exceeded(self._failures.plan.windows, left)
            refusal.measured = self._failures.plan, left
            raise refusal
        assert left.remaining is not None, "the plan has limits"
        if left.remaining <= self._by_address[address]:
            raise StoreUnavailable

    def _done(self, id: _Id, address: str, check: "Future[bool]") -> None:
        if not check.cancelled() and check.exception() is None and not check.result():
            self._failures.charge(address)
        with self._lock:
            del self._running[id]
            for counter, owner in ((self._by_address, address), (self._by_handle, id.handle)):
                counter[owner] -= 1
                if not counter[owner]:
                    del counter[owner]
