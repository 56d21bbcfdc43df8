"""Thousands of ended keys slow no call down: rows and round trips are counted, not time (D45)."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from time import thread_time
from typing import Any
from weakref import ref

import pytest

from lockgate import MemoryStore, run
from lockgate.core.api_keys import ApiKey, KeyState, Position
from lockgate.core.timestamps import DAY
from lockgate.errors import InvalidRequest, KeyLimitReached
from lockgate.services.keys.keys import KeyPage
from lockgate.starlette import operations
from lockgate.stores.answers import Page
from lockgate.stores.base import PAGE_AT_MOST
from lockgate.stores.key_value import RecordStore, record
from lockgate.stores.memory.keys import LocalKeys
from lockgate.stores.redis import RedisStore, codec
from lockgate.stores.redis import rows as redis_rows
from lockgate.stores.rows import REMOVED_AT_MOST
from tests.testing.test_records import Counted
from tests.web.driving import Bench, ask

from .making import NOW, draft
from .redis.backends import opened, server, stop_servers

PILE = 6_000
LIVE = 300
LATER = NOW + DAY


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    stop_servers()


class Piled(MemoryStore):
    """Keeps a pile of keys that ended below and above some live ones, and counts what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        for number in range(PILE + LIVE):
            live = number % (PILE // LIVE) == 0
            made = draft(lifetime=None if live or number % 2 else DAY)
            key = made.created(NOW + number * 1000)
            if not live and number % 2:
                key = key._replace(revoked_at=NOW + DAY // 2)
            self._keys.insert(key)

    async def list(self, organization: str, limit: int, after: Position | None = None) -> Page:
        self.asked.append(limit)
        return await super().list(organization, limit, after)

    async def list_live(
        self,
        organization: str,
        limit: int,
        after: Position | None = None,
        now: int | None = None,
    ) -> Page:
        self.asked.append(limit)
        return await super().list_live(organization, limit, after, now)


@pytest.fixture(scope="module")
def piled() -> Piled:
    return Piled()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The handles of the keys that the memory store has put together."""
    handles: list[str] = []
    key = LocalKeys.key

    def counted(self: LocalKeys, handle: str) -> ApiKey:
        handles.append(handle)
        return key(self, handle)

    monkeypatch.setattr(LocalKeys, "key", counted)
    return handles


def test_memory_reads_the_keys_that_are_asked_for(piled: Piled, read: list[str]) -> None:
    page = run(piled.list("org_1", 50))
    after = Position(page[-1].created_at, page[-1].id)
    assert len(run(piled.list("org_1", 50, after))) == 50
    assert len(run(piled.list_live("org_1", 50, None, LATER))) == 50
    assert len(read) == 150
    live = sum(key.state(LATER) is KeyState.ACTIVE for key in all_of(piled))
    read.clear()
    with pytest.raises(KeyLimitReached):
        run(piled.insert(draft(), live, LATER))
    assert read == []


def all_of(store: Piled) -> list[ApiKey]:
    return [store._keys.key(handle) for handle in [*store._rows]]


def overview(bench: Bench) -> Page:
    return run(bench.gate.keys.overview("org_1"))


def test_the_overview_is_all_live_keys_and_the_newest_thousand_others(
    piled: Piled, read: list[str]
) -> None:
    bench = Bench(store=piled)
    bench.clock.now = LATER
    everything = sorted(all_of(piled), key=lambda key: (-key.created_at, key.id))
    live = [key for key in everything if key.state(LATER) is KeyState.ACTIVE]
    ended = [key for key in everything if key.state(LATER) is not KeyState.ACTIVE]
    read.clear()
    piled.asked.clear()
    shown = overview(bench)
    right = {*live, *ended[:1000]}
    assert shown == [key for key in everything if key in right]
    assert len(read) <= 2 * len(live) + 1000 + 100
    assert max(piled.asked) == 100


def test_the_overview_of_a_few_keys_is_one_call(piled: Piled) -> None:
    bench = Bench(store=piled)
    bench.clock.now = LATER
    keys = [run(bench.gate.keys.create("org_2", "a")).key for _ in range(3)]
    revoked = run(bench.gate.keys.revoke("org_2", keys[1].id))
    piled.asked.clear()
    shown = run(bench.gate.keys.overview("org_2"))
    assert sorted(shown) == sorted([keys[0], revoked, keys[2]])
    assert piled.asked == [100]


def test_pages_lead_through_all_keys_without_a_gap(piled: Piled) -> None:
    bench = Bench(store=piled)
    seen: list[ApiKey] = []
    page = KeyPage([], None)
    for limit in (1000, 1, 99, 100, 101, 250):
        page = run(bench.gate.keys.list("org_1", limit=limit, cursor=page.cursor))
        assert len(page.keys) == limit
        seen += page.keys
    while page.cursor is not None:
        page = run(bench.gate.keys.list("org_1", limit=1000, cursor=page.cursor))
        seen += page.keys
    assert seen == sorted(all_of_one(piled), key=lambda key: (-key.created_at, key.id))


def all_of_one(store: Piled) -> list[ApiKey]:
    return [key for key in all_of(store) if key.organization == "org_1"]


@pytest.mark.parametrize(
    "chosen", [{"state": KeyState.ACTIVE}, {"matching": "none such"}, {"labels": {"a": "b"}}]
)
def test_a_page_of_chosen_keys_reads_a_thousand_at_most_and_the_next_continues_G10(
    piled: Piled, read: list[str], chosen: Any
) -> None:
    bench = Bench(store=piled)
    bench.clock.now = LATER
    everything = all_of_one(piled)
    right = [
        key.id for key in everything if "state" in chosen and key.state(LATER).value == "active"
    ]
    found: list[str] = []
    page, pages = KeyPage([], None), 0
    while pages == 0 or page.cursor is not None:
        read.clear()
        page = run(bench.gate.keys.list("org_1", limit=100, cursor=page.cursor, **chosen))
        assert len(read) <= 1000
        found += [key.id for key in page.keys]
        pages += 1
    assert sorted(found) == sorted(right)
    walked = 900 if "state" in chosen else 1000  # The others are read as live keys.
    assert pages == len(everything) // walked + 1


def test_a_page_of_a_few_live_keys_reads_no_others_G10(piled: Piled, read: list[str]) -> None:
    bench = Bench(store=piled)
    bench.clock.now = LATER
    live = [run(bench.gate.keys.create("org_few", "live")).key.id for _ in range(2)]
    for _ in range(5):
        ended = run(bench.gate.keys.create("org_few", "ended")).key.id
        run(bench.gate.keys.revoke("org_few", ended))
    read.clear()
    first = run(bench.gate.keys.list("org_few", limit=1, state="active"))
    last = run(bench.gate.keys.list("org_few", limit=1, cursor=first.cursor, state="active"))
    assert len(read) == 4 and last.cursor is None
    assert {key.id for key in [*first.keys, *last.keys]} == {*live}


@pytest.mark.parametrize("limit", [0, -1, PAGE_AT_MOST + 1, True, 1.5, "7"])
def test_an_invalid_limit_is_refused(piled: Piled, limit: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        run(Bench(store=piled).gate.keys.list("org_1", limit=limit))
    assert [problem.field for problem in refused.value.problems] == ["limit"]


async def test_lists_at_once_are_read_a_page_at_a_time_and_keep_no_key_G5(piled: Piled) -> None:
    bench = Bench(store=piled)
    bench.clock.now = LATER
    app, passes, done, longest = behind_nothing(bench), 0, False, 0.0
    asked: list[int] = []
    kept: list[ref[Kept]] = []

    async def count() -> None:
        nonlocal passes, longest
        before = thread_time()  # Other processes do not count.
        while not done:
            passes += 1
            await asyncio.sleep(0)
            now = thread_time()
            longest, before = max(longest, now - before), now

    def watched(read: Any) -> Any:
        async def reads(*arguments: Any) -> Page:
            asked.append(passes)
            assert not [one for one in kept if one() is not None]
            page = Kept(await read(*arguments))
            kept[:] = [ref(page)]
            return page

        return reads

    store: Any = bench.gate.store
    store.list, store.list_live = watched(store.list), watched(store.list_live)
    counting = asyncio.create_task(count())
    path, session = "/api/v1/api-keys", bench.session()
    gc.disable()  # A collection walks the objects of all tests.
    try:
        answers = await asyncio.gather(*(ask(app, path=path, session=session) for _ in range(8)))
        done = True
        await counting
    finally:
        gc.enable()
    assert longest < 0.05
    assert {answer.status for answer in answers} == {200}
    (body,) = {answer.body for answer in answers}
    keys = json.loads(body)["data"]
    assert len(keys) == 1000 + sum(key["isActive"] for key in keys)
    assert len(asked) == len({*asked}) >= 8 * len(keys) // 100  # Other tasks ran between pages.


class Kept(list[ApiKey]):
    """A page of which a test sees whether it is kept."""


def behind_nothing(bench: Bench) -> Any:
    from starlette.applications import Starlette

    from lockgate.asgi import GateMiddleware

    return GateMiddleware(Starlette(routes=operations(bench.gate)), bench.gate)


async def test_a_long_census_yields_to_other_tasks(piled: Piled) -> None:
    bench, turns = Bench(store=piled), 0
    bench.clock.now = LATER
    counting = asyncio.create_task(bench.gate.keys.census())
    while not counting.done():
        turns += 1
        await asyncio.sleep(0)
    live = sum(key.state(LATER) is KeyState.ACTIVE for key in all_of(piled))
    assert sum(counting.result().values()) == live
    assert turns >= PILE // 1000


def test_records_keep_the_latest_thousand_keys_that_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every admission reads and writes all keys of its organization."""
    monkeypatch.setattr(record, "ENDED_AT_MOST", 10)
    store = RecordStore(Counted())
    keys = [run(store.insert(draft(lifetime=number + 1), None, NOW)) for number in range(25)]
    live = run(store.insert(draft(), None, NOW))
    last = run(store.insert(draft(), None, LATER))
    listed = run(store.list("org_1", PAGE_AT_MOST))
    assert {key.id for key in listed} == {key.id for key in [*keys[15:], live, last]}
    assert run(store.find(keys[14].handle)) is None


async def test_redis_reads_the_keys_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script reads only as many entries as requested, of any number."""
    store: RedisStore = opened("single")
    pile = PILE // 2
    drafts = [draft(lifetime=DAY if number % 100 else None) for number in range(pile)]
    for start in range(0, pile, 500):
        some = range(start, start + 500)
        await asyncio.gather(*(store.insert(drafts[n], None, NOW + n * 1000) for n in some))
    decoded: list[int] = []
    monkeypatch.setattr(redis_rows, "read_keys", counting(decoded))
    page = await store.list("org_1", 100)
    assert [key.id for key in page] == [made.id for made in drafts[:-101:-1]]
    after = Position(page[-1].created_at, page[-1].id)
    assert len(await store.list("org_1", 100, after)) == 100
    live = min(100, pile // 100)
    assert len(await store.list_live("org_1", 100, None, LATER)) == live
    assert decoded[:2] == [100, 100]
    assert decoded[2] <= 100
    with server("single").client() as client:
        client.config_resetstat()
        await store.list("org_1", 100)
        await store.list_live("org_1", 100, None, NOW)
        await store.insert(draft(), 10_000, NOW)
        stats: Any = client.info("commandstats")
    asked = {name.removeprefix("cmdstat_") for name in stats}
    assert not asked & {"hgetall", "hkeys", "hvals", "smembers", "zrange", "zrangebyscore"}
    assert {"zrangebylex", "zrevrangebylex", "zlexcount"} <= asked
    with pytest.raises(KeyLimitReached):
        await store.insert(draft(), pile // 100, LATER + pile * 1000)
    decoded.clear()
    cursor, removed, steps = None, 0, 0
    while removed < 500:
        step = await store.remove_ended(DAY, LATER + 2 * DAY, cursor)
        cursor, removed, steps = step.cursor, removed + step.removed, steps + 1
        assert step.removed <= REMOVED_AT_MOST
    assert decoded
    assert max(decoded) <= REMOVED_AT_MOST
    await store.close()


def counting(decoded: list[int]) -> Any:
    real = codec.read_keys

    def read_keys(fields: Any) -> Any:
        keys = real(fields)
        if keys:
            decoded.append(len(keys))
        return keys

    return read_keys
