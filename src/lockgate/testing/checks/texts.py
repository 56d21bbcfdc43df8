"""Checks of values that a database folds, trims, normalizes, escapes or reads as numbers."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeVar

from ...core.api_keys import ApiKey, KeyDetails
from ...core.changes import Actor, ChangeDraft
from ...core.digests import Digest
from ...core.holds import Look, Settle, Take, budgets
from ...core.key_search import KeySearch
from ...core.leases import TO_LIST, to_acquire, to_release, to_renew
from ...core.ledger import Hit, LeasesOut, Peek, Reset, settling
from ...core.limits import Limit, bound
from ...core.plans import Organization, Plan, PlanBook
from ...core.quota_leases import LEAST, LeaseRequest, Settlement
from ...core.timestamps import DAY, HOUR, MINUTE, SECOND
from ...stores.answers import HistoryOwner
from ...stores.base import PAGE_AT_MOST, Store
from ..factories import ALIKE, ALIKE_TO_PEOPLE, EXACT, LONGEST, NOW, SEPARATED, Factory
from ..guarantees import Broken
from .check import Check, alone
from .usage import added_units, addition

T = TypeVar("T")

HANDLES: Final = (
    "1e000003",
    "00001000",
    "00000010",
    "0x00000A",
    "0000000A",
    "0000000a",
    "1E000003",
)
"""Equal as numbers, or but for their case."""
BYTES: Final = (
    b"a" * 32,
    b"A" * 32,
    b"a" * 31,
    b"a" * 32 + b" ",
    b"a" * 32 + b"\0",
    b"\0" * 32,
    b"\0" * 31,
    b" " * 32,
    b"61" * 16,
    b"\\x61",
    b"\xe9" * 16,
    b"\xc3\xa9" * 8,
    b"\xff" * 32,
    b"\r\n" * 16,
    b"\n" * 16,
    b"1",
    b"01",
    b"%",
    b"'\"\\",
)
_HOLD: Final = f"{1:032x}"
_LEASE: Final = f"{1:016x}"
SEALS: Final = tuple(f"01020304:{seal}" for seal in ("ab", "AB", "ab ", "0e1", "0e2", "00", "0"))
SCHEMES: Final = (
    "a",
    "A",
    "legacy:a",
    "legacy:A",
    "legacy:a:b",
    "1",
    "01",
    "1.0",
    "%",
    "_",
    "null",
)


@alone("W8", "windows")
async def ids_that_look_alike_have_separate_windows(store: Store, _: Factory) -> None:
    for index, id in enumerate(ALIKE):
        await store.charge(id, Hit(EXACT.windows, index % 9 + 1), NOW)
    for some in (ALIKE[::2], ALIKE[1::2]):  # One of two that are side by side, then the other.
        for id in some:
            await store.charge(id, Reset())
        for id in ALIKE:
            await store.charge(id, Peek(EXACT.windows), NOW)


@alone("W8", "limits")
async def ids_that_look_alike_have_separate_named_limits(store: Store, _: Factory) -> None:
    limits = bound((Limit("many", "9999/hour"),), None)
    for index, id in enumerate(ALIKE):
        await store.charge(id, Hit((), index + 1, limits), NOW)
    for id in ALIKE[::5]:
        await store.charge(id, Reset())
    for id in ALIKE:
        await store.charge(id, Peek((), limits), NOW)


@alone("W8", "holds")
async def ids_that_look_alike_have_separate_budgets(store: Store, _: Factory) -> None:
    limits = bound((Limit("many", "9999/hour"),), None)
    assert limits is not None, "there is a limit"
    limits = budgets(limits)
    for index, id in enumerate(ALIKE):
        await store.charge(id, Take(_HOLD, limits, (index + 1,), MINUTE, 9), NOW)
    for id in ALIKE[::5]:
        await store.charge(id, Settle(_HOLD, limits.fields, (1,)), NOW)
    for id in ALIKE:
        await store.charge(id, Look(limits, (1,), 9), NOW)


@alone("W8", "quota_leases")
async def ids_that_look_alike_have_separate_leases(store: Store, factory: Factory) -> None:
    plan = Plan("busy", rpm=50_000, rph=None, rpd=None, concurrent=None)
    plans = PlanBook([plan], custom=(), default="busy")
    for index, id in enumerate(SEPARATED):
        key = factory.key()
        await store.insert(factory.draft(id, key=key), None, NOW)
        asked = LeaseRequest(_LEASE, index + LEAST, SECOND)
        await store.admit(factory.token(key), 1, plans, NOW, lease=asked)
    for id in SEPARATED[::5]:
        await store.charge(id, settling(plan.windows, [Settlement(_LEASE, ())]), NOW)
    for id in SEPARATED:
        await store.charge(id, LeasesOut(), NOW)


@alone("W8", "slots")
async def ids_that_look_alike_have_separate_slots(store: Store, _: Factory) -> None:
    for index, (id, other) in enumerate(_beside(ALIKE)):
        await store.charge(id, to_acquire(f"job {index}", "me", 1, MINUTE), NOW)
        await store.charge("jobs", to_acquire(id, "me", None, MINUTE), NOW)
        await store.charge("owners", to_acquire(f"job {index}", id, None, MINUTE), NOW)
        await store.charge("owners", to_renew(f"job {index}", other, HOUR), NOW)
    await store.charge("jobs", TO_LIST, NOW)
    await store.charge("owners", TO_LIST, NOW)
    for index, (id, other) in enumerate(_beside(ALIKE)):
        await store.charge(id, TO_LIST, NOW)
        await store.charge("jobs", to_release(id, "me"), NOW)
        await store.charge("owners", to_release(f"job {index}", other), NOW)
        await store.charge("owners", to_renew(f"job {index}", id, HOUR), NOW)
    await store.charge("owners", TO_LIST, NOW)


@alone("K1", "keys")
async def the_texts_of_a_key_are_kept_as_they_are(store: Store, factory: Factory) -> None:
    """In every field that is stored, found by, or compared before a change."""
    keys: list[ApiKey] = []
    for name, organization in zip((*ALIKE_TO_PEOPLE, *LONGEST), ALIKE, strict=False):
        details = KeyDetails(
            successor=name, created_by=name, labels=((name, name),), others=((name, '"1"'),)
        )
        draft = factory.draft(organization, name=name, details=details, scopes=(name, "1"))
        keys.append(await store.insert(draft._replace(prefix=name[-64:]), 1, NOW))
    for key, other in _beside(keys):
        await store.get(key.organization, key.id)
        await store.get(other.organization, key.id)
        await store.list(key.organization, PAGE_AT_MOST)
        await store.revoke_if_live(other.organization, key.id, NOW)
        assert key.details is not None and other.details is not None
        for field in (
            {"name": other.name},
            {"scopes": other.scopes},
            {"details": key.details._replace(created_by=other.name)},
            {"details": key.details._replace(labels=other.details.labels)},
            {"details": key.details._replace(successor=other.name)},
        ):
            wrong = key._replace(**field)
            await store.update_if(wrong, wrong._replace(expires_at=NOW + DAY), NOW)
        new = key._replace(name=other.name, scopes=other.scopes, details=other.details)
        await store.update_if(key, new, NOW)
        await store.find(key.handle)


@alone("D3", "keys")
async def handles_that_look_alike_are_separate(store: Store, factory: Factory) -> None:
    for index, handle in enumerate(HANDLES):
        await store.insert(factory.draft()._replace(handle=handle), None, NOW + index)
        await store.insert(factory.draft()._replace(handle=f"~{handle}_%"), None, NOW + index)
    for handle in (*HANDLES, "1000", "10", "~1e000003__", "1e00000%", "%", "_" * 8):
        await store.find(handle)


@alone("K9", "keys")
async def digests_that_look_alike_are_told_apart(store: Store, factory: Factory) -> None:
    """Also as bytes that are no text, and in the names of their schemes and in seals."""
    kept = (
        *(Digest("a", value, SEALS[0]) for value in BYTES),
        *(Digest("a", BYTES[0], seal) for seal in (*SEALS[1:], None)),
        *(Digest(scheme, BYTES[0], None) for scheme in SCHEMES[1:]),
    )
    for digest, other in _beside(kept):
        draft = factory.draft()._replace(
            scheme=digest.scheme, digest=digest.value, seal=digest.seal
        )
        key = await store.insert(draft, None, NOW)
        await store.rehash_if(draft.handle, other, digest)
        await store.update_if(
            key._replace(scheme=other.scheme, digest=other.value, seal=other.seal),
            key._replace(name="no"),
            NOW,
        )
        await store.find(draft.handle)
        await store.rehash_if(draft.handle, digest, other)
        await store.find(draft.handle)
    await store.census(NOW)


@alone("D14", "accounts")
async def the_texts_of_an_account_are_kept_as_they_are(store: Store, factory: Factory) -> None:
    texts = *ALIKE_TO_PEOPLE, *LONGEST
    for text, organization in zip(texts, ALIKE, strict=False):
        account = factory.account(organization, email=text, company=text, agent=text)
        await store.register(account, factory.draft(organization), NOW)
    for text, organization in zip(texts, ALIKE, strict=False):
        await store.account(organization)
        await store.unclaimed_by_email(text, PAGE_AT_MOST)
    for user, organization in zip(ALIKE, ALIKE, strict=True):
        for one in (user, f"{user}{user}"):
            await store.claim_if_unclaimed(
                organization, one, revoke=False, keep_token=True, now=NOW
            )
    for user in ALIKE:
        await store.accounts_by_user(user, PAGE_AT_MOST)
        await store.sign_in(user, NOW)


@alone("D25", "accounts")
async def the_names_of_plans_are_kept_as_they_are(store: Store, _: Factory) -> None:
    for index, (name, id) in enumerate(zip(ALIKE_TO_PEOPLE, ALIKE, strict=False)):
        await store.put_organization(Organization(id, name, (("rpd", None), ("rpm", index))), NOW)
    for id in ALIKE:
        await store.organization(id)


@alone("D44", "changes")
async def the_texts_of_a_record_are_kept_as_they_are(store: Store, factory: Factory) -> None:
    """Numbers, texts of digits, true and null are different values too."""
    for text in ALIKE:
        fields = ((text, text), ("1", 1), ("1", "1"), ("true", True), ("null", None), ("0", ()))
        change = ChangeDraft("key_created", text, Actor("user", text, text), fields, fields[::-1])
        await store.insert(factory.draft(text), None, NOW, change=change)
    for text in ALIKE:
        await store.change_log(text, 9)


@alone("K1", "admission")
async def a_search_tells_prefixes_apart_that_look_alike(store: Store, factory: Factory) -> None:
    for index, text in enumerate(ALIKE_TO_PEOPLE):
        draft = factory.draft()._replace(handle=f"~{index:042}", prefix=text)
        await store.insert(draft, None, NOW)
    for text in ALIKE_TO_PEOPLE[::2]:  # One of two that are side by side finds both.
        await store.search(KeySearch(prefix=text), PAGE_AT_MOST)


async def _histories(store: Store) -> None:
    if not store.keeps_history:
        return
    owners = [HistoryOwner(id, None) for id in ALIKE]
    owners += [HistoryOwner("org_1", handle) for handle in HANDLES]
    for index, owner in enumerate(owners, 1):
        await store.add_history({owner: addition(NOW, index)})
    for index, owner in enumerate(owners, 1):
        found = await added_units(store, owner)
        if found != index:
            raise Broken("W8", f"{index} units were added to {owner}, and it has {found}.")


def _beside(values: Sequence[T]) -> list[tuple[T, T]]:
    """Return each value with the one before it, which looks like it."""
    return [(values[0], values[-1]), *((value, before) for before, value in pairwise(values))]


histories_of_ids_that_look_alike_are_separate = Check(
    "W8", "admission", "histories_of_ids_that_look_alike_are_separate", False, _histories
)

CHECKS: tuple[Check, ...] = (
    ids_that_look_alike_have_separate_windows,
    ids_that_look_alike_have_separate_named_limits,
    ids_that_look_alike_have_separate_budgets,
    ids_that_look_alike_have_separate_leases,
    ids_that_look_alike_have_separate_slots,
    the_texts_of_a_key_are_kept_as_they_are,
    handles_that_look_alike_are_separate,
    digests_that_look_alike_are_told_apart,
    the_texts_of_an_account_are_kept_as_they_are,
    the_names_of_plans_are_kept_as_they_are,
    the_texts_of_a_record_are_kept_as_they_are,
    a_search_tells_prefixes_apart_that_look_alike,
    histories_of_ids_that_look_alike_are_separate,
)
