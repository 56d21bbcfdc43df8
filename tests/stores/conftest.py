"""What spares the tests of stores from waiting."""

from __future__ import annotations

from functools import partial

import pytest

from lockgate.stores.resilience import store
from lockgate.stores.resilience.circuit_breaker import CircuitBreaker

SOON = 0.05
"""Seconds."""


@pytest.fixture
def soon_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that wait until a store is back, and not for how long its breaker pauses."""
    monkeypatch.setattr(store, "CircuitBreaker", partial(CircuitBreaker, pause=SOON))
