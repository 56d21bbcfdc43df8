"""Connections in an event loop of uvloop, whose transports are classes of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop

from lockgate.core.ledger import Hit
from lockgate.core.plans import Plan
from lockgate.stores.answers import StoreError
from lockgate.stores.redis import RedisStore
from tests.servers import free_port, redis_server

from ...tls import SecureProxy, certificate

PLENTY = Plan("plenty", 1000, None, None, None)


async def used(url: str) -> int:
    store = RedisStore(url)
    try:
        readings = [store.charge("org_1", Hit(PLENTY.windows, 1)) for _ in range(5)]
        return max(reading.used[0] for reading in await asyncio.gather(*readings))
    finally:
        await store.close()


def in_uvloop(url: str) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(used(url))


def test_hits_are_counted_by_tcp_tls_and_a_unix_socket(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    trusted = certificate(tmp_path)
    with (
        redis_server("--unixsocket", str(socket)) as server,
        SecureProxy(server.port, trusted) as proxy,
    ):
        urls = (
            server.url(),
            f"rediss://127.0.0.1:{proxy.port}?ssl_ca_certs={trusted.file}",
            f"unix://{socket}",
        )
        assert [in_uvloop(url) for url in urls] == [5, 10, 15]


def test_a_missing_server_is_a_store_error() -> None:
    with pytest.raises(StoreError):
        in_uvloop(f"redis://127.0.0.1:{free_port()}")
