"""One table of stores: whatever is in it is held to the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from lockgate import MemoryStore, Store
from lockgate.rules.credentials import Token
from lockgate.rules.plans import PlanBook
from lockgate.stores.contract import Admission


class ComposedStore(MemoryStore):
    """Admits by the composition that every store inherits, verb by verb."""

    async def admit(
        self, token: Token, cost: int, plans: PlanBook, now: int | None = None
    ) -> Admission:
        return await Store.admit(self, token, cost, plans, now)


STORES: dict[str, Callable[[], Store]] = {
    "memory": MemoryStore,
    "composed": ComposedStore,
}


@pytest.fixture(scope="session", params=list(STORES))
def open_store(request: pytest.FixtureRequest) -> Callable[[], Store]:
    """Opens an empty store."""
    return STORES[request.param]


@pytest.fixture
async def store(anyio_backend: str, open_store: Callable[[], Store]) -> AsyncIterator[Store]:
    """An empty store; the backend is named so that tests without ``async`` can have one too."""
    opened = open_store()
    yield opened
    await opened.close()
