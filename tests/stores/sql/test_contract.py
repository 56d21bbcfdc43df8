"""The contract, on every SQL database and in both colours."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from sqlalchemy import func, select

from lockgate import Store, run
from lockgate.stores.answers import Verdict
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.databases import database_of
from lockgate.stores.sql.pruning import Pruning
from lockgate.testing.processes import Reopen
from lockgate.testing.suite import SharedStoreSuite, StoreSuite

from ..making import BOOK, NOW, at_once, draft_of, new_key, token_of
from .backends import BACKENDS, Backend, Borrowed

pytestmark = pytest.mark.usefixtures("untraced_processes")


class SqlSuite(SharedStoreSuite):
    kind: str
    one_walk_in = 10
    deadline = 180.0  # On a loaded machine, processes took longer than twice the default.

    def make_store(self) -> Store:
        return BACKENDS[self.kind].open()

    def reopen(self, store: Store) -> Reopen:
        assert isinstance(store, Borrowed)
        return partial(SqlStore, BACKENDS[self.kind].url, prefix=store.tables.prefix)

    def leftovers(self, store: Store, now: int) -> int:
        assert isinstance(store, Borrowed)
        engine, table = BACKENDS[self.kind].admin, store.tables.organizations
        database = database_of(engine.dialect)
        with engine.connect() as connection:
            database.begin(connection)
            Pruning(store.tables, database).prune(connection, now)
            count = connection.scalar(select(func.count()).where(table.c.windows.is_not(None)))
            owners = select(func.count(store.tables.limits.c.organization.distinct()))
            limited = connection.scalar(owners)
            connection.commit()
        return max(count or 0, limited or 0)


class TestSqlite(SqlSuite):
    kind = "sqlite"


class TestPostgresql(SqlSuite):
    kind = "postgresql"
    skew = 300.0


class TestMariadb(SqlSuite):
    kind = "mysql"
    skew = 300.0


@pytest.mark.campaign
class TestPostgresqlThatBlocks(StoreSuite):
    """On an engine of the host's own. Those above block as well, in their walks and where callers
    come in crowds."""

    one_walk_in = 10

    def make_store(self) -> Store:
        backend = BACKENDS["postgresql"]
        return backend.open(backend.blocking())


def test_exactly_the_limit_is_admitted_across_event_loops_that_close_it(backend: Backend) -> None:
    """Each loop opens separate connections, so each closes them before it ends."""
    tables = backend.take()
    made = new_key()
    store = SqlStore(backend.url, prefix=tables.prefix)
    run(store.insert(draft_of(made), None, NOW))

    async def admit() -> list[Verdict]:
        admits = (store.admit(token_of(made), 1, BOOK, NOW) for _ in range(8))
        verdicts = [admission.verdict for admission in await asyncio.gather(*admits)]
        await store.close()
        return verdicts

    verdicts = [v for many in at_once(4, lambda _: asyncio.run(admit())) for v in many]
    assert verdicts.count(Verdict.ADMITTED) == BOOK.default.rpm
    backend.give(tables)
