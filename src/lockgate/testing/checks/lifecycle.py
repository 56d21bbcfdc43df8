"""Checks of the store as a whole: its clock, its change counter, its expiry."""

from collections.abc import Awaitable, Callable
from itertools import pairwise

from ...core.digests import Digest
from ...core.leases import TO_LIST, to_acquire, to_release, to_renew
from ...core.ledger import Hit, Peek, Reset
from ...core.limits import Limit, bound
from ...core.plans import LONGEST_SPAN, Organization
from ...core.timestamps import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from ...stores.answers import UNKNOWN, Verdict
from ...stores.base import PAGE_AT_MOST, Store
from ...stores.key_value import RecordStore
from ..calls import Call
from ..factories import EXACT, NOW, PLANS, Factory
from ..guarantees import Broken
from .check import Check

Leftovers = Callable[[Store, int], Awaitable[int] | int]
"""Returns the number of organizations with stored windows or slots at an instant."""

IDLE = 40


async def without_now_the_stores_own_clock_decides(store: Store) -> None:
    """Without ``now``, a verb's time is between two readings of the store's clock."""
    factory = Factory()
    times: list[int | None] = [await store.now()]
    key = await store.insert(factory.draft(), None)
    times.append(key.created_at)
    times.append((await store.charge("org_1", Hit(EXACT.windows, 1))).now)
    times.append((await store.charge("org_1", Peek(EXACT.windows))).now)
    for lease in (
        (await store.charge("org_1", to_acquire("a", "me", 1, HOUR))).slot,
        (await store.charge("org_1", to_renew("a", "me", HOUR))).slot,
        *(await store.charge("org_1", TO_LIST)).slots,
    ):
        times.append(lease and lease.deadline - HOUR)
    await store.charge("org_1", to_release("a", "me"))
    times.append(await _admitted_by_the_stores_clock(store, factory))
    account, _ = await store.register(factory.account("org_2"), factory.draft("org_2"))
    times.append(account.created_at)
    signed_in = await store.sign_in("org_2")
    times.append(signed_in and signed_in.signed_in_at)
    removed = await store.remove_unclaimed(MINUTE, 9)
    if removed:
        raise Broken("W12", f"Called without now, the store removed {removed}, used just before.")
    claimed = await store.claim_if_unclaimed("org_2", "ada", revoke=True, keep_token=False)
    times.append(claimed and claimed.claimed_at)
    revoked = await store.revoke_if_live("org_1", key.id)
    times.append(revoked and revoked.revoked_at)
    times.append(await store.now())
    # Some instants are stored in whole milliseconds.
    told = [(time or 0) // MILLISECOND for time in times]
    if any(later < earlier for earlier, later in pairwise(told)):
        said = ", ".join(f"{time - told[0]:+}" for time in told)
        raise Broken("W12", f"Called without now, the store went by these times (ms): {said}.")


async def _admitted_by_the_stores_clock(store: Store, factory: Factory) -> int | None:
    # One key ended a second ago, and one ends in a minute.
    made, begun, admission = [factory.key(), factory.key()], await store.now() - SECOND, UNKNOWN
    for key, lifetime in zip(made, (1, MINUTE), strict=True):
        await store.insert(
            factory.draft("org_3", key=key, lifetime=lifetime, at=begun), None, begun
        )
    for key, right in zip(made, (Verdict.EXPIRED, Verdict.ADMITTED), strict=True):
        admission = await store.admit(factory.token(key), 1, PLANS)
        if admission.verdict is not right:
            said = f"a key is {admission.verdict.value} where {right.value} is right"
            raise Broken("W12", f"Called without now, {said}.")
    counts = (await Call("census", ()).on(store)).counts
    if sum(counts.values()) != 2:
        raise Broken("W12", f"Called without now, the census of 2 live keys is {counts}.")
    listed = len(await store.list_live("org_3", PAGE_AT_MOST))
    if listed != 1:
        raise Broken("W12", f"Called without now, {listed} keys are listed where 1 is live.")
    removed = (await Call("remove_ended", (MINUTE,)).on(store)).removed
    if removed:
        raise Broken("W12", f"Called without now, {removed} keys are removed that ended just now.")
    return admission.reading and admission.reading.now


async def the_change_counter_grows_with_every_change(store: Store) -> None:
    """The change counter and local version change with every change to keys, plans or sessions."""
    factory = Factory()
    draft, rotated, successor = factory.draft(), factory.draft(), factory.draft()
    key = await store.insert(draft, None, NOW)
    other = await store.insert(rotated, None, NOW)
    await store.charge("org_1", Hit(EXACT.windows, 1), NOW)
    for organization in ("org_2", "org_3", "org_4", "org_5"):
        await store.register(factory.account(organization), factory.draft(organization), NOW)
    await store.claim_if_unclaimed("org_3", "ada", revoke=False, keep_token=True, now=NOW)
    revoking = (("revoke", True), ("keep_token", False), ("now", NOW))
    old, new = Digest(draft.scheme, draft.digest), Digest(draft.scheme, b"\x07" * 32)
    for change in (
        Call("charge", ("org_1", Reset(), NOW)),
        Call("update_if", (key, key._replace(scopes=("jobs:read",)), NOW)),
        Call("rotate_if", (other, other._replace(revoked_at=NOW), successor, None, NOW)),
        Call("rehash_if", (draft.handle, old, new)),
        Call("put_organization", (Organization("org_1", EXACT.name),)),
        Call("put_organization", (Organization("org_1", EXACT.name, (("rpm", 4),)),)),
        Call("revoke_if_live", ("org_1", draft.id, NOW)),
        Call("claim_if_unclaimed", ("org_2", "ada"), revoking),
        Call("claim_if_unclaimed", ("org_3", "ada"), revoking),
        Call("sign_out", ("org_5",)),
        Call(
            "claim_if_unclaimed",
            ("org_5", "ada"),
            (("revoke", False), ("keep_token", False), ("now", NOW)),
        ),
        Call("remove_unclaimed", (DAY, 9, NOW + DAY)),
        Call("remove_ended", (DAY, NOW + DAY)),
    ):
        change_counter = (await store.freshness()).change_counter
        local_version = store.local_version
        await change.on(store)
        later = (await store.freshness()).change_counter
        if change_counter is not None and (later is None or later <= change_counter):
            raise Broken(
                "D5",
                f"The change counter was {change_counter} before it, and is {later}.",
                [str(change)],
            )
        if local_version is not None and store.local_version is local_version:
            raise Broken("D5", "`local_version` is the same object as before it.", [str(change)])


async def a_version_of_records_is_never_reused(store: Store) -> None:
    """In a record store, a rewritten record never has the version of an earlier one."""
    if not isinstance(store, RecordStore):
        return
    records, name, versions = store.records, "org:check", list[int]()
    for turn in (b"first", b"second"):
        await records.put_if(name, turn, None, None)
        kept = await records.get(name)
        versions.append(kept[1] if kept else 0)
        await records.put_if(name, None, versions[-1], None)
    if versions[0] == versions[1]:
        said = f"A value that was taken away and written again had the version {versions[0]} twice."
        raise Broken("W3", f"{said} Who read the old one can write over the new one.")


def forgets(leftovers: Leftovers) -> Check:
    """Make the check that idle organizations leave no state after two of the longest windows (W10).

    Args:
        leftovers: returns the number of organizations with stored windows, named limits or slots.
    """

    async def idle_organizations_leave_nothing(store: Store) -> None:
        for number in range(IDLE):
            await store.charge(f"idle_{number}", Hit(EXACT.windows, 1), NOW)
            await store.charge(f"idle_{number}", to_acquire("job", "me", 1, MINUTE), NOW)
        end = NOW + 2 * LONGEST_SPAN
        for part in range(47, -1, -1):
            await store.charge("busy", Hit(EXACT.windows, 1), end - part * LONGEST_SPAN // 24)
        for _ in range(2 * IDLE):
            await store.charge("busy", Hit(EXACT.windows, 1), end)
            await store.charge("busy", to_acquire("job", "me", 1, MINUTE), end)
            await store.charge("busy", to_release("job", "me"), end)
        left = leftovers(store, end)
        left = left if isinstance(left, int) else await left
        if left > 1:
            said = f"{left} of {IDLE + 1} organizations are kept after two windows, one was in use."
            raise Broken("W10", said)

    check = idle_organizations_leave_nothing
    return Check("W10", "windows", check.__name__, crowded=False, of=check)


def forgets_limits(leftovers: Leftovers) -> Check:
    """Make the check that idle organizations leave no named limits (W10).

    A store may keep them for one more span than the windows of a plan, for a clock that steps
    back (W11).

    Args:
        leftovers: as for :func:`forgets`.
    """

    async def idle_organizations_leave_no_named_limits(store: Store) -> None:
        limits = bound((Limit("idle", "9999/day"),), None)
        for number in range(IDLE):
            await store.charge(f"idle_{number}", Hit(EXACT.windows, 1, limits), NOW)
            await store.charge(f"idle_{number}", Hit((), 1, limits), NOW + 1)
        end = NOW + 3 * LONGEST_SPAN + SECOND
        for part in range(1, 73):
            await store.charge(
                "busy", Hit(EXACT.windows, 1, limits), NOW + part * LONGEST_SPAN // 24
            )
        for _ in range(2 * IDLE):
            await store.charge("busy", Hit(EXACT.windows, 1, limits), end)
        left = leftovers(store, end)
        left = left if isinstance(left, int) else await left
        if left > 1:
            said = f"{left} of {IDLE + 1} organizations are kept after three windows, 1 was in use."
            raise Broken("W10", said)

    check = idle_organizations_leave_no_named_limits
    return Check("W10", "limits", check.__name__, crowded=False, of=check)


_clock = without_now_the_stores_own_clock_decides
_memory = the_change_counter_grows_with_every_change
_version = a_version_of_records_is_never_reused
CHECKS: tuple[Check, ...] = (
    Check("W12", "admission", _clock.__name__, crowded=False, of=_clock),
    Check("D5", "admission", _memory.__name__, crowded=False, of=_memory),
    Check("W3", "admission", _version.__name__, crowded=False, of=_version),
)
