"""Slow checks: whether a key is the one that another system hashed by a password hash.

Such a check takes up to half a second on purpose, so it is done outside of any lock or transaction,
in a few threads of its own. Callers who show wrong keys must not keep the right one out, so checks
that wait are chosen and dropped by these rules:

- a client address has a budget of failures; beyond it, its checks are refused;
- at most two checks of a handle are in progress, and handles with fewer of them come first, so an
  attack on one handle does not delay the keys of others;
- of one handle, the check comes first whose address has shown the fewest wrong keys lately, those
  in progress included; between equals chance decides. Where no place is left the last of that order
  is dropped, with 503. So each wrong key makes its address give way to one that has shown none;
- the same key presented many times at once is checked once.
"""

import os
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from random import random
from threading import RLock
from typing import Final, NamedTuple

from ..core.plans import Plan
from ..core.rate_limit_headers import rate_limit_exceeded
from ..errors import StoreUnavailable
from ..stores.memory.windows import Clock
from ..stores.runtime.process_hooks import after_fork_in_child
from .anonymous_limits import AnonymousLimits
from .password_hashes import PasswordHashes

FAILURES: Final = Plan("unproven", rpm=10, rph=100, rpd=500, concurrent=0)
"""Wrong keys of another system that one client address may show."""

_AT_ONCE: Final = max(1, min(4, (os.cpu_count() or 1) // 2))
_AT_MOST: Final = 64
_OF_A_HANDLE: Final = 2
"""Checks of one handle in progress."""
_WAITING_OF_A_HANDLE: Final = 8


class _Id(NamedTuple):
    """What is being checked: two of the same are one."""

    handle: str
    hashed: bytes
    digest: bytes


class _Check:
    """A check that waits or is in progress."""

    __slots__ = ("address", "future", "hashed", "id", "place", "scheme")

    def __init__(
        self, id: _Id, scheme: str, hashed: bytes, address: str, place: tuple[int, float]
    ) -> None:
        self.id = id
        self.scheme = scheme
        self.hashed = hashed
        self.address = address
        self.place = place
        """Wrong keys of the address lately, and a number drawn: the lowest comes first."""
        self.future: Future[bool] = Future()


class PasswordChecks:
    """Checks digests in threads, within bounds.

    Args:
        hashes: how.
        clock: gives the present in microseconds.
    """

    def __init__(self, hashes: PasswordHashes, clock: Clock | None) -> None:
        self._hashes = hashes
        self._failures = AnonymousLimits(FAILURES, clock)
        self._begin()
        after_fork_in_child(self)

    def forked(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lock = RLock()
        self._pool = ThreadPoolExecutor(_AT_ONCE, "lockgate-legacy")
        self._closed = False
        self._checks: dict[_Id, _Check] = {}
        self._waiting: dict[str, list[_Check]] = {}
        """By handle."""
        self._running: Counter[str] = Counter()
        """By handle."""
        self._by_address: Counter[str] = Counter()

    def check(
        self, handle: str, scheme: str, hashed: bytes, digest: bytes, address: str
    ) -> "Future[bool]":
        """Whether this was hashed to that digest; the future may be shared.

        The future raises StoreUnavailable if the check has to give way to others.

        Raises:
            RateLimitExceeded: the address has shown too many wrong keys.
            StoreUnavailable: too many checks wait, or the address has its share in progress.
        """
        id = _Id(handle, sha256(hashed).digest(), digest)
        with self._lock:
            known = self._checks.get(id)
            if known is None:
                self._refuse_spent(address)
            place = self._failed(address) + self._by_address[address], random()  # noqa: S311 - no secret
            if known is not None:
                known.place = min(known.place, place)
                return known.future
            if self._closed:
                raise StoreUnavailable
            check = _Check(id, scheme, hashed, address, place)
            self._checks[id] = check
            self._waiting.setdefault(handle, []).append(check)
            self._by_address[address] += 1
            self._start()
            self._drop_last(handle)
            return check.future

    def close(self) -> None:
        """Refuse the checks that wait, and let the threads end."""
        with self._lock:
            self._closed = True
            for check in [check for checks in self._waiting.values() for check in checks]:
                self._drop(check)
        self._pool.shutdown(wait=False)

    def _refuse_spent(self, address: str) -> None:
        left = self._failures.peek(address)
        if not left.allowed:
            refusal = rate_limit_exceeded(self._failures.plan.windows, left)
            refusal.measured = self._failures.plan, left
            raise refusal
        assert left.remaining is not None, "the plan has limits"
        if left.remaining <= self._by_address[address]:
            raise StoreUnavailable

    def _failed(self, address: str) -> int:
        """How many wrong keys an address has shown in a day."""
        return self._failures.peek(address).used[-1]

    def _start(self) -> None:
        """Begin as many checks as there are threads for."""
        while self._running.total() < _AT_ONCE:
            ready = [h for h in self._waiting if self._running[h] < _OF_A_HANDLE]
            if not ready:
                return
            # The one that has waited longest, of the handles that keep the fewest threads busy.
            handle = min(ready, key=self._running.__getitem__)
            check = min(self._waiting[handle], key=lambda waiting: waiting.place)
            self._unqueue(check)
            if check.future.set_running_or_notify_cancel():
                self._running[handle] += 1
                self._pool.submit(self._work, check)
            else:
                self._forget(check)

    def _work(self, check: _Check) -> None:
        right, failure = False, None
        try:
            right = self._hashes.verify(check.scheme, check.hashed, check.id.digest.decode())
            if not right:  # Whoever asked may be gone by then: it is charged all the same.
                self._failures.charge(check.address)
        except Exception as raised:
            failure = raised
        with self._lock:
            self._running[check.id.handle] -= 1
            if not self._running[check.id.handle]:
                del self._running[check.id.handle]
            self._forget(check)
            if not self._closed:
                self._start()
        if failure is None:
            check.future.set_result(right)
        else:
            check.future.set_exception(failure)

    def _drop_last(self, handle: str) -> None:
        """Drop a check, if more wait of a handle or in all than may."""
        of_handle = self._waiting.get(handle, [])
        if len(of_handle) > _WAITING_OF_A_HANDLE:
            self._drop(max(of_handle, key=lambda waiting: waiting.place))
        elif len(self._checks) > _AT_MOST:
            # Of the handles for which the most checks wait.
            most = max(map(len, self._waiting.values()))
            crowded = [checks for checks in self._waiting.values() if len(checks) == most]
            waiting = [check for checks in crowded for check in checks]
            self._drop(max(waiting, key=lambda waiting: waiting.place))

    def _drop(self, check: _Check) -> None:
        self._unqueue(check)
        self._forget(check)
        if check.future.set_running_or_notify_cancel():
            check.future.set_exception(StoreUnavailable())

    def _unqueue(self, check: _Check) -> None:
        """Take a check out of those that wait; its handle comes last from there on."""
        handle = check.id.handle
        waiting = self._waiting.pop(handle)
        waiting.remove(check)
        if waiting:
            self._waiting[handle] = waiting

    def _forget(self, check: _Check) -> None:
        del self._checks[check.id]
        self._by_address[check.address] -= 1
        if not self._by_address[check.address]:
            del self._by_address[check.address]
