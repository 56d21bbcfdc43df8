"""A NAT or load balancer forgets idle connections without a word: one request is refused, and the
next one is answered by a new connection, whichever of a pool was first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from math import inf
from secrets import token_bytes
from typing import Any, Final

import pytest
from sqlalchemy import make_url

from lockgate import Gate, migrations, run
from lockgate.errors import StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.stores.redis.transport import connection
from lockgate.stores.resilience import deadlines
from lockgate.stores.sql import raw_connections
from tests.servers import redis_server, shared

from .making import at_once
from .proxy import Proxy

TOGETHER: Final = 4
"""Requests at the same time, so that a pool has several connections."""
DEADLINE: Final = 2.0
"""Seconds: the request that is refused takes this long."""


_databases = count()


@pytest.fixture(autouse=True)
def find_idle(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that sets after how many seconds a connection is idle; at first none is.

    The process is not young.
    """
    monkeypatch.setattr(deadlines, "WARMING", 0.0)

    def after(seconds: float) -> None:
        monkeypatch.setattr(raw_connections, "_IDLE", seconds)
        monkeypatch.setattr(connection, "_IDLE", seconds)

    after(inf)
    return after


@pytest.fixture(params=["postgresql", "postgresql+asyncpg", "mysql", "mysql+asyncmy", "redis"])
def forgetful(request: pytest.FixtureRequest, shared_servers: None) -> Iterator[tuple[str, Proxy]]:
    """The URL of a store, and the relay before its server."""
    driver: str = request.param
    if driver == "redis":
        with redis_server() as server, Proxy(server.port) as relay:
            yield f"redis://127.0.0.1:{relay.port}/0", relay
        return
    started = shared(driver.partition("+")[0])
    url = make_url(started.create(f"forgotten{next(_databases)}"))
    migrations.upgrade(url.render_as_string(hide_password=False))
    with Proxy(started.port) as relay:
        named = url.set(drivername=driver, port=relay.port)
        yield named.render_as_string(hide_password=False), relay


@pytest.mark.parametrize("awaits", [True, False], ids=["async", "sync"])
def test_one_request_is_refused_for_all_forgotten_connections_D28(
    forgetful: tuple[str, Proxy],
    awaits: bool,
    find_idle: Callable[[float], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    url, relay = forgetful
    if not awaits and url.partition(":")[0] in {"postgresql+asyncpg", "mysql+asyncmy"}:
        pytest.skip("This driver only awaits.")
    options = StoreOptions(deadline=DEADLINE)
    gate = Gate(url, brand="acme", peppers=[token_bytes(32)], store_options=options)

    async def answers(key: str) -> bool:
        try:
            await gate.authenticate(key, address="192.0.2.1")
        except StoreUnavailable:
            return False
        return True

    async def list_together() -> None:
        await asyncio.gather(*(gate.keys.list("org_1") for _ in range(TOGETHER)))

    with asyncio.Runner() as runner:
        do: Callable[[Any], Any] = runner.run if awaits else run
        listed = partial(at_once, TOGETHER, lambda _: run(gate.keys.list("org_1")))
        key = do(gate.keys.create("org_1", "a key")).text
        do(list_together()) if awaits else listed()
        assert do(answers(key))
        find_idle(0.0)
        relay.forget()
        assert [do(answers(key)) for _ in range(5)] == [False, True, True, True, True]
        do(list_together()) if awaits else listed()
        assert "breaker_opened" not in caplog.text
        do(gate.close())
