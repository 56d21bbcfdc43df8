"""Probes for orchestrators: whether the process runs, and whether it is ready for requests."""

from typing import Final

from pydantic import BaseModel

from ...core.access_rule import PUBLIC
from ...errors import ConfigurationError, StoreUnavailable
from ...events import logger
from .operation import Call, Endpoint


class Health(BaseModel):
    """The body of a probe that succeeds."""

    status: str = "ok"


async def live(_: Call) -> Health:
    """Return at once: the process runs and serves. No store is asked."""
    return Health()


async def ready(call: Call) -> Health:
    """Return once this process was ready; prepare it first if it was not.

    Raises:
        StoreUnavailable: it is not ready. The reason goes to the log, not to the caller.
    """
    readiness = call.gate.readiness
    if not readiness.is_ready:
        try:
            await readiness.prepare()
        except ConfigurationError as mistake:
            logger.error("%s", mistake)
            raise StoreUnavailable from mistake
    return Health()


HEALTH: Final = (
    Endpoint("GET", "/health/live", PUBLIC, live, "Probe liveness", Health),
    Endpoint("GET", "/health/ready", PUBLIC, ready, "Probe readiness", Health),
)
"""Public operations, by paths without the gate's prefix."""
