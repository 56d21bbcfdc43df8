"""Changes of keys on PostgreSQL: few round trips, also beside other transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import event, select, update

from lockgate.core.api_keys import ApiKey
from lockgate.core.changes import drafted_change
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
from tests.stores.failing import store_fails
from tests.stores.making import NOW, account, draft, draft_of, new_key

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


@pytest.mark.parametrize("awaits", [False, True])
def test_a_revocation_on_an_engine_of_the_host_is_three_round_trips(
    store: Borrowed, trips: list[int], *, awaits: bool
) -> None:
    keys = [key_of(store) for _ in range(2)]
    engine: Any = BACKEND.awaiting("postgresql+psycopg") if awaits else BACKEND.blocking()
    blocking = engine.sync_engine if awaits else engine
    event.listen(blocking, "before_cursor_execute", lambda *_: trips.append(1))

    async def revoke_both() -> None:
        hosts = BACKEND.open(engine, beside=store)
        for key in keys:
            trips.clear()
            assert await hosts.revoke_if_live("org_1", key.id, change=REVOKED)
        await hosts.close()

    (asyncio.run if awaits else run)(revoke_both())
    assert len(trips) == 3, trips


def test_changes_are_few_round_trips(store: Borrowed, trips: list[int]) -> None:
    """A revocation reads the key, locks the organization and reads, and writes and commits."""
    known, old = run(store.register(account(), draft(), NOW))
    run(store.put_organization(Organization("org_1", "starter")))
    key, cap = key_of(store), 9
    for change, most in (
        (lambda: store.revoke_if_live("org_1", old.id, change=REVOKED), 3),
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


async def test_d3_a_taken_handle_is_told_by_asyncpg() -> None:
    """By the other drivers the contract is checked."""
    stored = BACKEND.open(BACKEND.by("postgresql+asyncpg"))
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


@pytest.mark.parametrize("kind", BACKENDS)
def test_an_error_of_integrity_other_than_a_taken_handle_is_no_reason_to_draw_again(
    kind: str,
) -> None:
    store = BACKENDS[kind].open()
    unnamed = draft()._replace(name=None)  # type: ignore[arg-type] # what the database is to refuse
    with store_fails(BACKENDS[kind].admin.dialect.loaded_dbapi.IntegrityError):
        run(store.insert(unnamed, None, NOW))
    run(store.close())
