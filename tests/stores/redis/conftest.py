"""Every test with a ``backend`` runs on one Redis server and on a Cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lockgate.stores.redis import RedisStore

from .backends import opened, server, stop_servers


@pytest.fixture(scope="session", autouse=True)
def servers() -> Iterator[None]:
    """Whatever Redis servers the tests start are stopped at the end."""
    yield
    stop_servers()


@pytest.fixture(params=["single", "cluster"])
def backend(request: pytest.FixtureRequest) -> Callable[[], RedisStore]:
    """Opens empty stores by URL."""
    server(request.param)
    return lambda: opened(request.param)
