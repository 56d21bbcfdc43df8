"""Slow checks: verify imported keys against the password hashes of other systems.

A check takes up to half a second by design, so it runs outside of any lock or transaction, in a
small thread pool. Callers with wrong keys must not starve callers with right keys, so waiting
checks are scheduled and dropped by these rules:

- a client address has a budget of failures; beyond it, its checks are refused;
- at most two checks of a handle are in progress, and handles with fewer of them come first, so an
  attack on one handle does not delay the keys of others;
- checks of one handle are ordered by the number of wrong keys from their client's address in the
  last day, checks in progress included; ties are broken at random. When the queue is full, the last
  check in that order is dropped with 503, so addresses without wrong keys come first;
- concurrent checks of the same key share one result.
"""

import os
import re
from collections import Counter
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from random import random
from threading import RLock
from typing import Any, Final, NamedTuple

from ...clock import Clock
from ...core.plans import Plan
from ...core.rate_limit_headers import rate_limit_exceeded
from ...errors import ConfigurationError, StoreUnavailable
from ...stores.runtime.process_hooks import after_fork_in_child
from ..limits.anonymous_limits import AnonymousLimits

FAILURES: Final = Plan("unproven", rpm=10, rph=100, rpd=500, concurrent=0)
"""The budget of wrong imported keys of one client address."""

_AT_ONCE: Final = max(1, min(4, (os.cpu_count() or 1) // 2))
_AT_MOST: Final = 64
_OF_A_HANDLE: Final = 2
"""Checks of one handle in progress."""
_WAITING_OF_A_HANDLE: Final = 8

_BCRYPT: Final = re.compile(r"\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}")
_PLAIN_BCRYPT: Final = {"bcrypt", "django_bcrypt"}
"""The schemes that give the key itself to bcrypt."""
_BCRYPT_BYTES: Final = 72
"""All that bcrypt reads: its library before version 5 accepts every key that begins with them."""


class PasswordHashes:
    """Identifies and verifies password hashes of some schemes.

    ``bcrypt`` uses its own library, which accepts any bytes; passlib refuses a NUL.

    Args:
        schemes: names from :data:`lockgate.core.imported_keys.SLOW`.

    Raises:
        ConfigurationError: the library of a scheme is not installed.
    """

    def __init__(self, schemes: Collection[str]) -> None:
        try:
            import bcrypt
            from passlib.context import CryptContext  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs] - libpass has none
        except ModuleNotFoundError as missing:
            raise ConfigurationError(
                f"Legacy keys with a slow hash need {missing.name}: pip install 'lockgate[legacy]'."
            ) from missing
        self._bcrypt = bcrypt if "bcrypt" in schemes else None
        others = sorted(set(schemes) - {"bcrypt"})
        self._context: Any = CryptContext(schemes=others) if others else None

    def identify(self, digest: str) -> str | None:
        """Return the scheme of a digest; None if it is of no known scheme or malformed."""
        if self._bcrypt is not None and _BCRYPT.fullmatch(digest):
            return "bcrypt"
        if self._context is None:
            return None
        try:
            scheme: str | None = self._context.identify(digest)
            if scheme is not None:
                self._context.needs_update(digest)  # Parses the whole digest.
        except ValueError:
            return None
        return scheme

    def verify(self, scheme: str, hashed: bytes, digest: str) -> bool:
        """Return whether a digest is the hash of these bytes."""
        try:
            if scheme in _PLAIN_BCRYPT and len(hashed) > _BCRYPT_BYTES:
                return False
            if scheme != "bcrypt":
                return bool(self._context.verify(hashed, digest))
            assert self._bcrypt is not None, "the scheme was declared"
            return bool(self._bcrypt.checkpw(hashed, digest.encode()))
        except ValueError:  # The digest is malformed, or the hash cannot take the key.
            return False


class _Id(NamedTuple):
    """Identity of a check: checks with the same identity share one result."""

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
        """Recent wrong keys of the address, and a random tie-breaker: the lowest comes first."""
        self.future: Future[bool] = Future()


class PasswordChecks:
    """Checks password hashes in a bounded thread pool.

    Args:
        hashes: verifies one hash.
        clock: returns the present in microseconds.
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
        """Waiting checks by handle."""
        self._running: Counter[str] = Counter()
        """Numbers of running checks by handle."""
        self._by_address: Counter[str] = Counter()

    def check(
        self, handle: str, scheme: str, hashed: bytes, digest: bytes, address: str
    ) -> "Future[bool]":
        """Return a future that tells whether ``digest`` is the hash of ``hashed``.

        Callers of the same check share the future. It raises StoreUnavailable if the check is
        dropped in favour of others.

        Raises:
            RateLimitExceeded: the address has shown too many wrong keys.
            StoreUnavailable: too many checks wait, or checks in progress use up the address's
                budget.
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
        """Refuse the waiting checks, and let the threads end."""
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
        """Return the number of wrong keys that an address has shown in the last day."""
        return self._failures.peek(address).used[-1]

    def _start(self) -> None:
        """Start waiting checks while threads are free."""
        while self._running.total() < _AT_ONCE:
            ready = [h for h in self._waiting if self._running[h] < _OF_A_HANDLE]
            if not ready:
                return
            # Of the handles with the fewest running checks, the one that has waited longest.
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
            if not right:  # Charged even if the caller has disconnected.
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
        """Drop a check if more wait than allowed, for this handle or in all."""
        of_handle = self._waiting.get(handle, [])
        if len(of_handle) > _WAITING_OF_A_HANDLE:
            self._drop(max(of_handle, key=lambda waiting: waiting.place))
        elif len(self._checks) > _AT_MOST:
            # Drop from the handles with the most waiting checks.
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
        """Remove a check from the waiting ones, and move its handle to the end of the order."""
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
