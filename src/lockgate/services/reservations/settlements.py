"""Renew and settle holds; settle those later whose settlement the store did not answer (D41)."""

from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Final, Literal, NamedTuple, Self

from ...clock import Clock
from ...core.hold_ids import HoldId
from ...core.holds import HoldAction, HoldAnswer, Renew, Settle, name_of
from ...core.limit_windows import LimitWindows, grain_of, span_of
from ...core.limits import Limit
from ...core.plans import is_number, is_whole
from ...core.sealed_texts import TextSeal
from ...core.sliding_window import LARGEST, Window
from ...core.timestamps import SECOND
from ...errors import ConfigurationError, InvalidRequest, Problem, StoreUnavailable
from ...events import Events, logger
from ...options import StoreOptions
from ...stores.base import Store
from ...stores.quota_thresholds import tell_quotas
from ...stores.runtime.background import BackgroundTask
from ...stores.runtime.process_hooks import after_fork_in_child, own_lock
from ..store_errors import asking
from ..usage.recorder import UsageRecorder
from .shielded import Finishing

Units = int | Mapping[str, int] | Mapping[Limit, int] | Mapping[str | Limit, int]
"""A number of units of a single limit, or numbers by limits or their names."""
Used = Units | None
"""The units that were used; None, or no number for a limit: all that were held of it."""

LONGEST: Final = 3600.0
"""The most seconds until a deadline. Idle budgets are kept for a day longer than their window."""
_LEFT: Final = (
    "The gate was closed while its store did not answer: %d holds are used in full at their "
    "deadlines, whatever their work has used."
)
AT_MOST: Final = 10_000
"""The most settlements that are kept; a further hold is used in full at its deadline."""


class Settlements:
    """The operations on one hold, a part of :class:`~lockgate.services.reservations.holds.Holds`.

    Args:
        store: keeps the holds.
        options: has the default seconds until a deadline.
        clock: the gate's, for tests; None: the store's.
        events: receives ``hold_overrun`` and ``hold_lost``, and failures of the store.
        pair: checks that the store's I/O mode suits the caller that holds units.
        recorder: counts the units that were used; None: nothing counts them.
        seal: seals the ids of holds.
    """

    def __init__(
        self,
        store: Store,
        options: StoreOptions,
        clock: Clock | None,
        events: Events,
        pair: Callable[[Literal["async", "sync"]], None],
        recorder: UsageRecorder | None,
        seal: TextSeal,
    ) -> None:
        self.pair: Final = pair
        """Checks that the store's I/O mode suits the caller that holds units."""
        self.seconds: Final = options.hold_seconds
        """The default seconds until a deadline."""
        self.finishing: Final = Finishing()
        self.late: Final = LateSettlements(self)
        self._store = store
        self._clock = clock
        self._events = events
        self._recorder = recorder
        self._seal = seal

    async def settle(self, id: str, used: Used = None) -> bool:
        """Replace a hold by the units that were used; the rest is free at once.

        Args:
            id: the id of the hold, in any process.
            used: as :data:`Used` says. More than was held is counted too, and reported by the event
                ``hold_overrun``. A limit by key is passed over for a caller without a key.

        Returns:
            Whether this call settled it. False, without a change: it was settled before, or it was
            used in full at its deadline. A call that is sent again, since its reply was lost, finds
            it settled by itself.

        Raises:
            InvalidRequest: the id is not as ``take`` returned it.
            ConfigurationError: a number is not 0 to 2**53 - 1, one is given for several limits, or
                for a limit that the hold has no units of.
            StoreUnavailable: the store did not answer: call again, since at its deadline the hold
                is used in full.
        """
        hold = self.read(id)
        spent = used_of(HoldNames.of(hold), used)
        answer = await self._ask(hold, Settle(hold.secret, hold.fields, spent, hold.quotas))
        if answer.done:
            self._tell_overruns(hold, spent, answer)
            if self._recorder is not None:
                units = {
                    name_of(field): held if used is None else used
                    for field, held, used in zip(hold.fields, answer.units, spent, strict=True)
                }
                self._recorder.used(hold.organization, hold.handle, units, answer.now)
        return answer.done

    async def renew(self, id: str, *, seconds: float | None = None) -> bool:
        """Move the deadline of a hold to ``seconds`` from now; False: it has ended.

        Raises:
            InvalidRequest: the id is not as ``take`` returned it.
            StoreUnavailable: the store did not answer: the hold lasts until its deadline.
        """
        lasts, hold = self._lasts(seconds), self.read(id)
        action = Renew(hold.secret, hold.fields, int(lasts * SECOND), hold.quotas)
        return (await self._ask(hold, action)).done

    def read(self, id: object) -> HoldId:
        """Return the parts of an id.

        Raises:
            InvalidRequest: it is malformed, or not as ``take`` returned it.
        """
        try:
            return HoldId.read(id, self._seal)
        except ValueError:
            raise InvalidRequest([Problem("id", "This is no id of a hold.")]) from None

    def lose(self, id: str) -> None:
        """Report that a hold has ended before it was settled."""
        self._events.emit("hold_lost", organization=self.read(id).organization)

    async def _ask(self, hold: HoldId, action: HoldAction) -> HoldAnswer:
        if not hold.fields:  # No limit binds the caller.
            return HoldAnswer(done=True, now=0, deadline=0, used=(), units=())
        with asking(self._events):
            answer = await self._store.charge(hold.organization, action, self._now())
        for count in answer.counts:
            quota, field = hold.quotas[count.place], hold.fields[count.place]
            window = Window(field, span_of(field), None, grain_of(0))
            windows = LimitWindows((name_of(field),), (field,), (window,), (quota,))
            period, cost = windows.at(count.begins), count.after - count.before
            tell_quotas(self._events, hold.organization, period, (count.after,), cost)
        return answer

    def _lasts(self, seconds: float | None) -> float:
        seconds = self.seconds if seconds is None else seconds
        if not is_number(seconds) or not 1 / SECOND <= seconds <= LONGEST:  # NaN is neither.
            raise ConfigurationError(f"A hold lasts up to an hour, not {seconds!r} seconds.")
        return seconds

    def _tell_overruns(
        self, hold: HoldId, spent: tuple[int | None, ...], answer: HoldAnswer
    ) -> None:
        over = {
            name_of(field): (held, used)
            for field, held, used in zip(hold.fields, answer.units, spent, strict=True)
            if used is not None and used > held
        }
        for name, (held, used) in over.items():
            owner = hold.organization
            self._events.emit(
                "hold_overrun", organization=owner, limit_name=name, held=held, used=used
            )

    def _now(self) -> int | None:
        return self._clock() if self._clock else None


class LateSettlements:
    """The settlements of this process that the store has not answered yet.

    They are sent again about once a second, until the store answers or the deadline of the hold has
    passed. Settling is idempotent by id (H3): where only the reply was lost, the store finds the
    hold settled and changes nothing.

    Args:
        holds: settles holds, and reports those that are used in full at their deadline.
    """

    def __init__(self, holds: "Settlements") -> None:
        self._holds: Final = holds
        self._background: Final = BackgroundTask(self._send)
        self._lock = own_lock()
        self.forked()
        after_fork_in_child(self)

    def forked(self) -> None:
        """Leave the settlements to the parent process."""
        self._late: dict[str, tuple[Used, float]] = {}
        """By id, the units used and the deadline in monotonic seconds."""

    def add(self, id: str, used: Used, seconds: float) -> None:
        """Keep a settlement until the deadline of its hold.

        Args:
            id: the id of the hold.
            used: the units to settle.
            seconds: until the deadline, at most.
        """
        with self._lock:
            fits = len(self._late) < AT_MOST
            if fits:
                self._late[id] = used, monotonic() + seconds
        if fits:
            self._background.used()
        else:
            self._holds.lose(id)

    async def flush(self) -> None:
        """Send all settlements once, and wait for the answers."""
        if self._late:
            await self._background.finish(self._send())

    async def close(self) -> None:
        """Send all settlements for the last time, and report those without an answer."""
        await self.flush()
        await self._background.close()
        with self._lock:
            left, self._late = self._late, {}
        for id in left:
            self._holds.lose(id)
        if left:
            logger.warning(_LEFT, len(left))

    async def _send(self) -> None:
        for id, (used, until) in [*self._late.items()]:
            if monotonic() < until:
                try:
                    await self._holds.settle(id, used)
                except StoreUnavailable:
                    with self._lock:  # Last, so that an unreadable state does not stop the others.
                        self._late[id] = self._late.pop(id, (used, until))
                    self._background.used()
                    return
            else:
                self._holds.lose(id)
            with self._lock:
                self._late.pop(id, None)


class HoldNames(NamedTuple):
    """The names of the limits of a hold."""

    of_fields: tuple[str, ...]
    """That of the limit of each field."""
    known: frozenset[str]
    """All that the hold was asked for."""
    untaken: tuple[str, ...]
    """Those of which it has 0 units."""

    @classmethod
    def of(cls, hold: HoldId) -> Self:
        """Return the names in the id of a hold."""
        of_fields = tuple(map(name_of, hold.fields))
        return cls(of_fields, frozenset((*of_fields, *hold.unbound, *hold.untaken)), hold.untaken)


def used_of(names: HoldNames, used: Used) -> tuple[int | None, ...]:
    """Return the units used for each field of a hold; None: all that are held.

    Raises:
        ConfigurationError: a number is not 0 to 2**53 - 1, one is given for several limits, or a
            limit is not of the hold.
    """
    if used is None:
        return (None,) * len(names.of_fields)
    if isinstance(used, Mapping):
        pairs: Iterable[tuple[object, object]] = used.items()
    elif len(names.known) > 1:
        raise ConfigurationError(
            "The hold has several limits: name the units used of each, as "
            f"{dict.fromkeys(sorted(names.known), 0)}."
        )
    else:
        pairs = [(name, used) for name in names.known]
    spent: dict[object, int] = {}
    for limit, number in pairs:
        name = limit.name if isinstance(limit, Limit) else limit
        if name not in names.known:
            raise ConfigurationError(f"The hold is of {sorted(names.known)}, not of {name!r}.")
        if name in spent:
            raise ConfigurationError(f"The units used of {name!r} are told twice.")
        if not is_whole(number) or not 0 <= number <= LARGEST:
            raise ConfigurationError(f"{number!r} units were used of {name!r}: use 0 to 2**53 - 1.")
        if number and name in names.untaken:
            raise ConfigurationError(
                f"{number} units were used of {name!r}, and the hold took 0 units of {name!r}, so "
                "they cannot be counted: take at least 1 of a limit that the work may use."
            )
        spent[name] = number
    return tuple(map(spent.get, names.of_fields))
