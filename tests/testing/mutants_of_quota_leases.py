"""Stores with one mistake each in quota leases."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, ClassVar
from zlib import crc32

from lockgate import MemoryStore
from lockgate.core.ledger import Hit
from lockgate.core.quota_leases import LeaseRequest, QuotaLeases, Settlement, out
from lockgate.core.reservations import Reservation
from lockgate.core.sliding_window import Reading
from lockgate.core.timestamps import DAY
from lockgate.stores.answers import Admission, Verdict

from .mutants import Mutant


class LeaseMutant(Mutant):
    """Right until a subclass makes its mistake."""

    parts: ClassVar = ("quota_leases",)
    grants_leases = True

    def out(self, organization: str) -> QuotaLeases:
        return self._windows._reserved.get(organization, ((), ()))[0]

    def put(self, organization: str, leases: QuotaLeases) -> None:
        self._windows._reserved[organization] = leases, ()
        if not leases:
            del self._windows._reserved[organization]

    async def admit(
        self, *asked: Any, lease: LeaseRequest | None = None, **named: Any
    ) -> Admission:
        if lease is None:
            return await super().admit(*asked, **named)
        lease = lease._replace(settled=tuple(map(self.settled, lease.settled)))
        return await MemoryStore.admit(self, *asked, **{**named, "lease": lease})

    async def settle_leases(
        self, organization: str, windows: Any, settled: Sequence[Settlement], now: Any = None
    ) -> None:
        ended = [*map(self.settled, settled)]
        await super().settle_leases(organization, windows, ended, now)

    def settled(self, one: Settlement) -> Settlement:
        return one


class GrantsNoLease(LeaseMutant):
    killed_by: ClassVar = {"H5"}

    async def admit(
        self, *asked: Any, lease: LeaseRequest | None = None, **named: Any
    ) -> Admission:
        return await super().admit(*asked, **named)


class HitsBesideLeases(LeaseMutant):
    """Does not count what is out."""

    killed_by: ClassVar = {"H1", "W4", "W6"}

    async def hit(self, organization: str, *args: Any, **kwargs: Any) -> Reading:
        leases = self.out(organization)
        if leases:
            self.put(organization, ())
        try:
            return await super().hit(organization, *args, **kwargs)
        finally:
            if leases:
                self.put(organization, leases)


class PeeksBesideLeases(LeaseMutant):
    killed_by: ClassVar = {"H1", "W4", "W6"}

    async def peek(self, organization: str, *args: Any, **kwargs: Any) -> Reading:
        leases = self.out(organization)
        if leases:
            self.put(organization, ())
        try:
            return await super().peek(organization, *args, **kwargs)
        finally:
            if leases:
                self.put(organization, leases)


class ForgetsLeasesAtTheirDeadline(LeaseMutant):
    """Takes a dead process's units for free."""

    killed_by: ClassVar = {"H2"}

    async def quota_leases(self, organization: str, now: int | None = None) -> QuotaLeases:
        left = await super().quota_leases(organization, now)
        if self.out(organization):
            self.put(organization, left)
        return left


class ListsLeasesUntilTheirDeadline(LeaseMutant):
    """Hides a lease whose holder still admits, once the clock has stepped forward."""

    killed_by: ClassVar = {"H2", "K4"}

    async def quota_leases(self, organization: str, now: int | None = None) -> QuotaLeases:
        return out(await super().quota_leases(organization, now))


class TakesHoldersForStopped(LeaseMutant):
    """Has a change wait for the oldest lease only."""

    killed_by: ClassVar = {"K4"}

    async def leases_in_use(self, organization: str, now: int | None = None) -> QuotaLeases:
        return (await super().leases_in_use(organization, now))[:1]


class Ordering(LeaseMutant):
    """Lists leases in another order than that of their grants."""

    def ordered(self, leases: QuotaLeases) -> QuotaLeases:
        return leases

    async def quota_leases(self, organization: str, now: int | None = None) -> QuotaLeases:
        return self.ordered(await super().quota_leases(organization, now))


class ListsLeasesById(Ordering):
    """Reads them from a map that is sorted by its names."""

    killed_by: ClassVar = {"K4"}

    def ordered(self, leases: QuotaLeases) -> QuotaLeases:
        return tuple(sorted(leases))


class ListsLeasesByDeadline(Ordering):
    """Reads them from a set that is sorted by when they end."""

    killed_by: ClassVar = {"K4"}

    def ordered(self, leases: QuotaLeases) -> QuotaLeases:
        return tuple(sorted(leases, key=lambda lease: lease.deadline))


class ListsLeasesByUnits(Ordering):
    """Those with the most units first."""

    killed_by: ClassVar = {"K4"}

    def ordered(self, leases: QuotaLeases) -> QuotaLeases:
        return tuple(sorted(leases, key=lambda lease: -lease.units))


class ListsTheLatestLeaseFirst(Ordering):
    killed_by: ClassVar = {"K4"}

    def ordered(self, leases: QuotaLeases) -> QuotaLeases:
        return leases[::-1]


class ListsLeasesOfAHash(Ordering):
    """Has the order of a hash table."""

    killed_by: ClassVar = {"K4"}

    def ordered(self, leases: QuotaLeases) -> QuotaLeases:
        return tuple(sorted(leases, key=lambda lease: crc32(lease.id.encode())))


class ListsEndedLeasesLast(Ordering):
    """Joins two lists: those that are out, and those that ended unsettled."""

    killed_by: ClassVar = {"K4"}

    def ordered(self, leases: QuotaLeases) -> QuotaLeases:
        return tuple(sorted(leases, key=lambda lease: not lease.units))


class ListsLeasesInUseByDeadline(LeaseMutant):
    killed_by: ClassVar = {"K4"}

    async def leases_in_use(self, organization: str, now: int | None = None) -> QuotaLeases:
        found = await super().leases_in_use(organization, now)
        return tuple(sorted(found, key=lambda lease: lease.deadline))


class TakesOverdueHoldersForStopped(LeaseMutant):
    """Waits for no lease past its deadline, whose holder's clock may be behind."""

    killed_by: ClassVar = {"K4"}

    async def leases_in_use(self, organization: str, now: int | None = None) -> QuotaLeases:
        found = await super().leases_in_use(organization, now)
        return tuple(lease for lease in found if lease.units)


class ForgetsLeasesThatItCounts(LeaseMutant):
    """Lists a lease past its deadline only until the next hit."""

    killed_by: ClassVar = {"K4"}

    async def hit(self, organization: str, *args: Any, **kwargs: Any) -> Reading:
        reading = await super().hit(organization, *args, **kwargs)
        if leases := self.out(organization):
            self.put(organization, out(leases))
        return reading


class SettlesNothing(LeaseMutant):
    """Keeps a lease until its deadline."""

    killed_by: ClassVar = {"H3", "H4", "W4"}

    async def settle_leases(self, *args: Any, **kwargs: Any) -> None:
        return


class SettlesWithoutUse(LeaseMutant):
    """Frees what was used."""

    killed_by: ClassVar = {"H1", "H3", "H4", "W4"}

    def settled(self, one: Settlement) -> Settlement:
        return one._replace(used=())


class StampsEarly(LeaseMutant):
    killed_by: ClassVar = {"H1"}

    def settled(self, one: Settlement) -> Settlement:
        return one._replace(used=tuple((at - 1, units) for at, units in one.used))


class StampsWhenItSettles(LeaseMutant):
    killed_by: ClassVar = {"H1"}

    def settled(self, one: Settlement) -> Settlement:
        return one._replace(used=tuple((at + DAY, units) for at, units in one.used))


class CountsASettlementTwice(LeaseMutant):
    """Counts a settlement of a lease that is no more."""

    killed_by: ClassVar = {"H3", "W4"}

    async def settle_leases(
        self, organization: str, windows: Any, settled: Sequence[Settlement], now: Any = None
    ) -> None:
        known = {lease.id for lease in self.out(organization)}
        await super().settle_leases(organization, windows, settled, now)
        for one in settled:
            if one.id not in known and one.used:
                await self.charge(
                    organization, Hit(windows, sum(units for _, units in one.used)), now
                )


class SettlesOfAllOrganizations(LeaseMutant):
    killed_by: ClassVar = {"W8"}

    async def settle_leases(
        self, organization: str, windows: Any, settled: Sequence[Settlement], now: Any = None
    ) -> None:
        for owner in (organization, *self._windows._reserved):
            await super().settle_leases(owner, windows, settled, now)


class LosesLeasesAtReset(LeaseMutant):
    killed_by: ClassVar = {"W2"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        await super().reset(organization, *args, **kwargs)
        self._windows._reserved.pop(organization, None)


class KeepsDeadlinesWhenTheClockStepsBack(LeaseMutant):
    killed_by: ClassVar = {"W11"}

    async def quota_leases(self, organization: str, now: int | None = None) -> QuotaLeases:
        at = self.at(now)
        return tuple(lease for lease in self.out(organization) if lease.deadline > at)


class RefusesBeyondTheFirstDeadline(LeaseMutant):
    killed_by: ClassVar = {"H1", "W6", "H5"}

    async def hit(self, organization: str, *args: Any, **kwargs: Any) -> Reading:
        reading = await super().hit(organization, *args, **kwargs)
        if not reading.allowed and self.out(organization):
            reading = reading._replace(reset=reading.reset + 1)
        return reading


class Granting(LeaseMutant):
    """Grants another lease than the rule does."""

    async def admit(
        self, *asked: Any, lease: LeaseRequest | None = None, **named: Any
    ) -> Admission:
        answer = await super().admit(*asked, lease=lease, **named)
        if lease is None:
            return answer
        other = self.other(answer, lease, asked[3] if len(asked) > 3 else self.at(None))
        if other == answer.lease:
            return answer
        assert answer.key is not None
        organization = answer.key.organization
        kept = tuple(one for one in self.out(organization) if one.id != lease.id)
        self.put(organization, kept if other is None else (*kept, other))
        return answer._replace(lease=other)

    def other(self, answer: Admission, asked: LeaseRequest, now: int) -> Reservation | None:
        raise NotImplementedError


def _whole(asked: LeaseRequest, now: int) -> Reservation | None:
    return Reservation(asked.id, asked.units, now + asked.span, asked.span) if asked.units else None


class GrantsAllThatIsAsked(Granting):
    killed_by: ClassVar = {"H5"}

    def other(self, answer: Admission, asked: LeaseRequest, now: int) -> Reservation | None:
        return _whole(asked, now) if answer.lease else None


class GrantsAFewUnits(Granting):
    killed_by: ClassVar = {"H5"}

    def other(self, answer: Admission, asked: LeaseRequest, now: int) -> Reservation | None:
        is_plain = answer.verdict is Verdict.ADMITTED and answer.limits is None
        return answer.lease or (_whole(asked, now) if is_plain and asked.units < 3 else None)


class GrantsWithARefusal(Granting):
    killed_by: ClassVar = {"H5"}

    def other(self, answer: Admission, asked: LeaseRequest, now: int) -> Reservation | None:
        is_refused = answer.verdict is Verdict.LIMITED and answer.limits is None
        return _whole(asked, now) if is_refused else answer.lease


class GrantsBesideNamedLimits(Granting):
    killed_by: ClassVar = {"H5"}

    def other(self, answer: Admission, asked: LeaseRequest, now: int) -> Reservation | None:
        is_named = answer.verdict is Verdict.ADMITTED and answer.limits is not None
        return _whole(asked, now) if is_named else answer.lease


class GrantsToRevokedKeys(Granting):
    killed_by: ClassVar = {"H5"}

    def other(self, answer: Admission, asked: LeaseRequest, now: int) -> Reservation | None:
        return _whole(asked, now) if answer.verdict is Verdict.REVOKED else answer.lease


class GrantsNothingWithoutALimit(Granting):
    killed_by: ClassVar = {"H5"}

    def other(self, answer: Admission, asked: LeaseRequest, now: int) -> Reservation | None:
        is_free = answer.reading is not None and answer.reading.remaining is None
        return None if is_free else answer.lease


class Recalling(LeaseMutant):
    """Sends a recall with each change of a key or a plan; right until a subclass is not."""

    def __init__(self) -> None:
        super().__init__()
        self.recalled: list[str] = []

    def recall(self, organization: str) -> None:
        self.recalled.append(organization)

    async def recalls(self) -> AsyncGenerator[Any]:
        place = 0
        while True:
            for organization in self.recalled[place:]:
                place += 1
                yield self.sent(organization)
            yield None

    def sent(self, organization: str) -> Any:
        return organization

    async def revoke_if_live(self, organization: str, *args: Any, **kwargs: Any) -> Any:
        key = await super().revoke_if_live(organization, *args, **kwargs)
        self.recall(organization)
        return key

    async def update_if(self, old: Any, *args: Any, **kwargs: Any) -> bool:
        done = await super().update_if(old, *args, **kwargs)
        self.recall(old.organization)
        return done

    async def rotate_if(self, old: Any, *args: Any, **kwargs: Any) -> Any:
        successor = await super().rotate_if(old, *args, **kwargs)
        self.recall(old.organization)
        return successor

    async def put_organization(self, organization: Any, *args: Any, **kwargs: Any) -> None:
        await super().put_organization(organization, *args, **kwargs)
        self.recall(organization.id)

    async def claim_if_unclaimed(self, organization: str, *args: Any, **kwargs: Any) -> Any:
        account = await super().claim_if_unclaimed(organization, *args, **kwargs)
        self.recall(organization)
        return account


class RaisesForRecalls(Recalling):
    """Cannot be listened to."""

    killed_by: ClassVar = {"K4"}

    def recalls(self) -> AsyncGenerator[Any]:
        raise NotImplementedError


class RaisesAfterARecall(Recalling):
    """Decodes what it receives as ASCII."""

    killed_by: ClassVar = {"K4"}

    def sent(self, organization: str) -> Any:
        return organization.encode("ascii").decode()


class RecallsInBytes(Recalling):
    """Yields what the driver does."""

    killed_by: ClassVar = {"K4"}

    def sent(self, organization: str) -> Any:
        return organization.encode("utf-8", "surrogatepass")


class RecallsFolded(Recalling):
    killed_by: ClassVar = {"K4"}

    def sent(self, organization: str) -> Any:
        return organization.strip().lower()


class RecallsCut(Recalling):
    """Sends what fits the payload of a notification."""

    killed_by: ClassVar = {"K4"}

    def sent(self, organization: str) -> Any:
        return organization[:63]


class RecallsNothing(Recalling):
    """Listens to a channel that no verb sends to."""

    killed_by: ClassVar = {"K4"}

    def recall(self, organization: str) -> None:
        return


class RecallsOnce(Recalling):
    """Ends with its first recall."""

    killed_by: ClassVar = {"K4"}

    async def recalls(self) -> AsyncGenerator[Any]:
        for organization in self.recalled[:1]:
            yield organization


class RecallsForRevocationsOnly(Recalling):
    """Lets leases of a key run out whose scopes or expiry have changed."""

    killed_by: ClassVar = {"K4"}

    async def update_if(self, old: Any, *args: Any, **kwargs: Any) -> bool:
        return await LeaseMutant.update_if(self, old, *args, **kwargs)


class RecallsNoPlans(Recalling):
    killed_by: ClassVar = {"K4"}

    async def put_organization(self, organization: Any, *args: Any, **kwargs: Any) -> None:
        await LeaseMutant.put_organization(self, organization, *args, **kwargs)


class RecallsNoRotations(Recalling):
    killed_by: ClassVar = {"K4"}

    async def rotate_if(self, old: Any, *args: Any, **kwargs: Any) -> Any:
        return await LeaseMutant.rotate_if(self, old, *args, **kwargs)


class RecallsNoClaims(Recalling):
    """Lets leases of keys run out that a claim has revoked."""

    killed_by: ClassVar = {"K4"}

    async def claim_if_unclaimed(self, organization: str, *args: Any, **kwargs: Any) -> Any:
        return await LeaseMutant.claim_if_unclaimed(self, organization, *args, **kwargs)


class GrantsBesidePromises(LeaseMutant):
    """Looks at no promise where it may grant a lease."""

    killed_by: ClassVar = {"H5", "P1", "P2", "P3", "W4"}

    async def admit(
        self, *asked: Any, lease: LeaseRequest | None = None, **named: Any
    ) -> Admission:
        key = None if lease is None else self._keys.key(asked[0].handle)
        if key is None:
            return await super().admit(*asked, lease=lease, **named)
        owner = key.organization
        leases, promises = self._windows._reserved.get(owner, ((), ()))
        self._windows._reserved[owner] = leases, ()
        answer = await super().admit(*asked, lease=lease, **named)
        self._windows._reserved[owner] = self.out(owner), promises
        return answer
