"""Rows in Redis that no operation of this process has left as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from lockgate import run
from lockgate.core.api_keys import Position
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.codec import write_place
from lockgate.stores.redis.key_names import fields_of

from ..making import NOW, account, draft_of, new_key
from .backends import server


@pytest.fixture
def redis() -> Iterator[Any]:
    with server("redis").client() as client:
        yield client


@pytest.fixture
def store() -> Iterator[RedisStore]:
    store = RedisStore(server("redis").url(), prefix=f"rows-{uuid4().hex}")
    yield store
    run(store.close())


def test_a_key_that_another_release_wrote_is_changed_D43(redis: Any, store: RedisStore) -> None:
    key = run(store.insert(draft_of(new_key()), None))
    name, field = store._names.place("org_1").organization, fields_of(key.id)[0]
    record = redis.hget(name, field)
    spaced = record.replace(b'["', b'[ "')
    assert spaced != record
    redis.hset(name, field, spaced)
    new = key._replace(name="new")
    assert run(store.update_if(key, new))
    assert run(store.find(key.handle)) == new


def test_a_claim_leaves_keys_as_they_ended_before_their_slot_had_moved_D4(
    redis: Any, store: RedisStore
) -> None:
    first, other = new_key(), new_key()
    run(store.register(account(), draft_of(first), NOW))
    key = run(store.insert(draft_of(other), None, NOW))
    revoked = run(store.revoke_if_live("org_1", key.id, NOW + 1))
    assert revoked is not None
    place = store._names.place("org_1")
    before, after = (write_place(Position(one.ends_at, one.id)) for one in (key, revoked))
    redis.zadd(place.live, {before: 0})
    redis.zrem(place.ended, after)
    claim = store.claim_if_unclaimed("org_1", "ada", revoke=True, keep_token=False, now=NOW + 2)
    assert run(claim)
    assert run(store.find(key.handle)) == revoked
    ended = run(store.find(first.handle))
    assert ended is not None
    assert ended.revoked_at == NOW + 2
    assert redis.zrange(place.live, 0, -1) == []
    assert set(redis.zrange(place.ended, 0, -1)) == {
        after,
        write_place(Position(NOW + 2, ended.id)),
    }
