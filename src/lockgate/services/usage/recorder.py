"""Count what keys and organizations use and are refused, and write it about once a second.

Counting takes a lock and an addition. A flood of requests or refusals of one key is still one write
of its history in a second. A process that is killed loses the counts of its last second; one that
ends in any other way loses none.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, TypeVar, cast

from ...clock import Clock, wall_clock
from ...core.client_address import budget_of
from ...core.limit_windows import LimitWindows
from ...core.timestamps import MINUTE
from ...core.usage_history import UsageHistory, kind_of_limit
from ...errors import ConfigurationError, RateLimitExceeded, Refusal
from ...events import Events, logger
from ...principal import Principal
from ...stores.answers import HistoryOwner
from ...stores.base import Store
from ...stores.resilience.failures import is_outage, traceback_of
from ...stores.runtime.background import BackgroundTask
from ...stores.runtime.process_hooks import after_fork_in_child, at_process_end, own_lock
from ...stores.usage_batches import BatchWriter
from ...sync import run

Client = TypeVar("Client")

OWNERS_AT_MOST: Final = 10_000
"""The most keys and organizations with counts that are not written. Further keys are counted for
their organization only, and further organizations not at all (event ``usage_lost``)."""
_WRITTEN_AT_ONCE: Final = 50


class _Tally:
    """What one owner used since the latest write."""

    __slots__ = ("history", "of_limits", "owner", "since", "units", "until")

    def __init__(self, owner: HistoryOwner) -> None:
        self.owner = owner
        self.since = self.until = 0
        self.units = 0
        """Admitted units of the present minute, which are not in the history yet."""
        self.of_limits: dict[str, int] = {}
        """The same for named limits."""
        self.history = UsageHistory()

    def use(self, limits: LimitWindows, cost: int) -> None:
        """Count the cost of an admission of the present minute for named limits."""
        for name in {*limits.names}:
            self.of_limits[name] = self.of_limits.get(name, 0) + cost

    def settle(self) -> None:
        """Move the units of the minute into the history."""
        if self.units:
            self.history.admit(self.since, self.units)
            self.units = 0
        for name, units in self.of_limits.items():
            self.history.use(self.since, name, units)
        self.of_limits.clear()


class UsageRecorder:
    """The counts of one process.

    Args:
        store: keeps the histories.
        events: receives ``usage_lost``.
        clock: returns the present in microseconds, for refusals without a reading; None: the
            machine's clock.
        addresses: whether to record client addresses.

    Raises:
        ConfigurationError: the store keeps no histories.
    """

    def __init__(
        self, store: Store, events: Events, clock: Clock | None, *, addresses: bool
    ) -> None:
        if not store.keeps_history:
            raise ConfigurationError(
                "The store keeps no usage over time: leave out UsageHistory(), or override "
                "add_history() and history() of the store and set its keeps_history."
            )
        self._store: Final = store
        self._events: Final = events
        self._clock: Final = clock or wall_clock
        self._addresses: Final = addresses
        self._background: Final = BackgroundTask(self.write)
        self._batches: Final = BatchWriter[Mapping[HistoryOwner, UsageHistory]](self._cut)
        self._lock = own_lock()
        self.forked()
        after_fork_in_child(self)
        at_process_end(self)

    def forked(self) -> None:
        """Drop the counts in a child process: the parent writes them."""
        self._tallies: dict[str, _Tally] = {}
        """By the handle of the key; by a blank and the organization's id for sessions."""
        self._owing: dict[HistoryOwner, UsageHistory] = {}
        """What is not in a batch yet, by owner."""

    def admitted(
        self,
        principal: Principal,
        cost: int,
        address_of: Callable[[Client], str],
        client: Client,
        limits: LimitWindows | None = None,
    ) -> None:
        """Count an admission, and its cost for named limits."""
        key, now = principal.key, principal.reading.now
        name = f" {principal.organization}" if key is None else key.handle
        with self._lock:
            tally = self._tallies.get(name)
            if tally is not None and tally.since <= now < tally.until:
                tally.units += cost
                if limits is not None:
                    tally.use(limits, cost)
                return
        # Once for each key between two writes, and in each minute.
        address = address_of(client) if self._addresses else ""
        with self._lock:
            tally = self._tally(principal.organization, None if key is None else key.handle)
            if tally is not None:
                tally.settle()
                tally.since = now - now % MINUTE
                tally.until = tally.since + MINUTE
                tally.units = cost
                if limits is not None:
                    tally.use(limits, cost)
                if address:
                    tally.history.seen(budget_of(address), now)
        self._background.used()

    def used(
        self, organization: str, handle: str | None, units: Mapping[str, int], at: int
    ) -> None:
        """Count units of named limits.

        Args:
            organization: the organization's id.
            handle: the handle of the key; None: there is none.
            units: by the names of the limits.
            at: the instant in microseconds.
        """
        with self._lock:
            tally = self._tally(organization, handle)
            if tally is not None:
                for name, number in units.items():
                    tally.history.use(at, name, number)
        self._background.used()

    def refused(self, refusal: Refusal, address: str = "") -> None:
        """Count a refusal of a key or session of a known organization."""
        if refusal.organization is None:
            return
        handle, measured = refusal.handle, refusal.measured
        principal = cast(Principal | None, refusal.principal)
        if principal is not None and principal.key is not None:
            handle = principal.key.handle
        kind = refusal.code
        if isinstance(refusal, RateLimitExceeded):
            name = refusal.limit_name
            kind = refusal.type if name is None else kind_of_limit(name)
        at = self._clock() if measured is None or principal is None else measured[1].now
        self.refuse(refusal.organization, handle, kind, refusal.code, address, at)

    def refuse(
        self,
        organization: str,
        handle: str | None,
        kind: str,
        code: str,
        address: str = "",
        at: int | None = None,
    ) -> None:
        """Count a refusal.

        Args:
            organization: the organization's id.
            handle: the handle of the key; None: a session, or the organization as a whole.
            kind: the full window, that of a named limit, or the error code.
            code: the error code.
            address: the client's address, if known.
            at: the instant in microseconds; None: now.
        """
        at = self._clock() if at is None else at
        with self._lock:
            tally = self._tally(organization, handle)
            if tally is not None:
                tally.history.refuse(at, kind)
                tally.history.failed(code, at)
                if address and self._addresses:
                    tally.history.seen(budget_of(address), at)
        self._background.used()

    def _tally(self, organization: str, handle: str | None) -> _Tally | None:
        """Return the tally of an owner, a new one if necessary; None beyond the maximum."""
        name = f" {organization}" if handle is None else handle
        tally = self._tallies.get(name)
        if tally is None and len(self._tallies) >= OWNERS_AT_MOST and handle is not None:
            return self._tally(organization, None)
        if tally is None and len(self._tallies) >= 2 * OWNERS_AT_MOST:
            self._events.emit("usage_lost", owners=1)
            return None
        if tally is None:
            tally = self._tallies[name] = _Tally(HistoryOwner(organization, handle))
        return tally

    async def write(self) -> None:
        """Write all counts, also those of a write under way.

        Raises:
            Exception: the store failed; its counts are written with the next ones.
        """
        await self._background.finish(self._write(self._store))

    async def _write(self, store: Store) -> None:
        try:
            await self._batches.write(store.add_history, self._most)
        except Exception:
            self._background.used()
            raise

    @property
    def _most(self) -> int:
        """The largest number of batches that a write makes."""
        return 2 + 2 * (len(self._tallies) + len(self._owing)) // _WRITTEN_AT_ONCE

    async def flush(self) -> None:
        """Write all counts before the process stops, and once more what fails in time. Never
        raises."""
        try:
            finished = self._batches.finish(self._store.add_history, self._most)
            await self._background.finish(finished)
        except Exception as failure:
            if not is_outage(failure):
                logger.error("%s", traceback_of(failure))

    async def close(self) -> None:
        """Start no more writes, and make the last one."""
        await self._background.close()
        await self.flush()
        self._batches.close()

    def ended(self) -> None:
        """Write the counts of a process that ends without closing the gate.

        At interpreter exit no thread can start, so deadlines cannot be enforced: skip this if the
        store has been failing.
        """
        self._background.stop()
        store = self._store.innermost
        # An async store's connections belong to event loops that have ended.
        if store.io != "async" and not self._store.is_failing:
            run(self._write(store))

    def _cut(self) -> Mapping[HistoryOwner, UsageHistory] | None:
        """Move the counts by owner, those of keys also under their organizations, to those that
        wait, of a bounded number of owners; return those of the next batch."""
        lost = 0
        with self._lock:
            tallies, self._tallies = self._tallies, {}
            for tally in tallies.values():
                tally.settle()
                for owner in {tally.owner, tally.owner._replace(handle=None)}:
                    if owner not in self._owing and len(self._owing) >= 3 * OWNERS_AT_MOST:
                        lost += 1
                    else:
                        self._owing.setdefault(owner, UsageHistory()).merge(tally.history)
            owners = [*islice(self._owing, _WRITTEN_AT_ONCE)]
            additions = {owner: self._owing.pop(owner) for owner in owners}
        if lost:
            self._events.emit("usage_lost", owners=lost)
        return additions or None
