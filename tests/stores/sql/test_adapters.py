"""The database goes wrong behind a service: callers see 503 and no 500, and every request that was
answered is counted once (D17, D33, G4). No parameter or key is in the log (K2)."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from lockgate import Gate, Plan, PlanBook, run
from lockgate.asgi import GateMiddleware as AsgiMiddleware
from lockgate.core.ledger import Hit, Peek
from lockgate.options import StoreOptions
from lockgate.stores.answers import StoreError
from lockgate.stores.sql import SqlStore, schema
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.schema import downgrade, upgrade
from lockgate.stores.sql.tables import Tables
from lockgate.wsgi import GateMiddleware as WsgiMiddleware
from tests import test_wsgi
from tests.servers import shared
from tests.web import driving

from ..proxy import Proxy
from .backends import Backend, await_locks, database
from .test_faults import COMMITS, mortal, through, tiny_disk

__all__ = ["mortal", "tiny_disk"]

WIDE = PlanBook([Plan("free", rpm=10**6, rph=10**6, rpd=10**6, concurrent=None)])
PATIENT = 60.0
"""Seconds of a deadline that is not under test."""
BACK_WITHIN = 60.0

pytestmark = pytest.mark.usefixtures("soon_tried")


async def _awaiting(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def _waiting(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [b""]


class Service:
    """A service behind a gate, under ASGI or WSGI, and a caller with a key."""

    def __init__(self, face: str, log: pytest.LogCaptureFixture) -> None:
        self.face = face
        self._log = log
        self._loop = asyncio.new_event_loop()
        self._gate: Gate | None = None
        self._app: Any = None
        self.key = ""
        self.admitted = 0

    @property
    def gate(self) -> Gate:
        assert self._gate is not None
        return self._gate

    def guard(self, store: SqlStore | str, *, deadline: float = PATIENT) -> None:
        """Put a gate on this store before the service."""
        self._gate = Gate(
            store, brand="acme", plans=WIDE, store_options=StoreOptions(deadline=deadline)
        )
        if self.face == "asgi":
            self._app = AsgiMiddleware(_awaiting, self._gate)
        else:
            self._app = WsgiMiddleware(_waiting, self._gate)

    def make_key(self, url: str, prefix: str) -> None:
        """Create the caller's key, over a connection without faults."""
        maker = Gate(SqlStore(url, prefix=prefix), brand="acme", plans=WIDE)
        self.key = run(maker.keys.create("org_1", "hunter2hunter2")).text
        run(maker.close())

    def ask(self, key: str | None = None) -> int:
        """One request; gives its status."""
        shown = key or self.key
        if self.face == "asgi":
            answer = self._loop.run_until_complete(driving.ask(self._app, path="/x", key=shown))
            status, body, retry = answer.status, answer.body, answer.all("retry-after")
        else:
            asked = test_wsgi.environ(path="/x", HTTP_AUTHORIZATION=f"Bearer {shown}")
            sent = test_wsgi.ask(self._app, asked)
            status, body = int(sent.status.split()[0]), sent.body
            retry = [sent.headers["retry-after"]] if "retry-after" in sent.headers else []
        if status == 503:
            assert b"STORE_UNAVAILABLE" in body
            assert b'"retryAfter":1' in body
            assert retry == [], "D17: only on 429"
        self.admitted += status == 200
        return status

    def ask_until_admitted(self) -> None:
        """Ask until the breaker's probe has succeeded."""
        until = time.monotonic() + BACK_WITHIN
        while (status := self.ask()) != 200:
            assert status == 503
            assert time.monotonic() < until, "it does not come back"
            time.sleep(0.01)

    def counted(self, url: str, prefix: str) -> int:
        """Return the database's count of admissions."""
        store = SqlStore(url, prefix=prefix)
        (key,) = run(store.list("org_1", 100))
        used = run(store.charge("org_1", Peek(WIDE.default.windows))).used
        run(store.close())
        assert used == (key.request_count,) * 3
        return key.request_count

    def close(self) -> None:
        if self._gate is not None:
            self.do(self._gate.close())
        self._loop.close()
        said = self._log.text
        assert "hunter2" not in said
        if self.key:
            handle = self.key.split("_")[2]
            assert self.key not in said
            assert handle not in said

    def do(self, flow: Any) -> Any:
        """Do something as the service would."""
        return self._loop.run_until_complete(flow) if self.face == "asgi" else run(flow)


@pytest.fixture(params=["asgi", "wsgi"])
def service(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[Service]:
    caplog.set_level(logging.DEBUG)
    made = Service(request.param, caplog)
    yield made
    made.close()


def plain(url: str, **query: str) -> str:
    return make_url(url).update_query_dict(query).render_as_string(hide_password=False)


def test_d33_a_connection_cut_after_the_commit_counts_once(
    service: Service, served: Backend
) -> None:
    tables = served.take()
    service.make_key(served.url, tables.prefix)
    with Proxy(shared(served.kind).port) as proxy:
        service.guard(SqlStore(through(proxy, served.url), prefix=tables.prefix))
        assert service.ask() == 200
        proxy.cut_at = COMMITS[served.kind]
        assert service.ask() == 503
        assert proxy.cuts == 1
        service.ask_until_admitted()
        assert service.counted(served.url, tables.prefix) == service.admitted + 1
        service.do(service.gate.close())
    served.give(tables)


def test_a_server_killed_while_a_request_waits_and_started_again(
    service: Service, mortal: Any
) -> None:
    url = mortal.create("fragile")
    admin = blocking_engine(url)
    upgrade(admin, Tables())
    service.make_key(url, "lockgate_")
    service.guard(url)
    assert service.ask() == 200
    holder = admin.connect()
    holder.execute(text("SELECT id FROM lockgate_organizations FOR UPDATE"))
    statuses: list[int] = []
    waiting = threading.Thread(target=lambda: statuses.append(service.ask()))
    waiting.start()
    await_locks(admin)
    mortal.stop(signal.SIGKILL)
    waiting.join(60)
    assert statuses == [503]
    assert service.ask() == 503
    holder.invalidate()
    holder.close()
    mortal.start()
    service.ask_until_admitted()
    assert service.counted(url, "lockgate_") == service.admitted
    admin.dispose()


def test_a_row_locked_for_long_answers_503_and_counts_nothing(
    service: Service, served: Backend
) -> None:
    tables = served.take()
    service.make_key(served.url, tables.prefix)
    impatient = (
        plain(served.url, options="-c lock_timeout=100")
        if served.kind == "postgresql"
        else plain(served.url, init_command="SET SESSION innodb_lock_wait_timeout=1")
    )
    service.guard(SqlStore(impatient, prefix=tables.prefix))
    assert service.ask() == 200
    with served.admin.begin() as holder:
        holder.execute(text(f"SELECT id FROM {tables.prefix}organizations FOR UPDATE"))
        assert service.ask() == 503
    service.ask_until_admitted()
    assert service.counted(served.url, tables.prefix) == service.admitted
    service.do(service.gate.close())
    served.give(tables)


def test_a_locked_file_answers_503(service: Service) -> None:
    url = database("sqlite")
    service.make_key(url, "lockgate_")
    service.guard(plain(url, timeout="0.1"))
    assert service.ask() == 200
    holder = sqlite3.connect(make_url(url).database or "", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert service.ask() == 503
    holder.execute("ROLLBACK")
    holder.close()
    service.ask_until_admitted()
    assert service.counted(url, "lockgate_") == service.admitted


def test_an_exhausted_pool_answers_503(service: Service, backend: Backend) -> None:
    """For the host's engine: another user holds its only connection."""
    tables = backend.take()
    service.make_key(backend.url, tables.prefix)
    small: dict[str, Any] = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.1}
    address = blocking_engine(backend.url).url
    if service.face == "wsgi" or backend.kind == "sqlite":
        engine = create_engine(address, **small)
        service.guard(SqlStore(engine, prefix=tables.prefix))
        assert service.ask() == 200
        with engine.connect():
            assert service.ask() == 503
        service.ask_until_admitted()
        service.do(service.gate.close())
        engine.dispose()
    else:
        driver = {"postgresql": "postgresql+psycopg", "mysql": "mysql+asyncmy"}[backend.kind]
        awaited = create_async_engine(address.set(drivername=driver), **small)
        service.guard(SqlStore(awaited, prefix=tables.prefix))
        assert service.ask() == 200
        held = awaited.connect()
        service.do(held.start())
        assert service.ask() == 503
        service.do(held.close())
        service.ask_until_admitted()
        service.do(service.gate.close())
        service.do(awaited.dispose())
    assert service.counted(backend.url, tables.prefix) == service.admitted
    backend.give(tables)


def test_a_file_that_may_not_grow_answers_503(service: Service) -> None:
    """SQLite's error for a full disk, simulated because mounting a small disk needs root."""
    url = database("sqlite")
    service.make_key(url, "lockgate_")
    most = [10**6]
    engine = create_engine(blocking_engine(url).url)
    event.listen(
        engine,
        "checkout",
        lambda driver, *_: driver.execute(f"PRAGMA max_page_count={most[0]}"),
    )
    store = SqlStore(engine)
    service.guard(store)
    assert service.ask() == 200
    most[0] = 1  # SQLite takes this for as many as there are.
    for number in range(1000):
        made = 0
        with suppress(StoreError):
            run(store.charge(f"other_{number}", Hit(WIDE.default.windows, 1)))
            made = 1
        if not made:
            break
    statuses = [service.ask() for _ in range(100)]
    assert set(statuses) <= {200, 503}
    assert 503 in statuses
    most[0] = 10**6
    service.ask_until_admitted()
    assert service.counted(url, "lockgate_") == service.admitted
    service.do(service.gate.close())
    engine.dispose()


def test_a_full_disk_answers_503(service: Service, tiny_disk: Path) -> None:
    url = f"sqlite:///{tiny_disk}/keys.db?mode=rwc"
    service.make_key(url, "lockgate_")
    service.guard(url)
    assert service.ask() == 200
    filler = tiny_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        file.write(bytes(shutil.disk_usage(tiny_disk).free))
    statuses = [service.ask() for _ in range(300)]
    assert set(statuses) <= {200, 503}
    assert 503 in statuses
    filler.unlink()
    service.ask_until_admitted()
    assert service.counted(url, "lockgate_") == service.admitted
    assert told(service)[-1] in {"its disk is full", "its file cannot be read or written"}
    service.do(service.gate.close())  # Before the disk goes away.


def test_a_read_only_file_answers_503(service: Service, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/keys.db?mode=rwc"
    service.make_key(url, "lockgate_")
    service.guard(f"sqlite:///file:{tmp_path}/keys.db?mode=ro&uri=true")
    assert service.ask() == 503
    assert service.ask(stranger(service)) == 401, "to find nobody takes no right to write"
    assert service.counted(url, "lockgate_") == 0


def stranger(service: Service) -> str:
    return service.gate.format.generate().text


def test_a_user_without_write_access_answers_503(service: Service, served: Backend) -> None:
    tables = served.take()
    service.make_key(served.url, tables.prefix)
    name = f"reader_{service.face}"
    statements = (
        [f"CREATE ROLE {name} LOGIN", f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}"]
        if served.kind == "postgresql"
        else [f"CREATE USER {name}", f"GRANT SELECT ON {database_of(served)}.* TO {name}"]
    )
    with served.admin.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    url = make_url(served.url).set(username=name).render_as_string(hide_password=False)
    service.guard(SqlStore(url, prefix=tables.prefix))
    assert service.ask() == 503
    assert service.ask(stranger(service)) == 401
    assert told(service) == ["this user may not do that"]
    assert service.counted(served.url, tables.prefix) == 0
    service.do(service.gate.close())
    with served.admin.begin() as connection:
        if served.kind == "postgresql":
            connection.execute(text(f"DROP OWNED BY {name}"))
        connection.execute(text(f"DROP USER {name}"))
    served.give(tables)


def database_of(backend: Backend) -> str | None:
    return make_url(backend.url).database


def told(service: Service) -> list[str]:
    """Return the advice in the log, up to the colon."""
    said = [record.getMessage() for record in service._log.records if record.levelname == "ERROR"]
    start = "The database refuses: "
    return [line[len(start) :].partition(":")[0] for line in said if line.startswith(start)]


def test_an_unknown_database_answers_503(service: Service, served: Backend) -> None:
    service.guard(make_url(served.url).set(database="nowhere").render_as_string())
    for _ in range(2):
        assert service.ask(stranger(service)) == 503
    assert told(service) == ["there is no such database"]


def test_a_server_that_refuses_connections_answers_503(service: Service, served: Backend) -> None:
    closed = make_url(served.url).set(port=1, password="hunter2hunter2")
    service.guard(closed.render_as_string(hide_password=False))
    assert service.ask(stranger(service)) == 503
    assert told(service) == ["no server answers there"]


def await_the_rules(url: str) -> None:
    """Wait until PostgreSQL has read that this user may not come."""
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    until = time.monotonic() + 60
    with suppress(psycopg.OperationalError):
        while True:
            psycopg.connect(address).close()
            assert time.monotonic() < until
            time.sleep(0.05)


@pytest.fixture
def locked_out(served: Backend) -> Iterator[Callable[[str], str]]:
    """URLs of a user with another password, and of a user who may not connect from here."""
    names = {"password": "has_a_password", "host": "elsewhere"}
    if served.kind == "postgresql":
        statements = [f"CREATE ROLE {name} LOGIN PASSWORD 'right'" for name in names.values()]
        rules = shared("postgresql").directory / "data" / "pg_hba.conf"
        before = rules.read_text()
        rules.write_text(
            f"host all {names['password']} 127.0.0.1/32 scram-sha-256\n"
            f"host all {names['host']} 127.0.0.1/32 reject\n{before}"
        )
        statements.append("SELECT pg_reload_conf()")
    else:
        statements = [
            f"CREATE USER {names['password']} IDENTIFIED BY 'right'",
            f"CREATE USER {names['host']}@'192.0.2.1' IDENTIFIED BY 'right'",
        ]
        rules, before = None, ""
    with served.admin.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    urls = {
        why: make_url(served.url)
        .set(username=name, password="hunter2hunter2")
        .render_as_string(hide_password=False)
        for why, name in names.items()
    }
    if served.kind == "postgresql":
        await_the_rules(urls["host"])
    yield urls.__getitem__
    if rules is not None:
        rules.write_text(before)
    with served.admin.begin() as connection:
        for name in (
            names.values()
            if served.kind == "postgresql"
            else (names["password"], f"{names['host']}@'192.0.2.1'")
        ):
            connection.execute(text(f"DROP USER {name}"))
        if served.kind == "postgresql":
            connection.execute(text("SELECT pg_reload_conf()"))


@pytest.mark.parametrize("why", ["password", "host"])
def test_a_server_that_refuses_the_user_answers_503(
    service: Service, served: Backend, locked_out: Callable[[str], str], why: str
) -> None:
    service.guard(locked_out(why))
    assert service.ask(stranger(service)) == 503
    host = why == "host" and served.kind == "postgresql"  # MariaDB tells the two not apart.
    expected = "it takes no connections of this user from here" if host else "it does not take"
    (said,) = told(service)
    assert said.startswith(expected)


@pytest.mark.parametrize("are_there", [False, True])
def test_missing_or_older_tables_answer_503(
    service: Service, backend: Backend, are_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables("older_")
    if are_there:
        upgrade(backend.admin, tables)
        monkeypatch.setattr(schema, "RELEASE", schema.RevisionRange("0002", "0002"))
    if service.face == "wsgi" or backend.kind == "sqlite":
        engine = create_engine(blocking_engine(backend.url).url)
        service.guard(SqlStore(engine, prefix="older_"))
    else:
        engine = None
        service.guard(SqlStore(backend.url, prefix="older_"))
    for _ in range(2):
        assert service.ask(stranger(service)) == 503
    said = [r.getMessage() for r in service._log.records if "lockgate db upgrade" in r.getMessage()]
    assert len(said) == 1
    monkeypatch.undo()
    upgrade(backend.admin, tables)
    service.make_key(backend.url, "older_")
    service.ask_until_admitted()
    service.do(service.gate.close())
    if engine is not None:
        engine.dispose()
    downgrade(backend.admin, tables, "base")


def test_a_connection_that_times_out_is_not_taken_for_a_missing_server() -> None:
    from lockgate.stores.sql.error_hints import advice

    postgresql, mysql = (
        blocking_engine(f"{name}://h/d").dialect for name in ("postgresql", "mysql")
    )
    libpq = psycopg.OperationalError("connection failed: timeout expired")
    late = pymysql.err.OperationalError(2003, "Can't connect to MySQL server on 'h' (timed out)")
    for failure, dialect in ((libpq, postgresql), (late, mysql)):
        assert "overloaded" in (advice(failure, dialect) or "")


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ('FATAL:  too many connections for role "app"', "no connection left"),
        ('FATAL:  too many connections for database "d"', "no connection left"),
        ('FATAL:  database "d" is not currently accepting connections', "ALLOW_CONNECTIONS"),
        ('FATAL:  permission denied for database "d"', "CONNECT"),
        ('FATAL:  role "app" is not permitted to log in', "LOGIN"),
        ('FATAL:  role "app" does not exist', "user with this password"),
        ("FATAL:  the database system is not yet accepting connections", "starting"),
        ("server does not support SSL, but SSL was required", "TLS"),
        ('root certificate file "/root.crt" does not exist', "TLS"),
        ("SSL error: certificate verify failed", "TLS"),
        ("channel binding is required, but server did not offer it", "sslmode=verify-full"),
        ("server closed the connection unexpectedly", "ends the connection"),
        ("No route to host", "no server answers"),
    ],
)
def test_refused_connections_to_postgresql_have_the_remedy_of_their_cause(
    said: str, remedy: str
) -> None:
    from lockgate.stores.sql.error_hints import advice

    beginning = 'connection failed: connection to server at "h", port 5432 failed: '
    failure = psycopg.OperationalError(beginning + said)
    assert remedy in (advice(failure, blocking_engine("postgresql://h/d").dialect) or "")


def test_errors_of_other_mysql_servers_have_a_remedy() -> None:
    from lockgate.stores.sql.error_hints import advice

    dialect = blocking_engine("mysql://h/d").dialect
    refused = pymysql.err.OperationalError(1130, "Host '192.0.2.1' is not allowed to connect")
    assert advice(refused, dialect) == (
        "it takes no connections of this user from here: have it let this host in"
    )
    # So PyMySQL begins, at MySQL 8's default, caching_sha2_password.
    lacking = RuntimeError("'cryptography' package is required for sha256_password or so")
    assert "PyMySQL[rsa]" in (advice(lacking, dialect) or "")
    assert advice(ValueError("what"), dialect) is None
    assert advice(RuntimeError("what"), dialect) is None
