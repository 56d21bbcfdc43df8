"""Allow-lists of keys on stores that several processes share, and while a cache is away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockgate import Gate, run
from lockgate.core.api_keys import KeyDetails
from lockgate.errors import AddressNotAllowed, KeyRevoked, RateLimitExceeded
from lockgate.stores.cached.store import CachedStore
from tests.servers import redis_server

from ..shared_stores import Drive, gate_on

HERE, ELSEWHERE = "192.0.2.7", "198.51.100.7"
PEPPER = b"a pepper of the tests, 32 bytes."


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
        here = not addresses or HERE in addresses
        elsewhere = addresses in ((), ("198.51.100.0/24",), (HERE, ELSEWHERE))
        for gate in (*gates, gate_on(url, peppers=peppers)):
            for _ in range(2):
                assert is_admitted(drive, gate, key.text, HERE) is here
                assert is_admitted(drive, gate, key.text, ELSEWHERE) is elsewhere
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


def test_a_pair_holds_the_list_by_the_database_whatever_its_cache_has_or_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a copy from before a change, which a failover brought back."""

    async def rests(*_: object) -> None:
        return

    with redis_server() as server:
        gate = gate_on(f"sqlite:///{tmp_path}/keys.db?mode=rwc {server.url()}")
        key = run(gate.keys.create("org_1", "a", ["jobs:*"]))
        run(gate.authenticate(key.text, address=ELSEWHERE))
        store: Any = gate.store
        lists: list[list[str]] = [[], [HERE]]
        with monkeypatch.context() as patched:
            patched.setattr(CachedStore, "compare", rests)
            for addresses in lists:
                fields: dict[str, Any] = {"scopes": ["jobs:read"], "addresses": addresses}
                changed = run(gate.keys.update("org_1", key.key.id, **fields))
                run(store.cache.install(key.key, None, run(store.cache.fill_token("org_1"))))
                store.copies.compared_servers = object()
                assert is_admitted(run, gate, key.text, ELSEWHERE) is (not addresses)
                admitted = run(gate.authenticate(key.text, address=HERE)).key
                assert admitted is not None
                assert admitted.scopes == changed.scopes
        server.stop()
        assert not is_admitted(run, gate, key.text, ELSEWHERE)
        assert is_admitted(run, gate, key.text, HERE)
    run(gate.close())
