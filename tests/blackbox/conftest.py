"""One table of faces; everything else hangs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from lockgate.cli import main
from tests.servers import redis_cluster, redis_server, shared

from .demo import Client, Demo, Face, Organization

ASGI_SERVERS = ("uvicorn-h11", "hypercorn", "granian")
SERVERS_OF = {
    "starlette": ("", *ASGI_SERVERS),
    "fastapi": ("", *ASGI_SERVERS),
    "flask": ("", "gunicorn", "granian-wsgi"),
}
"""The empty one is the server that the demo comes with."""
STORES = {"memory": "memory://", "sqlite": "sqlite:///{directory}/demo.db?mode=rwc"}
FACES = {
    "-".join(filter(None, (framework, store, server))): Face(framework, url, other_server=server)
    for framework, servers in SERVERS_OF.items()
    for store, url in STORES.items()
    for server in servers
}
SERVED = {
    "starlette-postgresql": Face("starlette", "postgresql", shares_store=True),
    "starlette-mysql": Face("starlette", "mysql", shares_store=True),
    "starlette-redis": Face("starlette", "redis", shares_store=True),
    "flask-cluster": Face("flask", "cluster", shares_store=True),
}
STARTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "redis": redis_server,
    "cluster": redis_cluster,
}
_databases = count()
EVERY_RUN = {
    "test_accounts": {"flask-memory"},
    "test_bodies": {"starlette-memory", "flask-memory"},
    "test_dashboard": {"flask-sqlite"},
    "test_keys": {"starlette-sqlite"},
    "test_lifecycle": {"starlette-sqlite", "flask-memory"},
    "test_paths": {"starlette-memory", "flask-memory"},
    "test_restart": {"starlette-sqlite"},
    "test_sessions": {"fastapi-sqlite"},
    "test_shared": {"starlette-sqlite", "starlette-postgresql", "starlette-redis"},
    "test_slots": {"fastapi-memory"},
}
"""Files that do not run on `starlette-memory` alone. What is decided above adapters and stores
needs one of each: `test_alike` compares whole answers, and the campaigns run each file on all."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "face" in metafunc.fixturenames:
        now = EVERY_RUN.get(metafunc.definition.path.stem, {"starlette-memory"})
        # To make twenty thousand tests only to leave them out takes seconds.
        left_out = metafunc.config.option.markexpr == "not campaign"
        faces = [
            pytest.param(face, id=name, marks=() if name in now else (pytest.mark.campaign,))
            for name, face in {**FACES, **SERVED}.items()
            if name in now or not left_out
        ]
        metafunc.parametrize("face", faces, indirect=True, scope="session")


@pytest.fixture(scope="session")
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    chosen = request.param
    assert isinstance(chosen, Face)
    if chosen.store in {"postgresql", "mysql"}:
        url = shared(chosen.store).create(f"demo{next(_databases)}")
        assert main(["db", "upgrade", "--store", url]) == 0
        yield replace(chosen, store=url)
    elif chosen.store in STARTS:
        with STARTS[chosen.store]() as server:
            yield replace(chosen, store=server.create("demo"))
    else:
        yield chosen


@pytest.fixture(scope="session")
def demo(face: Face) -> Iterator[Demo]:
    """Shared by all. Only its enterprise organization may be spent from."""
    with Demo(face, traced=True) as running:
        yield running


@pytest.fixture
def fresh(face: Face) -> Iterator[Demo]:
    """Four unused organizations for this test."""
    with Demo(face) as running:
        yield running


@pytest.fixture
def client(demo: Demo) -> Iterator[Client]:
    """A client at a separate address, hence with separate budgets (D24)."""
    with demo.client() as speaking:
        yield speaking


@pytest.fixture
def org(demo: Demo) -> Organization:
    return demo["enterprise"]
