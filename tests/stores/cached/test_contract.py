"""The contract, on a database with Redis before it.

In campaigns: in each run, ``test_store.py`` shows what such a pair adds to its stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest

from lockgate import Store
from lockgate.stores.answers import Admission
from lockgate.stores.cached.store import CachedStore
from lockgate.stores.redis import RedisStore
from lockgate.stores.sql import SqlStore
from lockgate.testing.processes import Reopen
from lockgate.testing.suite import SharedStoreSuite

from ..redis.backends import server, stop_servers
from ..sql.backends import BACKENDS, close_backends

pytestmark = [pytest.mark.campaign, pytest.mark.usefixtures("untraced_processes")]

_pairs = count()


@pytest.fixture(scope="module", autouse=True)
def servers(shared_servers: None) -> Iterator[None]:
    yield
    stop_servers()
    close_backends()


class Pair(CachedStore):
    """Writes usage with each admission, as the contract wants it; a pair alone does twice a
    second, which ``test_store.py`` shows."""

    def __init__(self, database: str, tables: str, cache: str, copies: str) -> None:
        super().__init__(SqlStore(database, prefix=tables), RedisStore(cache, prefix=copies))

    async def admit(self, *args: Any, **named: Any) -> Admission:
        admission = await super().admit(*args, **named)
        await self.write_usage()
        return admission


class PairSuite(SharedStoreSuite):
    kind: str
    one_walk_in = 10
    deadline = 180.0  # Each change is a round trip to both stores.

    @pytest.fixture(autouse=True)
    def emptied_tables(self) -> Iterator[None]:
        self.tables = BACKENDS[self.kind].take()
        yield
        BACKENDS[self.kind].give(self.tables)

    def make_store(self) -> Store:
        backend = BACKENDS[self.kind]
        backend.give(self.tables)  # A walk makes many stores, one after the other.
        self.tables = backend.take()
        names = backend.url, self.tables.prefix, server("single").url(), f"pair{next(_pairs)}"
        self.opened = partial(Pair, *names)
        return self.opened()

    def reopen(self, store: Store) -> Reopen:
        return self.opened


class TestSqliteAndRedis(PairSuite):
    kind = "sqlite"


class TestPostgresqlAndRedis(PairSuite):
    kind = "postgresql"
    skew = 300.0
