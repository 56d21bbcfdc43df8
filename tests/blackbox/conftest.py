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
MORE = {
    "fastapi-memory": (Face("fastapi", "memory://"), {"test_lifecycle"}),
    "flask-memory": (
        Face("flask", "memory://"),
        {"test_bodies", "test_lifecycle", "test_paths"},
    ),
    "flask-sqlite": (Face("flask", "sqlite:///{directory}/demo.db"), {"test_keys"}),
}
"""Other frameworks, and the files whose tests may differ there: for time's sake only these run.
FastAPI answers by Starlette's means, and `test_alike` compares whole answers of all."""
SERVED = {
    "starlette-postgresql": Face("starlette", "postgresql", shares_store=True),
    "starlette-mysql": Face("starlette", "mysql", shares_store=True),
}
SERVERS = {"postgresql": postgres, "mysql": mariadb}
TALK_OF_THE_STORE = {"test_keys", "test_restart"}
"""Files whose tests depend on the store: only these run on the servers as well, for time's sake."""


def everybody() -> dict[str, Face]:
    """All faces that need no database server."""
    return {**FACES, **{name: face for name, (face, _) in MORE.items()}}


def faces_for(module: str) -> dict[str, Face]:
    """The faces that a file's tests run on."""
    faces = {**FACES, **{name: face for name, (face, files) in MORE.items() if module in files}}
    return {**faces, **(SERVED if module in TALK_OF_THE_STORE else {})}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "face" in metafunc.fixturenames:
        faces = faces_for(metafunc.definition.path.stem)
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
