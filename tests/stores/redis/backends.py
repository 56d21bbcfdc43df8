"""The Redis servers that the tests run on, and empty stores in them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lockgate.stores.redis import RedisStore
from tests.servers import redis_cluster, redis_sentinel, redis_server, valkey_server

_servers = ExitStack()
_prefixes = count()


@cache
def _running(kind: str) -> Any:
    try:
        if kind == "cluster":
            return _servers.enter_context(redis_cluster())
        if kind == "sentinel":
            return _servers.enter_context(redis_sentinel(replicas=2, sentinels=3))
        return _servers.enter_context(valkey_server() if kind == "valkey" else redis_server())
    except pytest.skip.Exception as missing:
        return missing


def server(kind: str) -> Any:
    """The server of a kind that all tests share; it is started when it is first asked for.

    ``sentinel`` is a primary with two replicas, and three Sentinels: a test that has them changed
    waits until they are settled again.
    """
    running = _running(kind)
    if isinstance(running, BaseException):
        raise running
    return running


def stop_servers() -> None:
    """Stop what :func:`server` started; it starts anew where it is asked for again."""
    _servers.close()
    _running.cache_clear()


def opened(kind: str, *sources: Any) -> RedisStore:
    """An empty store with a unique prefix."""
    return RedisStore(*(sources or [server(kind).url()]), prefix=f"t{next(_prefixes)}")


def documented(kind: str) -> str:
    """The URL of a server for a user with the rights that the docs give to a store, which sees
    names that begin with ``lockgate:`` only."""
    running = server(kind)
    for node in getattr(running, "nodes", [running]):
        with node.client() as client:
            client.execute_command(*rights("lockgate"))
    return str(running.url()).replace("://", "://lockgate:password@")


def rights(user: str) -> list[str]:
    """The command by which the docs give a user the rights that a store needs."""
    page = (Path(__file__).parents[3] / "docs" / "redis.md").read_text()
    return page[page.index(f"ACL SETUSER {user} ") :].partition("```")[0].split()
