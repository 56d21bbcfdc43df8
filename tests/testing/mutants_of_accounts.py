"""Stores with one fault each in the verbs of accounts: lists, claims, removals."""

from __future__ import annotations

from typing import Any, ClassVar

from lockgate.core.accounts import Account
from lockgate.core.api_keys import Position
from lockgate.core.timestamps import MINUTE

from .mutants import Mutant, gap

AHEAD = 5 * MINUTE


class NewestFirst(Mutant):
    """Lists the newest registrations first, so further registrations hide the others."""

    killed_by: ClassVar = {"D14"}

    async def unclaimed_by_email(
        self, billing_email: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        found = await super().unclaimed_by_email(billing_email, 1000)
        newest = found[::-1]
        if after is not None:
            newest = tuple(one for one in newest if (one.created_at, one.organization) < after)
        return newest[:limit]


class ListsClaimedToo(Mutant):
    """Finds claimed accounts by their e-mail, too."""

    killed_by: ClassVar = {"D14", "R3", "D25", "W8"}

    async def unclaimed_by_email(
        self, billing_email: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        rows = map(Account._make, self._accounts.rows.values())
        found = [(Position(a.created_at, a.organization), a) for a in rows]
        mine = sorted(pair for pair in found if pair[1].billing_email == billing_email)
        return tuple(a for at, a in mine if after is None or at > after)[:limit]


class PagesByInstant(Mutant):
    """Continues after the instant of the last account, and skips others of the same instant."""

    killed_by: ClassVar = {"D14"}

    async def unclaimed_by_email(
        self, billing_email: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        later = None if after is None else after._replace(id="\U0010ffff" * 32)
        return await super().unclaimed_by_email(billing_email, limit, later)


class PagesWithoutLimit(Mutant):
    """Gives all there is."""

    killed_by: ClassVar = {"D14"}

    async def accounts_by_user(
        self, user: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        return await super().accounts_by_user(user, 1000, after)


class ClaimKeepsToken(Mutant):
    """Keeps the registering agent's token, unless all keys are revoked."""

    killed_by: ClassVar = {"D46"}

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
        return await super().claim_if_unclaimed(
            organization, user, revoke=revoke, keep_token=keep_token or not revoke, now=now, **seals
        )


class ClaimEndsTokenLater(Mutant):
    """Claims, and ends the token in a second step; a session that begins in between survives."""

    killed_by: ClassVar = {"D46"}

    async def account(self, organization: str) -> Account | None:
        found = await super().account(organization)
        gap()
        return found

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
        claimed = await super().claim_if_unclaimed(
            organization, user, revoke=revoke, keep_token=True, now=now, **seals
        )
        if claimed is None or claimed.claimed_by != user or keep_token:
            return claimed
        ended = claimed._replace(token_revoked_at=claimed.token_revoked_at or self.at(now))
        if revoke:
            self._accounts.rows[organization] = tuple(ended)
        return ended


class SignsInAfterAll(Mutant):
    """Notes a sign-in with a token that was revoked meanwhile."""

    killed_by: ClassVar = {"D15", "D46"}

    async def sign_in(
        self, organization: str, now: int | None = None, *, known: Account | None = None
    ) -> Account | None:
        found = await super().sign_in(organization, now, known=known)
        return found or await super().account(organization)


class SignsInAtLast(Mutant):
    """The latest sign-in decides, not the latest time."""

    killed_by: ClassVar = {"D15"}

    async def sign_in(
        self, organization: str, now: int | None = None, *, known: Account | None = None
    ) -> Account | None:
        found = await super().sign_in(organization, now, known=known)
        if found is not None:
            found = found._replace(signed_in_at=self.at(now))
            self._accounts.rows[organization] = tuple(found)
        return found


class SignsInByHost(Mutant):
    """Dates sign-ins by the clock of the host."""

    killed_by: ClassVar = {"W12"}

    async def sign_in(
        self, organization: str, now: int | None = None, *, known: Account | None = None
    ) -> Account | None:
        return await super().sign_in(
            organization, self.at(None) - AHEAD if now is None else now, known=known
        )


class Removing(Mutant):
    """Removes in several steps."""

    async def remove_unclaimed(
        self, idle: int, limit: int, now: int | None = None, **options: Any
    ) -> tuple[str, ...]:
        edge = self.at(now) - idle
        removed: list[str] = []
        for row in [*self._accounts.rows.values()]:
            account = Account._make(row)
            if len(removed) < limit and self.goes(account, edge):
                self.take(account)
                removed.append(account.organization)
        self.local_version = object()
        return tuple(sorted(removed))

    def goes(self, account: Account, edge: int) -> bool:
        keys = self._keys.all(account.organization)
        uses = [max(key.created_at, key.last_used_at or 0) for key in keys]
        latest = max(account.created_at, account.signed_in_at or 0, *uses)
        unclaimed = account.claimed_by is None and account.organization not in self._placed
        return unclaimed and latest <= edge

    def take(self, account: Account) -> None:
        with self._lock:
            present = self._accounts.get(account.organization)
            if present is not None and present.claimed_by is None:
                self._accounts.remove(present)
                self.remove_keys(account.organization)


class RemovesUsed(Removing):
    """Asks when an account was registered, and not when it was used."""

    killed_by: ClassVar = {"D46"}

    def goes(self, account: Account, edge: int) -> bool:
        claimed = account.claimed_by is not None or account.organization in self._placed
        return not claimed and account.created_at <= edge


class RemovesSignedIn(Removing):
    """Asks for the use of keys alone."""

    killed_by: ClassVar = {"D46"}

    def goes(self, account: Account, edge: int) -> bool:
        return super().goes(account._replace(signed_in_at=None), edge)


class RemovesPlaced(Removing):
    """Removes accounts of organizations that were put on a plan."""

    killed_by: ClassVar = {"D46"}

    def goes(self, account: Account, edge: int) -> bool:
        placed = self._placed.pop(account.organization, None)
        goes = super().goes(account, edge)
        if placed is not None:
            self._placed[account.organization] = placed
        return goes


class RemovesTooEarly(Removing):
    """Removes accounts that were used recently."""

    killed_by: ClassVar = {"D46", "W12"}

    def goes(self, account: Account, edge: int) -> bool:
        return super().goes(account, edge + MINUTE)


class RemovesClaimed(Removing):
    """Looks if an account is unclaimed, and removes it a little later."""

    killed_by: ClassVar = {"D46", "R1"}

    def take(self, account: Account) -> None:
        gap()
        with self._lock:
            current = self._accounts.get(account.organization)
            if current is not None and current.claimed_by is None:
                self._accounts.remove(current)
                self.remove_keys(current.organization)
                return
            self._accounts.rows.pop(account.organization, None)
            self.remove_keys(account.organization)


class LeavesKeys(Removing):
    """Removes the account, and leaves its keys to work on."""

    killed_by: ClassVar = {"D46"}

    def take(self, account: Account) -> None:
        with self._lock:
            if account.organization in self._accounts.rows:
                self._accounts.remove(account)


class FreesHandles(Removing):
    """Deletes the row of a key, and with it the memory that its handle was taken."""

    killed_by: ClassVar = {"D46"}

    def take(self, account: Account) -> None:
        super().take(account)
        self._keys.removed.clear()


class FreesInserted(Removing):
    """Remembers the handle of the first key only."""

    killed_by: ClassVar = {"D46"}

    def take(self, account: Account) -> None:
        *others, _ = [key.handle for key in self._keys.all(account.organization)] or [""]
        super().take(account)
        for handle in others:
            self._keys.removed.pop(handle, None)


class RemovesUnheard(Removing):
    """Does not invalidate cached answers."""

    killed_by: ClassVar = {"D5"}

    async def remove_unclaimed(
        self, idle: int, limit: int, now: int | None = None, **options: Any
    ) -> tuple[str, ...]:
        before = self.local_version
        removed = await super().remove_unclaimed(idle, limit, now, **options)
        self.local_version = before
        return removed


class UnclaimedByHost(Mutant):
    """Judges idleness by the clock of the host."""

    killed_by: ClassVar = {"W12"}

    async def remove_unclaimed(
        self, idle: int, limit: int, now: int | None = None, **options: Any
    ) -> tuple[str, ...]:
        at = self.at(None) + AHEAD if now is None else now
        return await super().remove_unclaimed(idle, limit, at, **options)


class LooksAtTheFirst(Removing):
    """Looks at the oldest accounts only, however often they are in use."""

    killed_by: ClassVar = {"D46"}

    async def remove_unclaimed(
        self, idle: int, limit: int, now: int | None = None, **options: Any
    ) -> tuple[str, ...]:
        edge = self.at(now) - idle
        accounts = sorted(
            map(Account._make, self._accounts.rows.values()), key=lambda a: a.created_at
        )
        open_ones = [one for one in accounts if one.claimed_by is None]
        removed = [one for one in open_ones[:limit] if self.goes(one, edge)]
        for one in removed:
            self.take(one)
        self.local_version = object()
        return tuple(sorted(one.organization for one in removed))
