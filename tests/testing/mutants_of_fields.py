"""Stores in which one verb restores what another changed, or shows half of an account."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from lockgate.core.accounts import Account, AccountDraft
from lockgate.core.api_keys import ApiKey, KeyDraft
from lockgate.core.budgets import SLOTS
from lockgate.core.changes import ChangeDraft
from lockgate.core.digests import Digest
from lockgate.errors import HandleTaken
from lockgate.testing.checks import Part

from .mutants import Mutant, gap


class SavesRowsWhole(Mutant):
    """Reads a row, changes it in one verb, and writes back the fields that it read.

    A subclass names the verb and the columns that go back.
    """

    parts: ClassVar[tuple[Part, ...]] = ("keys", "accounts")
    verb: ClassVar = ""
    columns: ClassVar[tuple[str, ...]] = ()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name != super().__getattribute__("verb"):
            return found

        async def saved(*arguments: Any, **options: Any) -> Any:
            before = self.restorable()
            gap()
            answer = await found(*arguments, **options)
            self.restore(before)
            return answer

        return saved

    def restorable(self) -> Any:
        with self._lock:
            return dict(self._rows)

    def restore(self, before: Any) -> None:
        with self._lock:
            for handle, row in before.items():
                now = ApiKey(*self._rows[handle])
                old = {name: getattr(ApiKey(*row), name) for name in self.columns}
                self._rows[handle] = cast(Any, tuple(now._replace(**old))[:13])


class UsageRestoresDigests(SavesRowsWhole):
    """Writes the digest of a key back with its usage."""

    killed_by: ClassVar = {"K9", "D43", "K3", "W3"}
    verb = "add_usage"
    columns = ("scheme", "digest", "seal")


class UsageRestoresFields(SavesRowsWhole):
    """Writes name and details of a key back with its usage."""

    killed_by: ClassVar = {"D43", "K3", "K9"}
    verb = "add_usage"
    columns = ("name", "details")


class RehashRestoresFields(SavesRowsWhole):
    """Writes name and details of a key back with its digest."""

    killed_by: ClassVar = {"D43", "K3", "K9", "K1"}
    verb = "rehash_if"
    columns = ("name", "details")


class RehashRestoresScopes(SavesRowsWhole):
    """Writes the scopes of a key back with its digest."""

    killed_by: ClassVar = {"D43", "K3", "K7", "K9", "W3"}
    verb = "rehash_if"
    columns = ("scopes",)


class RehashRestoresTheEnd(SavesRowsWhole):
    """Writes the expiry of a key back with its digest."""

    killed_by: ClassVar = {"D43", "K3", "K7", "K9", "W3"}
    verb = "rehash_if"
    columns = ("expires_at",)


class RevocationRestoresDigests(SavesRowsWhole):
    """Writes the digest of a key back with its revocation."""

    killed_by: ClassVar = {"K9", "D43", "K3", "W3"}
    verb = "revoke_if_live"
    columns = ("scheme", "digest", "seal")


class InsertionRestoresRevocations(SavesRowsWhole):
    """Writes all keys of an organization with a new one."""

    killed_by: ClassVar = {"K3", "D43", "W3", "D4", "K4"}
    verb = "insert"
    columns = ("revoked_at",)


class SavesAccountsWhole(SavesRowsWhole):
    """The same with accounts."""

    def restorable(self) -> Any:
        with self._lock:
            return dict(self._accounts.rows)

    def restore(self, before: Any) -> None:
        with self._lock:
            for organization, row in before.items():
                present = self._accounts.rows.get(organization)
                if present is not None:
                    now = Account._make(present)
                    old = {name: getattr(Account._make(row), name) for name in self.columns}
                    self._accounts.rows[organization] = tuple(now._replace(**old))


class SignInRestoresDigests(SavesAccountsWhole):
    """Writes the digest of a token back with a sign-in."""

    killed_by: ClassVar = {"K9", "D15"}
    verb = "sign_in"
    columns = ("scheme", "digest", "seal")


class SignInRestoresSignOuts(SavesAccountsWhole):
    """Writes the number of sign-outs back with a sign-in."""

    killed_by: ClassVar = {"D15"}
    verb = "sign_in"
    columns = ("sign_outs",)


class SignInRestoresTokens(SavesAccountsWhole):
    """Writes the state of a token back with a sign-in, so that it outlives a claim."""

    killed_by: ClassVar = {"D46"}
    verb = "sign_in"
    columns = ("token_revoked_at",)


class SignOutRestoresTokens(SignInRestoresTokens):
    """The same with a sign-out."""

    verb = "sign_out"


class RehashRestoresTokens(SignInRestoresTokens):
    """The same with a new digest."""

    verb = "rehash_token_if"


class SignOutRestoresSignIns(SavesAccountsWhole):
    """Writes the last sign-in back with a sign-out."""

    killed_by: ClassVar = {"D15"}
    verb = "sign_out"
    columns = ("signed_in_at",)


class TokenRestoresSignOuts(SavesAccountsWhole):
    """Writes the number of sign-outs back with a new digest."""

    killed_by: ClassVar = {"D15"}
    verb = "rehash_token_if"
    columns = ("sign_outs",)


class ClaimRestoresSignOuts(SavesAccountsWhole):
    """Writes the number of sign-outs back with a claim."""

    killed_by: ClassVar = {"D15"}
    verb = "claim_if_unclaimed"
    columns = ("sign_outs", "signed_in_at")


class PlanRestoresSignOuts(SavesAccountsWhole):
    """Writes the row of an organization with its plan, and its account with it."""

    killed_by: ClassVar = {"D15"}
    verb = "put_organization"
    columns = ("sign_outs", "signed_in_at")


class SignOutRestoresThePlan(SavesRowsWhole):
    """Writes the row of an organization with a sign-out, and its plan with it."""

    killed_by: ClassVar = {"D25"}
    verb = "sign_out"

    def restorable(self) -> Any:
        with self._lock:
            return dict(self._placed)

    def restore(self, before: Any) -> None:
        with self._lock:
            self._placed.update(before)


class PlanRestoresLeases(SignOutRestoresThePlan):
    """Writes the record of an organization with its plan, and its leases with it."""

    killed_by: ClassVar = {"L3", "D25"}
    parts: ClassVar = ("admission",)
    verb = "put_organization"

    def restorable(self) -> Any:
        with self._lock:
            return {one: self.slots(one) for one, field in self._budgets._budgets if field == SLOTS}

    def restore(self, before: Any) -> None:
        with self._lock:
            for one, slots in before.items():
                self.put_slots(one, slots)


class LeaseRestoresThePlan(SignOutRestoresThePlan):
    """Writes the record of an organization with a lease, and its plan with it."""

    parts: ClassVar = ("admission",)
    verb = "acquire"


class RehashForgetsConcurrentUpdates(Mutant):
    """Compares the digest, and then writes the row that it compared."""

    killed_by: ClassVar = {"D43", "K3", "K7", "K9"}
    parts: ClassVar = ("keys",)

    async def rehash_if(
        self, handle: str, old: Digest, new: Digest, *, known: ApiKey | None = None
    ) -> bool:
        row = self._rows.get(handle)
        gap()
        done = await super().rehash_if(handle, old, new, known=known)
        if done and row is not None:
            with self._lock:
                self._rows[handle] = (*row[:6], *self._rows[handle][6:9], *row[9:])
        return done


class AccountBeforeItsKey(Mutant):
    """Inserts an account, and then its key."""

    killed_by: ClassVar = {"R1"}
    parts: ClassVar = ("accounts",)

    async def register(
        self,
        account: AccountDraft,
        key: KeyDraft,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> tuple[Account, ApiKey]:
        with self._lock:
            if self._keys.is_taken(key.handle):
                raise HandleTaken
            made = account.created(self.at(now))
            self._accounts.add(made)
        gap()
        with self._lock:
            self._changes.add(account.organization, change, self.at(now))
            self._keys.insert(first := key.created(self.at(now)))
            return made, first


class KeyBeforeItsAccount(Mutant):
    """Inserts a key, and then its account."""

    killed_by: ClassVar = {"R1"}
    parts: ClassVar = ("accounts",)

    async def register(
        self, account: AccountDraft, key: KeyDraft, now: int | None = None, **options: Any
    ) -> tuple[Account, ApiKey]:
        free = await self.account(account.organization) is None
        free = free and await self.account_by_token(account.handle) is None
        if not free or self._keys.is_taken(key.handle):
            return await super().register(account, key, now, **options)
        made = await self.insert(key, None, now)
        gap()
        with self._lock:
            self._changes.add(account.organization, options.get("change"), self.at(now))
            self._accounts.add(registered := account.created(self.at(now)))
            return registered, made
