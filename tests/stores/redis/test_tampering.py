"""An attacker writes to the Redis of a gate with peppers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockgate import run
from lockgate.core.api_keys import ApiKey
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.codec import Claim, write_claim, write_record
from lockgate.stores.redis.key_names import fields_of, slot_of
from lockgate.stores.redis.transport.commands import command

from ..tampering import check_tampering
from .backends import opened, server


def writing(store: RedisStore) -> Callable[[ApiKey, ApiKey], None]:
    """Writes the record of a key, and where its handle leads."""

    def ask(slot: int, *words: bytes) -> None:
        run(store._ask(command(slot, *words)))

    def write(before: ApiKey, after: ApiKey) -> None:
        old, new = (store._names.place(key.organization) for key in (before, after))
        ask(old.slot, b"HDEL", old.organization, fields_of(before.id)[0])
        ask(new.slot, b"HSET", new.organization, fields_of(after.id)[0], write_record(after))
        gone, name = store._names.handle(before.handle), store._names.handle(after.handle)
        ask(slot_of(gone), b"DEL", gone)
        ask(slot_of(name), b"SET", name, write_claim(Claim(after.organization, after.id)))

    return write


@pytest.mark.parametrize("kind", ["single", "cluster"])
def test_k1_a_forged_or_changed_row_admits_no_key(kind: str) -> None:
    store = opened(kind)
    again = RedisStore(server(kind).url(), prefix=store._names._prefix.decode())
    check_tampering(store, writing(store), again)
