"""The breaker opens, tries and closes, and one call tries at a time."""

from __future__ import annotations

from threading import Thread
from time import monotonic
from typing import Any

import pytest

from lockgate import Event
from lockgate.errors import StoreUnavailable
from lockgate.events import Events
from lockgate.stores.resilience import deadlines
from lockgate.stores.resilience.circuit_breaker import (
    FAILURES,
    NODE_PAUSE,
    CircuitBreaker,
    CircuitBreakers,
)
from lockgate.stores.resilience.deadlines import within


class Seconds:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    def __init__(self) -> None:
        self.clock = Seconds()
        self.told: list[Event] = []
        self.breaker = CircuitBreaker("X", Events(self.told.append), clock=self.clock)

    def fail(self, times: int = 1) -> None:
        for _ in range(times):
            opened = self.breaker.failed(self.breaker.enter(), OSError(), self.clock())
            assert opened is self.breaker.is_open

    def refuses(self) -> bool:
        try:
            trying = self.breaker.enter()
        except StoreUnavailable:
            return True
        self.breaker.dropped(trying)
        return False

    def names(self) -> list[str]:
        return [event.name for event in self.told]


def test_three_failures_in_a_row_open_the_breaker_unless_a_success_comes_between() -> None:
    bench = Bench()
    bench.fail(2)
    bench.breaker.succeeded(bench.breaker.enter())
    bench.fail(2)
    assert not bench.refuses()  # A call that is dropped counts for neither.
    bench.fail()
    assert bench.refuses()
    assert [(e.name, dict(e.fields)) for e in bench.told] == [
        ("breaker_opened", {"store": "X", "error": "OSError"})
    ]
    with pytest.raises(StoreUnavailable):
        bench.breaker.obey()


def test_after_a_pause_exactly_one_call_probes() -> None:
    bench = Bench()
    bench.fail(3)
    bench.clock.now += 0.99
    assert bench.refuses()
    bench.clock.now += 0.01
    bench.breaker.dropped(bench.breaker.enter())
    assert bench.breaker.enter() is True, "another follows one that was dropped"
    assert bench.refuses()
    bench.breaker.succeeded(True)
    assert bench.breaker.enter() is False
    assert bench.names() == ["breaker_opened", *["breaker_tried"] * 2, "breaker_closed"]
    assert bench.told[-1].fields["away"] == 1.0


def test_a_failed_probe_keeps_the_breaker_open_and_emits_one_event_of_opening() -> None:
    bench = Bench()
    bench.fail(3)
    for _ in range(3):
        bench.clock.now += 1
        bench.fail()
        assert bench.refuses()
    assert bench.names().count("breaker_opened") == 1
    assert bench.names().count("breaker_tried") == 3


def test_probes_begin_a_pause_apart_however_long_each_takes() -> None:
    bench = Bench()
    bench.fail(3)
    bench.clock.now += 1
    for took in (0.25, 1.0):
        trying = bench.breaker.enter()
        bench.clock.now += took
        bench.breaker.failed(trying, OSError(), bench.clock())
        assert bench.refuses() is (took < 1)
        bench.clock.now += 1 - took
    bench.clock.now += 5
    assert bench.breaker.enter() is True


def test_calls_in_progress_do_not_change_an_open_breaker() -> None:
    bench = Bench()
    under_way = [bench.breaker.enter() for _ in range(5)]
    bench.fail(3)
    bench.clock.now += 0.5
    bench.breaker.failed(under_way[0], OSError(), bench.clock())
    bench.breaker.succeeded(under_way[1])
    assert bench.refuses()
    bench.clock.now += 0.5
    assert bench.breaker.enter() is True


def test_calls_that_were_under_way_when_one_failed_are_one_failure() -> None:
    bench = Bench()
    for _ in range(FAILURES):
        asked_at = bench.clock()
        bench.clock.now += 0.25
        assert not bench.breaker.is_open
        for _ in range(100):
            bench.breaker.failed(False, OSError(), asked_at)
            bench.clock.now += 0.001
    assert bench.breaker.is_open
    assert bench.names() == ["breaker_opened"]


def test_a_probe_without_an_outcome_expires_and_another_follows() -> None:
    """As where its event loop was stopped: it neither succeeds nor fails."""
    bench = Bench()
    bench.fail(3)
    bench.clock.now += 1
    assert bench.breaker.enter()
    bench.clock.now += 59
    assert bench.refuses()
    bench.clock.now += 1
    assert bench.breaker.enter()
    assert bench.refuses()
    bench.breaker.succeeded(True)
    assert not bench.breaker.is_open


def test_a_success_while_another_thread_opens_the_breaker_hides_no_failure() -> None:
    """Callers do not ask a breaker without failures: it would stay open, and none would probe."""

    class Interrupted(CircuitBreaker):
        """Another thread fails as soon as a success has read that the breaker is closed."""

        def __init__(self) -> None:
            super().__init__("X", Events(None))
            self.threads: list[Thread] = []
            self.failed(False, OSError(), monotonic())
            self.failed(False, OSError(), monotonic())
            self.threads.append(Thread(target=self.failed, args=(False, OSError(), monotonic())))

        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if name == "_opened_at" and value is None and (threads := self.threads):
                thread = threads.pop()
                thread.start()
                thread.join(0.1)  # It waits for the lock, if the success holds it.
                self.interrupting = thread
            return value

    breaker = Interrupted()
    breaker.succeeded(False)
    breaker.interrupting.join()
    assert breaker.failures
    assert breaker.is_open is (breaker.failures >= FAILURES)


class Nodes:
    """The breakers of a store with a deadline of a second."""

    def __init__(self, clock: Seconds) -> None:
        self.clock = clock
        self.told: list[Event] = []
        self.breakers = CircuitBreakers("X", clock=self.clock)
        self.breakers.watch(Events(self.told.append), 1.0)

    def call(self, node: str, failure: Exception | None, seconds: float = 1.0) -> bool:
        """Ask a server with so much time. Whether it was asked."""
        with within(seconds):
            try:
                trying = self.breakers.enter(node)
            except StoreUnavailable:
                return False
            if failure is None:
                self.breakers.succeeded(node, trying)
            else:
                self.breakers.failed(node, failure, self.clock(), trying)
        return True

    def names(self) -> list[tuple[str, object]]:
        return [(event.name, event.fields["node"]) for event in self.told]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    clock = Seconds()
    monkeypatch.setattr(deadlines, "monotonic", clock)
    return Nodes(clock)


def test_each_server_has_a_separate_breaker_and_separate_probes(nodes: Nodes) -> None:
    told: list[Event] = []
    nodes.breakers.watch(Events(told.append), 1.0)
    for _ in range(FAILURES):
        assert nodes.call("a", OSError())
        assert nodes.call("b", None)
    assert not nodes.call("a", None)
    assert nodes.call("b", None)
    nodes.clock.now += NODE_PAUSE
    assert nodes.call("a", OSError())
    assert not nodes.call("a", None)
    nodes.clock.now += NODE_PAUSE
    assert nodes.call("a", None)
    assert nodes.call("a", None)
    assert not nodes.breakers.failing
    tries = [("breaker_tried", "a")] * 2
    assert nodes.names() == [("breaker_opened", "a"), *tries, ("breaker_closed", "a")]
    assert told == nodes.told, "every gate that watches gets the events"


def test_calls_with_another_deadline_than_a_request_obey_and_do_not_count(
    nodes: Nodes,
) -> None:
    for seconds in (0.4, 5.0):
        for _ in range(2 * FAILURES):
            assert nodes.call("a", OSError(), seconds)
    assert not nodes.breakers.failing
    for _ in range(FAILURES):
        nodes.call("a", OSError(), 0.6)
    nodes.clock.now += 10
    assert not nodes.call("a", None, 5.0)
    assert not nodes.call("a", None, 0.4)
    assert nodes.call("a", None, 0.6)


def test_the_breaker_of_a_server_that_left_is_closed(nodes: Nodes) -> None:
    for node in ("a", "b"):
        for _ in range(FAILURES):
            nodes.call(node, OSError())
    nodes.breakers.prune(frozenset)  # It is not known who holds anything.
    assert set(nodes.breakers.failing) == {"a", "b"}
    nodes.breakers.prune(lambda: pytest.fail("once a second"))
    nodes.clock.now += 1
    nodes.breakers.prune(lambda: {"b", "c"})
    assert set(nodes.breakers.failing) == {"b"}
    assert nodes.names()[-1] == ("breaker_closed", "a")
