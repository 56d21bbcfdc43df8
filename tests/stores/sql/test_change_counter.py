"""The change counter grows with every change, in the order in which changes become visible."""

from __future__ import annotations

from lockgate import run
from lockgate.core.changes import drafted_change
from lockgate.core.digests import Digest
from lockgate.core.plans import Organization
from lockgate.core.timestamps import DAY
from lockgate.stores.cached.base import COPIES_LAST

from ..making import HOSTILE, NOW, account, at_once, draft
from .backends import Backend, Borrowed
from .test_pruning import prune


def test_calls_without_a_change_do_not_advance_the_counter(store: Borrowed) -> None:
    key = run(store.insert(draft("org_1"), None, NOW))
    run(store.revoke_if_live("org_1", key.id, NOW))
    before = run(store.freshness()).change_counter
    run(store.insert(draft("org_1"), None, NOW))  # It contradicts no answer.
    run(store.revoke_if_live("org_2", key.id, NOW))
    run(store.revoke_if_live("org_nowhere", key.id, NOW))
    run(store.rehash_if(key.handle, Digest("sha256", b""), Digest("sha256", b"x")))
    run(store.rehash_if("nobody", Digest("sha256", b""), Digest("sha256", b"x")))
    assert run(store.freshness()).change_counter == before


def test_the_first_change_of_all_is_recorded_once(store: Borrowed) -> None:
    key = run(store.insert(draft("org_1"), None, NOW))
    run(store.revoke_if_live("org_1", key.id, NOW, change=drafted_change("key_revoked", key.id)))
    (change,) = run(store.change_log("org_1", 10))
    assert (change.number, change.at, change.key) == (1, NOW, key.id)
    found = run(store.get("org_1", key.id))
    assert found is not None
    assert found.revoked_at == NOW
    assert run(store.freshness()).change_counter == run(store.changes(0)).change_counter != 0
    assert run(store.changes(0)).organizations == ["org_1"]
    before = run(store.now())
    assert before <= run(store.freshness()).now <= run(store.now())


def test_the_changes_since_a_value_name_the_changed_organizations(store: Borrowed) -> None:
    start = run(store.now())
    for id in HOSTILE:
        run(store.put_organization(Organization(id, "creator")))
    middle = run(store.changes(None))
    assert sorted(middle.organizations) == sorted(HOSTILE)
    assert start <= middle.change_counter <= run(store.now()) + 1
    run(store.put_organization(Organization(HOSTILE[3], "free")))
    last = run(store.changes(middle.change_counter))
    assert last.organizations == [HOSTILE[3]]
    assert last.change_counter == run(store.freshness()).change_counter
    assert run(store.changes(last.change_counter)).organizations == []
    assert sorted(run(store.changes(start - COPIES_LAST)).organizations) == sorted(HOSTILE)


def test_reading_on_from_the_last_value_misses_no_change(store: Borrowed, backend: Backend) -> None:
    stores = [backend.open(beside=store) for _ in range(3)]
    reader = store
    run(reader.freshness())
    done: list[bool] = []
    seen: set[str] = set()

    def work(index: int) -> None:
        if index < len(stores):
            for number in range(12):
                run(stores[index].put_organization(Organization(f"{index}.{number}", "free")))
            done.append(True)
            return
        change_counter = 0
        while True:
            last = len(done) == len(stores)
            changes = run(reader.changes(change_counter))
            seen.update(changes.organizations)
            change_counter = changes.change_counter
            if last:
                return

    at_once(len(stores) + 1, work)
    assert len(seen) == 36
    for one in stores:
        run(one.close())


def test_a_claim_that_revokes_keys_or_the_token_advances_the_counter(store: Borrowed) -> None:
    run(store.register(account(), draft("org_1"), NOW))
    before = run(store.freshness()).change_counter
    run(store.claim_if_unclaimed("org_1", "user", revoke=False, keep_token=True, now=NOW))
    assert run(store.freshness()).change_counter == before
    for revoke in (False, True):
        run(store.claim_if_unclaimed("org_1", "user", revoke=revoke, keep_token=revoke, now=NOW))
        assert (run(store.freshness()).change_counter or 0) > (before or 0)
        before = run(store.freshness()).change_counter


def test_a_removal_of_keys_or_of_an_account_names_its_organization(
    store: Borrowed, backend: Backend
) -> None:
    """Its row stays for a day or two, so that every cache learns of the removal."""
    run(store.insert(draft("org_2", lifetime=DAY), None, NOW))
    run(store.register(account(), draft("org_1"), NOW))
    before = run(store.changes(None)).change_counter
    run(store.remove_ended(0, NOW))
    assert run(store.changes(before)).organizations == []
    run(store.remove_ended(0, NOW + DAY))
    run(store.remove_unclaimed(DAY, 10, NOW + DAY))
    prune(backend, store.tables, run(store.now()) + DAY - 1)
    changes = run(store.changes(before))
    assert changes.change_counter > before
    assert sorted(changes.organizations) == ["org_1", "org_2"]
