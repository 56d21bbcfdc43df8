"""Stores on real servers, in both I/O modes, for tests of services that several processes share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from lockgate import Gate, run
from tests import migrated
from tests.gates import flat_gate
from tests.servers import redis_cluster, redis_server

T = TypeVar("T")

Kind = Literal["sqlite", "postgresql", "redis", "pair", "mariadb", "cluster"]
KINDS: tuple[Kind, ...] = ("sqlite", "postgresql", "redis", "pair")
EVERY_KIND: tuple[Kind, ...] = (*KINDS, "mariadb", "cluster")
"""For tests of duties that each kind has code of its own for, such as events told exactly once."""
MODES = ("sync", "async")
Drive = Callable[[Coroutine[Any, Any, Any]], Any]


@contextmanager
def shared_store(kind: Kind, folder: Path) -> Iterator[str]:
    """The URL of an empty store with its tables; a pair is PostgreSQL and Redis."""
    if kind == "sqlite":
        yield migrated.sqlite(folder / "keys.db")
        return
    if kind == "mariadb":
        yield migrated.mariadb()
        return
    if kind == "cluster":
        with redis_cluster() as cluster:
            yield cluster.url()
        return
    database = "" if kind == "redis" else migrated.postgresql()
    if kind == "postgresql":
        yield database
        return
    with redis_server() as server:
        yield f"{database} {server.url()}".strip()


@contextmanager
def driving(mode: str) -> Iterator[Drive]:
    """Drive coroutines without an event loop, or all of them in one loop."""
    if mode == "sync":
        yield run
        return
    with asyncio.Runner() as runner:
        yield runner.run


def gate_on(url: str, **options: Any) -> Gate:
    """A gate with a deadline that suits a busy machine."""
    return flat_gate(url, brand="acme", deadline=30, **options)
