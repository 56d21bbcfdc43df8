"""Readiness: checks of a process before its first request, and errors that its start tolerates."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event as ThreadEvent
from typing import Any

import pytest
from sqlalchemy import create_engine

from lockgate import ConfigurationError, Gate, MemoryStore, Refusal, run
from lockgate.asgi import GateMiddleware
from lockgate.core.key_format import Token
from lockgate.core.plans import PlanBook
from lockgate.errors import StoreUnavailable
from lockgate.options import StoreOptions, WebOptions
from lockgate.sessions import SignedCookie
from lockgate.stores.answers import Admission
from lockgate.stores.base import IoMode
from lockgate.stores.sql import SqlStore
from lockgate.web.operations.health import HEALTH
from lockgate.web.operations.table import answer
from lockgate.wsgi import GateMiddleware as WsgiMiddleware
from tests.web.test_guard import Asking

SECRET = "fedcba9876543210fedcba9876543210"


class Shared(MemoryStore):
    """A store that stands for one on a server."""

    io: IoMode = "sync"
    enforces_deadline = True

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.prepared = 0
        self.slow = 0.0
        self.waits: ThreadEvent | None = None

    async def ready(self) -> None:
        if self.waits is not None:
            assert self.waits.wait(60)
        self.prepared += 1
        if self.away:
            raise OSError("dsn=hunter2")


def wsgi_status(app: WsgiMiddleware, key: str) -> str:
    said: list[str] = []
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/x",
        "SCRIPT_NAME": "",
        "QUERY_STRING": "",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_AUTHORIZATION": f"Bearer {key}",
    }
    start: Any = lambda status, headers, exc_info=None: said.append(status)  # noqa: E731
    list(app(environ, start))
    return said[0][:3]


def application(environ: object, start: Any) -> list[bytes]:
    start("200 OK", [])
    return [b"ok"]


def test_ready_changes_nothing_and_may_be_called_again(tmp_path: Path) -> None:
    gate = Gate(f"sqlite:///{tmp_path}/keys.db?mode=rwc", brand="acme")
    run(gate.ready())
    run(gate.ready())
    assert not run(gate.store.scan(None, 100)).keys
    created = run(gate.keys.create("org_1", "ci"))
    run(gate.ready())
    assert run(gate.authenticate(created.text)).reading.used[0] == 1
    run(gate.close())


async def test_ready_in_an_event_loop(tmp_path: Path) -> None:
    gate = Gate(f"sqlite:///{tmp_path}/keys.db?mode=rwc", brand="acme")
    await gate.ready()
    created = await gate.keys.create("org_1", "ci")
    assert (await gate.authenticate(created.text)).organization == "org_1"
    await gate.close()


def test_ready_names_the_remedy_for_missing_tables(tmp_path: Path) -> None:
    store = SqlStore(create_engine(f"sqlite:///{tmp_path}/keys.db"))
    with pytest.raises(ConfigurationError, match="lockgate db upgrade"):
        run(Gate(store, brand="acme").ready())


def test_ready_of_a_store_that_is_away_names_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    store = Shared()
    store.away = True
    with pytest.raises(StoreUnavailable):
        run(Gate(store, brand="acme").ready())
    assert "store_failed error='OSError'" in caplog.text
    assert "hunter2" not in caplog.text


def test_ready_wants_an_origin_where_sessions_are() -> None:
    gate = Gate(brand="acme", sessions=SignedCookie([SECRET]))
    with pytest.raises(ConfigurationError, match="public_url"):
        run(gate.ready())
    run(
        Gate(
            brand="acme",
            sessions=SignedCookie([SECRET]),
            web_options=WebOptions(public_url="https://a.example"),
        ).ready()
    )


def test_an_open_breaker_does_not_keep_a_start_from_succeeding() -> None:
    store = Shared()
    gate = Gate(store, brand="acme")
    gate.store.breaker._opened_at = 0.0  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    run(gate.ready())
    assert store.prepared == 1


def test_the_threads_of_a_wsgi_process_wait_for_one_that_connects() -> None:
    store = Shared()
    store.waits = ThreadEvent()
    gate = Gate(store, brand="acme")
    key = run(gate.keys.create("org_1", "ci")).text
    app = WsgiMiddleware(application, gate)
    with ThreadPoolExecutor(8) as pool:
        statuses = [pool.submit(wsgi_status, app, key) for _ in range(8)]
        assert not any(status.done() for status in statuses)
        store.waits.set()
        assert [status.result(60) for status in statuses] == ["200"] * 8
    assert store.prepared == 1


def test_a_wsgi_process_whose_store_is_away_tries_once_and_serves_when_it_is_back() -> None:
    store = Shared()
    store.away = True
    gate = Gate(store, brand="acme")
    key = run(gate.keys.create("org_1", "ci")).text
    app = WsgiMiddleware(application, gate)
    assert [wsgi_status(app, key) for _ in range(3)] == ["200"] * 3
    assert (store.prepared, gate.readiness.is_ready) == (1, False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_child_process_prepares_for_itself() -> None:
    gate = Gate(Shared(), brand="acme")
    run(gate.ready())
    child = os.fork()
    if child == 0:
        os._exit(7 if gate.readiness.is_ready or gate.readiness.was_tried else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gate.readiness.is_ready


@pytest.fixture
def slow_store() -> Shared:
    class Slow(Shared):
        io: IoMode = "async"

        async def admit(
            self, token: Token, cost: int, plans: PlanBook, *more: Any, **named: Any
        ) -> Admission:
            await asyncio.sleep(self.slow)
            return await super().admit(token, cost, plans, *more, **named)

    return Slow()


async def test_requests_may_take_longer_just_after_a_start(slow_store: Shared) -> None:
    slow_store.enforces_deadline = False
    # By another gate: a busy machine may take longer than this deadline for any call.
    key = (await Gate(slow_store, brand="acme").keys.create("org_1", "ci")).text
    gate = Gate(slow_store, brand="acme", store_options=StoreOptions(deadline=0.05))
    slow_store.slow = 0.5
    with pytest.raises(StoreUnavailable):
        await gate.authenticate(key)
    await gate.ready()
    assert (await gate.authenticate(key)).organization == "org_1"


async def lifespan(gate: Gate) -> Any:
    async def inner(scope: object, receive: object, send: Any) -> None:
        await send({"type": "lifespan.startup.complete"})

    told: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        told.append(message)

    with suppress(ConfigurationError):
        await GateMiddleware(inner, gate)({"type": "lifespan"}, receive, send)
    return told[0]


async def test_an_asgi_server_does_not_start_with_a_mistake(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/keys.db")
    message = await lifespan(Gate(SqlStore(engine), brand="acme"))
    assert message["type"] == "lifespan.startup.failed"
    assert "lockgate db upgrade" in str(message["message"])


async def test_an_asgi_server_starts_although_its_store_is_away(
    slow_store: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    slow_store.away = True
    gate = Gate(slow_store, brand="acme")
    assert (await lifespan(gate))["type"] == "lifespan.startup.complete"
    assert "The store did not answer at the start" in caplog.text
    assert not gate.readiness.is_ready


@pytest.mark.parametrize("mode", ["local", "open"])
async def test_a_pair_without_its_redis_is_ready_if_it_serves(
    tmp_path: Path, mode: Any, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/keys.db?mode=rwc redis://127.0.0.1:1"
    gate = Gate(
        url,
        brand="acme",
        store_options=StoreOptions(deadline=20, on_failure=mode),
    )
    assert await probe(gate, "/health/ready") == (200, {"status": "ok"})
    assert "Redis did not answer at the start: until it does, the database" in caplog.text
    key = await gate.keys.create("org_1", "a key")
    assert (await gate.authenticate(key.text)).organization == "org_1"
    await gate.close()


async def test_a_pair_that_refuses_without_its_redis_is_not_ready_without_it(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/keys.db?mode=rwc redis://127.0.0.1:1"
    gate = Gate(
        url,
        brand="acme",
        store_options=StoreOptions(deadline=20, on_failure="closed"),
    )
    assert (await probe(gate, "/health/ready"))[0] == 503
    await gate.close()


async def probe(gate: Gate, path: str) -> tuple[int, dict[str, object]]:
    async def nothing(limit: int) -> bytes:
        return b""

    operations = {f"/health{e.path}": {"GET": e} for e in HEALTH}[path]
    try:
        reply = await answer(gate, operations, Asking("GET", path), None, {}, nothing)
    except Refusal as refusal:
        return refusal.status, refusal.body()
    return reply.status, json.loads(reply.body)


async def test_the_liveness_probe_succeeds_and_the_readiness_probe_follows_the_store(
    slow_store: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    slow_store.away = True
    gate = Gate(slow_store, brand="acme")
    unavailable = 503, StoreUnavailable().body()
    assert await probe(gate, "/health/live") == (200, {"status": "ok"})
    assert await probe(gate, "/health/ready") == unavailable
    assert "OSError" in caplog.text
    slow_store.away = False
    assert await probe(gate, "/health/ready") == (200, {"status": "ok"})
    slow_store.away = True
    assert await probe(gate, "/health/ready") == (200, {"status": "ok"})
    assert slow_store.prepared == 2


async def test_a_probe_reports_a_configuration_error_to_the_log_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate(brand="acme", sessions=SignedCookie([SECRET]))
    for _ in range(3):
        assert await probe(gate, "/health/ready") == (503, StoreUnavailable().body())
    assert sum("The gate verifies sessions" in line for line in caplog.messages) == 1
