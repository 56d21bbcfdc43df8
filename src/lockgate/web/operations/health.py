"""Probes for orchestrators: whether the process runs, and whether it is ready for requests."""

from typing import Final

from pydantic import BaseModel

from ...core.access_rule import Rule
from ...errors import ConfigurationError, StoreUnavailable
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
            readiness.tell(mistake)
            raise StoreUnavailable from mistake
    return Health()


_RULE: Final = Rule(public=True, own=True)
HEALTH: Final = (
    Endpoint("GET", "/live", _RULE, live, "Probe liveness", Health),
    Endpoint("GET", "/ready", _RULE, ready, "Probe readiness", Health),
)
"""Public operations, by paths below ``WebOptions(health=...)``."""
