"""Whatever Redis refuses, the log says what to do about it, and nothing of the URL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from socket import gaierror
from ssl import SSLError
from typing import Any

import pytest
from redis.exceptions import ConnectionError, ResponseError

from lockgate import run
from lockgate.core.plans import Organization
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.error_hints import advice
from tests.servers import RedisServer, free_port, redis_server

from .backends import server


@pytest.fixture(scope="module")
def own() -> Iterator[RedisServer]:
    """A server with users of its own."""
    with redis_server() as running, running.client() as client:
        client.execute_command("ACL", "SETUSER", "reader", "on", ">pass", "~*", "+@read")
        yield running


def nobody(_: RedisServer) -> str:
    return f"redis://127.0.0.1:{free_port()}"


def stranger(own: RedisServer) -> str:
    return f"redis://reader:secret@127.0.0.1:{own.port}"


def reader(own: RedisServer) -> str:
    return f"redis://reader:pass@127.0.0.1:{own.port}"


def stranger_to_a_cluster(own: RedisServer) -> str:
    return f"redis+cluster://reader:secret@127.0.0.1:{own.port}"


def no_such_database(own: RedisServer) -> str:
    return f"redis://127.0.0.1:{own.port}/99"


def no_cluster(own: RedisServer) -> str:
    return f"redis+cluster://127.0.0.1:{own.port}"


def one_of_a_cluster(_: RedisServer) -> str:
    return f"redis://127.0.0.1:{server('cluster').nodes[0].port}"


def no_sentinel(own: RedisServer) -> str:
    return f"redis+sentinel://127.0.0.1:{own.port}/service"


REFUSALS: list[tuple[Callable[[RedisServer], str], str]] = [
    (nobody, "no server answers there"),
    (stranger, "it rejects this user and password"),
    (stranger_to_a_cluster, "it rejects this user and password"),
    (reader, "grant the rights"),
    (no_such_database, "it has no such database"),
    (no_cluster, "use redis:// in the store's URL"),
    (one_of_a_cluster, "use redis+cluster:// in the store's URL"),
    (no_sentinel, "no Sentinel that answers knows this service"),
]


@pytest.mark.parametrize("drive", [run, asyncio.run], ids=["sync", "awaiting"])
@pytest.mark.parametrize(("refusal", "what"), REFUSALS, ids=[kind.__name__ for kind, _ in REFUSALS])
def test_what_redis_refuses_is_told_once_with_what_to_do(
    own: RedisServer,
    refusal: Callable[[RedisServer], str],
    what: str,
    drive: Callable[[Any], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = RedisStore(refusal(own))

    async def place() -> None:
        try:
            for number in range(20):  # Of a Cluster, one server has some of them.
                await store.put_organization(Organization(f"org_{number}", "free"))
        finally:
            await store.close()

    for _ in range(2):
        with pytest.raises(Exception):  # noqa: B017, PT011 - whichever the driver has
            drive(place())
    (told,) = [record.getMessage() for record in caplog.records if record.name == "lockgate"]
    assert told.startswith("Redis refuses: ")
    assert what in told
    assert "secret" not in told
    assert "127.0.0.1" not in told


@pytest.mark.parametrize(
    ("failure", "what"),
    [
        (ConnectionError("max number of clients reached"), "maxclients"),
        (ResponseError("MISCONF Redis is configured to save"), "disk"),
        (ResponseError("NOREPLICAS Not enough good replicas to write."), "min-replicas-to-write"),
        (ResponseError("unknown command `EVALSHA`, with args"), "Redis 6.2 or later"),
    ],
    ids=["full of clients", "no disk", "no replicas", "another server"],
)
def test_what_no_server_here_says(failure: Exception, what: str) -> None:
    assert what in (advice(failure) or "")


@pytest.mark.parametrize(
    ("cause", "what"), [(SSLError(), "certificate"), (gaierror(), "check host and port")]
)
def test_what_the_system_says_below_the_driver(cause: Exception, what: str) -> None:
    failure = ConnectionError("connecting")
    failure.__cause__ = cause
    assert what in (advice(failure) or "")


def test_of_what_is_not_known_nothing_is_said() -> None:
    assert advice(ResponseError("what")) is None
    assert advice(ValueError("MISCONF")) is None
