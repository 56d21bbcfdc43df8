"""The demo's busy organization has a week of usage, and stays busy while the demo runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from lockgate import Gate, UsageHistory, run
from lockgate.core.timestamps import DAY, HOUR, SECOND
from lockgate.demo import traffic
from lockgate.demo.service import TOKENS
from lockgate.demo.traffic import BEAT, HOURS, Traffic
from lockgate.options import StoreOptions
from lockgate.testing import HandClock

ORGANIZATION = "org_busy"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def gate(clock: HandClock) -> Iterator[Gate]:
    options = StoreOptions(clock=clock, hold_limits=[TOKENS])
    gate = Gate(
        "memory://",
        brand="acme",
        peppers=[bytes(range(32))],
        features=[UsageHistory()],
        store_options=options,
    )
    yield gate
    run(gate.close())


def test_a_week_of_usage_is_there_at_once(gate: Gate) -> None:
    busy = Traffic(gate, ORGANIZATION)
    run(busy.begin())
    run(busy.stop())
    report = run(gate.usage(ORGANIZATION))
    assert len(report.cells) == HOURS
    assert report.refused.keys() >= {"minute", "limit:exports", "KEY_REVOKED", "INSUFFICIENT_SCOPE"}
    keys = run(gate.keys.list(ORGANIZATION)).keys
    assert {key.name for key in keys} == {"web shop", "nightly jobs", "old laptop"}
    assert sum(run(gate.usage(ORGANIZATION, key.id)).admitted for key in keys) == report.admitted
    for key in keys:
        assert report.now - key.created_at == pytest.approx(8 * DAY, abs=HOUR)
        admitted = run(gate.usage(ORGANIZATION, key.id)).admitted
        run(gate.flush())
        assert run(gate.keys.get(ORGANIZATION, key.id)).request_count == admitted, "K7"


def test_the_organization_is_busy_a_day_later_within_its_limits(
    gate: Gate, clock: HandClock
) -> None:
    busy = Traffic(gate, ORGANIZATION)
    run(busy.begin())
    run(busy.stop())
    for _ in range(int(DAY / SECOND / BEAT)):
        clock.move(BEAT)
        run(busy.beat())
    explained = run(gate.explain(ORGANIZATION))
    minute, hour, day = explained.windows
    assert minute.used > 0 and hour.used > 100
    assert hour.left and day.left, "a full day would refuse all"
    refused = run(gate.usage(ORGANIZATION, by="minute")).refused
    assert refused.keys() == {"minute", "limit:exports", "KEY_REVOKED", "INSUFFICIENT_SCOPE"}


def test_the_traffic_goes_on_by_a_thread_or_a_task_until_it_is_stopped(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "BEAT", 0.001)
    beaten = threading.Event()

    class Beaten(Traffic):
        async def beat(self) -> None:
            await super().beat()
            beaten.set()

    def threads() -> list[str]:
        return [one.name for one in threading.enumerate() if one.name == "lockgate-demo-traffic"]

    busy = Beaten(gate, ORGANIZATION)
    run(busy.begin())
    assert beaten.wait(60) and threads()
    run(busy.stop())
    assert not threads()
    beaten.clear()

    async def serve() -> None:
        busy = Beaten(gate, "org_other")
        await busy.begin()
        while not beaten.is_set():
            await asyncio.sleep(0.001)
        await busy.stop()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(serve())
