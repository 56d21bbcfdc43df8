"""Copies in Redis of what another store knows: good while their fence stands (K5)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from lockgate import Plan, PlanBook, run
from lockgate.core.ledger import LeasesOut, Peek
from lockgate.core.plans import Organization
from lockgate.core.quota_leases import LeaseRequest
from lockgate.stores.answers import Verdict
from lockgate.stores.redis import RedisStore

from ..making import BOOK, NOW, draft_of, new_key, token_of
from .backends import server

Backend = Callable[[], RedisStore]
_prefixes = count()


@pytest.fixture
def backend(backend: Backend) -> Backend:
    """Opens empty caches."""

    def cache() -> RedisStore:
        store = backend()
        store.hold_copies()
        return store

    return cache


def test_a_copy_is_believed_while_its_fence_stands(backend: Backend) -> None:
    store, made = backend(), new_key()
    key = draft_of(made).created(NOW)._replace(request_count=7, last_used_at=NOW - 1)
    assert run(store.admit(token_of(made), 1, BOOK, NOW)).verdict is Verdict.UNKNOWN
    fill_token = run(store.fill_token("org_1"))
    assert run(store.fill_token("org_1")) == fill_token
    assert run(store.install(key, Organization("org_1", "creator"), fill_token))
    admission = run(store.admit(token_of(made), 1, BOOK, NOW))
    assert admission.verdict is Verdict.ADMITTED
    assert admission.plan is not None
    assert admission.plan.name == "creator"
    assert admission.key == key._replace(request_count=8, last_used_at=NOW)
    run(store.forget("org_1"))
    assert run(store.admit(token_of(made), 1, BOOK, NOW)).verdict is Verdict.UNKNOWN
    assert run(store.charge("org_1", Peek(BOOK.default.windows), NOW)).used == (1, 1, 1)
    assert run(store.fill_token("org_1")) != fill_token
    run(store.close())


def test_a_copy_is_admitted_with_a_lease_D42(backend: Backend) -> None:
    store, made = backend(), new_key()
    key = draft_of(made).created(NOW)
    book = PlanBook([Plan("free", rpm=6_000, rph=6_000, rpd=6_000, concurrent=9)])
    asked = LeaseRequest(f"{1:016x}", 20, 1_000_000)
    assert run(store.admit(token_of(made), 1, book, NOW, lease=asked)).verdict is Verdict.UNKNOWN
    fill_token = run(store.fill_token("org_1"))
    assert run(store.install(key, None, fill_token))
    lease = run(store.admit(token_of(made), 1, book, NOW, lease=asked)).lease
    assert lease is not None
    run(store.forget("org_1"))
    assert run(store.charge("org_1", LeasesOut(), NOW)) == (lease,)
    run(store.close())


def test_k5_a_fill_that_races_a_revocation_installs_nothing(backend: Backend) -> None:
    store, made = backend(), new_key()
    key = draft_of(made).created(NOW)
    fill_token = run(store.fill_token("org_1"))
    run(store.forget("org_1"))
    assert not run(store.install(key, None, fill_token))
    other = run(store.fill_token("org_1"))
    assert not run(store.install(key, None, fill_token))
    assert run(store.admit(token_of(made), 1, BOOK, NOW)).verdict is Verdict.UNKNOWN
    assert run(store.install(key, None, other))
    assert run(store.admit(token_of(made), 1, BOOK, NOW)).verdict is Verdict.ADMITTED
    run(store.close())


@pytest.mark.parametrize("kind", ["single", "cluster"])
def test_a_store_and_a_cache_under_one_prefix_admit_none_of_each_others_keys(kind: str) -> None:
    kept, copied, prefix = new_key(), new_key(), f"shared{next(_prefixes)}"
    store, cache = (RedisStore(server(kind).url(), prefix=prefix) for _ in range(2))
    cache.hold_copies()
    key = run(store.insert(draft_of(kept), None, NOW))
    copy = draft_of(copied).created(NOW)
    assert run(cache.install(copy, None, run(cache.fill_token("org_1"))))
    for _ in range(2):
        assert run(store.admit(token_of(kept), 1, BOOK, NOW)).verdict is Verdict.ADMITTED
        assert run(store.admit(token_of(copied), 1, BOOK, NOW)).verdict is Verdict.UNKNOWN
        assert run(cache.admit(token_of(copied), 1, BOOK, NOW)).verdict is Verdict.ADMITTED
        assert run(cache.admit(token_of(kept), 1, BOOK, NOW)).verdict is Verdict.UNKNOWN
    assert [row.id for row in run(store.list("org_1", 10))] == [key.id]
    assert run(store.get("org_1", copy.id)) is None
    run(store.put_organization(Organization("org_1", "creator")))
    admission = run(cache.admit(token_of(copied), 1, BOOK, NOW))
    assert admission.plan is BOOK.default
    run(cache.forget("org_1"))
    assert run(cache.admit(token_of(copied), 1, BOOK, NOW)).verdict is Verdict.UNKNOWN
    assert run(store.admit(token_of(kept), 1, BOOK, NOW)).verdict is Verdict.ADMITTED
    for opened in (store, cache):
        run(opened.close())


def test_a_renewed_copy_keeps_its_count(backend: Backend) -> None:
    """Usage counted here may not have reached the primary yet."""
    store, made = backend(), new_key()
    key = draft_of(made).created(NOW)
    fill_token = run(store.fill_token("org_1"))
    for requests in (1, 2):
        assert run(store.install(key, None, fill_token))
        admission = run(store.admit(token_of(made), 1, BOOK, NOW))
        assert admission.key is not None
        assert admission.key.request_count == requests
    run(store.close())


def test_a_revoked_key_is_copied_as_revoked(backend: Backend) -> None:
    store, made = backend(), new_key()
    key = draft_of(made).created(NOW)._replace(revoked_at=NOW)
    assert run(store.install(key, None, run(store.fill_token("org_1"))))
    admission = run(store.admit(token_of(made), 1, BOOK, NOW))
    assert (admission.verdict, admission.key) == (Verdict.REVOKED, key)
    run(store.close())


def test_the_first_process_to_catch_up_records_the_change_counter(backend: Backend) -> None:
    store = backend()
    assert run(store.caught_up()) is None
    assert run(store.catch_up(None, NOW))
    assert not run(store.catch_up(None, NOW + 1))
    assert not run(store.catch_up(NOW - 1, NOW + 1))
    assert run(store.catch_up(NOW, NOW + 1))
    assert run(store.caught_up()) == NOW + 1
    run(store.close())
