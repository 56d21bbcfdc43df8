"""Holds of calendar quotas: a budget of the month for cost that is known late."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime
from itertools import chain
from typing import Any

import pytest

from lockgate import Event, Limit, run
from lockgate.core.timestamps import DAY, SECOND
from lockgate.errors import InvalidRequest, RateLimitExceeded
from lockgate.options import StoreOptions
from tests.preloaded import forking
from tests.stores.making import HandClock

from ..bench import Bench
from ..shared_stores import gate_on

MARCH = int(datetime(2024, 3, 1, tzinfo=UTC).timestamp()) * SECOND
MONTH = Limit("tokens", "100/month")
OVERAGE = Limit("overage", "100/month", soft=True)


class Quotas(Bench):
    """A gate at an instant, and the quotas that it told: limit, share, use, end of the period."""

    def __init__(self, now: int, **options: Any) -> None:
        super().__init__(clock=HandClock(now), **options)

    @property
    def marks(self) -> list[tuple[object, ...]]:
        return marks(self.told)


def marks(told: list[Event]) -> list[tuple[object, ...]]:
    found = [event.fields for event in told if event.name == "quota_threshold"]
    assert {fields["organization"] for fields in found} <= {"org_1"}
    names = ("limit_name", "share", "used", "resets_at")
    return [tuple(fields[name] for name in names) for fields in found]


def test_a_full_month_refuses_until_it_ends() -> None:
    bench = Quotas(MARCH - 3600 * SECOND)
    with bench.gate.hold("org_1", {MONTH: 90}) as hold:
        hold.used(70)
    with pytest.raises(RateLimitExceeded) as refused:
        run(bench.gate.holds.take("org_1", {MONTH: 31}))
    assert refused.value.retry_after == 3600
    limits = {"type": "month", "limit": 100, "used": 70, "name": "tokens", "held": 0}
    assert refused.value.body()["limits"] == limits
    with pytest.raises(RateLimitExceeded, match="never admitted for 'tokens'") as refused:
        run(bench.gate.holds.take("org_1", {MONTH: 101}))
    assert refused.value.retry_after == 3600
    bench.clock.now = MARCH
    assert run(bench.gate.holds.take("org_1", {MONTH: 100})).units == {"tokens": 100}


@pytest.mark.parametrize("peppers", [[], [b"a pepper of the tests of holds"]])
def test_an_id_that_a_client_gave_another_calendar_counts_nowhere_else_H1(
    peppers: list[bytes],
) -> None:
    """A client holds the id of its job, and says that its contract began on another day."""
    gate = Quotas(MARCH + 5 * DAY, peppers=peppers).gate
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


@pytest.mark.parametrize("limit", [MONTH, OVERAGE])
def test_what_is_used_and_not_what_is_held_crosses_a_mark(limit: Limit) -> None:
    bench = Quotas(MARCH)
    id = run(bench.gate.holds.take("org_1", {limit: 95})).id
    assert bench.marks == []
    run(bench.gate.holds.settle(id, 79))
    assert bench.marks == []
    for held, used in ((21, 1), (20, 50)):
        with bench.gate.hold("org_1", {limit: held}) as hold:
            hold.used(used)
    ends = "2024-04-01T00:00:00.000Z"
    assert bench.marks == [(limit.name, 80, 80, ends), (limit.name, 100, 130, ends)]


def test_a_worker_that_does_not_know_the_limit_settles_in_its_month_and_tells_the_marks() -> None:
    starts = {"org_1": date(2023, 5, 10)}
    limit = Limit("tokens", "100/month", starts=starts.__getitem__, zone="Europe/Berlin")
    bench = Quotas(MARCH)
    id = run(bench.gate.holds.take("org_1", {limit: 100}, seconds=3600)).id
    worker = Bench(bench.store, clock=bench.clock)
    assert run(worker.gate.holds.renew(id))
    assert run(worker.gate.holds.settle(id, 100))
    ends = "2024-03-09T23:00:00.000Z"
    assert marks(worker.told) == [("tokens", 80, 100, ends), ("tokens", 100, 100, ends)]
    assert not run(worker.gate.holds.settle(id, 100))


def test_a_mark_of_the_month_before_is_told_by_the_call_that_finds_the_deadline() -> None:
    bench = Quotas(MARCH - 120 * SECOND)
    run(bench.gate.holds.take("org_1", {OVERAGE: 200}))
    bench.clock.now = MARCH + DAY
    run(bench.gate.holds.take("org_1", {OVERAGE: 1}))
    ends = "2024-03-01T00:00:00.000Z"
    assert bench.marks == [("overage", 80, 200, ends), ("overage", 100, 200, ends)]


@pytest.mark.parametrize(
    ("units", "limit", "seconds", "until"),
    [
        (70, MONTH, 30, None),  # They fit now.
        (71, MONTH, 30, MARCH),
        (71, MONTH, 90, MARCH + 31 * DAY),  # The hold outlasts the month.
        (101, MONTH, 30, None),  # They never do.
        (71, OVERAGE, 30, None),
        (101, OVERAGE, 30, None),
    ],
    ids=str,
)
def test_usage_tells_when_the_units_fit_and_when_the_period_ends(
    units: int, limit: Limit, seconds: int, until: int | None
) -> None:
    bench = Quotas(MARCH - 60 * SECOND)
    run(bench.gate.holds.take("org_1", {limit: 30}, seconds=seconds))
    (usage,) = run(bench.gate.holds.usage("org_1", units=units))
    assert (usage.used, usage.until, usage.period_ends) == (30, until, MARCH)


def test_a_soft_quota_takes_more_and_tells_its_use() -> None:
    bench = Quotas(MARCH, store_options=StoreOptions(hold_limits=[OVERAGE]))
    with bench.gate.hold("org_1", {OVERAGE: 500}) as hold:
        (usage,) = run(bench.gate.holds.usage("org_1"))
        assert usage == (OVERAGE, "month", 100, 500, 500, None, MARCH + 31 * DAY)
        hold.used(300)
    for used in (300, 0):
        (usage,) = run(bench.gate.holds.usage("org_1"))
        assert (usage.used, usage.held) == (used, 0)
        bench.clock.now += 31 * DAY


def work(url: str) -> list[tuple[object, ...]]:
    """Hold and settle many times at once, in a process of its own; return what it told."""
    told: list[Event] = []

    async def hold_all() -> None:
        gate = gate_on(url, observer=told.append)

        async def one() -> None:
            async with gate.hold("org_1", {MONTH: 9, OVERAGE: 20}) as hold:
                hold.used({"tokens": 5, "overage": 10})

        await asyncio.gather(*(one() for _ in range(8)), return_exceptions=True)
        # Refused while more than 95 were held or used: all that is left.
        with suppress(RateLimitExceeded):
            while True:
                taken = await gate.holds.take("org_1", {MONTH: 5})
                await gate.holds.settle(taken.id)
        await gate.close()

    asyncio.run(hold_all())
    return marks(told)


def test_one_of_all_processes_tells_each_mark(url: str) -> None:
    with ProcessPoolExecutor(2, mp_context=forking()) as pool:
        told = [(name, share) for name, share, *_ in chain(*pool.map(work, [url] * 2))]
    assert told.count(("tokens", 80)) == told.count(("tokens", 100)) == 1
    assert told.count(("overage", 80)) <= 1
    assert len(told) == len(set(told))
