"""How a revocation becomes immediate although a cache admits by copies of keys (K4, K5).

The cache holds copies of keys and plans. A copy is valid only under the fill token of its
organization, a random text. This protocol keeps a revoked key out:

1. **Fill** (:meth:`Copies.fill`): a key without a copy is read from the primary and verified. Then
   the fill token is taken, the key is read again, and ``install`` keeps the copy only if the token
   still stands.
2. **Change** (:meth:`Copies.change`): a change goes to the primary; then ``forget`` deletes the
   fill token, and with it every copy of the organization; then the quota leases end that the cache
   granted before (D42); then the caller has the answer. No admission that starts later finds a copy
   (K4). A fill that read the key before the change holds a deleted token, so ``install`` refuses
   its copy (K5). If the cache fails, the change is committed all the same, and the caller gets its
   result with that failure (D52): :mod:`lockgate.stores.committed`.
3. **Compare** (:meth:`Copies.compare`), twice a second: the primary lists the organizations that
   changed since the change counter that the cache has caught up to, and their copies are forgotten.
   That covers a process that died between the two halves of step 2, a cache that was out of reach,
   and a cache that lost data.
4. **Confirm** (:meth:`Copies.confirm`): from the moment that a server of the cache takes another's
   place, until step 3 has completed, the primary confirms each admission by a copy. So does a
   process that has just started.
5. **Fallback**: while the cache is away, the primary alone verifies the key, and local limits
   apply (:class:`~lockgate.stores.cached.store.CachedStore`).

Only the primary ever sets ``revoked_at``, and no step writes a key back to it, so a revocation is
final (K3).

Other stores admit by the row itself. Their refusals, which processes remember, end by the change
counter: see :mod:`lockgate.stores.resilience.refusal_cache`.
"""

from collections.abc import Coroutine
from typing import Any, Final

from ...core.api_keys import ApiKey, KeyState
from ...core.key_format import Token
from ...sync import together
from ..answers import REFUSED_BY_STATE, UNKNOWN, Admission, Verdict
from ..committed import after_commit
from ..resilience.older_leases import leases_ended, noted_leases
from ..rows import PLAN, Commit, Outcome
from .base import CacheStore, PrimaryStore

UNTOLD: Final = (
    "The cache could not be told: requests may be decided by what it copied before, until it is "
    "compared with the database, which each process does twice a second."
)
"""What remains to happen after a change of the primary that could not reach the cache."""
_FORGOTTEN_AT_ONCE: Final = 64


class Copies:
    """The copies of a primary's keys and plans in a cache.

    Args:
        primary: keeps keys and plans.
        cache: keeps the copies.
    """

    def __init__(self, primary: PrimaryStore, cache: CacheStore) -> None:
        self._primary: Final = primary
        self._cache: Final = cache
        self.compared_servers: object = None
        """``served_by`` of the cache at the latest comparison; None before the first."""

    @property
    def may_be_outdated(self) -> bool:
        """Whether the copies may lack a change: the servers that hold them were not compared."""
        return self._cache.served_by is not self.compared_servers

    async def find(self, token: Token) -> ApiKey | None:
        """Return the primary's key, in any state; None without one or for a wrong secret."""
        key = await self._primary.find(token.handle)
        if key is None:
            token.compare_with_dummy()
            return None
        return key if token.accepts(key) else None

    async def fill(self, token: Token) -> Admission | None:
        """Copy a key into the cache; return the refusal of a key that is wrong or revoked.

        Only a token with the right secret causes a copy.
        """
        key = await self.find(token)
        if key is None:
            return UNKNOWN
        fill_token = await self._cache.fill_token(key.organization)
        key = await self._primary.find(token.handle)  # Again: this reading is newer than the token.
        if key is None:
            return UNKNOWN
        if key.revoked_at is not None:
            return Admission(Verdict.REVOKED, key)
        placed = await self._primary.read(PLAN.to_change, (key.organization,))  # Not from memory.
        await self._cache.install(key, placed.first, fill_token)
        return None

    async def change(self, commit: Commit, made: Coroutine[Any, Any, Outcome]) -> Outcome:
        """Change the primary by a commit; if it voids answers, forget the copies, and wait for the
        leases that were granted by them, before the caller has the outcome.

        Raises:
            ChangeCommitted: the primary has changed, and the cache failed, outside of
                :func:`~lockgate.stores.committed.collecting`.
        """
        try:
            outcome = await made
        except BaseException:
            # It may have taken effect (D33). Its own failure is what the caller needs to know.
            if commit.voids:
                await self._forget(commit.owner)
            raise
        if not commit.has_voided(outcome):
            return outcome
        return await after_commit(outcome, commit.owner, UNTOLD, self._end(commit))

    async def _end(self, commit: Commit) -> None:
        """Forget the copies of an organization, and wait for the leases that they granted."""
        with noted_leases() as noted:
            await self._cache.forget(commit.owner)
        if commit.waits_for_leases:
            await leases_ended(self._cache, commit.owner, noted)

    async def compare(self) -> None:
        """Forget the copies of organizations that changed since the last comparison (K4).

        Usually the changing process has forgotten them. It has not if it died before, could not
        reach the cache, or the cache lost data since.
        """
        served_by = self._cache.served_by
        told = await self._cache.caught_up()
        changes = await self._primary.changes(told)
        failure: Exception | None = None
        for start in range(0, len(changes.organizations), _FORGOTTEN_AT_ONCE):
            some = changes.organizations[start : start + _FORGOTTEN_AT_ONCE]
            failures = await together(map(self._forget, some))
            # A failure for one organization delays no other.
            failure = next(filter(None, failures), failure)
        if failure is not None:
            raise failure
        if changes.change_counter != told:
            await self._cache.catch_up(told, changes.change_counter)
        self.compared_servers = served_by

    async def confirm(self, token: Token, admission: Admission, address: str | None) -> Admission:
        """Confirm an admission by a copy that may be outdated: ask the primary about the key.

        The key that is returned has the primary's fields, such as its scopes.
        """
        verdict, copy, _, reading, _, _ = admission
        if verdict is not Verdict.ADMITTED or copy is None or reading is None:
            return admission
        key = await self.find(token)
        if key is None:
            return UNKNOWN
        state = key.state(reading.now)
        if state is not KeyState.ACTIVE:
            return Admission(REFUSED_BY_STATE[state], key)
        if key.details is not None and not key.details.allows(address):
            return Admission(Verdict.ELSEWHERE, key)
        return admission._replace(key=ApiKey(*key[:-2], *copy[-2:]))

    async def _forget(self, organization: str) -> Exception | None:
        """Forget the copies of an organization; return the failure, if any."""
        try:
            await self._cache.forget(organization)
        except Exception as failed:
            return failed
        return None
