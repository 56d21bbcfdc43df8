"""The table of faults in `docs/on-call.md`: each is made here, and seen as the page says."""

from __future__ import annotations

import logging
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from inspect import signature
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from sqlalchemy import create_engine, event, make_url, text
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from lockgate import ConfigurationError, Gate, MemoryStore, Organization, migrations, run
from lockgate.options import KeyOptions, StoreOptions, WebOptions
from lockgate.sessions import SignedCookie
from lockgate.starlette import protect, requires
from lockgate.stores.resilience import deadlines
from lockgate.stores.resilience import store as resilient_store
from lockgate.stores.sql import SqlStore, opened_file
from lockgate.stores.sql import store as sql_store
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.schema import upgrade
from lockgate.stores.sql.tables import Tables
from tests.gates import flat_gate
from tests.patience import SHORT
from tests.servers import redis_server, reserved_port, shared

PAGE = Path(__file__).parents[2] / "docs" / "on-call.md"
SETTINGS = PAGE.with_name("production.md")
PEPPER = bytes(range(32))
OTHER_PEPPER = bytes(range(33, 65))


_databases = count()


class Seen(NamedTuple):
    """The observed effects of a fault."""

    status: int | None
    """None: the application did not start."""
    text: str
    """The body, or the message of the error that kept the application from starting."""


@requires()
async def models(request: Request) -> Response:
    return JSONResponse({})


@requires("models:read")
async def model(request: Request) -> Response:
    return JSONResponse({})


def application() -> Starlette:
    return Starlette(routes=[Route("/models", models), Route("/models/{id}", model)])


def a_key(store: Any = "memory://", pepper: bytes = PEPPER) -> str:
    gate = Gate(store, brand="acme", peppers=[pepper], store_options=StoreOptions(deadline=10))
    try:
        return run(gate.keys.create("org_1", "a key")).text
    finally:
        run(gate.close())


def seen(
    store: Any = "memory://",
    text: str | None = None,
    *,
    app: Starlette | None = None,
    headers: dict[str, str] | None = None,
    between: Callable[[], object] | None = None,
    **arguments: Any,
) -> Seen:
    """Start an application over a store, and ask with a key: once more after what is between."""
    options = {"brand": "acme", "peppers": [PEPPER], **arguments}
    options.setdefault("store_options", StoreOptions(deadline=10.0))
    strict = options.pop("strict", False)
    if store == "memory://":
        store = MemoryStore()
        text = a_key(store)
    try:
        gate = flat_gate(store, **options)
        app = protect(app or application(), gate, strict=strict)
        with TestClient(app, client=("127.0.0.1", 50000)) as client:
            sent = {"Authorization": f"Bearer {text or a_key()}", **(headers or {})}
            answer = client.get("/models", headers=sent)
            if between is not None:
                assert answer.status_code == 200
                between()
                answer = client.get("/models", headers=sent)
            assert client.portal is not None
            client.portal.call(gate.close)  # In its event loop, which ends with the client.
        return Seen(answer.status_code, answer.text)
    except ConfigurationError as mistake:
        return Seen(None, str(mistake))


def new_file(folder: Path) -> str:
    """Return the URL of a SQLite file that is made when it is opened."""
    return f"sqlite:///{folder}/keys.db?mode=rwc"


def of_redis(*options: str, then: str = "", pair: str = "") -> Seen:
    """Ask Redis, once more after what happens to it; in a pair with a database."""
    with redis_server(*options) as server, server.client() as redis, reserved_port() as port:
        happens: dict[str, Callable[[], object]] = {
            "demoted": lambda: redis.replicaof("127.0.0.1", port),
            "full": lambda: (
                redis.set("other", "x" * 2**20) and redis.config_set("maxmemory", 2**20)
            ),
            "lost": redis.flushall,
            "stopped": server.stop,
        }
        url = f"{pair} {server.url()}".strip()
        return seen(url, a_key(pair or url), between=happens.get(then))


def wrong_password(_: Path) -> Seen:
    with redis_server("--requirepass", "right") as server:
        return seen(f"redis://:wrong@127.0.0.1:{server.port}")


def no_redis(pair: str = "") -> Seen:
    with reserved_port() as port:
        return seen(f"{pair} redis://127.0.0.1:{port}".strip(), a_key(pair) if pair else None)


def with_set(folder: Path, module: Any, name: str, value: Any, *, deleted: bool = False) -> Seen:
    """Ask a SQLite file while a module has another value of a name."""
    store = new_file(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, value)
        return seen(store, a_key(store), between=(folder / "keys.db").unlink if deleted else None)


def plan_without_numbers(_: Path) -> Seen:
    store = MemoryStore()
    run(store.put_organization(Organization("org_1", "gold")))
    return seen(store, a_key(store))


def open_route(_: Path) -> Seen:
    app = application()
    app.router.routes.append(Route("/forgotten", JSONResponse({})))
    return seen(app=app, strict=True)


def another_redis(_: Path) -> Seen:
    with redis_server() as server, redis_server() as empty:
        return seen(empty.url(), a_key(server.url()))


def later_tables(folder: Path) -> Seen:
    engine = create_engine(f"sqlite:///{folder}/keys.db")
    upgrade(engine, Tables())
    with engine.begin() as connection:
        later = "UPDATE lockgate_version SET version_num = '0099', oldest_reader = '0099'"
        connection.execute(text(later))
    engine.dispose()
    return seen(f"sqlite:///{folder}/keys.db")


def renumbered(folder: Path) -> Seen:
    store = new_file(folder)
    text = a_key(store)
    with sqlite3.connect(folder / "keys.db") as database:
        database.execute("UPDATE lockgate_version SET version_num = '0099'")
    return seen(store, text)


def of_postgresql(change: str) -> Seen:
    """Ask as a user without further rights, once more after a change by the owner."""
    server = shared("postgresql")
    owners = server.create(f"production_{next(_databases)}")
    migrations.upgrade(owners)
    key, admin = a_key(owners), blocking_engine(owners)
    role = f"app_{admin.url.database}"

    def execute(*statements: str) -> None:
        for statement in statements:
            with admin.begin() as connection:
                text = statement.format(role=role, database=admin.url.database)
                connection.exec_driver_sql(text)

    try:
        execute(
            "CREATE ROLE {role} LOGIN",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
        )
        url = make_url(owners).set(username=role).render_as_string(hide_password=False)
        leave = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
        return seen(url, key, between=partial(execute, change, leave))
    finally:
        admin.dispose()


def full_disk(folder: Path) -> Seen:
    """Let each admission take more of a file that may not grow."""
    url = f"sqlite:///{folder}/keys.db"
    text, engine = a_key(f"{url}?mode=rwc"), create_engine(url)

    def limit() -> None:
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.execute("CREATE TABLE other (content)")
            driver.execute(
                "CREATE TRIGGER grow AFTER UPDATE ON lockgate_organizations "
                "BEGIN INSERT INTO other VALUES (zeroblob(1000000)); END"
            )
            driver.commit()

    @event.listens_for(engine, "connect")
    def small(connection: Any, _: object) -> None:
        connection.execute("PRAGMA max_page_count = 100")

    try:
        return seen(SqlStore(engine), text, between=limit)
    finally:
        engine.dispose()


def missing_table(folder: Path) -> Seen:
    store = new_file(folder)

    def rename() -> None:
        with sqlite3.connect(folder / "keys.db") as database:
            database.execute("ALTER TABLE lockgate_keys RENAME TO other")

    return seen(store, a_key(store), between=rename)


def hanging(_: Path) -> Seen:
    with redis_server() as server, ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for module in (deadlines, resilient_store):
            # The request of the hanging server waits so long.
            patch.setattr(module, "STARTING", 12.0)
        text = a_key(server.url())
        stop = partial(stack.enter_context, server.stopped())
        return seen(server.url(), text, between=stop, store_options=StoreOptions(deadline=SHORT))


def damaged_row(folder: Path) -> Seen:
    store = new_file(folder)
    text = a_key(store)
    gate = Gate(store, brand="acme", peppers=[PEPPER], store_options=StoreOptions(deadline=10))
    run(gate.authenticate(text))
    run(gate.close())
    with sqlite3.connect(folder / "keys.db") as database:
        database.execute("UPDATE lockgate_organizations SET windows = x'ff'")
    return seen(store, text)


def failing_resolver(folder: Path) -> Seen:
    url = new_file(folder)

    async def resolve(organization: str) -> Organization:
        raise KeyError(organization)

    return seen(SqlStore(url, resolver=resolve), a_key(url))


def rewritten_path(_: Path) -> Seen:
    class Rewrites:
        def __init__(self, app: ASGIApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                scope["path"] = "/models/1"
            await self.app(scope, receive, send)

    app = application()
    app.add_middleware(Rewrites)
    return seen(app=app)


LATER = SimpleNamespace(time=lambda: time.time() + 60)
FAULTS: dict[str, Callable[[Path], Seen]] = {
    "the store does not run": lambda _: no_redis(),
    "wrong password": wrong_password,
    "`lockgate db upgrade` was not run": lambda _: seen(
        shared("postgresql").create("production_without_tables")
    ),
    "the tables are those of a later release": later_tables,
    "the revision of the tables was changed by hand": renumbered,
    "the path of a SQLite file is mistyped": lambda at: seen(f"sqlite:///{at}/kyes.db"),
    "a SQLite file is deleted or replaced": lambda at: with_set(
        at, opened_file, "_TRUSTED", 0, deleted=True
    ),
    "a right on a table is missing": lambda _: of_postgresql(
        "REVOKE UPDATE ON lockgate_organizations FROM {role}"
    ),
    "the database only reads, as a replica": lambda _: of_postgresql(
        "ALTER DATABASE {database} SET default_transaction_read_only = on"
    ),
    "the database has no connection left": lambda _: of_postgresql(
        "ALTER ROLE {role} CONNECTION LIMIT 0"
    ),
    "the disk of a SQLite file is almost full": lambda at: with_set(
        at, opened_file, "_LITTLE", 2**60
    ),
    "the disk of the database is full": full_disk,
    "a table is gone": missing_table,
    "the URL names another, empty store": another_redis,
    "the store hangs or is slow": hanging,
    "Redis became a replica": lambda _: of_redis(then="demoted"),
    "Redis is full": lambda _: of_redis(then="full"),
    "Redis of a pair does not run": lambda at: no_redis(new_file(at)),
    "Redis of a pair stops": lambda at: of_redis(then="stopped", pair=new_file(at)),
    "clocks differ by over a second": lambda at: with_set(at, sql_store, "time", LATER),
    "a pepper is missing": lambda at: seen(new_file(at), a_key(new_file(at), OTHER_PEPPER)),
    "a plan has no numbers": plan_without_numbers,
    "Redis evicts": lambda _: of_redis(
        *("--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru")
    ),
    "Redis lost its data": lambda _: of_redis(then="lost"),
    "a proxy is not configured": lambda _: seen(headers={"X-Forwarded-For": "203.0.113.7"}),
    "a configured proxy sends no `X-Forwarded-For`": lambda _: seen(
        headers={"X-Real-IP": "203.0.113.7"}, trusted_proxies=["127.0.0.1"]
    ),
    "a row is damaged": damaged_row,
    "your plan resolver fails": failing_resolver,
    "a route is open": open_route,
    "sessions without an origin": lambda _: seen(sessions=SignedCookie([bytes(range(32)).hex()])),
    "a middleware rewrites the path": rewritten_path,
}


def rows() -> Iterator[list[str]]:
    table = PAGE.read_text().partition("\n| fault |")[2]
    for line in table.splitlines()[2:]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


def test_the_page_names_every_argument_of_a_gate() -> None:
    arguments = set(signature(Gate).parameters)
    assert arguments - set(re.findall(r"`(\w+)`", SETTINGS.read_text())) == set()


def test_prose_and_messages_name_arguments_that_a_gate_has() -> None:
    """Names in messages are in no backticks, so ``test_names`` does not see them."""
    root = PAGE.parents[1]
    classes = {one.__name__: one for one in (Gate, KeyOptions, WebOptions, StoreOptions)}
    call = re.compile(rf"\b({'|'.join(classes)})\((\w+)=")
    files = [*(root / "src").rglob("*.py"), *(root / "docs").rglob("*.md"), root / "CHANGELOG.md"]
    named = {
        (each.group(), file.name)
        for file in files
        if file.parent.name != "archive"  # Records of the time when they were written.
        for each in call.finditer(file.read_text())
        if each.group(2) not in signature(classes[each.group(1)]).parameters
    }
    assert named == set()


def test_the_page_lists_every_fault_that_is_made_here() -> None:
    assert [row[0] for row in rows()] == list(FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen_as_the_page_says(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (client, log) = next(row[1:3] for row in rows() if row[0] == fault)
    with caplog.at_level(logging.WARNING, "lockgate"):
        status, text = FAULTS[fault](tmp_path)
    lines = [r.getMessage() for r in caplog.records if r.name == "lockgate"]
    if status is None:
        assert client == "the application does not start"
        lines.append(text)
    else:
        assert re.findall(r"\b\d{3}\b", client) == [str(status)]
        assert all(code in text for code in re.findall(r"`([A-Z_]+)`", client))
    for words in re.findall(r"\*([^*]+)\*", log):
        assert any(words in line for line in lines), lines
