"""Waiting for the quota leases that were granted before a change (D42, K4, W13).

Changes that :attr:`~lockgate.stores.rows.Commit.waits_for_leases` are answered once these have
ended. Those of a :class:`~lockgate.stores.cached.store.CachedStore` lie in its cache, where it
waits for them itself.

A store that reads the leases in the step of the change notes them (:func:`note_leases`), which
saves the first look at them: a round trip.
"""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from ...core.ledger import LeasesOut
from ...core.quota_leases import QuotaLeases
from ...core.timestamps import SECOND
from ...sync import pause
from ..base import Store

LEASES_OUT: Final = (
    "The store did not say whether quota leases are out that were granted before: a process that "
    "holds one admits by it until it ends, within seconds."
)
"""What remains to happen after a change whose older leases could not be read."""
_POLLED: Final = 0.001, 0.05
"""Seconds between two looks at leases that are awaited: the first and the longest."""
MEANWHILE: Final = 0.25
"""The part of a round trip that the holders of recalled leases get to settle them, before a look at
the leases: one that comes too early costs a whole round trip."""
_SLOWER: Final = 1.25
"""Each pause is as many times the one before, so the answer comes at most a quarter late."""
_NOTED: Final[ContextVar[list[QuotaLeases] | None]] = ContextVar("lockgate_leases", default=None)
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsing_clock() -> int:
    """Return microseconds of a clock that never steps, and runs while the machine is suspended."""
    return time.clock_gettime_ns(_CLOCK) // 1000


@contextmanager
def noted_leases() -> Generator[list[QuotaLeases]]:
    """Yield the list to which the change in a ``with`` block adds what :func:`note_leases` gets."""
    noted: list[QuotaLeases] = []
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


def note_leases(leases: QuotaLeases) -> None:
    """Note the quota leases of an organization, as a change of it has read them.

    A store calls this once the change has taken effect: first with the leases that were out then,
    in the step of the change or after it, and again with each later reading.
    """
    noted = _NOTED.get()
    if noted is not None:
        noted.append(leases)


def are_noted() -> bool:
    """Return whether a caller reads what :func:`note_leases` gets."""
    return _NOTED.get() is not None


async def leases_ended(
    store: Store, organization: str, noted: Sequence[QuotaLeases] = (), took: float = 0
) -> None:
    """Return once the quota leases of an organization that were out at a change have ended.

    That is when their holders have sent the settlements, which the recall of the change asks of
    them; or after the longest span of the leases by this process's clock, within which each holder
    has stopped. The deadline by the store's clock does not count: the clock may have stepped
    forward.

    Args:
        store: has the leases.
        organization: has changed.
        noted: the leases at the change and later ones, as it read them; empty: it has not.
        took: seconds that the change took, at least a round trip.
    """
    leases, *later = noted or (await store.charge(organization, LeasesOut()),)
    older = {lease.id for lease in leases}
    if not older or any(older.isdisjoint(lease.id for lease in left) for left in later):
        return
    until = elapsing_clock() + max(lease.span for lease in leases)
    seconds, longest = _POLLED
    if not later:
        seconds = max(seconds, min(took * MEANWHILE, longest))
    while (left := until - elapsing_clock()) > 0:
        await pause(min(seconds, left / SECOND))
        seconds = min(_SLOWER * seconds, longest)
        in_use = await store.charge(organization, LeasesOut(in_use=True))
        if older.isdisjoint(lease.id for lease in in_use):
            return
