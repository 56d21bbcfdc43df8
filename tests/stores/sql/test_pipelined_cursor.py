"""Charges on the connection of psycopg's that a store keeps: two round trips each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg.errors import CheckViolation
from sqlalchemy import text

from lockgate import run
from lockgate.core.ledger import Hit, Peek
from lockgate.core.plans import DEFAULT_RESOLUTION, Plan
from lockgate.stores.answers import StoreError
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.executor import SyncExecutor
from lockgate.stores.sql.pipelined_cursor import PipelinedCursor
from lockgate.stores.sql.statements import Cursor

from ..making import NOW
from .backends import BACKENDS, Borrowed

WINDOWS = Plan("free", None, None, None, None, DEFAULT_RESOLUTION).windows
HIT = Hit(WINDOWS, 1)
BACKEND = BACKENDS["postgresql"]


@pytest.fixture
def store() -> Iterator[Borrowed]:
    opened = BACKEND.open()
    run(opened.charge("org_1", Hit(WINDOWS, 1), NOW))
    yield opened
    run(opened.close())


def hit(store: SqlStore) -> None:
    run(store.charge("org_1", Hit(WINDOWS, 1), NOW))


def used(store: SqlStore) -> int:
    return run(store.charge("org_1", Peek(WINDOWS), NOW)).used[0]


def cursor_of(store: SqlStore) -> Cursor:
    executor = store._executors.here()
    assert isinstance(executor, SyncExecutor)
    assert executor._cursor is not None
    return executor._cursor


def execute(statement: str) -> None:
    with BACKEND.admin.begin() as connection:
        connection.execute(text(statement))


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The first words of the statements that were sent together."""
    sent: list[list[str]] = []
    exchange = PipelinedCursor._exchange

    def noted(self: PipelinedCursor, queries: Any) -> Any:
        sent.append([query.text.decode().split()[0] for query in queries])
        return exchange(self, queries)

    monkeypatch.setattr(PipelinedCursor, "_exchange", noted)
    return sent


@pytest.mark.parametrize("charges", [1, 9])
async def test_a_batch_is_two_round_trips(exchanges: list[list[str]], charges: int) -> None:
    store = BACKEND.open()
    await store.charge("org_1", HIT, NOW)
    exchanges.clear()
    await asyncio.gather(*(store.charge("org_1", HIT, NOW) for _ in range(charges)))
    assert exchanges == [["BEGIN", "WITH"], ["UPDATE", "COMMIT"]]
    await store.close()


def test_a_charge_that_writes_nothing_ends_its_transaction(
    store: Borrowed, exchanges: list[list[str]]
) -> None:
    limited = Plan("small", 1, None, None, None).windows
    run(store.charge("org_2", Hit(limited, 1), NOW))
    exchanges.clear()
    assert not run(store.charge("org_2", Hit(limited, 1), NOW)).allowed
    assert exchanges == [["BEGIN", "WITH"], ["COMMIT"]]
    assert used(store) == 1


def test_d33_a_write_that_fails_with_the_commit_has_certainly_no_effect(store: Borrowed) -> None:
    table = store.tables.organizations.name
    execute(f"ALTER TABLE {table} ADD CONSTRAINT none CHECK (windows IS NULL) NOT VALID")
    try:
        with pytest.raises(StoreError) as caught:
            hit(store)
    finally:
        execute(f"ALTER TABLE {table} DROP CONSTRAINT none")
    assert type(caught.value) is StoreError, "the outcome is known"
    assert isinstance(caught.value.__cause__, CheckViolation)
    assert used(store) == 1
    hit(store)
    assert used(store) == 2


def test_a_conflict_that_the_server_tells_with_the_commit_is_tried_again(store: Borrowed) -> None:
    name, table = f"{store.prefix}once", store.tables.organizations.name
    execute(f"CREATE SEQUENCE {name}")
    execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF nextval('{name}') = 1 THEN RAISE EXCEPTION 'once' USING ERRCODE = '40001'; END IF; "
        "RETURN NEW; END $$"
    )
    trigger = f"CREATE TRIGGER {name} BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION"
    execute(f"{trigger} {name}()")
    try:
        hit(store)
    finally:
        execute(f"DROP TRIGGER {name} ON {table}")
        execute(f"DROP FUNCTION {name}()")
        execute(f"DROP SEQUENCE {name}")
    assert used(store) == 2


def test_an_interrupted_exchange_takes_its_connection_with_it(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = cursor_of(store).driver

    def interrupted(_: PipelinedCursor, __: int) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(PipelinedCursor, "_receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hit(store)
    monkeypatch.undo()
    hit(store)
    assert cursor_of(store).driver is not driver
    assert used(store) == 2


def test_a_connection_with_another_encoding_has_the_drivers_cursor() -> None:
    store = BACKEND.open(BACKEND.by(query={"client_encoding": "latin1"}))
    hit(store)
    assert type(cursor_of(store)) is Cursor
    assert used(store) == 1
    run(store.close())
