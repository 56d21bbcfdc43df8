"""Stores that make a change by two commits: a process that dies between them leaves half of it."""

from __future__ import annotations

from secrets import token_hex
from typing import Any, ClassVar, cast

from lockgate.core.accounts import Account, AccountDraft
from lockgate.core.api_keys import ApiKey, KeyDraft
from lockgate.errors import HandleTaken
from lockgate.stores.base import PAGE_AT_MOST
from lockgate.stores.rows import Commit, Write

from .mutants import Mutant


class RotatesByTwoCommits(Mutant):
    """Updates the old key, and then inserts its successor."""

    killed_by: ClassVar = {"D43", "K8"}

    async def rotate_if(
        self,
        old: ApiKey,
        new: ApiKey,
        successor: KeyDraft,
        cap: int | None,
        now: int | None = None,
        **options: Any,
    ) -> ApiKey | None:
        if not await self.update_if(old, new, now, **options):
            return None
        return await self.insert(successor, cap, now)


class RegistersByTwoCommits(Mutant):
    """Inserts the account, and then its first key."""

    killed_by: ClassVar = {"R1"}

    async def register(
        self, account: AccountDraft, key: KeyDraft, now: int | None = None, **options: Any
    ) -> tuple[Account, ApiKey]:
        at = self.at(now)
        write = Write(None, None, account.created(at))
        commit = Commit(account.organization, token_hex(8), (write,), change=options.get("change"))
        if (await self.commit(commit, at)).verdict != "done":
            raise HandleTaken
        return account.created(at), await self.insert(key, None, at)


class ClaimsByManyCommits(Mutant):
    """Assigns an account to its claimer, and then revokes the keys, one by one."""

    killed_by: ClassVar = {"K4", "D44"}

    async def claim_if_unclaimed(
        self, organization: str, user: str, *, revoke: bool, now: int | None = None, **options: Any
    ) -> Account | None:
        claimed = await super().claim_if_unclaimed(
            organization, user, revoke=False, now=now, **cast(Any, options)
        )
        if revoke and claimed is not None and claimed.claimed_by == user:
            for key in await self.list_live(organization, PAGE_AT_MOST, None, now):
                await self.revoke_if_live(organization, key.id, now)
        return claimed
