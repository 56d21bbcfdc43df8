"""One table of faces; everything else hangs on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lockgate.cli import main
from tests.servers import mariadb, postgres

from .demo import Client, Demo, Face, Organization

FACES = {
    "starlette-memory": Face("starlette", "memory://"),
    "starlette-sqlite": Face("starlette", "sqlite:///{directory}/demo.db"),
}
SERVED = {
    "starlette-postgresql": Face("starlette", "postgresql", shares_store=True),
    "starlette-mysql": Face("starlette", "mysql", shares_store=True),
}
SERVERS = {"postgresql": postgres, "mysql": mariadb}
TALK_OF_THE_STORE = {"test_keys", "test_restart"}
"""Files whose tests depend on the store: only these run on the servers as well, for time's sake."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "face" in metafunc.fixturenames:
        module = metafunc.definition.path.stem
        faces = {**FACES, **(SERVED if module in TALK_OF_THE_STORE else {})}
        metafunc.parametrize(
            "face", list(faces.values()), ids=list(faces), indirect=True, scope="session"
        )


@pytest.fixture(scope="session")
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    chosen = request.param
    assert isinstance(chosen, Face)
    if chosen.store not in SERVERS:
        yield chosen
        return
    with SERVERS[chosen.store]() as server:
        url = server.create("demo")
        assert main(["db", "upgrade", "--store", url]) == 0
        yield replace(chosen, store=url)


@pytest.fixture(scope="module")
def demo(face: Face) -> Iterator[Demo]:
    """Shared by a file. Only its enterprise organization may be spent from."""
    with Demo(face) as running:
        yield running


@pytest.fixture
def fresh(face: Face) -> Iterator[Demo]:
    """This test's own: four organizations that nobody has touched."""
    with Demo(face) as running:
        yield running


@pytest.fixture
def client(demo: Demo) -> Iterator[Client]:
    """At an address of its own, hence with an anonymous budget of its own (D24)."""
    with demo.client() as speaking:
        yield speaking


@pytest.fixture
def org(demo: Demo) -> Organization:
    return demo["enterprise"]
