"""The change counter grows with every change, in the order in which changes become visible."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lockgate import run
from lockgate.core.accounts import AccountDraft
from lockgate.core.changes import drafted_change
from lockgate.core.digests import Digest
from lockgate.core.plans import Organization
from lockgate.stores.cached.base import COPIES_LAST
from lockgate.stores.sql import SqlStore

from ..making import HOSTILE, NOW, at_once, draft
from .backends import Backend


@pytest.fixture
def store(backend: Backend) -> Iterator[SqlStore]:
    opened = backend.open()
    yield opened
    run(opened.close())


def test_every_change_of_a_key_or_plan_advances_the_counter(store: SqlStore) -> None:
    epochs = [run(store.freshness()).change_counter or 0]
    key = run(store.insert(draft("org_1"), None, NOW))
    assert run(store.freshness()).change_counter == epochs[0], (
        "a key that is new contradicts no answer"
    )
    new = Digest("sha256", b"x" * 32)
    for change in (
        lambda: run(store.revoke_if_live("org_1", key.id, NOW)),
        lambda: run(store.put_organization(Organization("org_1", "creator"))),
        lambda: run(store.rehash_if(key.handle, Digest(key.scheme, key.digest), new)),
    ):
        change()
        epochs.append(run(store.freshness()).change_counter or 0)
    assert epochs == sorted(set(epochs))


def test_calls_without_a_change_do_not_advance_the_counter(store: SqlStore) -> None:
    key = run(store.insert(draft("org_1"), None, NOW))
    run(store.revoke_if_live("org_1", key.id, NOW))
    before = run(store.freshness()).change_counter
    run(store.revoke_if_live("org_2", key.id, NOW))
    run(store.revoke_if_live("org_nowhere", key.id, NOW))
    run(store.rehash_if(key.handle, Digest("sha256", b""), Digest("sha256", b"x")))
    run(store.rehash_if("nobody", Digest("sha256", b""), Digest("sha256", b"x")))
    assert run(store.freshness()).change_counter == before


def test_the_first_change_of_all_is_recorded_once(store: SqlStore) -> None:
    key = run(store.insert(draft("org_1"), None, NOW))
    run(store.revoke_if_live("org_1", key.id, NOW, change=drafted_change("key_revoked", key.id)))
    (change,) = run(store.change_log("org_1", 10))
    assert (change.number, change.at, change.key) == (1, NOW, key.id)
    found = run(store.get("org_1", key.id))
    assert found is not None
    assert found.revoked_at == NOW
    assert run(store.freshness()).change_counter == run(store.changes(0)).change_counter != 0
    assert run(store.changes(0)).organizations == ["org_1"]


def test_the_changes_since_a_value_name_the_changed_organizations(store: SqlStore) -> None:
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


def test_reading_on_from_the_last_value_misses_no_change(backend: Backend) -> None:
    tables = backend.take()
    stores = [SqlStore(backend.url, prefix=tables.prefix) for _ in range(3)]
    reader = SqlStore(backend.url, prefix=tables.prefix)
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
    for store in (*stores, reader):
        run(store.close())
    backend.give(tables)


def test_a_store_with_a_resolver_has_no_change_counter(backend: Backend) -> None:
    store = backend.open(resolver=lambda id: None)
    assert run(store.freshness()).change_counter is None
    run(store.close())


def test_a_claim_that_revokes_keys_or_the_token_advances_the_counter(store: SqlStore) -> None:
    account = AccountDraft("org_1", "agent", "a@example.com", None, "handle", "sha256", b"d")
    run(store.register(account, draft("org_1"), NOW))
    before = run(store.freshness()).change_counter
    run(store.claim_if_unclaimed("org_1", "user", revoke=False, keep_token=True, now=NOW))
    assert run(store.freshness()).change_counter == before
    for revoke in (False, True):
        run(store.claim_if_unclaimed("org_1", "user", revoke=revoke, keep_token=revoke, now=NOW))
        assert (run(store.freshness()).change_counter or 0) > (before or 0)
        before = run(store.freshness()).change_counter
