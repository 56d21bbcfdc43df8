"""A process that forks: its children have databases' connections of their own."""

from __future__ import annotations

from lockgate.stores.sql import SqlStore

from ..forking import fork_and_charge
from .backends import Backend


def test_a_process_that_forked_shares_no_connection(backend: Backend) -> None:
    tables = backend.take()
    backend.admin.dispose()  # As long as a file is open here, SQLite keeps its log.
    fork_and_charge(SqlStore, backend.url, tables.prefix)
    backend.give(tables)
