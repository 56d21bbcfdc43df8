"""Checks that instants of changes are those of the step that makes the change.

Callers leave the time to the store: with one of their own, they would decide these instants.
"""

from itertools import pairwise

from ...core.api_keys import ApiKey, KeyDetails
from ...core.changes import drafted_change
from ...core.key_format import Token
from ...core.plans import Organization
from ...stores.answers import Verdict
from ...stores.base import PAGE_AT_MOST, Store
from ..factories import book
from .callers import Callers
from .check import Check, crowded

_OPEN = book(None)
_ROUNDS = 4
_BEFORE = 4
"""Admissions that each caller makes before and after the revocation begins."""


@crowded("K4", "admission")
async def no_admission_has_a_later_instant_than_the_end_of_its_key(crowd: Callers) -> None:
    """A revocation, a claim or a rotation that ends a key overlaps with its admissions.

    An admission that is composed of calls finds its key in one and is charged in another, and a
    wrapper may have its keys in one store and be charged in another: there is no single instant.
    """
    if type(crowd.store).admit is Store.admit or crowd.store.innermost is not crowd.store:
        return
    for turn in range(3 * _ROUNDS):
        organization, made = f"org_{turn}", crowd.factory.key()
        draft = crowd.factory.draft(organization, key=made)
        _, key = await crowd.store.register(crowd.factory.account(organization), draft)
        last = await _admissions_beside_the_end(crowd, key, crowd.factory.token(made), turn % 3)
        await crowd.store.flush()
        found = await crowd.store.get(organization, key.id)
        ended = found.revoked_at if found is not None else None
        if found is None or ended is None:
            crowd.see(False, f"A key that was revoked is found as {found!r}.", "K3")
            continue
        said = "after the end of its key a request was admitted"
        crowd.see(last <= ended, f"{last - ended} microseconds {said}.")
        used = found.last_used_at or 0
        crowd.see(used <= ended, f"A key is last used {used - ended} microseconds after its end.")


async def _admissions_beside_the_end(crowd: Callers, key: ApiKey, token: Token, how: int) -> int:
    """End a key beside admissions with it, and return the latest instant of these."""
    store, successor = crowd.store, crowd.factory.draft(key.organization)

    async def end() -> None:
        match how:
            case 0:
                await store.revoke_if_live(key.organization, key.id)
            case 1:
                await store.claim_if_unclaimed(
                    key.organization, "ada", revoke=True, keep_token=False
                )
            case _:
                details = KeyDetails(key.created_at, successor.id)
                new = key._replace(revoked_at=key.created_at, details=details)
                await store.rotate_if(key, new, successor, None)

    async def work(index: int) -> int:
        last = 0
        for step in range(2 * _BEFORE):
            if index == 0 and step == _BEFORE:
                await end()
            admission = await store.admit(token, 1, _OPEN)
            if admission.verdict is Verdict.ADMITTED and admission.reading is not None:
                last = max(last, admission.reading.now)
        return last

    return max(await crowd.at_once(4, work))


@crowded("D44", "changes")
async def records_are_numbered_in_the_order_of_their_instants(crowd: Callers) -> None:
    """Callers change keys, the account and the plan of one organization at once."""
    store, factory = crowd.store, crowd.factory
    await store.register(
        factory.account(), factory.draft(), change=drafted_change("account_registered")
    )
    drafts = [[factory.draft() for _ in range(3)] for _ in range(8)]

    async def work(index: int) -> None:
        for step, draft in enumerate(drafts[index]):
            key = await store.insert(draft, None, change=drafted_change("key_created", draft.id))
            placed = Organization("org_1", "starter", (("rpm", 8 * step + index + 1),))
            await store.put_organization(placed, change=drafted_change("plan_assigned"))
            await store.revoke_if_live(
                "org_1", key.id, change=drafted_change("key_revoked", key.id)
            )

    await crowd.at_once(8, work)
    records = await store.change_log("org_1", PAGE_AT_MOST)
    for newer, older in pairwise(records):
        crowd.see(newer.number == older.number + 1, "A number of the change log is missing.")
        earlier = older.at - newer.at
        said = f"Record {newer.number} is {earlier} microseconds earlier than the one before it."
        crowd.see(earlier <= 0, said)
    ends = {record.key: record.at for record in records if record.action == "key_revoked"}
    for key in await store.list("org_1", PAGE_AT_MOST):
        if key.id in ends:
            said = f"A key was revoked at {key.revoked_at}, and its record is of {ends[key.id]}."
            crowd.see(key.revoked_at == ends[key.id], said)


CHECKS: tuple[Check, ...] = (
    no_admission_has_a_later_instant_than_the_end_of_its_key,
    records_are_numbered_in_the_order_of_their_instants,
)
