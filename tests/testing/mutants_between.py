"""More stores with one mistake each: what one verb forgets to tell another, and small print."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, ClassVar, cast

from lockgate import PlanBook
from lockgate.core.api_keys import ApiKey, KeyState, Position
from lockgate.core.digests import Digest
from lockgate.core.key_format import Token
from lockgate.core.leases import Lease
from lockgate.core.limit_windows import LimitWindows
from lockgate.core.plans import Organization
from lockgate.core.sliding_window import Reading
from lockgate.core.timestamps import MINUTE
from lockgate.stores.answers import UNKNOWN, Admission, Census, Freshness, Page, Removal, Verdict
from tests.by_verbs import SlotReading

from .mutants import Mutant, Windows

AHEAD = 5 * MINUTE


class ExpiryByHost(Mutant):
    """Charges by the server's clock, and judges keys by the host's clock."""

    killed_by: ClassVar = {"W12"}

    async def admit(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None = None,
        *more: Any,
        **named: Any,
    ) -> Admission:
        key = await self.find(token.handle)
        if now is None and key is not None and key.state(self.at(None) + AHEAD) is KeyState.EXPIRED:
            return Admission(Verdict.EXPIRED, key)
        return await super().admit(token, cost, plans, now, *more, **named)


class CensusByHost(Mutant):
    """Counts keys by the clock of the host."""

    killed_by: ClassVar = {"W12"}

    async def census(self, now: int | None = None, cursor: str | None = None) -> Census:
        return await super().census(self.at(None) + AHEAD if now is None else now, cursor)


class LiveByHost(Mutant):
    """Lists live keys by the clock of the host."""

    killed_by: ClassVar = {"W12"}

    async def list_live(
        self,
        organization: str,
        limit: int,
        after: Position | None = None,
        now: int | None = None,
    ) -> Page:
        at = self.at(None) + AHEAD if now is None else now
        return await super().list_live(organization, limit, after, at)


class RemovesByHost(Mutant):
    """Removes keys by the clock of the host."""

    killed_by: ClassVar = {"W12"}

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        at = self.at(None) + AHEAD if now is None else now
        return await super().remove_ended(age, at, cursor)


class AccountsByHost(Mutant):
    """Dates accounts by the clock of the host."""

    killed_by: ClassVar = {"W12"}

    async def register(self, account: Any, key: Any, now: int | None = None, **options: Any) -> Any:
        return await super().register(
            account, key, self.at(None) - AHEAD if now is None else now, **options
        )


class ClaimsByHost(Mutant):
    """Dates claims by the clock of the host."""

    killed_by: ClassVar = {"W12"}

    async def claim_if_unclaimed(
        self,
        organization: str,
        user: str,
        *,
        revoke: bool,
        keep_token: bool,
        now: int | None = None,
        **seals: Any,
    ) -> Any:
        at = self.at(None) - AHEAD if now is None else now
        return await super().claim_if_unclaimed(
            organization, user, revoke=revoke, keep_token=keep_token, now=at, **seals
        )


class PlansReplaceRows(Mutant):
    """Writes the plan by a ``REPLACE`` of the row: the columns of the claim are empty then."""

    killed_by: ClassVar = {"D25"}

    async def put_organization(
        self, organization: Organization, now: int | None = None, **options: Any
    ) -> None:
        await super().put_organization(organization, now, **options)
        row = self._accounts.rows.get(organization.id)
        if row is not None:
            self._accounts.rows[organization.id] = (*row[:9], None, None, *row[11:])


class AccountsReplaceRows(Mutant):
    """The same the other way round."""

    killed_by: ClassVar = {"D25"}

    async def register(self, account: Any, key: Any, now: int | None = None, **options: Any) -> Any:
        registered = await super().register(account, key, now, **options)
        self._placed.pop(account.organization, None)
        return registered


class RenewsToTheEnd(Mutant):
    """Takes a lease out and puts the renewed one in."""

    killed_by: ClassVar = {"L4"}

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        renewed = await super().renew(organization, job, owner, span, now)
        if renewed is not None:
            *others, mine = sorted(self.slots(organization), key=lambda one: one.id == job)
            self.put_slots(organization, (*others, mine))
        return renewed


class RemembersKeys(Mutant):
    """Asks for the state of a key once; a revocation makes it ask again, a claim does not."""

    killed_by: ClassVar = {"K4"}

    def __init__(self) -> None:
        super().__init__()
        self.good: dict[str, ApiKey] = {}

    async def find(self, handle: str) -> ApiKey | None:
        found = await super().find(handle)
        if found is not None and handle in self.good:
            return found._replace(revoked_at=None)
        return found

    async def admit(
        self, token: Token, cost: int, plans: PlanBook, *more: Any, **named: Any
    ) -> Admission:
        admission = await super().admit(token, cost, plans, *more, **named)
        if admission.key is not None and admission.verdict is Verdict.ADMITTED:
            self.good[token.handle] = admission.key
        return admission

    async def revoke_if_live(
        self, organization: str, id: str, now: int | None = None, **options: Any
    ) -> ApiKey | None:
        with self._lock:
            self.good.clear()
        revoked = await super().revoke_if_live(organization, id, now, **options)
        self.good.clear()
        return revoked


class RemembersSecrets(Mutant):
    """Compares the secret of a key once."""

    killed_by: ClassVar = {"K9"}

    def __init__(self) -> None:
        super().__init__()
        self.proven: dict[str, Digest] = {}

    async def admit(
        self, token: Token, cost: int, plans: PlanBook, *more: Any, **named: Any
    ) -> Admission:
        row, proven = self._rows.get(token.handle), self.proven.get(token.handle)
        if row is None or proven is None:
            admission = await super().admit(token, cost, plans, *more, **named)
            if admission.verdict is Verdict.ADMITTED and row is not None:
                self.proven[token.handle] = Digest(*row[6:9])
            return admission
        sealed = proven.scheme, proven.value, proven.seal
        self._rows[token.handle] = (*row[:6], *sealed, *row[9:])
        try:
            return await super().admit(token, cost, plans, *more, **named)
        finally:
            now_there = self._rows[token.handle]
            self._rows[token.handle] = (*now_there[:6], *row[6:9], *now_there[9:])


class RemembersStrangers(Mutant):
    """Remembers unknown handles, and misses their later insertion."""

    killed_by: ClassVar = {"K1"}

    def __init__(self) -> None:
        super().__init__()
        self.strangers: set[str] = set()

    async def admit(
        self, token: Token, cost: int, plans: PlanBook, *more: Any, **named: Any
    ) -> Admission:
        if token.handle not in self._rows:
            self.strangers.add(token.handle)
        if token.handle in self.strangers:
            return UNKNOWN
        return await super().admit(token, cost, plans, *more, **named)


class EpochOfClaims(Mutant):
    """Moves its change counter when a claim is won, but not when its winner revokes all later."""

    killed_by: ClassVar = {"D5"}
    changes = 0

    async def freshness(self) -> Freshness:
        return Freshness(self.changes, await self.now())

    async def put_organization(
        self, organization: Organization, now: int | None = None, **options: Any
    ) -> None:
        self.changes += 1
        await super().put_organization(organization, now, **options)

    async def rehash_if(
        self, handle: str, old: Digest, new: Digest, *, known: ApiKey | None = None
    ) -> bool:
        self.changes += 1
        return await super().rehash_if(handle, old, new, known=known)

    async def revoke_if_live(
        self, organization: str, id: str, now: int | None = None, **options: Any
    ) -> ApiKey | None:
        self.changes += 1
        return await super().revoke_if_live(organization, id, now, **options)

    async def claim_if_unclaimed(
        self,
        organization: str,
        user: str,
        *,
        revoke: bool,
        keep_token: bool,
        now: int | None = None,
        **seals: Any,
    ) -> Any:
        account = await self.account(organization)
        if account is not None and account.claimed_by is None:
            self.changes += 1
        return await super().claim_if_unclaimed(
            organization, user, revoke=revoke, keep_token=keep_token, now=now, **seals
        )


class FloatCounts(Mutant):
    """Counts in floating-point numbers, as JSON from a Lua script does."""

    killed_by: ClassVar = {"W14"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        reading = await super().hit(organization, windows, cost, now, limits)
        return reading._replace(used=cast(Any, tuple(map(float, reading.used))))


class DecimalCounts(Mutant):
    """Hands out the sum as the database's driver gives it."""

    killed_by: ClassVar = {"W14"}

    async def get(self, organization: str, id: str) -> ApiKey | None:
        key = await super().get(organization, id)
        return key and key._replace(request_count=cast(Any, Decimal(key.request_count)))


class PlainRows(Mutant):
    """Returns its rows without a copy."""

    killed_by: ClassVar = {"W14"}

    async def account_by_token(self, handle: str) -> Any:
        account = await super().account_by_token(handle)
        return account and tuple(account)


class RowsFreed(Mutant):
    """Says how many rows it deleted."""

    killed_by: ClassVar = {"W14"}

    async def release(self, organization: str, job: str, owner: str, now: int | None = None) -> Any:
        return int(await super().release(organization, job, owner, now))


class NameOfItsOwn(Mutant):
    """Writes ids of organizations as some name, which two of them share."""

    def named(self, id: str) -> str:
        raise NotImplementedError

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return await super().hit(self.named(organization), windows, cost, now)

    async def peek(
        self,
        organization: str,
        windows: Windows,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return await super().peek(self.named(organization), windows, now)

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        return await super().acquire(self.named(organization), job, owner, limit, span, now)

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        return await super().renew(self.named(organization), job, owner, span, now)

    async def release(
        self, organization: str, job: str, owner: str, now: int | None = None
    ) -> bool:
        return await super().release(self.named(organization), job, owner, now)

    async def held(self, organization: str, now: int | None = None) -> tuple[Lease, ...]:
        return await super().held(self.named(organization), now)


class PadsWithBlanks(NameOfItsOwn):
    """Compares ids as a column of characters does: blanks at the end do not count."""

    killed_by: ClassVar = {"W8"}

    def named(self, id: str) -> str:
        return id.rstrip(" ") or id


class EndsAtNul(NameOfItsOwn):
    """Hands ids to a library written in C."""

    killed_by: ClassVar = {"W8"}

    def named(self, id: str) -> str:
        return id.split("\0", maxsplit=1)[0]


class ReplacesSurrogates(NameOfItsOwn):
    """Writes what UTF-8 has no bytes for as a question mark."""

    killed_by: ClassVar = {"W8"}

    def named(self, id: str) -> str:
        return id.encode("utf-8", "replace").decode()


class CutsBytes(NameOfItsOwn):
    """Has room for 128 characters of ASCII in each id, twice."""

    killed_by: ClassVar = {"W8"}

    def named(self, id: str) -> str:
        return id.encode("utf-8", "surrogatepass")[:256].decode("latin-1")
