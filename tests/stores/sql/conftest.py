"""Every test with a ``backend`` runs on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import pytest

from lockgate import run

from .backends import BACKENDS, STORES, Backend, Borrowed, stop_servers


@pytest.fixture(scope="session", autouse=True)
def servers() -> Iterator[None]:
    """Whatever database servers the tests start are stopped at the end."""
    yield
    stop_servers()


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


@pytest.fixture(scope="session", params=list(STORES))
def open_store(request: pytest.FixtureRequest) -> Iterator[Callable[[], Borrowed]]:
    """Opens an empty store, for the tests that every kind of store is held to."""
    opened: deque[Borrowed] = deque()

    def close_oldest() -> None:
        oldest = opened.popleft()
        if not oldest.closed:
            run(oldest.close())

    def open() -> Borrowed:
        while len(opened) > 2:  # No test has more at a time; what it forgot is closed here.
            close_oldest()
        opened.append(STORES[request.param]())
        return opened[-1]

    yield open
    while opened:
        close_oldest()
