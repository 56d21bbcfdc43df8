"""The change log of each store beyond the contract: its bound, and its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import insert, select

import lockgate
from lockgate import run
from lockgate.core.changes import LOCKGATE, LOGGED_AT_MOST, ChangeDraft
from lockgate.core.plans import Organization
from lockgate.core.timestamps import DAY, MILLISECOND
from lockgate.stores.answers import StoreError
from lockgate.stores.key_value import RecordStore
from lockgate.stores.key_value.change_log import Row
from lockgate.stores.rows import REMEMBERED_FOR
from tests.testing.test_records import Counted

from .making import NOW, draft_of, new_key
from .redis.backends import opened, server, stop_servers
from .sql.backends import BACKENDS

CHANGE = ChangeDraft("key_created", "an id", LOCKGATE)
SCRIPT = Path(lockgate.__file__).parent / "stores" / "redis" / "scripts" / "change_log.lua"


class DictRecords(Counted):
    failing = False

    async def put_if(
        self, name: str, value: bytes | None, version: int | None, until: int | None
    ) -> bool:
        assert len(name) <= 80
        if self.failing and name.startswith("log:"):
            raise StoreError
        return await super().put_if(name, value, version, until)


def logged(store: RecordStore, changes: int, start: int = 0) -> None:
    for number in range(start, start + changes):
        placed = Organization("org_1", f"plan {number}")
        run(store.put_organization(placed, NOW + number, change=CHANGE._replace(key=str(number))))


@pytest.mark.parametrize("kind", list(BACKENDS))
def test_sql_removes_the_oldest_records_of_an_organization_only(kind: str) -> None:
    backend = BACKENDS[kind]
    store = backend.open()
    table = store.tables.changes
    newest = 64 * 200 - 1  # Some records after which the next trimming is due.
    numbers = [1, newest - LOGGED_AT_MOST, newest - LOGGED_AT_MOST + 2, newest]
    rows = [
        {"organization": name, "number": number, "at": NOW, "text": CHANGE.text()}
        for name in (b"org_1", b"org_2")
        for number in numbers
    ]
    asyncio.run(store.now())
    with backend.admin.begin() as connection:
        connection.execute(insert(table), rows)

    async def work() -> None:
        await store.insert(draft_of(new_key()), None, NOW, change=CHANGE)
        await store.close()

    asyncio.run(work())
    with backend.admin.connect() as connection:
        for name, left in ((b"org_1", [*numbers[2:], newest + 1]), (b"org_2", numbers)):
            mine = select(table.c.number).where(table.c.organization == name)
            assert list(connection.scalars(mine.order_by(table.c.number))) == left


@pytest.fixture(scope="module")
def redis() -> Iterator[None]:
    yield
    stop_servers()


def test_redis_removes_the_oldest_record(redis: None) -> None:
    assert f"local LOGGED_AT_MOST = {LOGGED_AT_MOST}\n" in SCRIPT.read_text()
    store = opened("single")
    place = store._names.place("org_1")
    client = server("single").client()
    client.hset(
        place.organization,
        mapping={"logged": f"3 {LOGGED_AT_MOST + 2}", "log 3": "x", "log 4": "y"},
    )
    run(store.insert(draft_of(new_key()), None, NOW, change=CHANGE))
    assert client.hget(place.organization, "log 3") is None
    assert client.hget(place.organization, "log 4") is not None
    assert run(store.change_log("org_1", 1))[0].number == LOGGED_AT_MOST + 3
    run(store.close())


def test_a_redis_hash_outlasts_its_last_record_for_repetitions_alone_D33(redis: None) -> None:
    store = opened("single")
    key = run(store.insert(draft_of(new_key()), None, NOW, change=CHANGE))
    run(store.revoke_if_live("org_1", key.id, NOW + 1, change=CHANGE))
    cursor = None
    while (cursor := run(store.remove_ended(DAY, NOW + 2 * DAY, cursor)).cursor) is not None:
        pass
    left = server("single").client().pttl(store._names.place("org_1").organization)
    assert 0 < left <= REMEMBERED_FOR // MILLISECOND
    run(store.close())


def test_a_record_store_moves_records_to_pages_and_removes_them_in_time() -> None:
    records = DictRecords()
    store = RecordStore(records)
    logged(store, 150)
    (name,) = run(records.names("org:"))
    assert len(records.kept[name][0]) < 1000
    assert len(run(records.names("log:"))) == 3
    for limit in (1, 7, 64, 65, 1000):
        before, found = None, list[int]()
        while page := run(store.change_log("org_1", limit, before)):
            found += [int(change.key or "") for change in page]
            before = page[-1].number
        assert found == [*range(149, -1, -1)]
    run(store.remove_ended(1, NOW + 100))
    left = [int(change.key or "") for change in run(store.change_log("org_1", 1000))]
    assert left == [*range(149, 99, -1)]
    logged(store, 10, 200)
    left = [int(change.key or "") for change in run(store.change_log("org_1", 1000))]
    assert left == [*range(209, 199, -1), *range(149, 99, -1)]
    run(store.remove_ended(1, NOW + 1000))
    assert [*records.kept] == [name]
    logged(store, 9, 2000)
    assert [change.number for change in run(store.change_log("org_1", 9))] == [*range(9, 0, -1)]


def test_a_change_stands_while_its_record_cannot_be_moved() -> None:
    records = DictRecords()
    store = RecordStore(records)
    records.failing = True
    logged(store, 20)
    assert run(records.names("log:")) == []
    assert len(run(store.change_log("org_1", 1000))) == 20
    records.failing = False
    logged(store, 1, 20)
    assert len(run(records.names("log:"))) == 1
    assert [int(change.key or "") for change in run(store.change_log("org_1", 1000))] == [
        *range(20, -1, -1)
    ]


def test_a_page_that_was_written_twice_shows_each_record_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process died between the page and the organization's value."""
    records = DictRecords()
    store = RecordStore(records)
    moved = store._log_pages._append

    async def die(name: str, rows: list[Row]) -> None:
        await moved(name, rows)
        raise StoreError

    with monkeypatch.context() as patched:
        patched.setattr(store._log_pages, "_append", die)
        logged(store, 10)
    assert len(run(records.names("log:"))) == 1
    assert len(run(store.change_log("org_1", 1000))) == 10
    logged(store, 10, 10)
    assert [int(change.key or "") for change in run(store.change_log("org_1", 1000))] == [
        *range(19, -1, -1)
    ]


def test_a_record_store_drops_the_pages_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockgate.stores.key_value.change_log.LOGGED_AT_MOST", 100)
    records = DictRecords()
    store = RecordStore(records)
    logged(store, 400)
    found = [int(change.key or "") for change in run(store.change_log("org_1", 1000))]
    assert found == [*range(399, 399 - len(found), -1)]
    assert 100 <= len(found) <= 100 + 64 + 4
    assert len(run(records.names("log:"))) <= 3
