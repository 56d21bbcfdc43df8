"""Process hooks: a forked child drops its parent's thread counts and connections."""

from __future__ import annotations

from time import monotonic

import pytest

from lockgate import MemoryStore, run
from lockgate.core.sliding_window import empty_state, hit
from lockgate.errors import StoreUnavailable
from lockgate.events import Events
from lockgate.services.limits.anonymous_limits import AnonymousLimits
from lockgate.stores.resilience.circuit_breaker import CircuitBreaker
from lockgate.stores.resilience.deadlines import Threads, within
from lockgate.stores.resilience.local_limits import LocalLimits
from lockgate.stores.runtime.process_hooks import after_fork_in_child, own_lock
from lockgate.testing import HandClock

from ..forking import AT_FORK, in_a_child
from ..making import BOOK, draft_of, new_key, token_of

pytestmark = AT_FORK


class Told:
    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.forks = 0
        after_fork_in_child(self)

    def forked(self) -> None:
        self.forks += 1
        if self.failure is not None:
            raise self.failure


def test_hooks_are_called_in_the_child_and_not_in_the_parent() -> None:
    told = [Told(), Told(OSError("no room")), Told()]
    assert in_a_child(lambda: b"%d%d%d" % tuple(one.forks for one in told)) == b"111"
    assert [one.forks for one in told] == [0, 0, 0]


def test_a_child_has_none_of_the_threads_that_waited_for_work() -> None:
    threads = Threads(at_most=1)

    def call() -> bytes:
        with within(30):
            return threads.do(lambda: b"done")

    assert call() == b"done"
    assert in_a_child(call) == b"done"
    assert call() == b"done"


def test_a_lock_that_the_parent_holds_is_free_in_the_child() -> None:
    """Its holder is a thread of the parent, which the child does not have."""
    lock = own_lock()
    with lock:
        assert in_a_child(lambda: b"%d" % lock.acquire(timeout=1)) == b"1"
        assert lock.locked()


def test_no_lock_of_a_forked_child_waits_for_a_thread_of_the_parent() -> None:
    made, clock = new_key(), HandClock()
    store = MemoryStore(clock)
    run(store.insert(draft_of(made), None))
    limits = LocalLimits("local", 1, Events(None), clock)
    anonymous = AnonymousLimits(BOOK.default, clock)
    breaker = CircuitBreaker("store", Events(None), failures=1)
    windows = BOOK.default.windows
    reading, _ = hit(empty_state(windows), windows, clock.now, 1)

    def work() -> bytes:
        verdict = run(store.admit(token_of(made), 1, BOOK)).verdict
        limits.note("org_1", windows, reading, 1)
        anonymous.charge("127.0.0.1")
        breaker.failed(False, OSError(), monotonic())
        return verdict.value.encode()

    with store._lock, limits._lock, anonymous._lock, breaker._lock:
        assert in_a_child(work) == b"admitted"


def test_a_child_does_not_wait_for_the_try_that_its_parent_makes() -> None:
    breaker = CircuitBreaker("store", Events(None), failures=1, pause=0)
    breaker.failed(False, OSError(), monotonic())
    assert breaker.enter(), "this process tries whether the store is back"

    def work() -> bytes:
        trying = breaker.enter()
        breaker.succeeded(trying)
        return b"%d%d" % (trying, breaker.is_open)

    assert in_a_child(work) == b"10"
    with pytest.raises(StoreUnavailable):
        breaker.enter()
