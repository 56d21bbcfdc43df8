"""The demo's own traffic: an organization whose usage and refusals the dashboard shows at once."""

from contextlib import suppress
from typing import Final

from ..core.limits import Limit
from ..errors import Refusal
from ..gate import Gate
from .service import EXPORTS, TOKENS

PLAN: Final = "starter"
ADDRESS: Final = "127.0.0.1"


async def make_traffic(gate: Gate, organization: str) -> None:
    """Create three keys of an organization, and use them up to its limits of a minute and beyond.

    Each use is charged and recorded like a request.

    Args:
        gate: with usage history.
        organization: its id; it has no keys so far.
    """
    await gate.organizations.place(organization, PLAN)
    web = await gate.keys.create(organization, "web shop", labels={"env": "production"})
    nightly = await gate.keys.create(organization, "nightly jobs", ["jobs:*"], 30)
    laptop = await gate.keys.create(organization, "old laptop", ["models:read"])
    await _use(gate, laptop.text, "models:read", 2)
    await gate.keys.revoke(organization, laptop.key.id)
    await _use(gate, laptop.text, "models:read", 3)
    await _use(gate, nightly.text, "jobs:read", 6)
    await _use(gate, nightly.text, "models:write", 2)
    await _use(gate, web.text, "jobs:read", 12, EXPORTS)
    await _use(gate, web.text, "models:read", 22)
    completion = await gate.holds.take(organization, {TOKENS: 900})
    await gate.holds.settle(completion.id, 640)


async def _use(gate: Gate, key: str, scope: str, times: int, *limits: Limit) -> None:
    for _ in range(times):
        with suppress(Refusal):
            await gate.authenticate(key, scope, address=ADDRESS, limits=limits)
