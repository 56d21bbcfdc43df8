"""Allow-lists of keys on stores that several processes share, and while a cache is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockgate import Gate, run
from lockgate.core.api_keys import KeyDetails
from lockgate.errors import AddressNotAllowed, KeyRevoked, RateLimitExceeded
from lockgate.options import StoreOptions
from lockgate.stores.cached.store import CachedStore
from lockgate.stores.redis import RedisStore
from lockgate.stores.sql import SqlStore
from tests.servers import redis_server

from ..shared_stores import KINDS, MODES, Drive, driving, gate_on, shared_store

HERE, ELSEWHERE = "192.0.2.7", "198.51.100.7"
PEPPER = b"a pepper of the tests, 32 bytes."


@pytest.fixture(params=MODES)
def drive(request: pytest.FixtureRequest) -> Iterator[Drive]:
    with driving(request.param) as found:
        yield found


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with shared_store(request.param, tmp_path) as found:
        yield found


def is_admitted(drive: Drive, gate: Gate, text: str, address: str) -> bool:
    try:
        drive(gate.authenticate(text, address=address))
    except AddressNotAllowed:
        return False
    return True


@pytest.mark.parametrize("peppers", [(), (PEPPER,)])
def test_a_changed_list_holds_on_every_process_from_the_next_request_on(
    url: str, drive: Drive, peppers: tuple[bytes, ...]
) -> None:
    gates = [gate_on(url, peppers=peppers) for _ in range(2)]
    drive(gates[0].organizations.place("org_1", "creator", rpm=1000))
    key = drive(gates[0].keys.create("org_1", "a", created_by="shell", labels={"team": "ci"}))
    for addresses in ((HERE,), (), ("198.51.100.0/24",), (HERE, ELSEWHERE), ("2001:db8::/32",)):
        drive(gates[0].keys.update("org_1", key.key.id, addresses=addresses))
        for gate in (*gates, gate_on(url, peppers=peppers)):
            for _ in range(2):
                assert is_admitted(drive, gate, key.text, HERE) is (
                    not addresses or HERE in addresses
                )
                assert is_admitted(drive, gate, key.text, ELSEWHERE) is (
                    addresses in ((), ("198.51.100.0/24",), (HERE, ELSEWHERE))
                )
            if gate not in gates:
                drive(gate.close())
    found = drive(gates[1].keys.get("org_1", key.key.id))
    assert found.details == KeyDetails(
        created_by="shell", labels=(("team", "ci"),), addresses=("2001:db8::/32",)
    )
    drive(gates[1].keys.revoke("org_1", key.key.id))
    for gate in gates:
        with pytest.raises(KeyRevoked):
            drive(gate.authenticate(key.text, address=HERE))
        drive(gate.close())


def test_no_refusal_that_is_repeated_from_memory_reaches_clients_elsewhere(
    url: str, drive: Drive
) -> None:
    gate = gate_on(url)
    key = drive(gate.keys.create("org_1", "a", addresses=[HERE])).text
    drive(gate.authenticate(key, cost=10, address=HERE))
    for _ in range(3):
        with pytest.raises(RateLimitExceeded):
            drive(gate.authenticate(key, address=HERE))
        with pytest.raises(AddressNotAllowed):
            drive(gate.authenticate(key, address=ELSEWHERE))
    drive(gate.close())


def test_without_its_cache_a_pair_holds_the_list_by_the_database(
    tmp_path: Path, drive: Drive
) -> None:
    with redis_server() as server:
        gate = gate_on(f"sqlite:///{tmp_path}/keys.db?mode=rwc {server.url()}")
        key = drive(gate.keys.create("org_1", "a", addresses=[HERE]))
        assert is_admitted(drive, gate, key.text, HERE)
        server.stop()
        assert not is_admitted(drive, gate, key.text, ELSEWHERE)
        assert is_admitted(drive, gate, key.text, HERE)
    drive(gate.close())


def test_a_copy_from_before_a_lost_change_admits_by_the_fields_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a failover that brought the copy back: the database confirms each admission."""
    with redis_server() as server:
        pair: Any = CachedStore(
            SqlStore(f"sqlite:///{tmp_path}/keys.db?mode=rwc"), RedisStore(server.url())
        )
        gate = Gate(pair, brand="acme", store_options=StoreOptions(deadline=30))
        key = run(gate.keys.create("org_1", "a", ["jobs:*"]))
        run(gate.authenticate(key.text, address=ELSEWHERE))

        async def rests(*_: object) -> None:
            return

        monkeypatch.setattr(CachedStore, "compare", rests)
        lists: list[list[str]] = [[], [HERE]]
        for addresses in lists:
            changed = run(
                gate.keys.update("org_1", key.key.id, scopes=["jobs:read"], addresses=addresses)
            )
            store: Any = gate.store
            run(store.cache.install(key.key, None, run(store.cache.fill_token("org_1"))))
            store.copies.compared_servers = object()
            if addresses:
                with pytest.raises(AddressNotAllowed):
                    run(gate.authenticate(key.text, address=ELSEWHERE))
            admitted = run(gate.authenticate(key.text, address=HERE)).key
            assert admitted is not None
            assert admitted.scopes == changed.scopes
        run(gate.close())
