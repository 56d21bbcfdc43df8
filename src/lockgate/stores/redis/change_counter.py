"""The change counter in Redis: each change to keys or plans replaces it.

Processes read it once a second and forget cached refusals that are older than it. Admissions do
not depend on it: ``admit.lua`` compares each key with its record, which a revocation has replaced.

A change also recalls the quota leases of its organization (D42).
"""

from abc import abstractmethod
from secrets import randbits
from time import monotonic
from typing import Any, Final

from ...core.ledger import LeasesOut
from ...core.quota_leases import QuotaLeases, live
from ...core.timestamps import DAY, MILLISECOND, MINUTE, SECOND
from ...sync import loop_runs, pause, together
from ..answers import Freshness
from ..base import Store
from ..resilience.older_leases import MEANWHILE, are_noted, note_leases
from ..runtime.per_loop import PerLoop
from .error_hints import LossReport
from .key_names import Names, slot_of
from .quota_lease_codec import read_leases
from .recalls import Recalls
from .transport.client import RedisClient
from .transport.commands import Call, Script, command, invocation, number

_COUNTER_LASTS: Final = DAY - MINUTE
"""Microseconds after a change for which Redis is certain to keep the change counter."""
COUNTERS_LAST: Final = b"%d" % (DAY // MILLISECOND)
"""The life of a counter in Redis, in milliseconds."""
_OUT_OF_ORDER: Final = 10 * SECOND
"""Microseconds: the earlier of two concurrent changes may write its counter this much later."""
_RANDOM_BITS: Final = 10
_MEANWHILE_AT_MOST: Final = 0.05
"""Seconds that holders get to settle recalled leases, before a look at the leases."""
_COUNT_CHANGE: Final = Script("change_counter.lua", repeatable=True)


class ChangeCounter(Store):
    """The verb ``freshness``, and its counterparts for the verbs that change."""

    clients: PerLoop[RedisClient]
    _recalls: Recalls
    _names: Names
    _losses: LossReport
    _latest_counter: int | None = None
    """The change counter as this process read it last."""

    @abstractmethod
    async def _ask(self, call: Call, organization: str | None = None) -> Any:
        """Make a call and return its reply."""

    async def freshness(self) -> Freshness:
        return Freshness(await self.change_counter(), await self.now())

    async def change_counter(self) -> int:
        """Return the change counter; set one where there is none."""
        name = self._names.change_counter
        found = await self._ask(command(slot_of(name), b"GET", name, repeatable=True))
        before = self._latest_counter
        if found is None:
            counter = await self._count_change()
            if before is not None and _time_of(counter) - _time_of(before) < _COUNTER_LASTS:
                self._losses.report()
        else:
            counter = int(found)
            if (
                before is not None
                and _time_of(counter) < _time_of(before) - _OUT_OF_ORDER
                # Without a loss of data, the counter steps back only if the clock does.
                and await self.now() >= _time_of(before)
            ):
                self._losses.report()
        self._latest_counter = counter
        return counter

    async def _count_change(self) -> int:
        """Set the change counter to a new, unique value, and return the value.

        The value is the server's time with random bits below, so it never repeats, not even after
        the server lost its data. Verbs call this after the change and before they return; if it
        fails, the verb fails and can be repeated.
        """
        name, bits = self._names.change_counter, randbits(_RANDOM_BITS)
        values = number(bits), number(1 << _RANDOM_BITS), COUNTERS_LAST
        return int(await self._ask(invocation(_COUNT_CHANGE, slot_of(name), [name], *values)))

    async def _change(self, organization: str, call: Call) -> tuple[Any, QuotaLeases | None]:
        """Change a key or the plan of an organization by a call of a script that ``is_change``, and
        recall its quota leases: the holders settle while the answer travels.

        Returns:
            The answer, and the leases that were out at the change; None: they could not be read.
        """
        await self._recall(organization)
        asked_at = monotonic()
        answer, now, packed = await self._ask(call)
        older = None if packed is None else live(read_leases(packed), int(now))
        if older and loop_runs():
            took = monotonic() - asked_at
            await pause(min(took * MEANWHILE, _MEANWHILE_AT_MOST))
        return answer, older

    async def _recall(self, organization: str) -> None:
        """Recall the quota leases of an organization, together with the next call."""
        await self.clients.here().tell(self._recalls.recall(organization))

    async def _count_change_of(self, organization: str, older: QuotaLeases | None = None) -> None:
        """Count a change of an organization, and note the quota leases that it waits for.

        They are looked at while the change is counted, which in an event loop takes one round trip.

        Args:
            organization: has changed.
            older: the leases that were out at the change; None: any that are out now.
        """
        if older is not None:
            note_leases(older)
        if older == () or not are_noted():
            await self._count_change()
            return

        async def look() -> None:
            note_leases(await self.charge(organization, LeasesOut()))

        async def count() -> None:
            await self._count_change()

        await together((count(), look()))


def _time_of(counter: int) -> int:
    """Return when a change counter was set, in microseconds by the server's clock."""
    return counter >> _RANDOM_BITS
