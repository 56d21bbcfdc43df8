"""Changes of keys on PostgreSQL: few round trips, also beside other transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import create_engine, delete, event, insert, select, update
from sqlalchemy.ext.asyncio import create_async_engine

from lockgate.core.api_keys import ApiKey
from lockgate.core.changes import LOGGED_AT_MOST, drafted_change
from lockgate.core.plans import Organization
from lockgate.core.quota_leases import LONGEST, QuotaLeases
from lockgate.core.reservations import Reservation
from lockgate.core.sliding_window import EMPTY
from lockgate.errors import HandleTaken
from lockgate.stores.resilience.older_leases import noted_leases
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.codec import write_state
from lockgate.stores.sql.pipelined_cursor import PipelinedCursor
from lockgate.sync import run
from tests.stores.making import NOW, account, at_once, draft, draft_of, new_key

from .backends import BACKENDS, Borrowed, await_locks

BACKEND = BACKENDS["postgresql"]
REVOKED = drafted_change("key_revoked")


@pytest.fixture
def store() -> Iterator[Borrowed]:
    opened = BACKEND.open()
    yield opened
    run(opened.close())


def key_of(store: SqlStore) -> ApiKey:
    return run(store.insert(draft_of(new_key()), None))


def revoke(store: SqlStore, key: ApiKey) -> ApiKey | None:
    return run(store.revoke_if_live("org_1", key.id, change=REVOKED))


@pytest.fixture
def trips(store: Borrowed, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of statements in each round trip."""
    made: list[int] = []
    event.listen(store._engines.blocking, "before_cursor_execute", lambda *_: made.append(1))
    exchange = PipelinedCursor._exchange

    def counted(cursor: PipelinedCursor, queries: Sequence[Any]) -> list[Any]:
        made.append(len(queries))
        return exchange(cursor, queries)

    monkeypatch.setattr(PipelinedCursor, "_exchange", counted)
    return made


def test_a_revocation_is_three_round_trips(store: Borrowed, trips: list[int]) -> None:
    """It reads the key, locks the organization and reads, and writes and commits."""
    first, second = key_of(store), key_of(store)
    revoke(store, first)  # Its predecessor has made the row of the change counter.
    trips.clear()
    revoked = revoke(store, second)
    assert len(trips) == 3, trips
    assert revoked == run(store.find(second.handle))
    assert revoked is not None
    assert revoked.revoked_at is not None


@pytest.mark.parametrize("awaits", [False, True])
def test_a_revocation_on_an_engine_of_the_host_is_three_round_trips(
    store: Borrowed, trips: list[int], *, awaits: bool
) -> None:
    url, keys = BACKEND.admin.url, [key_of(store) for _ in range(2)]
    engine: Any = create_async_engine(url) if awaits else create_engine(url)
    blocking = engine.sync_engine if awaits else engine
    event.listen(blocking, "before_cursor_execute", lambda *_: trips.append(1))

    async def revoke_both() -> None:
        hosts = SqlStore(engine, prefix=store.tables.prefix)
        for key in keys:
            trips.clear()
            assert await hosts.revoke_if_live("org_1", key.id, change=REVOKED)
        await hosts.close()
        if awaits:
            await engine.dispose()

    if awaits:
        asyncio.run(revoke_both())
    else:
        run(revoke_both())
    assert len(trips) == 3, trips
    blocking.dispose()


def test_other_changes_are_few_round_trips(store: Borrowed, trips: list[int]) -> None:
    known, _ = run(store.register(account(), draft(), NOW))
    run(store.put_organization(Organization("org_1", "starter")))
    key, cap = key_of(store), 9
    for change, most in (
        (lambda: store.insert(draft(), None), 3),
        (lambda: store.insert(draft(), cap), 4),
        (lambda: store.update_if(key, key._replace(name="new")), 2),
        (lambda: store.rotate_if(key._replace(name="new"), key, draft(), cap), 4),
        (lambda: store.sign_in("org_1", known=known), 2),
        (lambda: store.put_organization(Organization("org_1", "free")), 3),
    ):
        trips.clear()
        assert run(change()) is not False
        assert len(trips) == most, trips


def test_the_first_change_of_a_database_makes_the_change_counter(store: Borrowed) -> None:
    key = key_of(store)
    with BACKEND.admin.begin() as connection:
        connection.execute(delete(store.tables.epochs))
    revoked = revoke(store, key)
    assert revoked is not None
    assert revoked.revoked_at is not None
    assert run(store.freshness()).change_counter
    assert [change.number for change in run(store.change_log("org_1", 9))] == [1]


def test_k3_a_revocation_again_changes_no_row(store: Borrowed) -> None:
    key = key_of(store)
    revoked = revoke(store, key)
    assert revoke(store, key) == revoked
    assert len(run(store.change_log("org_1", 9))) == 1


def test_concurrent_revocations_are_numbered_without_gaps(store: Borrowed) -> None:
    keys = [key_of(store) for _ in range(24)]
    revoked = at_once(8, lambda place: [revoke(store, key) for key in keys[place::8]])
    assert all(key is not None and key.revoked_at for some in revoked for key in some)
    numbers = [change.number for change in run(store.change_log("org_1", 99))]
    assert numbers == list(range(24, 0, -1))


def test_k4_a_revocation_that_waits_finds_the_lease_that_was_granted_meanwhile(
    store: Borrowed,
) -> None:
    key, table = key_of(store), store.tables.organizations
    lease = Reservation("0" * 16, 5, run(store.now()) + LONGEST, LONGEST)
    found: list[list[QuotaLeases]] = []

    def change() -> None:
        with noted_leases() as noted:
            revoke(store, key)
        found.append(noted)

    with BACKEND.admin.connect() as connection:
        mine = table.c.id == b"org_1"
        connection.execute(select(table.c.id).where(mine).with_for_update())
        waiting = Thread(target=change)
        waiting.start()
        await_locks(BACKEND.admin)
        windows = write_state((EMPTY,), (lease,))
        connection.execute(update(table).where(mine).values(windows=windows))
        connection.commit()
        waiting.join()
    assert found == [[(lease,)]]


def test_a_revocation_of_a_key_that_is_revoked_meanwhile_changes_nothing(store: Borrowed) -> None:
    key, table = key_of(store), store.tables.keys
    answers: list[ApiKey | None] = []
    with BACKEND.admin.connect() as connection:
        connection.execute(update(table).values(revoked_at=7))
        waiting = Thread(target=lambda: answers.append(revoke(store, key)))
        waiting.start()
        await_locks(BACKEND.admin)
        connection.commit()
        waiting.join()
    assert [answer and answer.revoked_at for answer in answers] == [7]
    assert run(store.change_log("org_1", 9)) == []


def test_a_revocation_removes_records_of_the_change_log_that_are_too_many(store: Borrowed) -> None:
    key, changes = key_of(store), store.tables.changes
    due = LOGGED_AT_MOST // 64 * 64 + 128
    of_org_1 = {"organization": b"org_1", "at": NOW, "text": REVOKED.text()}
    numbers = [1, due - LOGGED_AT_MOST, due - LOGGED_AT_MOST + 1, due - 1]
    with BACKEND.admin.begin() as connection:
        connection.execute(insert(changes), [{**of_org_1, "number": one} for one in numbers])
    revoke(store, key)
    left = [change.number for change in run(store.change_log("org_1", 9))]
    assert left == [due, due - 1, due - LOGGED_AT_MOST + 1]


def test_a_key_of_another_organization_is_not_found(store: Borrowed) -> None:
    key = key_of(store)
    assert run(store.revoke_if_live("org_2", key.id)) is None
    run(store.put_organization(Organization("org_2", "free")))
    assert run(store.revoke_if_live("org_2", key.id)) is None
    found = run(store.find(key.handle))
    assert found is not None
    assert found.revoked_at is None


@pytest.mark.parametrize(
    "driver",
    ["postgresql+psycopg", "postgresql+asyncpg", "mysql+pymysql", "mysql+asyncmy", "sqlite"],
)
async def test_d3_a_taken_handle_is_told_with_every_driver(driver: str) -> None:
    backend = BACKENDS[driver.partition("+")[0]]
    tables = backend.take()
    url = backend.admin.url.set(drivername=driver).render_as_string(hide_password=False)
    stored = SqlStore(url, prefix=tables.prefix)
    first = await stored.insert(draft(), None)
    for taken in (
        draft("org_2")._replace(handle=first.handle),
        draft("org_2")._replace(id=first.id),
    ):
        with pytest.raises(HandleTaken):
            await stored.insert(taken, None)
        with pytest.raises(HandleTaken):
            await stored.register(account("org_2"), taken)
    assert await stored.account("org_2") is None
    assert await stored.change_log("org_2", 9) == []
    assert await stored.list("org_2", 9) == []
    await stored.close()
    backend.give(tables)
