"""One table of faces; everything else hangs on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .demo import Client, Demo, Face, Organization

FACES = {
    "starlette-memory": Face("starlette", "memory://"),
    "starlette-sqlite": Face("starlette", "sqlite:///{directory}/demo.db"),
}


@pytest.fixture(scope="session", params=list(FACES.values()), ids=list(FACES))
def face(request: pytest.FixtureRequest) -> Face:
    chosen = request.param
    assert isinstance(chosen, Face)
    return chosen


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
