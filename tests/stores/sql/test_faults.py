"""What happens when the database goes wrong: a clear error or the declared behaviour, and never a
charge that counts twice (D33, G4)."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from lockgate import ConfigurationError, Gate, PlanBook, migrations, open_store, run
from lockgate.core.leases import to_acquire
from lockgate.core.ledger import Hit, Peek
from lockgate.core.plans import DEFAULT_RESOLUTION, Plan
from lockgate.core.timestamps import SECOND
from lockgate.core.usage_history import UsageHistory
from lockgate.errors import StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.stores.answers import (
    NO_KEYS,
    HistoryOwner,
    OutcomeUnknown,
    StoreError,
    Usage,
    UsageBatch,
    Verdict,
)
from lockgate.stores.sql import OutdatedSchema, SqlStore, schema
from lockgate.stores.sql import store as sql_store
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.schema import downgrade, upgrade
from lockgate.stores.sql.tables import Tables
from tests.patience import SLACK
from tests.servers import Server, mariadb, postgres, shared

from ..failing import store_fails
from ..making import NOW, draft, draft_of, new_key, token_of
from ..proxy import Proxy
from .backends import BACKENDS, Backend, await_locks, database

WIDE = PlanBook([Plan("free", None, None, None, None, DEFAULT_RESOLUTION)])
WINDOWS = WIDE.default.windows


COMMITS = {"postgresql": b"COMMIT\0", "mysql": b"COMMIT"}
"""A commit on the wire; the READ COMMITTED of PostgreSQL's driver does not match."""


def through(proxy: Proxy, url: str) -> str:
    return make_url(url).set(port=proxy.port).render_as_string(hide_password=False)


@pytest.fixture
def proxied(served: Backend) -> Iterator[tuple[Proxy, SqlStore]]:
    tables = served.take()
    with Proxy(shared(served.kind).port) as proxy:
        yield proxy, SqlStore(through(proxy, served.url), prefix=tables.prefix)
    served.give(tables)


def used(store: SqlStore) -> int:
    return run(store.charge("org_1", Peek(WINDOWS), NOW)).used[0]


def test_d33_a_lost_answer_to_a_commit_counts_once(
    proxied: tuple[Proxy, SqlStore], served: Backend
) -> None:
    proxy, store = proxied
    run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    proxy.cut_at = COMMITS[served.kind]
    with pytest.raises(OutcomeUnknown):
        run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    assert proxy.cuts == 1
    assert used(store) == 2
    run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    assert used(store) == 3
    run(store.close())


def test_usage_whose_commit_lost_its_answer_is_repeated_and_counts_once_K7_D33(
    proxied: tuple[Proxy, SqlStore], served: Backend
) -> None:
    proxy, store = proxied
    made, writer = new_key(), "0123456789abcdef"
    key = run(store.insert(draft_of(made), None, NOW))
    owner, history = HistoryOwner("org_1", None), UsageHistory()
    history.admit(NOW, 7)
    run(store.add_usage({key.handle: Usage(3, NOW)}, UsageBatch(writer, 1)))
    run(store.add_history({owner: history}, UsageBatch("of histories 1 2", 1)))
    for number in (2, 3):
        batch = UsageBatch(writer, number)
        proxy.cut_at = COMMITS[served.kind]
        with pytest.raises(OutcomeUnknown):
            run(store.add_usage({key.handle: Usage(3, NOW)}, batch))
        run(store.add_usage({key.handle: Usage(3, NOW)}, batch))
        proxy.cut_at = COMMITS[served.kind]
        with pytest.raises(OutcomeUnknown):
            run(store.add_history({owner: history}, UsageBatch("of histories 1 2", number)))
        run(store.add_history({owner: history}, UsageBatch("of histories 1 2", number)))
        assert proxy.cuts == 2 * number - 2
        found = run(store.find(made.handle))
        assert found is not None
        assert found.request_count == 3 * number
        cells = run(store.history(owner)).cells("day", NOW)
        assert sum(cell.admitted for cell in cells) == 7 * number
    run(store.close())


async def test_d33_all_callers_of_a_batch_learn_that_the_answer_to_its_commit_was_lost(
    proxied: tuple[Proxy, SqlStore], served: Backend
) -> None:
    proxy, store = proxied
    await store.charge("org_1", Hit(WINDOWS, 1), NOW)
    proxy.cut_at = COMMITS[served.kind]
    hits = [store.charge("org_1", Hit(WINDOWS, 1), NOW) for _ in range(8)]
    outcomes = await asyncio.gather(*hits, return_exceptions=True)
    lost = [outcome for outcome in outcomes if isinstance(outcome, OutcomeUnknown)]
    assert proxy.cuts == 1
    assert lost
    assert all(isinstance(o, OutcomeUnknown) or not isinstance(o, BaseException) for o in outcomes)
    assert (await store.charge("org_1", Peek(WINDOWS), NOW)).used[0] == 9
    await store.close()


@pytest.mark.parametrize("driver", ["postgresql+psycopg", "postgresql+asyncpg", "mysql+asyncmy"])
async def test_d33_a_lost_answer_counts_once_in_the_hosts_own_asynchronous_engine(
    driver: str,
) -> None:
    backend = BACKENDS[driver.partition("+")[0]]
    tables = backend.take()
    with Proxy(shared(backend.kind).port) as proxy:
        url = make_url(through(proxy, backend.url)).set(drivername=driver)
        engine = create_async_engine(url)
        store = SqlStore(engine, prefix=tables.prefix)
        await store.charge("org_1", Hit(WINDOWS, 1), NOW)
        proxy.cut_at = b"COMMIT;" if driver.endswith("asyncpg") else COMMITS[backend.kind]
        with pytest.raises(OutcomeUnknown):
            await store.charge("org_1", Hit(WINDOWS, 1), NOW)
        assert proxy.cuts == 1
        await store.charge("org_1", Hit(WINDOWS, 1), NOW)
        assert (await store.charge("org_1", Peek(WINDOWS), NOW)).used[0] == 3
        await store.close()
        await engine.dispose()
    backend.give(tables)


@pytest.mark.parametrize("statement", [b"FOR UPDATE", b"UPDATE t"])
def test_a_connection_cut_before_the_commit_is_undone_and_tried_again(
    proxied: tuple[Proxy, SqlStore], served: Backend, statement: bytes
) -> None:
    """With an engine of the host's: one of lockgate's sends the write with the commit. So does
    psycopg with any engine: there the cut is at the lock."""
    proxy, kept = proxied
    if served.kind == "postgresql":
        statement = LOCKS[served.kind]
    engine = create_engine(blocking_engine(through(proxy, served.url)).url)
    store = SqlStore(engine, prefix=kept.prefix)
    run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    proxy.cut_at = statement
    run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    assert proxy.cuts == 1
    assert used(store) == 2
    run(store.close())
    run(kept.close())
    engine.dispose()


LOCKS = {"postgresql": b"BEGIN", "mysql": b"FOR UPDATE"}
"""What is on the wire with the lock."""


def test_a_kept_connection_cut_at_the_lock_is_undone_and_the_charge_tried_again(
    proxied: tuple[Proxy, SqlStore], served: Backend
) -> None:
    proxy, store = proxied
    run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    proxy.cut_at = LOCKS[served.kind]
    run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    assert proxy.cuts == 1
    assert used(store) == 2
    run(store.close())


def test_connections_that_died_while_idle_are_replaced(proxied: tuple[Proxy, SqlStore]) -> None:
    proxy, store = proxied
    run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    proxy.drop_all()
    run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    assert used(store) == 2
    run(store.close())


@pytest.fixture(params=[postgres, mariadb], ids=["postgresql", "mysql"])
def mortal(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of this test's own, to be killed."""
    with request.param() as running:
        yield running


def test_a_server_that_crashes_and_returns(mortal: Any) -> None:
    url = mortal.create("fragile")
    admin = blocking_engine(url)
    upgrade(admin, Tables())
    admin.dispose()
    gate = Gate(url, brand="acme", plans=WIDE, store_options=StoreOptions(deadline=20))
    made = run(gate.keys.create("org_1", "a key"))
    token = made.text
    for _ in range(3):
        run(gate.authenticate(token))
    mortal.stop(signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            run(gate.authenticate(token))
    mortal.start()
    ended = time.monotonic() + 60
    key = None
    while key is None:
        try:
            key = run(gate.authenticate(token)).key
        except StoreUnavailable:  # It is left in peace for a moment after it failed.
            assert time.monotonic() < ended
            time.sleep(0.05)
    assert key.request_count == 4
    run(gate.close())


def test_a_server_killed_mid_transaction_loses_that_transaction_whole(mortal: Any) -> None:
    url = mortal.create("fragile")
    admin = blocking_engine(url)
    upgrade(admin, Tables())
    store = SqlStore(url)
    run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    holder = admin.connect()
    holder.execute(text("SELECT id FROM lockgate_organizations FOR UPDATE"))
    failures: list[BaseException] = []

    def hit() -> None:
        try:
            run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
        except StoreError as failure:
            failures.append(failure)

    waiting = threading.Thread(target=hit)
    waiting.start()
    await_locks(admin)
    mortal.stop(signal.SIGKILL)
    waiting.join(60)
    assert len(failures) == 1
    holder.invalidate()
    holder.close()
    mortal.start()
    assert used(store) == 1
    run(store.close())
    admin.dispose()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://nobody:hunter2hunter2@127.0.0.1:1/none",
        "mysql://x:hunter2hunter2@127.0.0.1:1/none",
    ],
    ids=["postgresql", "mysql"],
)
def test_a_server_that_refuses_connections_is_an_outage(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(url, brand="acme")
    with caplog.at_level(logging.DEBUG), pytest.raises(StoreUnavailable) as caught:
        run(gate.keys.list("org_1"))
    assert "hunter2" not in caplog.text
    assert "hunter2" not in repr(caught.value.__cause__)
    run(gate.close())


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql+nodriver://host/db", "not installed"),
        ("sqlite:///", "name a file"),
        ("sqlite://", "name a file"),
        ("sqlite:///:memory:", "name a file"),
        ("postgresql://user:hunter2hunter2@host:port/db", "cannot be read"),
        ("mysql+mysqldb://user:hunter2hunter2@host/db", "not installed"),
    ],
)
def test_a_wrong_url_or_missing_driver_is_refused_at_construction(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        open_store(url)
    assert "hunter2" not in f"{caught.value}{caught.value.__cause__}"


def test_an_exhausted_pool_raises_within_the_deadline(served: Backend) -> None:
    tables = served.take()
    engine = create_engine(
        blocking_engine(served.url).url, pool_size=1, max_overflow=0, pool_timeout=0.2
    )
    store = SqlStore(engine, prefix=tables.prefix)
    gate = Gate(store, brand="acme")
    with engine.connect(), pytest.raises(StoreUnavailable):
        run(gate.keys.list("org_1"))
    assert run(gate.keys.list("org_1")).keys == []
    engine.dispose()
    served.give(tables)


def test_no_bound_parameter_is_in_an_error_or_a_log(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even of the host's own engine, which shows parameters."""
    tables = backend.take()
    engine = create_engine(blocking_engine(backend.url).url)
    store = SqlStore(engine, prefix=tables.prefix)
    wanted = draft(name="hunter2hunter2")._replace(scheme="s" * 300, digest=b"hunter2" * 60)
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {tables.prefix}keys RENAME COLUMN name TO label"))
    try:
        failure = engine.dialect.loaded_dbapi.Error
        with caplog.at_level(logging.DEBUG), store_fails(failure) as caught:
            run(store.insert(wanted, None, NOW))
    finally:
        with engine.begin() as connection:
            connection.execute(text(f"ALTER TABLE {tables.prefix}keys RENAME COLUMN label TO name"))
    assert "hunter2" not in f"{caught.value}{caught.value.__cause__}"
    assert "hunter2" not in caplog.text
    engine.dispose()
    backend.give(tables)


# --- the schema --------------------------------------------------------------------------------


@pytest.mark.parametrize("are_there", [False, True])
def test_a_missing_or_older_schema_names_the_command(
    backend: Backend,
    are_there: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = Tables("older_")
    if are_there:
        upgrade(backend.admin, tables)
        monkeypatch.setattr(schema, "RELEASE", schema.RevisionRange("0002", "0002"))
    engine = create_engine(blocking_engine(backend.url).url)
    gate = Gate(SqlStore(engine, prefix="older_"), brand="acme")
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as caught:
            run(gate.keys.list("org_1"))
        assert isinstance(caught.value.__cause__, OutdatedSchema)
        assert "lockgate db upgrade" in str(caught.value.__cause__)
    assert sum("lockgate db upgrade" in record.getMessage() for record in caplog.records) == 1
    monkeypatch.undo()
    upgrade(backend.admin, tables)
    assert run(gate.keys.list("org_1")).keys == []
    engine.dispose()
    downgrade(backend.admin, tables, "base")


# --- SQLite --------------------------------------------------------------------------------------


def test_a_locked_database_raises_and_no_hit_is_counted() -> None:
    url = database("sqlite")
    store = SqlStore(url + "&timeout=0.1")
    run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    path = make_url(url).database
    assert path is not None
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with store_fails(sqlite3.OperationalError, match="locked"):
        run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    holder.execute("ROLLBACK")
    holder.close()
    run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    assert used(store) == 2
    run(store.close())


@pytest.mark.parametrize("in_a_loop", [False, True], ids=["sync", "async"])
async def test_closing_ends_the_wait_for_a_locked_file(in_a_loop: bool) -> None:
    """With patience for five minutes; the file stays locked until the end."""
    url = database("sqlite")
    store = SqlStore(f"{url}&timeout=300")
    await asyncio.to_thread(lambda: run(store.charge("org_1", Hit(WINDOWS, 1), NOW)))
    path = make_url(url).database
    assert path is not None
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    calls = [
        store.charge("org_1", Hit(WINDOWS, 1), NOW),
        store.charge("org_2", Hit(WINDOWS, 1), NOW),
        store.charge("org_3", to_acquire("job", "me", 1, SECOND), NOW),
    ]
    waiting = [
        asyncio.create_task(call if in_a_loop else asyncio.to_thread(run, call)) for call in calls
    ]
    done, _ = await asyncio.wait(waiting, timeout=0.3)
    assert not done
    started = time.monotonic()
    if in_a_loop:
        await store.close()
    else:
        store.cancel_waits()
    failures = await asyncio.gather(*waiting, return_exceptions=True)
    assert time.monotonic() - started < SLACK
    for failure in failures:
        assert isinstance(failure, StoreError)
        assert "locked" in str(failure.__cause__)
    holder.close()
    await asyncio.to_thread(lambda: run(store.close()))
    assert await asyncio.to_thread(lambda: used(store)) == 1, "it can be opened again"
    await asyncio.to_thread(lambda: run(store.close()))


@pytest.mark.parametrize("url", ["sqlite:///x.db?timeout=soon", "mysql://h/d?connect_timeout=soon"])
@pytest.mark.parametrize("opened", [SqlStore, blocking_engine])
def test_an_option_that_is_not_a_number_is_refused(
    url: str, opened: Callable[[str], object]
) -> None:
    with pytest.raises(ConfigurationError, match="no number"):
        opened(url)


def test_a_read_only_database_still_answers_reads(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/keys.db?mode=rwc"
    store = SqlStore(url)
    key = run(store.insert(draft(), None, NOW))
    run(store.close())
    read_only = SqlStore(f"sqlite:///file:{tmp_path}/keys.db?mode=ro&uri=true")
    assert run(read_only.find(key.handle)) == key
    with store_fails(sqlite3.OperationalError, match="readonly"):
        run(read_only.charge("org_1", Hit(WINDOWS, 1), NOW))
    assert run(read_only.charge("org_1", Peek(WINDOWS), NOW)).used == (0, 0, 0)
    run(read_only.close())


def test_a_read_only_user_of_a_server_still_reads(served: Backend) -> None:
    tables = served.take()
    mine = SqlStore(served.url, prefix=tables.prefix)
    key = run(mine.insert(draft(), None, NOW))
    database = make_url(served.url).database
    statements = (
        ["CREATE ROLE reader LOGIN", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"]
        if served.kind == "postgresql"
        else ["CREATE USER reader", f"GRANT SELECT ON {database}.* TO reader"]
    )
    with served.admin.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    url = make_url(served.url).set(username="reader").render_as_string(hide_password=False)
    gate = Gate(SqlStore(url, prefix=tables.prefix), brand="acme")
    assert run(gate.keys.get("org_1", key.id)) == key
    with pytest.raises(StoreUnavailable):
        run(gate.keys.create("org_1", "another"))
    run(gate.close())
    run(mine.close())
    with served.admin.begin() as connection:
        if served.kind == "postgresql":
            connection.execute(text("DROP OWNED BY reader"))
        connection.execute(text("DROP USER reader"))
    served.give(tables)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a file system")
    mounted = tmp_path / "tiny"
    mounted.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mounted)], check=False
    )
    if done.returncode:
        pytest.skip("this machine mounts nothing")
    yield mounted
    subprocess.run(["umount", str(mounted)], check=True)


def test_a_full_disk_raises_and_no_hit_is_counted(tiny_disk: Path) -> None:
    store = SqlStore(f"sqlite:///{tiny_disk}/keys.db?mode=rwc")
    made = new_key()
    run(store.insert(draft_of(made), None, NOW))
    run(store.admit(token_of(made), 1, WIDE, NOW))
    filler = tiny_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        free = shutil.disk_usage(tiny_disk).free
        file.write(bytes(free))
    admitted = 1
    for step in range(200):
        try:
            run(store.admit(token_of(made), 1, WIDE, NOW + step * SECOND))
        except StoreError:
            break
        admitted += 1
    else:
        pytest.fail("the disk never was full")
    filler.unlink()
    answer = run(store.admit(token_of(made), 1, WIDE, NOW + 200 * SECOND))
    assert answer.verdict is Verdict.ADMITTED
    assert answer.key is not None
    assert answer.key.request_count == admitted + 1
    run(store.close())


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mysql"])
@pytest.mark.parametrize(("ahead", "word"), [(-999, "ahead"), (999, "behind"), (0.0, None)])
def test_a_clock_that_differs_by_more_than_a_second_is_reported(
    kind: str, ahead: float, word: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = database(kind)
    migrations.upgrade(url)
    store = open_store(url)
    assert NO_KEYS in run(store.warnings())
    run(store.insert(draft_of(new_key()), None))
    assert list(run(store.warnings())) == []  # Connected, and its clock is the process's.
    monkeypatch.setattr(sql_store, "time", SimpleNamespace(time=lambda: time.time() + ahead))
    texts = [warning.text for warning in run(store.warnings()) if warning.kind == "clock"]
    assert len(texts) == (word is not None)
    for told in texts:
        seconds = re.search(rf"clock of the database .*is ([\d.]+) s {word}", told)
        # What the call may have lasted is no difference.
        assert seconds is not None
        assert 900 < float(seconds[1]) <= 999
    run(store.close())
