"""The breaker opens, tries and closes, and one call tries at a time."""

from __future__ import annotations

import pytest

from lockgate import Event
from lockgate.errors import StoreUnavailable
from lockgate.events import Events
from lockgate.stores.breaker import Breaker


class Seconds:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    def __init__(self) -> None:
        self.clock = Seconds()
        self.told: list[Event] = []
        self.breaker = Breaker("X", Events(self.told.append), clock=self.clock)

    def fail(self, times: int = 1) -> None:
        for _ in range(times):
            opened = self.breaker.failed(self.breaker.enter(), OSError())
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


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_three_failures_in_a_row_open_it_and_a_success_between_does_not(bench: Bench) -> None:
    bench.fail(2)
    bench.breaker.succeeded(bench.breaker.enter())
    bench.fail(2)
    assert not bench.refuses()
    bench.fail()
    assert bench.refuses()
    assert [(e.name, dict(e.fields)) for e in bench.told] == [
        ("breaker_opened", {"store": "X", "error": "OSError"})
    ]
    with pytest.raises(StoreUnavailable):
        bench.breaker.obey()


def test_after_a_pause_one_call_tries_and_no_other_beside_it(bench: Bench) -> None:
    bench.fail(3)
    bench.clock.now += 0.99
    assert bench.refuses()
    bench.clock.now += 0.01
    assert bench.breaker.enter() is True
    assert bench.refuses()
    bench.breaker.succeeded(True)
    assert bench.breaker.enter() is False
    assert bench.names() == ["breaker_opened", "breaker_tried", "breaker_closed"]
    assert bench.told[-1].fields["away"] == 1.0


def test_a_try_that_fails_keeps_it_open_for_another_pause_and_is_told_once(bench: Bench) -> None:
    bench.fail(3)
    for _ in range(3):
        bench.clock.now += 1
        bench.fail()
        assert bench.refuses()
    assert bench.names().count("breaker_opened") == 1
    assert bench.names().count("breaker_tried") == 3


def test_a_try_that_was_dropped_lets_the_next_one_try(bench: Bench) -> None:
    bench.fail(3)
    bench.clock.now += 1
    bench.breaker.dropped(bench.breaker.enter())
    assert bench.breaker.enter() is True


def test_calls_that_were_on_their_way_change_nothing_when_it_is_open(bench: Bench) -> None:
    under_way = [bench.breaker.enter() for _ in range(5)]
    bench.fail(3)
    bench.clock.now += 0.5
    bench.breaker.failed(under_way[0], OSError())
    bench.breaker.succeeded(under_way[1])
    assert bench.refuses()
    bench.clock.now += 0.5
    assert bench.breaker.enter() is True


def test_one_that_was_dropped_counts_for_nothing(bench: Bench) -> None:
    bench.fail(2)
    bench.breaker.dropped(bench.breaker.enter())
    bench.fail()
    assert bench.breaker.is_open


def test_a_try_of_which_nobody_hears_is_followed_by_another(bench: Bench) -> None:
    """As where its event loop was stopped: it neither succeeds nor fails."""
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
