"""Stores with one mistake each in promises (D47)."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from lockgate.core.ledger import Action, Hit, HitLeased, Leased, Peek, Reset
from lockgate.core.promises import GRACE, start_of
from lockgate.core.reservations import Reservation, Reservations
from lockgate.core.timestamps import SECOND

from .mutants import Mutant

A = TypeVar("A")

_BY_ANY = frozenset({"P1", "P2", "P3", "P4", "W4", "W6"})
"""A promise that is wrong shows in the next call, by what remains or the wait of a refusal."""


class PromiseMutant(Mutant):
    """Right until a subclass makes its mistake: in a call, in what is kept, or in the answer."""

    parts: ClassVar = ("admission",)

    def promises(self, owner: str) -> Reservations:
        return self._windows._reserved.get(owner, ((), ()))[1]

    def put(self, owner: str, promises: Reservations) -> None:
        leases, _ = self._windows._reserved.pop(owner, ((), ()))
        if leases or promises:
            self._windows._reserved[owner] = leases, promises

    async def _charged(self, owner: str, action: Action[A], now: int | None) -> A:
        before = self.before(action, self.promises(owner))
        self.put(owner, before)
        answer: Any = await super()._charged(owner, self.asked(action), now)
        self.put(owner, self.after(action, answer, before, self.promises(owner)))
        return self.answer(answer)  # type: ignore[no-any-return]

    def before(self, action: object, promises: Reservations) -> Reservations:
        """Return the promises that a call finds."""
        return promises

    def asked(self, action: Any) -> Any:
        """Return the call to make."""
        return action

    def after(
        self, action: object, answer: Any, before: Reservations, after: Reservations
    ) -> Reservations:
        """Return the promises to keep after a call."""
        return after

    def answer(self, answer: Any) -> Any:
        """Return the answer to give."""
        return answer


class PromisesNothing(PromiseMutant):
    killed_by: ClassVar = _BY_ANY

    def asked(self, action: Any) -> Any:
        return action._replace(holder="") if isinstance(action, HitLeased) else action


class SaysThatItPromises(PromiseMutant):
    """Keeps no units."""

    killed_by: ClassVar = _BY_ANY

    def after(
        self, action: object, answer: Any, before: Reservations, after: Reservations
    ) -> Reservations:
        return ()


class GivesPromisedUnitsToCallsWithoutAKey(PromiseMutant):
    killed_by: ClassVar = _BY_ANY

    def before(self, action: object, promises: Reservations) -> Reservations:
        return () if isinstance(action, Hit) and action.limits is None else promises


class GivesPromisedUnitsToCallsOfNamedLimits(PromiseMutant):
    killed_by: ClassVar = _BY_ANY

    def before(self, action: object, promises: Reservations) -> Reservations:
        limited = isinstance(action, Hit | HitLeased) and action.limits is not None
        return () if limited else promises


class KeepsUnitsFromTheRefusalOn(PromiseMutant):
    """Refuses newcomers before the start of a promise, too."""

    killed_by: ClassVar = _BY_ANY

    def before(self, action: object, promises: Reservations) -> Reservations:
        return tuple(sorted(promises, key=start_of, reverse=True))


class ReadsPastPromises(PromiseMutant):
    killed_by: ClassVar = _BY_ANY

    def answer(self, answer: Any) -> Any:
        return answer

    async def peek(self, organization: str, *args: Any, **kwargs: Any) -> Any:
        promises = self.promises(organization)
        self.put(organization, ())
        reading = await super(PromiseMutant, self)._charged(
            organization, Peek(*args[:1]), args[1] if len(args) > 1 else None
        )
        self.put(organization, promises)
        return reading


class ServesEachCallOfAKey(PromiseMutant):
    """Leaves a promise that was used."""

    killed_by: ClassVar = _BY_ANY

    def after(
        self, action: object, answer: Any, before: Reservations, after: Reservations
    ) -> Reservations:
        used = isinstance(action, HitLeased) and answer.reading.allowed
        return before if used else after


class TakesAllKeysForOne(PromiseMutant):
    killed_by: ClassVar = _BY_ANY

    def asked(self, action: Any) -> Any:
        return action._replace(holder="key") if isinstance(action, HitLeased) else action

    def answer(self, answer: Any) -> Any:
        if isinstance(answer, Leased) and answer.lease is not None:
            return answer._replace(lease=answer.lease._replace(owner="key"))
        return answer


class ForgetsAPromiseBehindAnother(PromiseMutant):
    """Keeps one promise of an organization."""

    killed_by: ClassVar = _BY_ANY

    def after(
        self, action: object, answer: Any, before: Reservations, after: Reservations
    ) -> Reservations:
        return after[-1:]


class Moved(PromiseMutant):
    """Moves each new promise."""

    by = 0

    def after(
        self, action: object, answer: Any, before: Reservations, after: Reservations
    ) -> Reservations:
        return tuple(one if one in before else self.moved(one) for one in after)

    def moved(self, one: Reservation) -> Reservation:
        return one._replace(deadline=one.deadline + self.by, span=one.span + self.by)


class KeepsUnitsLongerThanTheGrace(Moved):
    killed_by: ClassVar = _BY_ANY
    by = 1


class KeepsUnitsShorterThanTheGrace(Moved):
    killed_by: ClassVar = _BY_ANY
    by = -1


class KeepsUnitsAMinute(Moved):
    killed_by: ClassVar = _BY_ANY
    by = 60 * SECOND - GRACE


class KeepsOneUnit(Moved):
    """Whatever the cost."""

    killed_by: ClassVar = _BY_ANY

    def moved(self, one: Reservation) -> Reservation:
        return one._replace(units=1)


class KeepsAnotherUnit(Moved):
    killed_by: ClassVar = _BY_ANY

    def moved(self, one: Reservation) -> Reservation:
        return one._replace(units=one.units + 1)


class ExtendsPromisesWhenTheClockStepsBack(PromiseMutant):
    killed_by: ClassVar = _BY_ANY

    def after(
        self, action: object, answer: Any, before: Reservations, after: Reservations
    ) -> Reservations:
        longer = {(one.owner, one.units, one.span): one for one in before}
        return tuple(longer.get((one.owner, one.units, one.span), one) for one in after)


class PromisesAllToOneKey(PromiseMutant):
    """A key that does not wait takes all."""

    killed_by: ClassVar = _BY_ANY
    calls = 0

    def asked(self, action: Any) -> Any:
        if not isinstance(action, HitLeased) or not action.holder:
            return action
        self.calls += 1
        return action._replace(holder=f"{action.holder} {self.calls}")

    def before(self, action: object, promises: Reservations) -> Reservations:
        holder = f"{getattr(action, 'holder', '')} {self.calls + 1}"
        return tuple(
            one._replace(owner=holder) if start_of(one) <= self._clock() else one
            for one in promises
        )

    def answer(self, answer: Any) -> Any:
        if isinstance(answer, Leased) and answer.lease is not None:
            owner = answer.lease.owner.rpartition(" ")[0]
            return answer._replace(lease=answer.lease._replace(owner=owner))
        return answer


class TellsTheInstantOfAPromiseOnly(PromiseMutant):
    """Says nothing of a promise to the caches before the store."""

    killed_by: ClassVar = _BY_ANY

    def answer(self, answer: Any) -> Any:
        return answer._replace(lease=None) if isinstance(answer, Leased) else answer


class RoundsWaitsUp(PromiseMutant):
    """Tells a second more than it keeps."""

    killed_by: ClassVar = _BY_ANY

    def answer(self, answer: Any) -> Any:
        if not isinstance(answer, Leased) or answer.lease is None:
            return answer
        reading = answer.reading._replace(wait=answer.reading.wait + SECOND)
        return answer._replace(reading=reading)


class KeepsPromisesAtAReset(PromiseMutant):
    killed_by: ClassVar = {"W2"}

    def after(
        self, action: object, answer: Any, before: Reservations, after: Reservations
    ) -> Reservations:
        return before if isinstance(action, Reset) else after


class PromisesInOneListForLooseNames(PromiseMutant):
    """Compares the ids of organizations without case."""

    killed_by: ClassVar = {"W8"}

    def promises(self, owner: str) -> Reservations:
        kept = self._windows._reserved
        alike = [one for one in kept if one.lower() == owner.lower()]
        return tuple(sorted((p for one in alike for p in kept[one][1]), key=start_of))
