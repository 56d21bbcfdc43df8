"""Quotas: exact, in the shared store, and never an organization's."""

from __future__ import annotations

from typing import Any

import pytest

from lockgate import Event, MemoryStore, run
from lockgate.core.digests import Peppers
from lockgate.core.timestamps import DAY, HOUR, SECOND
from lockgate.errors import RateLimitExceeded, StoreUnavailable
from lockgate.events import Events
from lockgate.services.limits.quotas import Quota

from ...stores.making import HandClock
from ..bench import Hooked

PEPPERS = Peppers([b"a pepper of the tests"])


def quota(store: MemoryStore, clock: HandClock | None = None, purpose: str = "test") -> Quota:
    return Quota(store, PEPPERS, purpose, "day", DAY, 3, clock, Events(None))


def test_a_quota_admits_its_limit_in_every_span_to_the_microsecond() -> None:
    clock = HandClock()
    start = clock.now
    mine = quota(MemoryStore(), clock)
    for step in (0, HOUR, 2 * HOUR):
        clock.now = start + step
        for _ in range(9):  # It counts nothing.
            run(mine.peek("ada"))
        assert run(mine.hit("ada")) == clock.now
    clock.now = start + DAY - 1
    for _ in range(2):
        with pytest.raises(RateLimitExceeded) as caught:
            run(mine.hit("ada"))
        assert caught.value.body()["limits"] == {"type": "day", "limit": 3, "used": 3}
        assert caught.value.retry_after == 1
    with pytest.raises(RateLimitExceeded):
        run(mine.peek("ada"))
    clock.now += 1
    run(mine.peek("ada"))
    run(mine.hit("ada"))
    with pytest.raises(RateLimitExceeded) as caught:
        run(mine.hit("ada"))
    assert caught.value.retry_after == HOUR // SECOND


def test_owners_and_purposes_do_not_touch_each_other() -> None:
    store = MemoryStore()
    for purpose in ("one", "other"):
        for owner in ("ada", "Ada", "ada ", "", "\ud800"):
            for _ in range(3):
                run(quota(store, purpose=purpose).hit(owner))


def test_no_organization_can_have_the_owners_id_and_no_address_is_to_be_read() -> None:
    owners: list[str] = []

    async def note(asked: Any, owner: str, *arguments: Any) -> Any:
        owners.append(owner)
        return await asked(owner, *arguments)

    run(quota(Hooked().on("hit", note)).hit("ada@example.com"))
    (owner,) = owners
    assert 128 < len(owner) <= 192 and owner.isascii()
    assert "ada" not in owner


def test_no_quota_admits_while_the_store_fails() -> None:
    told: list[Event] = []
    store = Hooked().failing("hit")
    mine = Quota(store, PEPPERS, "test", "day", DAY, 3, None, Events(told.append))
    with pytest.raises(StoreUnavailable):
        run(mine.hit("ada"))
    assert [event.name for event in told] == ["store_failed"]
