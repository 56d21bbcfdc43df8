"""Encoded values decode to themselves, and a state stays small."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockgate.core import sliding_window as rule
from lockgate.core.budgets import SLOTS, Budget
from lockgate.core.plans import Organization
from lockgate.core.reservations import Reservation
from lockgate.core.timestamps import SECOND
from lockgate.stores.sql.codec import (
    read_field,
    read_id,
    read_state,
    write_field,
    write_id,
    write_state,
)

from ..making import BOOK, NOW

ANY_TEXT = st.text(st.characters(codec=None), min_size=1, max_size=128)
CREATOR = BOOK.plan_of(Organization("x", "creator"), 0).windows
LEASES = (Reservation("0123456789abcdef", 20, NOW, SECOND), Reservation("f" * 16, 2**53 - 1, 0, 1))
PROMISES = tuple(Reservation("", 3, NOW, SECOND, owner) for owner in ("key_1", "\ud83d"))


@given(ANY_TEXT)
def test_any_id_is_decoded_as_it_was_encoded(id: str) -> None:
    assert read_id(write_id(id)) == id
    assert len(write_id(id)) <= 512


@given(st.lists(st.tuples(st.integers(0, 90 * SECOND), st.integers(1, 3)), max_size=100))
def test_any_state_is_decoded_as_it_was_encoded(steps: list[tuple[int, int]]) -> None:
    state, now = rule.empty_state(CREATOR), NOW
    for step, cost in steps:
        now += step
        _, state = rule.hit(state, CREATOR, now, cost)
        for leases in ((), LEASES):
            for promises in ((), PROMISES):
                written = write_state(state, leases, promises)
                assert read_state(written) == (state, leases, promises)


def test_a_busy_state_is_small() -> None:
    state = rule.empty_state(CREATOR)
    for step in range(20_000):
        _, state = rule.hit(state, CREATOR, NOW + step * 4_320_000, 1)
    assert len(write_state(state)) <= 4096


def test_a_state_of_a_later_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 9"):
        read_state(b"\x09\x03")


SLOT = st.builds(Reservation, ANY_TEXT, st.just(1), st.integers(), st.integers(), ANY_TEXT)


@given(st.lists(SLOT))
@example([Reservation("two \ud83d\ude00 surrogates", 1, NOW, SECOND, "\ud83d\ude00")])
def test_any_slots_are_decoded_as_they_were_encoded(slots: list[Reservation]) -> None:
    budget = Budget(held=tuple(slots))
    assert read_field(SLOTS, write_field(SLOTS, budget)) == budget
