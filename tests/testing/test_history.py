"""The search for an order: it finds one where there is one, and the shortest proof of none."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from lockgate import ConfigurationError, MemoryStore, run
from lockgate.core.ledger import Hit, Peek
from lockgate.core.plans import Organization
from lockgate.stores.answers import OutcomeUnknown
from lockgate.testing import Broken, Event, Recorder, Undecided, assert_linearizable
from lockgate.testing.calls import LOST, Call
from lockgate.testing.factories import NOW, minute
from lockgate.testing.history import order_of
from lockgate.testing.model import World, expect

WINDOWS = minute(2)
OPEN = minute(None)
HIT = Call("charge", ("org_1", Hit(WINDOWS, 1), NOW))
LOOK = Call("charge", ("org_1", Peek(WINDOWS), NOW))


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


def test_a_call_that_would_change_nothing_at_first_may_take_effect_later() -> None:
    """The organization is on the plan already, leaves it and returns to it."""
    free, pro = Organization("org_1", "free"), Organization("org_1", "pro")
    world = expect(World(), Call("put_organization", (free,)))[1]
    history = [
        Event(Call("put_organization", (free,)), 0, 10, None),
        Event(Call("put_organization", (pro,)), 0, 10, None),
        Event(Call("organization", ("org_1",)), 11, 12, free),
    ]
    order = order_of(history, world)
    assert order is not None
    assert [event.call.arguments[0] for event in order] == [pro, free, "org_1"]


@pytest.mark.parametrize("seen", [FIRST, SECOND])
def test_a_lost_call_counts_once_or_not_at_all(seen: Any) -> None:
    assert order_of([Event(HIT, 0, inf, LOST), Event(HIT, 5, 6, seen)]) is not None


def test_a_lost_call_counts_no_more_than_once() -> None:
    assert order_of([Event(HIT, 0, inf, LOST), Event(HIT, 5, 6, REFUSED)]) is None


def test_a_lost_call_does_not_count_before_it_began() -> None:
    assert order_of([Event(HIT, 0, 1, SECOND), Event(HIT, 5, inf, LOST)]) is None


def test_a_history_whose_orders_are_too_many_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an order nor a proof that there is none: it neither passes nor fails."""
    monkeypatch.setattr("lockgate.testing.history._STEPS_AT_MOST", 2_000)
    costs = [2**number for number in range(18)]
    hits = [Call("charge", ("org_1", Hit(OPEN, cost), NOW)) for cost in costs]
    many = [Event(hit, 0, inf, LOST) for hit in hits]
    last = [Event(hits[0], 1, 2, FIRST)] * 2
    with pytest.raises(Undecided, match="no order of these 20 calls is found, and some"):
        assert_linearizable([*many, *last])


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (Call("charge", ("org_1", Hit(WINDOWS, 1))), "by the store's clock"),
        (Call("charge", ("org_1", Hit(WINDOWS, 1), None)), "by the store's clock"),
        (Call("census", (NOW,)), "a walk is made in several steps"),
        (Call("scan", (None, 1)), "the model does not have this verb"),
    ],
)
def test_a_recorder_refuses_calls_that_the_model_cannot_answer(call: Call, reason: str) -> None:
    recorder = Recorder(MemoryStore())
    with pytest.raises(ConfigurationError, match=reason):
        run(getattr(recorder.store, call.verb)(*call.arguments))
    assert not recorder.history
    assert recorder.store.io == "none"
    assert run(recorder.store.now()) > 0


def test_a_call_that_the_store_could_not_answer_may_have_taken_effect() -> None:
    class Fails(MemoryStore):
        async def charge(self, *arguments: Any, **options: Any) -> Any:
            raise OutcomeUnknown("no reply")

    recorder = Recorder(Fails())
    run(recorder.store.charge("org_1", Hit(WINDOWS, 1), NOW))
    assert recorder.history[0].lost
    assert_linearizable(recorder.history)
