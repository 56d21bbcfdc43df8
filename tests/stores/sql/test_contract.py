"""The contract, on every SQL database and in both colours."""

from __future__ import annotations

import asyncio

from lockgate import run
from lockgate.stores.contract import Verdict
from lockgate.stores.sql import SqlStore

from ..making import BOOK, NOW, at_once, draft, draft_of, new_key, token_of
from ..test_contract import *  # noqa: F403 - the tests themselves, with this folder's stores
from .backends import Backend

# A hundred traces on two stores each take a server minutes: test_lockstep.py says as much sooner.
del test_a_stores_own_admit_agrees_with_the_composition  # noqa: F821 - imported by the star
# These two are below as they are for a store that waits as its caller does.
del test_a_blocking_store_never_suspends  # noqa: F821
del test_exactly_the_limit_is_admitted_across_event_loops  # noqa: F821


def test_where_no_event_loop_runs_the_store_never_suspends(backend: Backend) -> None:
    store = backend.open()
    run(store.insert(draft("org_1"), None, NOW))
    run(store.census())
    run(store.now())
    run(store.close())


def test_exactly_the_limit_is_admitted_across_event_loops_that_close_it(backend: Backend) -> None:
    """Each loop opens connections of its own, so each closes them before it ends."""
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
