"""What happens when the database goes wrong: a clear error or the declared behaviour, never a
charge that counts twice (D33, G4), and no parameter or key in the log (K2)."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine

from lockgate import Gate, PlanBook, migrations, open_store, run
from lockgate.core.leases import to_acquire
from lockgate.core.ledger import Hit, Peek
from lockgate.core.plans import DEFAULT_RESOLUTION, Plan
from lockgate.core.timestamps import SECOND
from lockgate.core.usage_history import UsageHistory
from lockgate.errors import KeyNotFound, StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.stores.answers import (
    NO_KEYS,
    HistoryOwner,
    OutcomeUnknown,
    StoreError,
    Usage,
    UsageBatch,
)
from lockgate.stores.sql import SqlStore, schema
from lockgate.stores.sql import store as sql_store
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.schema import downgrade, upgrade
from lockgate.stores.sql.tables import Tables
from tests.patience import SLACK, until
from tests.servers import mariadb, postgres, shared

from ..failing import store_fails
from ..making import NOW, draft, draft_of, new_key
from ..proxy import Proxy
from .backends import BACKENDS, Backend, await_locks, database, dispose, driver_of

WIDE = PlanBook([Plan("free", None, None, None, None, DEFAULT_RESOLUTION)])
WINDOWS = WIDE.default.windows
HIT = Hit(WINDOWS, 1)
COMMITS = {"postgresql": b"COMMIT\0", "mysql": b"COMMIT"}
"""A commit on the wire; the READ COMMITTED of PostgreSQL's driver does not match."""
LOCKS = {"postgresql": b"BEGIN", "mysql": b"FOR UPDATE"}
"""What is on the wire with the lock."""

blocking_or_awaiting = pytest.mark.parametrize("service", ["sync", "async"], indirect=True)
blocking = pytest.mark.parametrize("service", ["sync"], indirect=True)


class Service:
    """A gate whose callers block or await, and a caller with a key."""

    def __init__(self, mode: str, log: pytest.LogCaptureFixture) -> None:
        self.awaits = mode == "async"
        self._log = log
        self._runner = asyncio.Runner()
        self._opened: tuple[Gate, Any] | None = None
        self.url, self.prefix, self.key = "", "lockgate_", ""
        self.admitted = 0

    def make_key(self, url: str, prefix: str = "lockgate_") -> None:
        """Create the caller's key, over a connection without faults."""
        self.url, self.prefix = url, prefix
        maker = Gate(SqlStore(url, prefix=prefix), brand="acme", plans=WIDE)
        self.key = run(maker.keys.create("org_1", "hunter2hunter2")).text
        run(maker.close())

    def guard(self, source: Any) -> SqlStore:
        """Open a store, from a URL or an engine of the host's, with a gate before it."""
        self.end()
        store = SqlStore(source, prefix=self.prefix)
        patient = StoreOptions(deadline=60)
        self._opened = Gate(store, brand="acme", plans=WIDE, store_options=patient), source
        return store

    def host(self, backend: Backend, **options: Any) -> Any:
        """An engine of the host's, for these callers."""
        drivers = {"postgresql": "postgresql+psycopg", "mysql": "mysql+asyncmy"}
        if self.awaits and backend.kind in drivers:
            return backend.awaiting(drivers[backend.kind], **options)
        return backend.blocking(**options)

    def do(self, flow: Any) -> Any:
        return self._runner.run(flow) if self.awaits else run(flow)

    def ask(self, *, is_known: bool = True) -> int:
        """Return the status of a request with the key, or with one that is not known."""
        assert self._opened is not None
        gate, _ = self._opened
        try:
            self.do(gate.authenticate(self.key if is_known else gate.format.generate().text))
        except StoreUnavailable:
            return 503
        except KeyNotFound:
            return 401
        self.admitted += 1
        return 200

    def recovers(self) -> None:
        """Ask until the breaker's probe has succeeded; see that each admission is counted."""
        until(lambda: self.ask() == 200)
        assert self.counted() == self.admitted

    def counted(self) -> int:
        """Return the database's count of admissions."""
        store = SqlStore(self.url, prefix=self.prefix)
        (key,) = run(store.list("org_1", 100))
        assert run(store.charge("org_1", Peek(WINDOWS))).used == (key.request_count,) * 3
        run(store.close())
        return key.request_count

    def advice(self) -> list[str]:
        """Return the advice in the log, up to the colon."""
        said = [one.getMessage() for one in self._log.records if one.levelname == "ERROR"]
        start = "The database refuses: "
        return [line[len(start) :].partition(":")[0] for line in said if line.startswith(start)]

    def end(self) -> None:
        if self._opened is not None:
            gate, source = self._opened
            self.do(gate.close())
            self.do(dispose(source))
            self._opened = None

    def close(self) -> None:
        self.end()
        self._runner.close()
        assert "hunter2" not in self._log.text
        if self.key:
            assert self.key.split("_")[2] not in self._log.text


@pytest.fixture
def service(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, soon_tried: None
) -> Iterator[Service]:
    caplog.set_level(logging.DEBUG)
    made = Service(request.param, caplog)
    yield made
    made.close()


# --- lost answers ------------------------------------------------------------------------------


@pytest.fixture
def proxied(served: Backend) -> Iterator[tuple[Proxy, SqlStore]]:
    with Proxy(shared(served.kind).port) as proxy:
        own = served.open()
        store = served.open(served.by(port=proxy.port), beside=own)
        yield proxy, store
        run(store.close())
        run(own.close())


def hit(store: SqlStore) -> None:
    run(store.charge("org_1", HIT, NOW))


def used(store: SqlStore) -> int:
    return run(store.charge("org_1", Peek(WINDOWS), NOW)).used[0]


def test_d33_a_lost_answer_to_a_commit_counts_once(
    proxied: tuple[Proxy, SqlStore], served: Backend
) -> None:
    proxy, store = proxied
    hit(store)
    proxy.cut_at = COMMITS[served.kind]
    with pytest.raises(OutcomeUnknown):
        hit(store)
    assert (proxy.cuts, used(store)) == (1, 2)
    hit(store)
    assert used(store) == 3


@pytest.mark.parametrize("driver", ["postgresql+psycopg", "postgresql+asyncpg", "mysql+asyncmy"])
async def test_d33_a_lost_answer_counts_once_for_all_callers_of_a_batch_of_the_hosts_engine(
    driver: str,
) -> None:
    backend = driver_of(driver)
    own = backend.open()
    with Proxy(shared(backend.kind).port) as proxy:
        engine = backend.awaiting(driver, port=proxy.port)
        store = backend.open(engine, beside=own)
        await store.charge("org_1", HIT, NOW)
        proxy.cut_at = b"COMMIT;" if driver.endswith("asyncpg") else COMMITS[backend.kind]
        hits = (store.charge("org_1", HIT, NOW) for _ in range(8))
        outcomes = await asyncio.gather(*hits, return_exceptions=True)
        lost = [outcome for outcome in outcomes if isinstance(outcome, OutcomeUnknown)]
        assert proxy.cuts == 1 and lost
        assert len(lost) == sum(isinstance(outcome, BaseException) for outcome in outcomes)
        assert (await store.charge("org_1", Peek(WINDOWS), NOW)).used[0] == 9
        await store.close()
    await own.close()


def test_usage_whose_commit_lost_its_answer_is_repeated_and_counts_once_K7_D33(
    proxied: tuple[Proxy, SqlStore], served: Backend
) -> None:
    proxy, store = proxied
    key = run(store.insert(draft(), None, NOW))
    owner, history = HistoryOwner("org_1", None), UsageHistory()
    history.admit(NOW, 7)

    def write(number: int) -> list[Any]:
        batches = UsageBatch("0123456789abcdef", number), UsageBatch("of histories 1 2", number)
        return [
            lambda: store.add_usage({key.handle: Usage(3, NOW)}, batches[0]),
            lambda: store.add_history({owner: history}, batches[1]),
        ]

    for first in write(1):
        run(first())
    for number in (2, 3):
        for repeated in write(number):
            proxy.cut_at = COMMITS[served.kind]
            with pytest.raises(OutcomeUnknown):
                run(repeated())
            run(repeated())
        assert proxy.cuts == 2 * number - 2
        found = run(store.find(key.handle))
        assert found is not None and found.request_count == 3 * number
        cells = run(store.history(owner)).cells("day", NOW)
        assert sum(cell.admitted for cell in cells) == 7 * number


@pytest.mark.parametrize("is_of_host", [False, True])
def test_a_connection_cut_before_the_commit_is_undone_and_tried_again(
    proxied: tuple[Proxy, SqlStore], served: Backend, is_of_host: bool
) -> None:
    """At the lock, or idle; with an engine of the host's also at the write, where PyMySQL does not
    send it with the commit."""
    proxy, store = proxied
    cuts = [LOCKS[served.kind]]
    engine = served.blocking(port=proxy.port)
    if is_of_host:
        store = SqlStore(engine, prefix=store.prefix)
        cuts += [b"UPDATE t"] if served.kind == "mysql" else []
    hit(store)
    for number, statement in enumerate(cuts, 1):
        proxy.cut_at = statement
        hit(store)
        assert (proxy.cuts, used(store)) == (number, number + 1)
    proxy.drop_all()
    hit(store)
    assert used(store) == len(cuts) + 2
    run(store.close())
    engine.dispose()


# --- servers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("server", [postgres, mariadb], ids=["postgresql", "mysql"])
@pytest.mark.parametrize("service", ["sync"], indirect=True)
def test_a_server_killed_in_a_transaction_loses_it_whole_and_serves_after_its_return(
    service: Service, server: Any
) -> None:
    with server() as mortal:
        url = mortal.create("fragile")
        admin = blocking_engine(url)
        upgrade(admin, Tables())
        service.make_key(url)
        for awaits in (False, True):
            service.end()
            service.awaits = awaits
            service.guard(url)
            service.recovers()
            with admin.connect() as holder, ThreadPoolExecutor(1) as threads:
                holder.execute(text("SELECT id FROM lockgate_organizations FOR UPDATE"))
                waiting = threads.submit(service.ask)
                await_locks(admin)
                mortal.stop(signal.SIGKILL)
                assert waiting.result(60) == 503
                assert service.ask() == 503
                holder.invalidate()
            admin.dispose()
            mortal.start()
            service.recovers()
        admin.dispose()


@blocking_or_awaiting
def test_a_row_locked_for_long_answers_503_and_counts_nothing(
    service: Service, served: Backend
) -> None:
    own = served.open()
    service.make_key(served.url, own.prefix)
    impatient = {
        "postgresql": {"options": "-c lock_timeout=100"},
        "mysql": {"init_command": "SET SESSION innodb_lock_wait_timeout=1"},
    }[served.kind]
    service.guard(served.by(query=impatient))
    assert service.ask() == 200
    with served.admin.begin() as holder:
        holder.execute(text(f"SELECT id FROM {own.prefix}organizations FOR UPDATE"))
        assert service.ask() == 503
    service.recovers()
    run(own.close())


@blocking_or_awaiting
def test_an_exhausted_pool_answers_503(service: Service, backend: Backend) -> None:
    """Of the host's engine: another user holds its only connection."""
    own = backend.open()
    service.make_key(backend.url, own.prefix)
    engine = service.host(backend, pool_size=1, max_overflow=0, pool_timeout=0.1)
    service.guard(engine)
    assert service.ask() == 200

    async def hold() -> Any:
        return await engine.connect() if isinstance(engine, AsyncEngine) else engine.connect()

    held = service.do(hold())
    assert service.ask() == 503
    closed = held.close()
    if isinstance(engine, AsyncEngine):
        service.do(closed)
    service.recovers()
    run(own.close())


@blocking
def test_a_user_without_write_access_reads_and_is_answered_503_for_a_charge(
    service: Service, served: Backend
) -> None:
    own, is_postgresql = served.open(), served.kind == "postgresql"
    service.make_key(served.url, own.prefix)
    (key,) = run(own.list("org_1", 9))
    role = "ROLE reader LOGIN" if is_postgresql else "USER reader"
    granted = "ALL TABLES IN SCHEMA public" if is_postgresql else f"{served.admin.url.database}.*"
    with served.admin.begin() as connection:
        connection.execute(text(f"CREATE {role}"))
        connection.execute(text(f"GRANT SELECT ON {granted} TO reader"))
    store = service.guard(served.by(username="reader"))
    assert service.ask() == 503
    assert service.ask(is_known=False) == 401
    assert service.do(store.get("org_1", key.id)) == key
    assert service.advice() == ["this user may not do that"]
    assert service.counted() == 0
    service.end()
    with served.admin.begin() as connection:
        if is_postgresql:
            connection.execute(text("DROP OWNED BY reader"))
        connection.execute(text("DROP USER reader"))
    run(own.close())


@pytest.fixture
def locked_out(served: Backend) -> Iterator[list[tuple[str, str]]]:
    """URLs by which a server lets no connection in, and the advice about each."""
    login, host = "it does not take this user", "it takes no connections of this user from here"
    if served.kind == "postgresql":
        users, role, load = ["elsewhere", "someone"], "ROLE {} LOGIN PASSWORD", "pg_reload_conf()"
        rules = shared("postgresql").directory / "data" / "pg_hba.conf"
        before = rules.read_text()
        rejected = "host all elsewhere 127.0.0.1/32 reject"
        rules.write_text(f"host all someone 127.0.0.1/32 scram-sha-256\n{rejected}\n{before}")
    else:  # It tells the two not apart.
        users, role, load = ["elsewhere@'192.0.2.1'", "someone"], "USER {} IDENTIFIED BY", "1"
        rules, before, host = None, "", login
    with served.admin.begin() as connection:
        for user in users:
            connection.execute(text(f"CREATE {role.format(user)} 'right'"))
        connection.execute(text(f"SELECT {load}"))
    rejects = served.by(served.kind, username="elsewhere", password="hunter2")
    if rules is not None:  # Until the server has read them.
        until(lambda: refuses(rejects))
    yield [
        (rejects, host),
        (served.by(username="someone", password="hunter2"), login),
        (served.by(database="nowhere"), "there is no such database"),
        (served.by(port=1, password="hunter2"), "no server answers there"),
    ]
    if rules is not None:
        rules.write_text(before)
    with served.admin.begin() as connection:
        for user in users:
            connection.execute(text(f"DROP USER {user}"))
        connection.execute(text(f"SELECT {load}"))


def refuses(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return True
    return False


@blocking_or_awaiting
def test_a_server_that_refuses_connections_answers_503_and_the_log_advises(
    service: Service, locked_out: list[tuple[str, str]]
) -> None:
    for number, (url, advice) in enumerate(locked_out, 1):
        service.guard(url)
        for _ in range(2):
            assert service.ask(is_known=False) == 503
        assert len(service.advice()) == number
        assert service.advice()[-1].startswith(advice)


# --- the schema --------------------------------------------------------------------------------


@blocking_or_awaiting
def test_missing_or_older_tables_answer_503_and_one_line_names_the_command(
    service: Service,
    backend: Backend,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = Tables("older_")
    service.prefix = "older_"
    for are_there in (False, True):
        caplog.clear()
        with monkeypatch.context() as patched:
            if are_there:
                patched.setattr(schema, "RELEASE", schema.RevisionRange("0002", "0002"))
            service.guard(service.host(backend))
            for _ in range(2):
                assert service.ask(is_known=False) == 503
        said = [line for line in caplog.messages if "lockgate db upgrade --prefix older_'" in line]
        assert len(said) == 1
        if not are_there:
            upgrade(backend.admin, tables)
            service.make_key(backend.url, "older_")
        service.recovers()
    service.end()
    downgrade(backend.admin, tables, "base")


def test_no_bound_parameter_is_in_an_error_or_a_log(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even of the host's own engine, which shows parameters."""
    store = backend.open(backend.blocking())
    wanted = draft(name="hunter2hunter2")._replace(scheme="s" * 300, digest=b"hunter2" * 60)
    renamed = f"ALTER TABLE {store.prefix}keys RENAME COLUMN"
    with backend.admin.begin() as connection:
        connection.execute(text(f"{renamed} name TO label"))
    try:
        failure = backend.admin.dialect.loaded_dbapi.Error
        with caplog.at_level(logging.DEBUG), store_fails(failure) as caught:
            run(store.insert(wanted, None, NOW))
    finally:
        with backend.admin.begin() as connection:
            connection.execute(text(f"{renamed} label TO name"))
    assert "hunter2" not in f"{caught.value}{caught.value.__cause__}{caplog.text}"
    run(store.close())


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_clock_that_differs_by_more_than_a_second_is_reported(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = database(kind)
    migrations.upgrade(url)
    store = open_store(url)
    assert NO_KEYS in run(store.warnings())
    run(store.insert(draft_of(new_key()), None))
    assert list(run(store.warnings())) == []  # Connected, and its clock is the process's.
    real = time.time
    for ahead, word in ((-999.0, "ahead"), (999.0, "behind"), (0.0, None)):
        shifted = SimpleNamespace(time=lambda ahead=ahead: real() + ahead)
        monkeypatch.setattr(sql_store, "time", shifted)
        texts = [warning.text for warning in run(store.warnings()) if warning.kind == "clock"]
        assert len(texts) == (word is not None)
        for told in texts:
            seconds = re.search(rf"clock of the database .*is ([\d.]+) s {word}", told)
            # What the call may have lasted is no difference.
            assert seconds is not None and 900 < float(seconds[1]) <= 999
    run(store.close())


# --- SQLite --------------------------------------------------------------------------------------


def locked(url: str, how: str) -> Any:
    """A connection that keeps a file locked until it is closed."""
    holder = sqlite3.connect(make_url(url).database or "", isolation_level=None)
    holder.execute(f"BEGIN {how}")
    return closing(holder)


@blocking
def test_a_locked_file_answers_503_and_no_hit_is_counted(service: Service) -> None:
    url = database("sqlite")
    service.make_key(url)
    store = service.guard(f"{url}&timeout=0.1")
    assert service.ask() == 200
    with locked(url, "IMMEDIATE"):
        assert service.ask() == 503
        with store_fails(sqlite3.OperationalError, match="locked"):
            hit(store)
    service.recovers()


@pytest.mark.parametrize("in_a_loop", [False, True], ids=["sync", "async"])
async def test_closing_ends_the_wait_for_a_locked_file(in_a_loop: bool) -> None:
    """With patience for five minutes; the file stays locked until the end."""
    url = database("sqlite")
    store = SqlStore(f"{url}&timeout=300")
    await asyncio.to_thread(lambda: hit(store))
    with locked(url, "EXCLUSIVE"):
        calls = [
            *(store.charge(f"org_{number}", HIT, NOW) for number in (1, 2)),
            store.charge("org_3", to_acquire("job", "me", 1, SECOND), NOW),
        ]
        waiting = [
            asyncio.create_task(call if in_a_loop else asyncio.to_thread(run, call))
            for call in calls
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
    await asyncio.to_thread(lambda: run(store.close()))
    assert await asyncio.to_thread(lambda: used(store)) == 1, "it can be opened again"
    await asyncio.to_thread(lambda: run(store.close()))


@blocking
def test_a_file_that_may_not_grow_answers_503(service: Service) -> None:
    """SQLite's error for a full disk, simulated because mounting a small disk needs root."""
    url = database("sqlite")
    service.make_key(url)
    most = [10**6]
    engine = blocking_engine(url)
    event.listen(
        engine,
        "checkout",
        lambda driver, *_: driver.execute(f"PRAGMA max_page_count={most[0]}"),
    )
    store = service.guard(engine)
    assert service.ask() == 200
    most[0] = 1  # SQLite takes this for as many as there are.
    with suppress(StoreError):
        for number in range(1000):
            run(store.charge(f"other_{number}", HIT))
    assert 503 in {service.ask() for _ in range(100)} <= {200, 503}
    most[0] = 10**6
    service.recovers()


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


@blocking
def test_a_full_disk_answers_503(tiny_disk: Path, service: Service) -> None:
    url = f"sqlite:///{tiny_disk}/keys.db?mode=rwc"
    service.make_key(url)
    service.guard(url)
    assert service.ask() == 200
    filler = tiny_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        file.write(bytes(shutil.disk_usage(tiny_disk).free))
    assert 503 in {service.ask() for _ in range(300)} <= {200, 503}
    filler.unlink()
    service.recovers()
    assert service.advice()[-1] in {"its disk is full", "its file cannot be read or written"}
    service.end()  # Before the disk goes away.


@blocking
def test_a_read_only_file_answers_reads_and_503_to_a_charge(
    service: Service, tmp_path: Path
) -> None:
    service.make_key(f"sqlite:///{tmp_path}/keys.db?mode=rwc")
    store = service.guard(f"sqlite:///file:{tmp_path}/keys.db?mode=ro&uri=true")
    assert service.ask() == 503
    assert service.ask(is_known=False) == 401, "to find nobody takes no right to write"
    with store_fails(sqlite3.OperationalError, match="readonly"):
        hit(store)
    assert len(run(store.list("org_1", 9))) == 1
    assert used(store) == service.counted() == 0
