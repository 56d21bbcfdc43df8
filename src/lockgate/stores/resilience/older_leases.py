"""Waiting for the quota leases that were granted before a change (D42, K4, W13)."""

import time
from typing import Any, Final, cast

from ...core.api_keys import ApiKey
from ...core.plans import Organization
from ...core.timestamps import SECOND
from ...sync import pause
from ..base import Store

ANSWERED_LATER: Final = frozenset(
    {
        *("revoke_if_live", "update_if", "rotate_if", "put_organization", "organization_changed"),
        "claim_if_unclaimed",
    }
)
"""Verbs that change keys or plans: answered once the leases that were granted before have ended.
Those of a :class:`~lockgate.stores.cached.store.CachedStore` lie in its cache, where it waits for
them itself."""
_POLLED: Final = 0.001, 0.05
"""Seconds between two looks at leases that are awaited: the first and the longest."""
_SLOWER: Final = 1.25
"""Each pause is as many times the one before, so the answer comes at most a quarter late."""
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsing_clock() -> int:
    """Return microseconds of a clock that never steps, and runs while the machine is suspended."""
    return time.clock_gettime_ns(_CLOCK) // 1000


def organization_of(arguments: tuple[Any, ...]) -> str:
    """Return the organization that a call of one of :data:`ANSWERED_LATER` is about."""
    first = arguments[0]
    if isinstance(first, ApiKey):
        return first.organization
    return first.id if isinstance(first, Organization) else cast(str, first)


async def leases_ended(store: Store, organization: str) -> None:
    """Return once the quota leases of an organization that are out now have ended.

    That is when they are settled, which the recall of the change asks of their holders; or after
    the longest span of them by this process's clock, within which each holder has stopped. The
    deadline by the store's clock does not count: the clock may have stepped forward.
    """
    leases = await store.quota_leases(organization)
    if not leases:
        return
    older = {lease.id for lease in leases}
    until = elapsing_clock() + max(lease.span for lease in leases)
    seconds, longest = _POLLED
    while (left := until - elapsing_clock()) > 0:
        await pause(min(seconds, left / SECOND))
        seconds = min(_SLOWER * seconds, longest)
        if older.isdisjoint(lease.id for lease in await store.quota_leases(organization)):
            return
