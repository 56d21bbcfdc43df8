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
from wsgiref.util import setup_testing_defaults

import pytest
from sqlalchemy import create_engine

from lockgate import ConfigurationError, Gate, Refusal, run
from lockgate.asgi import GateMiddleware
from lockgate.errors import StoreUnavailable
from lockgate.options import StoreOptions, WebOptions
from lockgate.sessions import SignedCookie
from lockgate.stores.base import IoMode
from lockgate.stores.sql import SqlStore
from lockgate.web.operations.health import HEALTH
from lockgate.web.operations.table import answer
from lockgate.wsgi import GateMiddleware as WsgiMiddleware
from tests.web.test_guard import Asking

from .bench import Hooked
from .shared_stores import Drive, gate_on

SECRET = "fedcba9876543210fedcba9876543210"


class Shared(Hooked):
    """A store that stands for one on a server."""

    io: IoMode = "sync"
    enforces_deadline = True

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.prepared = 0
        self.waits: ThreadEvent | None = None

    async def ready(self) -> None:
        if self.waits is not None:
            assert self.waits.wait(60)
        self.prepared += 1
        if self.away:
            raise OSError("dsn=hunter2")


class Awaited(Shared):
    io: IoMode = "async"


def wsgi_status(app: WsgiMiddleware, key: str) -> str:
    said: list[str] = []
    environ: dict[str, Any] = {"HTTP_AUTHORIZATION": f"Bearer {key}"}
    setup_testing_defaults(environ)
    start: Any = lambda status, headers, exc_info=None: said.append(status)  # noqa: E731
    list(app(environ, start))
    return said[0][:3]


def application(environ: object, start: Any) -> list[bytes]:
    start("200 OK", [])
    return [b"ok"]


def test_ready_changes_nothing_and_may_be_called_again(tmp_path: Path, drive: Drive) -> None:
    gate = gate_on(f"sqlite:///{tmp_path}/keys.db?mode=rwc")
    drive(gate.ready())
    drive(gate.ready())
    assert not drive(gate.store.scan(None, 100)).keys
    created = drive(gate.keys.create("org_1", "ci"))
    drive(gate.ready())
    assert drive(gate.authenticate(created.text)).reading.used[0] == 1
    drive(gate.close())


def test_ready_of_a_store_that_is_away_names_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    store = Shared()
    store.away = True
    with pytest.raises(StoreUnavailable):
        run(Gate(store, brand="acme").ready())
    assert "store_failed error='OSError'" in caplog.text
    assert "hunter2" not in caplog.text


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


async def test_requests_may_take_longer_just_after_a_start() -> None:
    async def slow(asked: Any, *arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(0.5)
        return await asked(*arguments, **options)

    store = Awaited()
    store.enforces_deadline = False
    # By another gate: a busy machine may take longer than this deadline for any call.
    key = (await Gate(store, brand="acme").keys.create("org_1", "ci")).text
    gate = Gate(store.on("admit", slow), brand="acme", store_options=StoreOptions(deadline=0.05))
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


async def test_an_asgi_server_does_not_start_with_a_mistake_and_is_told_the_remedy(
    tmp_path: Path,
) -> None:
    sessions = SignedCookie([SECRET])
    without_tables = SqlStore(create_engine(f"sqlite:///{tmp_path}/keys.db"))
    for gate, remedy in (
        (Gate(without_tables, brand="acme"), "lockgate db upgrade"),
        (Gate(brand="acme", sessions=sessions), "public_url"),
    ):
        with pytest.raises(ConfigurationError, match=remedy):
            await gate.ready()
        message = await lifespan(gate)
        assert message["type"] == "lifespan.startup.failed"
        assert remedy in str(message["message"])
    options = WebOptions(public_url="https://a.example")
    await Gate(brand="acme", sessions=sessions, web_options=options).ready()


async def test_an_asgi_server_starts_although_its_store_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Awaited()
    store.away = True
    gate = Gate(store, brand="acme")
    assert (await lifespan(gate))["type"] == "lifespan.startup.complete"
    assert "The store did not answer at the start" in caplog.text
    assert not gate.readiness.is_ready


@pytest.mark.parametrize("mode", ["local", "open", "closed"])
async def test_a_pair_without_its_redis_is_ready_if_it_serves(
    tmp_path: Path, mode: Any, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/keys.db?mode=rwc redis://127.0.0.1:1"
    options = StoreOptions(deadline=20, on_failure=mode)
    gate = Gate(url, brand="acme", store_options=options)
    status, body = await probe(gate, "/health/ready")
    if mode == "closed":
        assert status == 503
    else:
        assert (status, body) == (200, {"status": "ok"})
        assert "Redis did not answer at the start: until it does, the database" in caplog.text
        key = await gate.keys.create("org_1", "a key")
        assert (await gate.authenticate(key.text)).organization == "org_1"
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
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    store = Awaited()
    gate = Gate(store, brand="acme")
    unavailable, fine = (503, StoreUnavailable().body()), (200, {"status": "ok"})
    assert await probe(gate, "/health/live") == fine
    for away, wanted in ((True, unavailable), (False, fine), (True, fine)):
        store.away = away
        assert await probe(gate, "/health/ready") == wanted
    assert "OSError" in caplog.text
    assert store.prepared == 2


async def test_a_probe_reports_a_configuration_error_to_the_log_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate(brand="acme", sessions=SignedCookie([SECRET]))
    for _ in range(3):
        assert await probe(gate, "/health/ready") == (503, StoreUnavailable().body())
    assert sum("The gate verifies sessions" in line for line in caplog.messages) == 1
