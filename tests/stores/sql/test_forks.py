"""A process that forks: its children have databases' connections of their own."""

from __future__ import annotations

import threading

from sqlalchemy import select

from lockgate import run
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.codec import write_id

from ..forking import AT_FORK, fork_and_charge, in_a_child
from ..making import BOOK, draft_of, new_key, token_of
from .backends import Backend, await_locks


def test_a_process_that_forked_shares_no_connection(backend: Backend) -> None:
    own = backend.open()
    backend.admin.dispose()  # As long as a file is open here, SQLite keeps its log.
    fork_and_charge(SqlStore, backend.url, own.prefix)
    run(own.close())


@AT_FORK
def test_a_child_does_not_wait_for_an_answer_that_its_parent_waits_for(served: Backend) -> None:
    store = served.open()
    waiting, other = new_key(), new_key()
    for number, made in enumerate((waiting, other)):
        run(store.insert(draft_of(made, f"org_{number}"), None))
        run(store.admit(token_of(made), 1, BOOK))
    verdicts: list[str] = []

    def admit() -> None:
        verdicts.append(run(store.admit(token_of(waiting), 1, BOOK)).verdict.value)

    def beside() -> bytes:
        return run(store.admit(token_of(other), 1, BOOK)).verdict.value.encode()

    thread = threading.Thread(target=admit)
    rows = store.tables.organizations
    with served.admin.begin() as connection:
        connection.execute(select(rows).where(rows.c.id == write_id("org_0")).with_for_update())
        thread.start()
        await_locks(served.admin)
        said = in_a_child(beside)
    thread.join()
    assert said == b"admitted"
    assert verdicts == ["admitted"]
    run(store.close())
