"""A key store of one kind beside a window store of another, as one store."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations
from pathlib import Path
from typing import cast, get_args

import pytest

from lockgate import ConfigurationError, Gate, Store, run
from lockgate.errors import KeyRevoked
from lockgate.stores import KeyStore, WindowStore
from lockgate.stores.answers import StoreWarning
from lockgate.stores.base import IoMode, PartStore
from lockgate.stores.cached.store import CachedStore
from lockgate.stores.combined import CombinedStore, joint_mode
from lockgate.stores.memory.store import MemoryStore
from lockgate.testing.suite import StoreSuite
from tests.examples.test_lmdb_keys import reopened as lmdb_keys
from tests.examples.test_lmdb_windows import reopened as lmdb_windows
from tests.testing.test_parts import keys, windows


def combined(keys: PartStore, windows: PartStore) -> CombinedStore:
    return CombinedStore(cast(KeyStore, keys), cast(WindowStore, windows))


class TestCombined(StoreSuite):
    def make_store(self) -> Store:
        return combined(keys(), windows())


@pytest.mark.parametrize("of_keys", ["sql", "lmdb"])
def test_a_gate_takes_any_key_store_beside_any_window_store(tmp_path: Path, of_keys: str) -> None:
    sql, lmdb = f"sqlite:///{tmp_path}/keys.db?mode=rwc", lmdb_keys(f"{tmp_path}/keys")
    gate = Gate(
        brand="acme",
        keys=sql if of_keys == "sql" else cast(KeyStore, lmdb),
        windows=cast(WindowStore, lmdb_windows(f"{tmp_path}/windows")),
    )
    run(gate.ready())
    made = run(gate.keys.create("org_1", "a"))
    assert run(gate.authenticate(made.text)).reading.used == (1, 1, 1)
    run(gate.organizations.reset("org_1"))
    assert run(gate.authenticate(made.text)).reading.used == (1, 1, 1)
    assert run(gate.keys.get("org_1", made.key.id)).request_count == 2
    run(gate.keys.revoke("org_1", made.key.id))
    with pytest.raises(KeyRevoked):
        run(gate.authenticate(made.text))
    records = run(gate.changes.list("org_1")).changes
    assert [one.action for one in records] == ["key_revoked", "windows_reset", "key_created"]
    run(gate.close())


def test_a_database_and_redis_are_a_pair_that_copies_keys() -> None:
    gate = Gate(brand="acme", keys="sqlite:///keys.db", windows="redis://127.0.0.1:1")
    assert isinstance(gate._opened, CachedStore)


def test_a_part_alone_is_told_its_other_part() -> None:
    with pytest.raises(ConfigurationError, match=r"OnlyKeyStore is a part.*windows="):
        Gate(cast(Store, keys()), brand="acme")


@pytest.mark.parametrize(
    ("modes", "together"),
    [
        ({"none"}, "none"),
        ({"none", "both"}, "both"),
        ({"both", "sync"}, "sync"),
        ({"none", "async"}, "async"),
    ],
)
def test_two_parts_wait_as_the_less_flexible_of_them(modes: set[IoMode], together: str) -> None:
    pairs = cast(Iterable[tuple[IoMode, IoMode]], permutations([*modes, *modes], 2))
    for first, second in pairs:
        if {first, second} == modes:
            assert joint_mode(first, second) == together


def test_a_part_that_blocks_and_one_that_awaits_are_refused() -> None:
    assert {"sync", "async"} < {*get_args(IoMode)}
    with pytest.raises(ConfigurationError, match="is sync and the other async"):
        joint_mode("sync", "async")


def test_warnings_are_those_of_both_parts_but_for_keys_that_windows_lack() -> None:
    class Warning(MemoryStore):
        async def warnings(self) -> list[StoreWarning]:
            return [StoreWarning("keys", "no keys"), StoreWarning("clock", "late")]

    found = run(CombinedStore(Warning(), Warning()).warnings())
    assert [one.kind for one in found] == ["keys", "clock", "clock"]
