import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio alone: the servers and drivers that lockgate meets all do."""
    return "asyncio"
