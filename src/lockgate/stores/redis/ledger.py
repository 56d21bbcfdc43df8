"""The ledgers of organizations: windows, named limits, quota leases, holds and slots.

Each call is one script, chosen by the kind of the action: ``hit.lua``, ``hold.lua`` or one of
``ledger.lua``.
"""

from math import inf
from typing import Final, TypeVar, cast

from ...clock import wall_clock
from ...core.holds import HoldAction, HoldAnswer, Look, Renew, Settle, Take
from ...core.ledger import Action, Hit, HitLeased, Leased, LeasesOut, Peek, Reset
from ...core.limit_windows import LimitWindows
from ...core.quota_leases import LeaseRequest, QuotaLeases, live
from ...core.sliding_window import Window
from ..answers import OutcomeUnknown
from .admission_codec import (
    ADMITTED,
    ANOTHER_PERIOD,
    LIMITED,
    NEW,
    PEEKS,
    SETTLES,
    charging,
    instead,
    limiting,
    read_instant,
    read_instant_of_answer,
    read_limited,
    read_limits,
    read_promise,
    read_reading,
    read_request,
    read_since,
    size_of_limits,
    write_request,
)
from .change_counter import ChangeCounter
from .codec import write_change
from .hold_codec import is_of_slots, read_answer, read_moved, write_action
from .key_names import Place, fields_of, write
from .quota_lease_codec import NOTHING_GRANTED, read_granted, read_leases, write_lease_request
from .transport.client import confirmed
from .transport.commands import Call, Script, arguments, number
from .transport.failures import Split

A = TypeVar("A")

_HIT: Final = Script("hit.lua")
_HOLD: Final = Script("hold.lua", None, ("limits",), repeatable=True)
_SLOTS: Final = Script("hold.lua", None, ("slots",), repeatable=True)
_RELEASE: Final = Script("hold.lua", None, ("slots",))
"""It says whether the slot was held, which a repetition could not."""
_LEASES_OUT: Final = Script("ledger.lua", "quota_leases", ("windows",), repeatable=True)
_RESET: Final = Script("ledger.lua", "reset", ("organization", "windows", "limits"))


class Ledgers(ChangeCounter):
    """The ledgers of organizations, by the clock of the server."""

    grants_leases = True
    _clock_ahead = 0
    """Microseconds by which the server's clock is ahead of this process's, where that matters."""

    async def charge(self, owner: str, action: Action[A], now: int | None = None) -> A:
        return cast(A, await self._applied(owner, action, now))

    async def _applied(self, owner: str, action: object, now: int | None) -> object:
        match action:
            case Hit(windows, cost, limits):
                return (await self._hit(owner, windows, cost, limits, now)).reading
            case HitLeased(windows, 0, request):
                return await self._hit(owner, windows, 1, None, now, request, since=SETTLES)
            case HitLeased(windows, cost, request, limits, holder):
                return await self._hit(owner, windows, cost, limits, now, request, holder)
            case Peek(windows, limits):
                return (await self._hit(owner, windows, 1, limits, now, since=PEEKS)).reading
            case Take() | Settle() | Renew() | Look():
                return await self._hold(owner, action, now)
            case LeasesOut():
                return await self._leases_out(owner, now)
            case Reset():
                await self._reset(owner, action, now)
                return None
            case _:
                raise TypeError(f"Redis has no script for {type(action).__name__}.")

    async def _hit(
        self,
        owner: str,
        windows: tuple[Window, ...],
        cost: int,
        limits: LimitWindows | None,
        now: int | None,
        lease: LeaseRequest | None = None,
        holder: str = "",
        *,
        since: int = NEW,
    ) -> Leased:
        """Charge windows and named limits, or read them, or settle leases: ``hit.lua``."""
        request = write_request(now, cost, inf, charging(windows).mark, since)
        asked = b"" if lease is None else write_lease_request(lease)
        answer = await self._answer(owner, windows, limits, asked, request, holder)
        if answer is None:
            raise OutcomeUnknown("this hit may have been counted before")
        if limits is None:
            granted = None
            if lease is not None:
                answer, granted = read_granted(answer, lease)
            reading = read_reading(answer)
            return Leased(reading, granted or read_promise(answer, reading, cost, holder))
        limits = limits.at(read_instant_of_answer(answer), owner)
        if not windows:
            return Leased(read_limits(answer, limits), None)
        size = size_of_limits(limits)
        return Leased(read_limited(read_reading(answer[:-size]), limits, answer[-size:]), None)

    async def _answer(
        self,
        owner: str,
        windows: tuple[Window, ...],
        limits: LimitWindows | None,
        asked: bytes,
        request: bytes,
        holder: str = "",
    ) -> bytes | None:
        """Return the answer of ``hit.lua`` to a request, for the periods of the server's clock."""
        place = self._names.place(owner)
        if limits is not None:
            limits = self._in_periods(limits, read_instant(request), owner)
        while True:
            call = _call(place, windows, limits, asked, request, holder)
            try:
                answer: bytes | None = await self._ask(call, owner)
            except Split as failure:
                request, _ = read_request(failure.call.text)
                parts = owner, windows, limits, asked, request, holder
                answer, told = await self._hit_by_parts(*parts)
                return answer and answer + told
            if limits is None or answer is None or answer[0] != ANOTHER_PERIOD:
                return answer
            limits = self._in_present_periods(limits, answer, owner)

    async def _hit_by_parts(
        self,
        owner: str,
        windows: tuple[Window, ...],
        limits: LimitWindows | None,
        asked: bytes,
        request: bytes,
        holder: str,
    ) -> tuple[bytes | None, bytes]:
        """Do the work of ``hit.lua`` one Redis key at a time: leases are settled, and none granted.

        The named limits are read first, so that they rarely refuse a request for which the windows
        have been charged; then these are charged for nothing.

        Returns:
            The answer with the verdict of all, and what follows it.
        """
        reads = instead(request, PEEKS)
        if asked:
            await self._answer(owner, windows, None, asked, instead(request, SETTLES))
        if limits is None:
            told = NOTHING_GRANTED if asked else b""
            return await self._answer(owner, windows, None, b"", request, holder), told
        alone = await self._answer(owner, (), limits, b"", reads)
        assert alone is not None, "only a charge of windows has an unknown outcome"
        charges = alone[0] == ADMITTED and request != reads
        answer = await self._answer(owner, windows, None, b"", request if charges else reads)
        if answer is None:
            return None, b""
        if charges and answer[0] == ADMITTED:
            alone = await self._answer(owner, (), limits, b"", instead(request, NEW)) or alone
        if alone[0] != ADMITTED:
            answer = bytes((LIMITED,)) + answer[1:]
        return answer, alone[-size_of_limits(limits) :]

    def _in_periods(self, named: LimitWindows, now: int | None, organization: str) -> LimitWindows:
        """Return named limits in the periods of a call, by the server's clock as this process
        knows it. A script that finds another period answers ``ANOTHER_PERIOD``."""
        if not named.quotas:
            return named
        return named.at(wall_clock() + self._clock_ahead if now is None else now, organization)

    def _in_present_periods(
        self, named: LimitWindows, answer: bytes, organization: str
    ) -> LimitWindows:
        """Return named limits in the periods of the server's clock, by an answer of the verdict
        ``ANOTHER_PERIOD``; name the periods of later calls by that clock."""
        at = read_instant_of_answer(answer)
        self._clock_ahead = at - wall_clock()
        return named.at(at, organization)

    async def _hold(self, owner: str, action: HoldAction, now: int | None) -> HoldAnswer:
        place, around = self._names.place(owner), wall_clock() if now is None else now
        script = _SLOTS if is_of_slots(action) else _HOLD
        if script is _SLOTS and isinstance(action, Settle):
            script = _RELEASE
        while True:
            verb, values = write_action(action, around)
            answer = await self._ask(place.call(script, verb, number(now), *values), owner)
            moved = read_moved(answer)
            if moved is None:
                return read_answer(answer)
            around = moved

    async def _leases_out(self, owner: str, now: int | None) -> QuotaLeases:
        call = self._names.place(owner).call(_LEASES_OUT, number(now))
        kept = await self._ask(call, owner)
        return () if kept is None else live(read_leases(kept[1]), int(kept[0]))

    @confirmed
    async def _reset(self, owner: str, action: Reset, now: int | None) -> None:
        about = number(now), write_change(action.change), write(owner)
        await self._ask(self._names.place(owner).call(_RESET, *about))
        await self._count_change()  # Remembered refusals are forgotten within a second.


def _call(
    place: Place,
    windows: tuple[Window, ...],
    limits: LimitWindows | None,
    asked: bytes,
    request: bytes,
    holder: str,
) -> Call:
    """Return a call of ``hit.lua``.

    Only the windows know the ids of requests, so a charge of named limits alone is sent once.
    """
    names = [place.windows] if windows else []
    size, named = 4, b""
    if limits is not None:
        names.append(place.limits)
        size, named = 5 + len(limits.fields), limiting(limits)
    elif holder:
        size, named = 5, arguments(fields_of(holder)[0])
    if asked or named:
        size, named = size + 1, arguments(asked) + named
    begun = _HIT.start(size + len(names)) + arguments(b"%d" % len(names), *names)
    text = b"".join((begun, named, charging(windows, bool(holder)).start, request))
    reads = read_since(request) < NEW
    return Call(place.slot, text, _HIT, bool(windows) or reads, bool(windows) and not reads)
