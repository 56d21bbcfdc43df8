"""The search for an order: it finds one where there is one, and the shortest proof of none."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from lockgate.testing import Broken, Event, assert_linearizable
from lockgate.testing.calls import LOST, Call
from lockgate.testing.factories import NOW, minute
from lockgate.testing.history import order_of
from lockgate.testing.model import World, expect

WINDOWS = minute(2)
HIT = Call("hit", ("org_1", WINDOWS, 1, NOW))
LOOK = Call("peek", ("org_1", WINDOWS, NOW))


def answers() -> tuple[Any, Any, Any]:
    first, world = expect(World(), HIT)
    second, world = expect(world, HIT)
    return first, second, expect(world, HIT)[0]


FIRST, SECOND, REFUSED = answers()


def test_overlapping_calls_may_take_effect_in_any_order() -> None:
    history = [Event(HIT, 0, 10, REFUSED), Event(HIT, 1, 9, SECOND), Event(HIT, 2, 8, FIRST)]
    order = order_of(history)
    assert order is not None
    assert [event.answer for event in order] == [FIRST, SECOND, REFUSED]


def test_an_order_respects_real_time() -> None:
    """The second answer came back before the first call began."""
    history = [Event(HIT, 0, 1, SECOND), Event(HIT, 2, 3, FIRST)]
    assert order_of(history) is None
    assert order_of([history[0]._replace(ended=2), history[1]]) is not None


def test_two_hits_with_the_same_answer_have_no_order() -> None:
    history = [Event(HIT, 0, 10, FIRST), Event(HIT, 1, 9, FIRST), Event(LOOK, 20, 21, None)]
    with pytest.raises(Broken) as broken:
        assert_linearizable(history)
    assert broken.value.sentence == "W3"
    assert len(broken.value.trace) == 2, "the look is no part of the proof"
    assert "No order of these calls explains the answers" in str(broken.value)


@pytest.mark.parametrize("seen", [FIRST, SECOND])
def test_a_lost_call_counts_once_or_not_at_all(seen: Any) -> None:
    assert order_of([Event(HIT, 0, inf, LOST), Event(HIT, 5, 6, seen)]) is not None


def test_a_lost_call_counts_no_more_than_once() -> None:
    assert order_of([Event(HIT, 0, inf, LOST), Event(HIT, 5, 6, REFUSED)]) is None


def test_a_lost_call_does_not_count_before_it_began() -> None:
    assert order_of([Event(HIT, 0, 1, SECOND), Event(HIT, 5, inf, LOST)]) is None
