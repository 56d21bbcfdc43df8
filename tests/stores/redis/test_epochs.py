"""The epoch of Redis: another number after every change, and never an old one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lockgate import run
from lockgate.rules.digests import Digest
from lockgate.rules.plans import Organization
from lockgate.stores.redis import RedisStore

from ..making import NOW, draft
from .backends import opened


@pytest.fixture(params=["single", "cluster"])
def store(request: pytest.FixtureRequest) -> Iterator[RedisStore]:
    found = opened(request.param)
    yield found
    run(found.close())


def test_whatever_changes_a_key_or_a_plan_moves_it(store: RedisStore) -> None:
    epochs = [run(store.epoch())]
    key = run(store.insert(draft("org_1"), None, NOW))
    new = Digest("sha256", b"x" * 32)
    assert run(store.epoch()) == epochs[0]
    for change in (
        lambda: run(store.revoke_if_live("org_1", key.id, NOW)),
        lambda: run(store.put_organization(Organization("org_1", "creator"))),
        lambda: run(store.rehash_if(key.handle, Digest(key.scheme, key.digest), new)),
    ):
        change()
        epochs.append(run(store.epoch()))
    assert len(set(epochs)) == 4
    run(store.revoke_if_live("org_2", key.id, NOW))
    run(store.rehash_if("nobody", new, new))
    assert run(store.epoch()) == epochs[-1]


def test_what_was_lost_never_comes_back(store: RedisStore) -> None:
    before = run(store.epoch())
    name = store._names.epoch
    from lockgate.stores.redis.calls import command
    from lockgate.stores.redis.names import slot_of

    run(store._ask(command(slot_of(name), b"DEL", name)))
    assert run(store.epoch()) not in {None, before}
