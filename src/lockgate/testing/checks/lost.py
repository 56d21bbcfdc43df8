"""Checks of changes whose reply is lost: a repetition of the commit tells what became of it (D33).

They compose the operations over the rows of a store, so they concern stores that have rows.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from ...core.api_keys import KeyDetails
from ...core.changes import drafted_change
from ...core.digests import Digest
from ...core.plans import Organization
from ...core.timestamps import DAY
from ...stores.answers import OutcomeUnknown
from ...stores.base import PAGE_AT_MOST, KeyStore, Store
from ...stores.combined import OverRows
from ...stores.rows import REMEMBERED, Commit, Outcome
from ..calls import Call
from ..factories import NOW, Factory
from ..guarantees import Broken
from ..lockstep import Lockstep
from .check import Check

_DUE: Final = 150
"""More keys than one commit removes."""


class Losing(OverRows):
    """Loses the first reply of each commit.

    Args:
        store: has the rows.
        is_made: whether a commit is made whose reply is lost.
        between: is called before the repetition.
    """

    def __init__(
        self,
        store: KeyStore,
        is_made: bool,
        between: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        super().__init__(store)
        self._is_made, self._between = is_made, between
        self._lost = set[str]()

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        if commit.id in self._lost:
            later = now + 1 if now is not None and self._is_made else now
            return await self.keys.commit(commit, later)
        self._lost.add(commit.id)
        if self._is_made:
            await self.keys.commit(commit, now)
        if self._between is not None:
            await self._between()
        raise OutcomeUnknown("injected: the reply was lost")


async def a_change_whose_reply_is_lost_is_made_once(store: Store) -> None:
    """Its answer, the rows and the change log are those of a change that was answered."""
    for name, is_made in (("made", True), ("not made", False)):
        losing: Any = Lockstep(Losing(store, is_made), "W3")
        await _change_everything(losing, Factory(seed=is_made), f"{name} 1", f"{name} 2")


async def _change_everything(store: Store, factory: Factory, name: str, other: str) -> None:
    async def see_rows() -> None:
        for organization in (name, other):
            await store.list(organization, PAGE_AT_MOST)
            await store.list_live(organization, PAGE_AT_MOST, None, NOW + 9)
            await store.account(organization)
            await store.organization(organization)
            await store.change_log(organization, PAGE_AT_MOST)

    change = drafted_change
    for one in (name, other):
        drafts = factory.account(one, email=f"{one}@example.com"), factory.draft(one)
        await store.register(*drafts, NOW, change=change("account_registered"))
    draft = factory.draft(name)
    key = await store.insert(draft, 2, NOW + 1, change=change("key_created", draft.id))
    new = key._replace(name="another", scopes=("jobs:read",))
    await store.update_if(key, new, NOW + 2, change=change("key_updated", key.id))
    successor = factory.draft(name)
    rotated = new._replace(revoked_at=NOW + 3, details=KeyDetails(NOW + 3, successor.id))
    await store.rotate_if(new, rotated, successor, 2, NOW + 3, change=change("key_rotated", key.id))
    digest = Digest(successor.scheme, successor.digest)
    await store.rehash_if(successor.handle, digest, Digest(digest.scheme, digest.value[::-1]))
    revoked = change("key_revoked", successor.id)
    await store.revoke_if_live(name, successor.id, NOW + 4, change=revoked)
    placed = Organization(name, "starter", (("rpm", 7),))
    await store.put_organization(placed, NOW + 5, change=change("plan_assigned"))
    await store.sign_in(name, NOW + 6)
    await store.sign_out(name)
    account = await store.account(name)
    if account is not None:
        await store.rehash_token_if(account.handle, account.kept, Digest(account.scheme, b"\x07"))
    await see_rows()
    await store.claim_if_unclaimed(
        name, "ada", revoke=True, keep_token=False, now=NOW + 8, change=change("account_claimed")
    )
    await store.remove_unclaimed(DAY, 9, NOW + DAY, change=change("account_removed"))
    await see_rows()
    await store.remove_ended(DAY, NOW + 2 * DAY)
    await see_rows()


async def a_walk_whose_replies_are_lost_removes_each_key_once(store: Store) -> None:
    """The keys that are due need more than one commit, and so do records without keys."""
    factory, plain = Factory(), OverRows(store)
    await plain.insert(factory.draft(), None, NOW)
    for _ in range(_DUE):
        draft = factory.draft(lifetime=1)
        await plain.insert(draft, None, NOW, change=drafted_change("key_created", draft.id))
    for limit in range(_DUE):
        placed = Organization("org_2", "starter", (("rpm", limit + 1),))
        await plain.put_organization(placed, NOW, change=drafted_change("plan_assigned"))
    walked = await Call("remove_ended", (DAY, NOW + 2 * DAY)).on(Losing(store, True))
    removed = walked.removed
    _see(removed == _DUE, f"{_DUE} keys were due, and {removed} were removed.")
    left = len(await plain.list("org_1", PAGE_AT_MOST))
    _see(left == 1, f"{left} keys are listed after the walk, and 1 was not due.")
    for organization in ("org_1", "org_2"):
        left = len(await plain.change_log(organization, PAGE_AT_MOST))
        _see(not left, f"{left} records that were due are read after the walk.")


async def a_commit_is_repeated_behind_fifteen_others(store: Store) -> None:
    """So many of one organization a store remembers, among them the one whose reply was lost."""
    factory, plain = Factory(), OverRows(store)
    key = await plain.insert(factory.draft(), None, NOW)

    async def change_others() -> None:
        for _ in range(REMEMBERED - 1):
            await plain.insert(factory.draft(), None, NOW)

    losing = Losing(store, True, change_others)
    new = key._replace(name="another")
    updated = await losing.update_if(
        key, new, NOW + 1, change=drafted_change("key_updated", key.id)
    )
    _see(updated, "An update was repeated behind 15 other changes, and told to have changed none.")
    _see(await plain.get("org_1", key.id) == new, "An update whose reply was lost is not kept.")
    records = len(await plain.change_log("org_1", PAGE_AT_MOST))
    _see(records == 1, f"One change whose reply was lost left {records} records.")


def _see(kept: bool, said: str) -> None:
    if not kept:
        raise Broken("W3", said)


CHECKS: tuple[Check, ...] = tuple(
    Check("W3", "changes", script.__name__, crowded=False, of=script)
    for script in (
        a_change_whose_reply_is_lost_is_made_once,
        a_walk_whose_replies_are_lost_removes_each_key_once,
        a_commit_is_repeated_behind_fifteen_others,
    )
)
