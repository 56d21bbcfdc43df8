"""Holds of calendar quotas: a budget of the month for cost that is known late."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, date, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from lockgate import Event, Gate, Limit, MemoryStore, run
from lockgate.core.timestamps import DAY, SECOND
from lockgate.errors import InvalidRequest, RateLimitExceeded
from lockgate.options import StoreOptions
from tests.gates import flat_gate
from tests.preloaded import forking
from tests.stores.making import HandClock

from ..shared_stores import EVERY_KIND, gate_on, shared_store

MARCH = int(datetime(2024, 3, 1, tzinfo=UTC).timestamp()) * SECOND
MONTH = Limit("tokens", "100/month")
OVERAGE = Limit("overage", "100/month", soft=True)


class Told(list[tuple[object, ...]]):
    """The quotas that were told: limit, share, use, and when the period ends."""

    def __call__(self, event: Event) -> None:
        if event.name == "quota_threshold":
            fields = event.fields
            assert fields["organization"] == "org_1"
            names = ("limit_name", "share", "used", "resets_at")
            self.append(tuple(fields[name] for name in names))


def bench(now: int, **options: Any) -> tuple[Gate, HandClock, Told]:
    clock, told = HandClock(now), Told()
    return (
        flat_gate(MemoryStore(), brand="acme", clock=clock, observer=told, **options),
        clock,
        told,
    )


def test_a_full_month_refuses_until_it_ends() -> None:
    gate, clock, _ = bench(MARCH - 3600 * SECOND)
    with gate.hold("org_1", {MONTH: 90}) as hold:
        hold.used(70)
    with pytest.raises(RateLimitExceeded) as refused:
        run(gate.holds.take("org_1", {MONTH: 31}))
    assert refused.value.retry_after == 3600
    assert refused.value.body()["limits"] == {
        "type": "month",
        "limit": 100,
        "used": 70,
        "name": "tokens",
        "held": 0,
    }
    clock.now = MARCH
    assert run(gate.holds.take("org_1", {MONTH: 100})).units == {"tokens": 100}


@pytest.mark.parametrize("peppers", [[], [b"a pepper of the tests of holds"]])
def test_an_id_that_a_client_gave_another_calendar_counts_nowhere_else_H1(
    peppers: list[bytes],
) -> None:
    """A client holds the id of its job, and says that its contract began on another day."""
    gate, _, _ = bench(MARCH + 5 * DAY, peppers=peppers)
    id = run(gate.holds.take("org_1", {MONTH: 90})).id
    raw = urlsafe_b64decode(id + "=" * (-len(id) % 4))
    seal, content = raw[:16], raw[16:]
    assert b"2024-01-01" in content
    forged = content.replace(b"2024-01-01", b"2024-01-20")
    for value in (seal + forged, bytes(16) + forged, forged, content):
        text = urlsafe_b64encode(value).decode().rstrip("=")
        for call in (gate.holds.settle(text, 90), gate.holds.renew(text)):
            with pytest.raises(InvalidRequest, match="no id of a hold"):
                run(call)
        with pytest.raises(InvalidRequest, match="no id of a hold"):
            gate.holds.resume(text)
    assert run(gate.holds.settle(id, 90))
    with pytest.raises(RateLimitExceeded):
        run(gate.holds.take("org_1", {MONTH: 11}))


def test_units_above_a_quota_are_never_taken() -> None:
    gate, _, _ = bench(MARCH - 60 * SECOND)
    with pytest.raises(RateLimitExceeded, match="never admitted for 'tokens'") as refused:
        run(gate.holds.take("org_1", {MONTH: 101}))
    assert refused.value.retry_after == 60


@pytest.mark.parametrize("limit", [MONTH, OVERAGE])
def test_what_is_used_and_not_what_is_held_crosses_a_mark(limit: Limit) -> None:
    gate, _, told = bench(MARCH)
    id = run(gate.holds.take("org_1", {limit: 95})).id
    assert told == []
    run(gate.holds.settle(id, 79))
    assert told == []
    with gate.hold("org_1", {limit: 21}) as hold:
        hold.used(1)
    ends = "2024-04-01T00:00:00.000Z"
    assert told == [(limit.name, 80, 80, ends)]
    with gate.hold("org_1", {limit: 20}) as hold:
        hold.used(50)
    assert told[1:] == [(limit.name, 100, 130, ends)]


def test_a_worker_that_does_not_know_the_limit_settles_in_its_month_and_tells_the_marks() -> None:
    starts = {"org_1": date(2023, 5, 10)}
    limit = Limit("tokens", "100/month", starts=starts.__getitem__, zone="Europe/Berlin")
    gate, clock, _ = bench(MARCH)
    id = run(gate.holds.take("org_1", {limit: 100}, seconds=3600)).id
    told = Told()
    worker = Gate(gate.store, brand="acme", store_options=StoreOptions(clock=clock), observer=told)
    assert run(worker.holds.renew(id))
    assert run(worker.holds.settle(id, 100))
    ends = "2024-03-09T23:00:00.000Z"
    assert told == [("tokens", 80, 100, ends), ("tokens", 100, 100, ends)]
    assert not run(worker.holds.settle(id, 100))


def test_a_mark_of_the_month_before_is_told_by_the_call_that_finds_the_deadline() -> None:
    gate, clock, told = bench(MARCH - 120 * SECOND)
    run(gate.holds.take("org_1", {OVERAGE: 200}))
    clock.now = MARCH + DAY
    run(gate.holds.take("org_1", {OVERAGE: 1}))
    ends = "2024-03-01T00:00:00.000Z"
    assert told == [("overage", 80, 200, ends), ("overage", 100, 200, ends)]


@pytest.mark.parametrize(
    ("units", "limit", "until"),
    [
        (70, MONTH, None),  # They fit now.
        (71, MONTH, MARCH),
        (101, MONTH, None),  # They never do.
        (71, OVERAGE, None),
        (101, OVERAGE, None),
    ],
    ids=str,
)
def test_usage_tells_when_the_units_fit_and_when_the_period_ends(
    units: int, limit: Limit, until: int | None
) -> None:
    gate, _, _ = bench(MARCH - 60 * SECOND)
    run(gate.holds.take("org_1", {limit: 30}, seconds=30))
    (usage,) = run(gate.holds.usage("org_1", units=units))
    assert (usage.used, usage.until, usage.period_ends) == (30, until, MARCH)


def test_usage_of_a_month_that_holds_outlast_tells_when_their_units_fit() -> None:
    gate, _, _ = bench(MARCH - 30 * SECOND)
    run(gate.holds.take("org_1", {MONTH: 30}, seconds=60))
    (usage,) = run(gate.holds.usage("org_1", units=71))
    assert usage.until == MARCH + 31 * DAY
    assert usage.period_ends == MARCH


def test_a_soft_quota_takes_more_and_tells_its_use() -> None:
    gate, clock, _ = bench(MARCH, store_options=StoreOptions(hold_limits=[OVERAGE]))
    with gate.hold("org_1", {OVERAGE: 500}) as hold:
        (usage,) = run(gate.holds.usage("org_1"))
        assert usage == (OVERAGE, "month", 100, 500, 500, None, MARCH + 31 * DAY)
        hold.used(300)
    (usage,) = run(gate.holds.usage("org_1"))
    assert (usage.used, usage.held) == (300, 0)
    clock.now += 31 * DAY
    (usage,) = run(gate.holds.usage("org_1"))
    assert usage.used == 0


@pytest.fixture(params=EVERY_KIND)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with shared_store(request.param, tmp_path) as found:
        yield found


def work(url: str) -> list[tuple[object, ...]]:
    """Hold and settle many times at once, in a process of its own; return what it told."""
    told = Told()

    async def hold_all() -> None:
        gate = gate_on(url, observer=told)

        async def one() -> None:
            async with gate.hold("org_1", {MONTH: 9, OVERAGE: 20}) as hold:
                hold.used({"tokens": 5, "overage": 10})

        await asyncio.gather(*(one() for _ in range(8)), return_exceptions=True)
        # Refused while more than 95 were held or used: all that is left.
        while True:
            try:
                taken = await gate.holds.take("org_1", {MONTH: 5})
            except RateLimitExceeded:
                break
            await gate.holds.settle(taken.id)
        await gate.close()

    asyncio.run(hold_all())
    return told


def test_one_of_all_processes_tells_each_mark(url: str) -> None:
    with ProcessPoolExecutor(2, mp_context=forking()) as pool:
        told = [(name, share) for name, share, *_ in chain(*pool.map(work, [url] * 2))]
    assert told.count(("tokens", 80)) == told.count(("tokens", 100)) == 1
    assert told.count(("overage", 80)) <= 1
    assert len(told) == len(set(told))
