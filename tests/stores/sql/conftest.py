"""Every test with a ``backend`` runs on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lockgate import run

from .backends import BACKENDS, Backend, Borrowed


@pytest.fixture(params=list(BACKENDS))
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen = BACKENDS[request.param]
    _ = chosen.admin  # Skips, or fails in CI, where the server is missing.
    return chosen


@pytest.fixture(params=["postgresql", "mysql"])
def served(request: pytest.FixtureRequest) -> Backend:
    """A database with a server."""
    chosen = BACKENDS[request.param]
    _ = chosen.admin
    return chosen


@pytest.fixture
def store(backend: Backend) -> Iterator[Borrowed]:
    """An empty store from a URL; a test that awaits closes it in its event loop."""
    opened = backend.open()
    yield opened
    run(opened.close())
