"""The log advises on each refusal of Redis, without any part of the URL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import gaierror
from ssl import SSLError
from typing import Any

import pytest
from redis.exceptions import ConnectionError, ResponseError, TimeoutError

from lockgate import run
from lockgate.core.plans import Organization
from lockgate.stores.answers import StoreError
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.error_hints import advice
from tests.servers import RedisServer, free_port, redis_server

from ..tls import SecureProxy, certificate
from .backends import server


@pytest.fixture(scope="module")
def own() -> Iterator[RedisServer]:
    """A server with configured users."""
    with redis_server() as running, running.client() as client:
        client.execute_command("ACL", "SETUSER", "reader", "on", ">pass", "~*", "+@read")
        yield running


def no_server(_: RedisServer) -> str:
    return f"redis://127.0.0.1:{free_port()}"


def wrong_password(own: RedisServer) -> str:
    return f"redis://reader:secret@127.0.0.1:{own.port}"


def read_only_user(own: RedisServer) -> str:
    return f"redis://reader:pass@127.0.0.1:{own.port}"


def wrong_password_of_a_cluster(own: RedisServer) -> str:
    return f"redis+cluster://reader:secret@127.0.0.1:{own.port}"


def no_such_database(own: RedisServer) -> str:
    return f"redis://127.0.0.1:{own.port}/99"


def no_cluster(own: RedisServer) -> str:
    return f"redis+cluster://127.0.0.1:{own.port}"


def node_of_a_cluster(_: RedisServer) -> str:
    return f"redis://127.0.0.1:{server('cluster').nodes[0].port}"


def no_sentinel(own: RedisServer) -> str:
    return f"redis+sentinel://127.0.0.1:{own.port}/service"


REFUSALS: list[tuple[Callable[[RedisServer], str], str]] = [
    (no_server, "no server answers there"),
    (wrong_password, "it rejects this user and password"),
    (wrong_password_of_a_cluster, "it rejects this user and password"),
    (read_only_user, "grant the rights"),
    (no_such_database, "it has no such database"),
    (no_cluster, "use redis:// in the store's URL"),
    (node_of_a_cluster, "use redis+cluster:// in the store's URL"),
    (no_sentinel, "no Sentinel that answers knows this service"),
]


@pytest.mark.parametrize("drive", [run, asyncio.run], ids=["sync", "async"])
@pytest.mark.parametrize(("url", "advised"), REFUSALS, ids=[kind.__name__ for kind, _ in REFUSALS])
def test_the_log_advises_once_on_each_refusal(
    own: RedisServer,
    url: Callable[[RedisServer], str],
    advised: str,
    drive: Callable[[Any], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = RedisStore(url(own))

    async def place() -> None:
        try:
            for number in range(20):  # Of a Cluster, one server has some of them.
                await store.put_organization(Organization(f"org_{number}", "free"))
        finally:
            await store.close()

    for _ in range(2):
        with pytest.raises(Exception):  # noqa: B017, PT011 - whichever the driver has
            drive(place())
    (line,) = [record.getMessage() for record in caplog.records if record.name == "lockgate"]
    assert line.startswith("Redis refuses: ")
    assert advised in line
    assert "secret" not in line
    assert "127.0.0.1" not in line


def connecting(cause: Exception) -> Exception:
    failure = ConnectionError("connecting")
    failure.__cause__ = cause
    return failure


@pytest.mark.parametrize(
    ("failure", "advised"),
    [
        (ConnectionError("max number of clients reached"), "maxclients"),
        (ResponseError("MISCONF Redis is configured to save"), "disk"),
        (ResponseError("NOREPLICAS Not enough good replicas to write."), "min-replicas-to-write"),
        (ResponseError("unknown command `EVALSHA`, with args"), "Redis 6.2 or later"),
        (TimeoutError("Timeout connecting to server"), "overloaded"),
        (connecting(SSLError()), "certificate"),
        (connecting(gaierror()), "check host and port"),
        (ResponseError("what"), None),
        (ValueError("MISCONF"), None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_error_of_redis_has_its_advice(failure: Exception, advised: str | None) -> None:
    said = advice(failure)
    assert said is None if advised is None else advised in (said or "")
    # A timeout does not say that no server is there.
    assert not isinstance(failure, TimeoutError) or "no server" not in (said or "")


@pytest.mark.parametrize("drive", [run, asyncio.run], ids=["sync", "async"])
def test_the_log_names_rediss_for_a_port_that_speaks_tls(
    own: RedisServer,
    tmp_path: Path,
    drive: Callable[[Any], Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ask() -> None:
        store = RedisStore(f"redis://127.0.0.1:{proxy.port}")
        with pytest.raises(StoreError):
            await store.organization("org_1")
        await store.close()

    with SecureProxy(own.port, certificate(tmp_path)) as proxy:
        drive(ask())
    assert "use rediss:// in the store's URL" in caplog.text
