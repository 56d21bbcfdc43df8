"""A gate called without awaiting."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lockgate import ConfigurationError, Gate, MemoryStore, Registration
from lockgate.errors import InsufficientScope, KeyRevoked
from lockgate.sessions import SignedCookie
from lockgate.sync_gate import SyncGate


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(f"sqlite:///{tmp_path}/keys.db?mode=rwc", brand="acme")
    yield gate
    gate.sync.close()


def test_a_script_makes_places_uses_and_revokes_a_key(gate: Gate) -> None:
    created = gate.sync.keys.create("org_1", "ci", scopes=["jobs:*"])
    gate.sync.organizations.place("org_1", "creator")
    principal = gate.sync.authenticate(created.text, requires="jobs:write", cost=5)
    assert (principal.plan.name, principal.reading.used[0]) == ("creator", 5)
    with pytest.raises(InsufficientScope):
        gate.sync.authenticate(created.text, requires="models:read")
    lease = gate.sync.slots.acquire("org_1", "job_1")
    assert gate.sync.slots.held("org_1") == (lease,)
    assert gate.sync.slots.release("org_1", "job_1", lease.owner)
    gate.sync.keys.revoke("org_1", created.key.id)
    with pytest.raises(KeyRevoked):
        gate.sync.authenticate(created.text)
    assert [key.id for key in gate.sync.keys.list("org_1").keys] == [created.key.id]


def test_threads_share_the_sync_gate(gate: Gate) -> None:
    text = gate.sync.keys.create("org_1", "ci").text
    gate.sync.organizations.place("org_1", "creator")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(gate.sync.authenticate, [text] * 20))
    assert gate.sync.authenticate(text).reading.used[0] == 21


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_sync_gate_is_refused_in_an_event_loop(kind: str, gate: Gate) -> None:
    gate = Gate(brand="acme") if kind == "memory" else gate
    with pytest.raises(ConfigurationError, match=r"await create\(...\) of the gate itself"):
        gate.sync.keys.create("org_1", "ci")
    created = await asyncio.to_thread(gate.sync.keys.create, "org_1", "ci")
    assert (await gate.authenticate(created.text)).organization == "org_1"
    await asyncio.to_thread(gate.sync.close)


def test_the_sync_gate_is_refused_on_an_async_store() -> None:
    class Awaiting(MemoryStore):
        io = "async"

    gate = Gate(Awaiting(), brand="acme")
    with pytest.raises(ConfigurationError, match="needs an event loop"):
        gate.sync.keys  # noqa: B018 - reading it is the test


def test_each_verb_of_the_gate_is_there_with_its_signature() -> None:
    registration = Registration(session_secrets=["0123456789abcdef0123456789abcdef"])
    gate = Gate(
        brand="acme",
        registration=registration,
        public_url="https://example.com",
        sessions=SignedCookie(["fedcba9876543210fedcba9876543210"]),
    )
    assert gate.accounts is not None and gate.sync.accounts is not None
    pairs: list[tuple[object, object]] = [
        (gate, gate.sync),
        (gate.keys, gate.sync.keys),
        (gate.organizations, gate.sync.organizations),
        (gate.slots, gate.sync.slots),
        (gate.legacy, gate.sync.legacy),
        (gate.accounts, gate.sync.accounts),
        (gate.accounts.claims, gate.sync.accounts.claims),
    ]
    inner = {"admit_header", "insert", "named_usage", "present", "stored", "upgrade"}
    for asynchronous, blocking in pairs:
        verbs = {
            name
            for name, verb in inspect.getmembers(type(asynchronous), inspect.iscoroutinefunction)
            if not name.startswith("_")
        }
        if asynchronous is gate.accounts:
            verbs -= {"close"}
        assert verbs - inner == {
            name for name, verb in vars(blocking).items() if inspect.isfunction(verb)
        }
        for name in verbs - inner:
            signature = inspect.signature(getattr(asynchronous, name))
            assert inspect.signature(getattr(blocking, name)) == signature


def test_the_sync_gate_is_made_once_on_first_use() -> None:
    gate = Gate(brand="acme")
    assert "sync" not in vars(gate)
    assert gate.sync is gate.sync
    assert isinstance(gate.sync, SyncGate)
