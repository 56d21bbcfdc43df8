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

FACES = {
    "starlette-memory": Face("starlette", "memory://"),
    "starlette-sqlite": Face("starlette", "sqlite:///{directory}/demo.db?mode=rwc"),
}
MORE = {
    "fastapi-memory": (Face("fastapi", "memory://"), {"test_slots"}),
    "flask-memory": (
        Face("flask", "memory://"),
        {
            *("test_accounts", "test_bodies", "test_budgets", "test_dashboard"),
            *("test_lifecycle", "test_paths", "test_slots"),
        },
    ),
    "flask-sqlite": (Face("flask", "sqlite:///{directory}/demo.db?mode=rwc"), {"test_keys"}),
    "fastapi-sqlite": (
        Face("fastapi", "sqlite:///{directory}/demo.db?mode=rwc"),
        {"test_sessions"},
    ),
}
"""Other frameworks, and the files whose tests may differ there: for time's sake the others run on
them in the campaigns. FastAPI answers by Starlette's means, and `test_alike` compares whole answers
of all."""
ASGI_SERVERS = ("uvicorn-h11", "hypercorn", "granian")
OTHER_SERVERS = {
    "starlette": ASGI_SERVERS,
    "fastapi": ASGI_SERVERS,
    "flask": ("gunicorn", "granian-wsgi"),
}
STORES = {"memory": "memory://", "sqlite": "sqlite:///{directory}/demo.db?mode=rwc"}
BY_OTHERS = {
    f"{framework}-{store}-{server}": Face(framework, url, other_server=server)
    for framework, servers in OTHER_SERVERS.items()
    for store, url in STORES.items()
    for server in servers
}
"""Under the servers that the demo does not come with: whole files run on these in the campaigns,
`test_alike` compares answers of theirs in every run."""
SERVED = {
    "starlette-postgresql": Face("starlette", "postgresql", shares_store=True),
    "starlette-mysql": Face("starlette", "mysql", shares_store=True),
    "starlette-redis": Face("starlette", "redis", shares_store=True),
    "flask-cluster": Face("flask", "cluster", shares_store=True),
}
SERVERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "redis": redis_server,
    "cluster": redis_cluster,
}
_databases = count()
LATER = {"flask-cluster", "starlette-mysql"}
"""Faces for the campaigns alone: another runs much the same code, and the contract asks the rest of
each store."""
TALK_OF_THE_STORE = {"test_keys", "test_restart", "test_sessions", "test_shared"}
"""Files whose tests depend on the store: these run on the servers as well, and the others do in the
campaigns, for time's sake."""

BY_ONE_STORE = {
    # These hardly get as far as the store.
    "starlette-sqlite": {
        *("test_authentication", "test_bodies", "test_budgets", "test_errors"),
        *("test_paths", "test_scopes"),
        # Each of its tests starts a demo, and what a store does of it, the contract asks of each.
        "test_limits",
    },
    # These take long, and tell more of a store that lasts.
    "starlette-memory": {
        "test_cap",
        "test_lifecycle",
        "test_restart",
        "test_secrets",
        "test_shared",
    },
}
"""Files that run on these faces in the campaigns only, for time's sake: one store is enough."""


def everybody() -> dict[str, Face]:
    """All faces that need no database server."""
    return {**FACES, **{name: face for name, (face, _) in MORE.items()}, **BY_OTHERS}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "face" in metafunc.fixturenames:
        module = metafunc.definition.path.stem
        # To make twenty thousand tests only to leave them out takes seconds.
        left_out = metafunc.config.option.markexpr == "not campaign"
        faces = [
            pytest.param(face, id=name, marks=() if now else (pytest.mark.campaign,))
            for name, face in {**everybody(), **SERVED}.items()
            if (now := _runs_now(name, module)) or not left_out
        ]
        metafunc.parametrize("face", faces, indirect=True, scope="session")


def _runs_now(name: str, module: str) -> bool:
    """Whether a file's tests run on a face in every run, and not in the campaigns alone."""
    if name in MORE:
        return module in MORE[name][1]
    if name in BY_OTHERS:
        return False
    if name in FACES:
        return module not in BY_ONE_STORE[name]
    return module in TALK_OF_THE_STORE and name not in LATER


@pytest.fixture(scope="session")
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    chosen = request.param
    assert isinstance(chosen, Face)
    if chosen.store in {"postgresql", "mysql"}:
        url = shared(chosen.store).create(f"demo{next(_databases)}")
        assert main(["db", "upgrade", "--store", url]) == 0
        yield replace(chosen, store=url)
    elif chosen.store in SERVERS:
        with SERVERS[chosen.store]() as server:
            yield replace(chosen, store=server.create("demo"))
    else:
        yield chosen


@pytest.fixture(scope="module")
def demo(face: Face) -> Iterator[Demo]:
    """Shared by a file. Only its enterprise organization may be spent from; another by one test."""
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
