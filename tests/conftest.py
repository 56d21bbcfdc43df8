import pytest
from hypothesis import settings

# How long an example takes is no part of a property: a slow machine must not turn one red.
settings.register_profile("bounded", deadline=None, stateful_step_count=30)
settings.register_profile("nightly", deadline=None, max_examples=2_000, stateful_step_count=80)
settings.load_profile("bounded")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio alone: the servers and drivers that lockgate meets all do."""
    return "asyncio"
