"""What spares the tests of stores from waiting."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from lockgate.stores.resilience import store
from lockgate.stores.resilience.circuit_breaker import CircuitBreaker

from .sql.backends import close_backends

SOON = 0.05
"""Seconds."""


@pytest.fixture(scope="session", autouse=True)
def backends(shared_servers: None) -> Iterator[None]:
    """Close the tests' engines of databases at the end, before the servers."""
    yield
    close_backends()


@pytest.fixture
def soon_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that wait until a store is back, and not for how long its breaker pauses."""
    monkeypatch.setattr(store, "CircuitBreaker", partial(CircuitBreaker, pause=SOON))
