"""The change counter of Redis: another number after every change, and never an old one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lockgate import run
from lockgate.core.digests import Digest
from lockgate.core.plans import Organization
from lockgate.stores.redis import RedisStore

from ..making import NOW, draft
from .backends import opened


@pytest.fixture(params=["single", "cluster"])
def store(request: pytest.FixtureRequest) -> Iterator[RedisStore]:
    found = opened(request.param)
    yield found
    run(found.close())


def test_every_change_of_a_key_or_a_plan_moves_the_counter(store: RedisStore) -> None:
    epochs = [run(store.change_counter())]
    key = run(store.insert(draft("org_1"), None, NOW))
    new = Digest("sha256", b"x" * 32)
    assert run(store.change_counter()) == epochs[0]
    for change in (
        lambda: run(store.revoke_if_live("org_1", key.id, NOW)),
        lambda: run(store.put_organization(Organization("org_1", "creator"))),
        lambda: run(store.rehash_if(key.handle, Digest(key.scheme, key.digest), new)),
    ):
        change()
        epochs.append(run(store.change_counter()))
    assert len(set(epochs)) == 4
    run(store.revoke_if_live("org_2", key.id, NOW))
    run(store.rehash_if("nobody", new, new))
    assert run(store.change_counter()) == epochs[-1]


def test_a_lost_counter_gets_a_new_value(store: RedisStore) -> None:
    before = run(store.change_counter())
    name = store._names.change_counter
    from lockgate.stores.redis.key_names import slot_of
    from lockgate.stores.redis.transport.commands import command

    run(store._ask(command(slot_of(name), b"DEL", name)))
    assert run(store.change_counter()) not in {None, before}
