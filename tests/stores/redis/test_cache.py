"""Copies in Redis of what another store knows: good while their fence stands (K5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis.exceptions import ResponseError

from lockgate import run
from lockgate.core.plans import Organization
from lockgate.stores.base import Verdict
from lockgate.stores.redis import RedisStore

from ..failing import store_fails
from ..making import BOOK, NOW, draft_of, new_key, token_of

Backend = Callable[[], RedisStore]


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
    assert run(store.peek("org_1", BOOK.default.windows, NOW)).used == (1, 1, 1)
    assert run(store.fill_token("org_1")) != fill_token
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


def test_a_pair_takes_no_keys_away_that_another_store_keeps_under_the_same_names(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    store, made = backend(), new_key()
    key = run(store.insert(draft_of(made), None, NOW))
    for verb in (store.fill_token, store.forget):
        with store_fails(ResponseError):
            run(verb("org_1"))
    assert run(store.find(made.handle)) == key
    assert "a prefix of its own" in caplog.text
    run(store.close())


def test_a_copy_made_anew_goes_on_counting(backend: Backend) -> None:
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
