"""Window states by owner, in memory: of the memory store, anonymous callers and local limits.

A hit takes the first of these ways that applies:

1. :class:`~lockgate.core.sliding_window.CoalescedHits`, while hits share the newest cells, for
   named limits with :class:`~lockgate.core.limit_hits.SharedCell`;
2. a cached refusal, while it stays valid, so that a flood costs little;
3. :func:`~lockgate.core.sliding_window.hit` on the owner's state.

All give the reading of the third.
"""

from collections import OrderedDict
from itertools import chain
from typing import Final, NamedTuple, TypeVar, cast

from ...core.bounded_dict import BoundedDict
from ...core.ledger import Action, Hit, HitLeased, Leased, Ledger, Peek
from ...core.limit_hits import (
    admitted,
    admitted_in,
    combined,
    crowded,
    hit_limited,
    hit_named,
    named_state_after_refusal,
    peek_named,
    shared_cells,
)
from ...core.limit_windows import LimitWindows
from ...core.plans import LONGEST_SPAN
from ...core.reservations import Reservations
from ...core.sliding_window import (
    EMPTY,
    CoalescedHits,
    Reading,
    State,
    Window,
    coalesce,
    empty_state,
    hit,
    refusal_at,
    refusal_valid_until,
)
from .generations import Generations
from .limits import LimitCells

A = TypeVar("A")

_MAX_REFUSALS: Final = 10_000
_MAX_COALESCED: Final = 1_000
_NONE: Final[tuple[Reservations, Reservations]] = (), ()
_SWEPT: Final = 2


class _CachedRefusal(NamedTuple):
    """A refusal, and the instant until which it stays valid for these windows and this cost."""

    windows: tuple[Window, ...]
    cost: int
    reading: Reading
    until: int


class LocalWindows(Generations[State]):
    """The states of the windows of owners: organizations, client addresses.

    Callers hold a lock around every call.

    Args:
        capacity: the capacity of each generation, as for :class:`Generations`.
    """

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__(capacity)
        self._refusals = BoundedDict[str, _CachedRefusal](_MAX_REFUSALS)
        self.coalesced: Final = OrderedDict[str, CoalescedHits]()
        """The fast paths by owner; a caller may extend one without :meth:`hit`."""
        self.limits: Final = LimitCells(capacity)
        """The cells of named limits."""
        self._reserved: dict[str, tuple[Reservations, Reservations]] = {}
        """Quota leases and promises by owner, the latest change last."""

    def __len__(self) -> int:
        return sum(map(len, (self._present, self._past, *self._dropping)))

    def __contains__(self, owner: str) -> bool:
        return owner in self._present or owner in self._past

    def hit(self, owner: str, windows: tuple[Window, ...], now: int, cost: int) -> Reading:
        """Admit a cost in all windows of an owner, or refuse it; return the reading."""
        if owner in self._reserved:
            return self.charge(owner, Hit(windows, cost), None, now)
        coalesced = self.coalesced.get(owner)
        if coalesced is not None:
            reading = coalesced.extend(windows, now, cost)
            if reading is not None:
                return reading
            self._present[owner] = self.coalesced.pop(owner).to_state()
        return self._hit_state(owner, windows, now, cost)

    def hit_kept(
        self, owner: str, windows: tuple[Window, ...], now: int, cost: int, holder: str
    ) -> Leased:
        """Do :meth:`hit`, and promise units to a holder that is refused (D47)."""
        if owner not in self._reserved:
            reading = self.hit(owner, windows, now, cost)
            if reading.allowed:
                return Leased(reading, None)
        return self.charge(owner, HitLeased(windows, cost, None, None, holder), None, now)

    def charge(self, owner: str, action: Action[A], limits: LimitWindows | None, now: int) -> A:
        """Apply an action to the windows, named limits and quota leases of an owner.

        Args:
            owner: the owner.
            action: what to do.
            limits: the named limits of the action.
            now: the instant, in microseconds.
        """
        limits = limits and limits.at(now, owner)
        read, kept = self.limits.read(owner, limits) if limits else ((), 0)
        fields = limits.fields if limits else ()
        cells = {field: one for field, one in zip(fields, read, strict=True) if one is not None}
        leases, promises = self._reserved.get(owner, _NONE)
        others = kept - len(cells)
        before = Ledger(
            owner, self._state(owner) or (), leases, cells, others=others, promises=promises
        )
        answer, after = action.apply(before, now)
        reserved = after.leases, after.promises
        if after.windows is not before.windows or reserved != (leases, promises):
            self.take(owner)
            self.put(owner, after.windows, now)
            self._keep_reserved(owner, reserved, now)
        if limits and after.limits is not cells:
            left = tuple([after.limits.get(field, EMPTY) for field in fields])
            self.limits.write(owner, limits, read, left, now)
        return answer

    def hit_limited(
        self,
        owner: str,
        windows: tuple[Window, ...],
        limits: LimitWindows,
        now: int,
        cost: int,
    ) -> Reading:
        """Admit a cost in all windows of an owner and of named limits, or in none (W9).

        Args:
            owner: the owner of both.
            windows: the windows of the plan; empty: only the named limits are charged.
            limits: the windows of the named limits.
            now: the instant, in microseconds.
            cost: the units to admit.
        """
        if limits.quotas:
            limits = limits.at(now, owner)
        if windows and owner in self._reserved:
            return self.charge(owner, Hit(windows, cost, limits), limits, now)
        if windows and (shared := self.limits.shared.get(owner)):
            joined = shared_cells(shared, limits, now, cost)
            if joined is not None:  # Then the plan decides. A refusal is judged once more, below.
                of_plan = self.hit(owner, windows, now, cost)
                if of_plan.allowed:
                    return admitted_in(joined, of_plan, cost)
        before, kept = self.limits.read(owner, limits)
        if windows and None not in before:
            cells = cast(State, before)
            judge = hit_named if limits.quotas else hit
            of_limits, after = judge(cells, limits.windows, now, cost)
            if of_limits.allowed:  # Then the plan decides, by its fast path where it has one.
                of_plan = self.hit(owner, windows, now, cost)
                if of_plan.allowed:
                    self.limits.write(owner, limits, cells, after, now)
                    self.limits.share(owner, limits, after, now)
                    return admitted(of_plan, of_limits)
                unchanged = named_state_after_refusal(cells, limits.windows, now)
                self.limits.write(owner, limits, cells, unchanged, now)
                return combined(of_plan, peek_named(cells, limits.windows, now, cost))
        state = self.take(owner) if windows else None
        reading, after, cells = hit_limited(
            state or empty_state(windows),
            windows,
            before,
            limits.windows,
            now,
            cost,
            crowded(before, kept),
        )
        if state is not None or (windows and reading.allowed):
            self.put(owner, after, now)
        self.limits.write(owner, limits, before, cells, now)
        return reading

    def _hit_state(self, owner: str, windows: tuple[Window, ...], now: int, cost: int) -> Reading:
        """Repeat a cached refusal, or apply the rule to the owner's state and store the new one."""
        if self._refusals and (cached := self._refusals.get(owner)) is not None:
            is_same = cached.windows is windows and cached.cost == cost
            if is_same and cached.reading.now <= now < cached.until:
                return refusal_at(cached.reading, now)
            del self._refusals[owner]
        if not 0 <= now - self._present_since < LONGEST_SPAN:  # As _tend does, without a call.
            self._advance(now)
        if self._dropping:
            self._drop_some()
        state = self._present.get(owner)
        if state is None:
            state = self._take_past(owner, now) or empty_state(windows)
        reading, state = hit(state, windows, now, cost)
        self._present[owner] = state
        if reading.allowed:
            coalesced = coalesce(state, windows, reading, self._present_since + LONGEST_SPAN)
            if coalesced is not None:
                if len(self.coalesced) >= _MAX_COALESCED:
                    oldest, ended = self.coalesced.popitem(last=False)
                    self._present[oldest] = ended.to_state()
                self.coalesced[owner] = coalesced
        else:
            until = refusal_valid_until(state, windows, now, cost)
            if until > now:
                self._refusals[owner] = _CachedRefusal(windows, cost, reading, until)
        return reading

    def take(self, owner: str) -> State | None:
        """Remove the owner's state and return it; None without one."""
        self._refusals.pop(owner, None)
        coalesced = self.coalesced.pop(owner, None)
        present, past = self._present.pop(owner, None), self._past.pop(owner, None)
        return coalesced.to_state() if coalesced is not None else present or past

    def put(self, owner: str, state: State, now: int) -> None:
        """Add the state of an owner that has none here."""
        self._tend(now)
        self._take_past(owner, now)
        self._present[owner] = state

    def peek(
        self,
        owner: str,
        windows: tuple[Window, ...],
        now: int,
        limits: LimitWindows | None = None,
    ) -> Reading:
        """Return the reading of the owner's state, and of named limits, without changing it."""
        return self.charge(owner, Peek(windows, limits), limits, now)

    def _state(self, owner: str) -> State | None:
        """Return the owner's state; None without one."""
        coalesced = self.coalesced.get(owner)
        if coalesced is not None:
            return coalesced.to_state()
        return self._present.get(owner) or self._past.get(owner)

    def drop_promises(self, owner: str) -> None:
        """Drop the promises of an owner."""
        leases, _ = self._reserved.pop(owner, _NONE)
        if leases:
            self._reserved[owner] = leases, ()

    def _keep_reserved(
        self, owner: str, reserved: tuple[Reservations, Reservations], now: int
    ) -> None:
        """Keep the leases and promises of an owner, and drop a few that were never looked at
        again."""
        self._reserved.pop(owner, None)
        if any(reserved):
            self._reserved[owner] = reserved
        for other in [one for one, _ in zip(self._reserved, range(_SWEPT), strict=False)]:
            kept = chain(*self._reserved[other])
            if max(one.deadline for one in kept) < now - LONGEST_SPAN:
                del self._reserved[other]

    def _begin_generation(self, now: int) -> None:
        super()._begin_generation(now)
        self._refusals.clear()

    def _end_fast_paths(self) -> None:
        self._present.update((owner, hits.to_state()) for owner, hits in self.coalesced.items())
        self.coalesced.clear()
