"""Changes by the library while the Redis before a database is away (D52)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lockgate import Gate, Registration, run
from lockgate.errors import ChangeCommitted, NotFound, StoreError, StoreUnavailable
from lockgate.services.keys.rotation_and_revocation import RotatedKey
from lockgate.sessions import SignedCookie
from lockgate.stores.answers import OutcomeUnknown
from lockgate.stores.rows import Commit, Outcome
from lockgate.stores.sql import SqlStore
from tests import migrated
from tests.patience import until
from tests.servers import RedisServer, redis_server

from .shared_stores import gate_on


class Pair(NamedTuple):
    """A gate on a database with Redis before it, and a key that was in use."""

    gate: Gate
    server: RedisServer
    key: str
    told: list[str]


def gate_of(url: str, told: list[str]) -> Gate:
    return gate_on(
        url,
        peppers=[b"a pepper of these tests"],
        sessions=SignedCookie(["a session secret of the tests"]),
        public_url="https://console.example.com",
        registration=Registration(session_secrets=["a session secret of the tests"]),
        observer=lambda event: told.append(event.name),
    )


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    told: list[str] = []
    with redis_server() as server:
        gate = gate_of(f"{migrated.sqlite(tmp_path / 'keys.db')} {server.url()}", told)
        created = run(gate.keys.create("org_1", "first"))
        run(gate.authenticate(created.text))
        yield Pair(gate, server, created.key.id, told)
        run(gate.close())


def result(call: Any) -> Any:
    """What a change raises that is made while the cache is away."""
    with pytest.raises(ChangeCommitted) as told:
        run(call)
    assert isinstance(told.value, StoreError)
    assert told.value.remains
    return told.value.result


def test_a_rotation_raises_the_text_of_the_successor_D52(pair: Pair) -> None:
    pair.server.stop()
    rotated = result(pair.gate.keys.rotate("org_1", pair.key))
    assert isinstance(rotated, RotatedKey)
    principal = run(pair.gate.authenticate(rotated.text))
    assert principal.key is not None and principal.key.id == rotated.successor.id
    assert "key_rotated" in pair.told and "store_failed" in pair.told


def test_every_change_of_a_key_or_a_plan_raises_its_result_D52(pair: Pair) -> None:
    keys, organizations = pair.gate.keys, pair.gate.organizations
    successor = run(keys.rotate("org_1", pair.key)).successor
    pair.server.stop()
    assert result(keys.update("org_1", pair.key, name="other")).name == "other"
    assert result(organizations.place("org_1", "starter")).plan == "starter"
    assert result(organizations.set_limits("org_1", rpm=7)).own == {"rpm": 7}
    assert result(organizations.clear_limits("org_1")).own == {}
    assert result(organizations.changed("org_1")) is None
    assert result(keys.revoke("org_1", pair.key, successors=True)).revoked_at is not None
    assert run(keys.get("org_1", successor.id)).revoked_at is not None
    assert run(organizations.plan("org_1")).name == "starter"
    with pytest.raises(NotFound):  # It is refused, and not committed.
        run(keys.revoke("org_1", "00000000-0000-4000-8000-000000000000"))


def test_an_account_is_registered_and_claimed_with_its_texts_D52(pair: Pair) -> None:
    accounts = pair.gate.accounts
    assert accounts is not None
    made = run(accounts.create("a bot", "ada@example.com"))
    organization = made.account.organization
    pair.server.stop()
    second = run(accounts.create("another bot", "bob@example.com"))
    assert run(pair.gate.authenticate(second.api_key)).organization == second.account.organization
    claimed = result(accounts.claims.assign(organization, "ada", revoke_keys=True))
    assert claimed.account.claimed_by == "ada"
    assert claimed.keys[0].revoked_at is not None
    assert result(accounts.agents.sign_out(second.account.organization)) is None


def test_a_change_is_told_everywhere_once_the_cache_is_back_D52(pair: Pair) -> None:
    pair.server.stop()
    assert result(pair.gate.keys.revoke("org_1", pair.key)).revoked_at is not None
    pair.server.start()

    def repeated() -> bool:
        try:
            return run(pair.gate.keys.revoke("org_1", pair.key)).revoked_at is not None
        except ChangeCommitted:
            return False

    until(repeated)


@pytest.fixture
def unanswered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate on a database that makes every change, and whose replies are lost."""
    gate, commit = gate_of(migrated.sqlite(tmp_path / "keys.db"), []), SqlStore.commit

    async def lost(store: SqlStore, commit_: Commit, now: int | None = None) -> Outcome:
        outcome = await commit(store, commit_, now)
        if outcome.verdict == "done":
            raise OutcomeUnknown
        return outcome

    monkeypatch.setattr(SqlStore, "commit", lost)
    yield gate
    run(gate.close())


def test_a_lost_reply_loses_no_text_of_a_new_key_D52_D33(unanswered: Gate) -> None:
    created = run(unanswered.keys.create("org_1", "first"))
    assert run(unanswered.authenticate(created.text)).key is not None
    rotated = result(unanswered.keys.rotate("org_1", created.key.id, overlap_days=0))
    assert rotated.old.successor == rotated.successor.id
    assert run(unanswered.authenticate(rotated.text)).key is not None
    assert unanswered.accounts is not None
    made = run(unanswered.accounts.create("a bot", "ada@example.com"))
    assert run(unanswered.authenticate(made.api_key)).organization == made.account.organization
    assert len(run(unanswered.keys.list("org_1")).keys) == 2


def test_a_change_that_was_not_made_is_raised_as_its_failure_D52(
    unanswered: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object, **__: object) -> None:
        raise OutcomeUnknown

    monkeypatch.setattr(SqlStore, "commit", lost)
    with pytest.raises(StoreUnavailable) as told:
        run(unanswered.keys.create("org_1", "first"))
    assert not isinstance(told.value, ChangeCommitted)
    assert run(unanswered.keys.list("org_1")).keys == []
