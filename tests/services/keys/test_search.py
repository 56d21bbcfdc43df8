"""Finding keys of any organization, on every kind of shared store and in both I/O modes."""

from __future__ import annotations

from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lockgate import Gate, MemoryStore, run
from lockgate.core.api_keys import ApiKey
from lockgate.core.imported_keys import ImportedKeyFormat
from lockgate.core.row_seals import sealed_draft
from lockgate.errors import InvalidRequest
from lockgate.services.cursors import write_step
from lockgate.testing.factories import Factory

from ..shared_stores import KINDS, MODES, Kind, driving, gate_on, shared_store

PEPPER = b"a-pepper-of-these-tests-8f2c41d0"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_a_key_is_found_by_its_text_prefix_and_id(kind: Kind, mode: str, tmp_path: Path) -> None:
    with shared_store(kind, tmp_path) as url, driving(mode) as drive:
        gate = gate_on(url, peppers=[PEPPER])
        others = [drive(gate.keys.create(f"org_{n}", "another")) for n in range(3)]
        created = drive(gate.keys.create("org_1", "ci"))
        drive(gate.authenticate(created.text))
        drive(gate.flush())
        for text, by in (
            (created.text, "text"),
            (f" {created.text}\n", "text"),
            (f"Authorization: Bearer {created.text}; ...", "text"),
            (created.text[:15], "prefix"),
            (f"{created.text[:15]}...", "prefix"),
            (created.text[:30], "prefix"),
            (created.key.id, "id"),
        ):
            found = drive(gate.keys.find(text))
            assert [key.id for key in found.keys] == [created.key.id]
            assert (found.by, found.cursor) == (by, None)
            assert found.keys[0].request_count == 1
        assert not drive(gate.keys.find("acme_live_00000")).keys
        assert not drive(gate.keys.find("3f1c7d1e-6a50-4f0e-9f8a-2f9b8f2f0a11")).keys
        drive(gate.keys.revoke("org_2", others[2].key.id))
        assert drive(gate.keys.find(others[2].text)).keys[0].revoked_at is not None
        drive(gate.close())


@pytest.mark.parametrize("kind", KINDS)
def test_pages_of_keys_that_begin_alike_miss_none(kind: Kind, tmp_path: Path) -> None:
    with shared_store(kind, tmp_path) as url, driving("async") as drive:
        gate, factory = gate_on(url), Factory()
        ids: set[str] = set()
        for number in range(30):
            draft = factory.draft(f"org_{number % 7}")._replace(handle=f"51c0a{number:03}")
            drive(gate.store.insert(draft, None))
            ids.add(draft.id)
            drive(gate.store.insert(factory.draft(f"org_{number % 7}"), None))
        seen: list[str] = []
        cursor = None
        for _ in range(100):
            found = drive(gate.keys.find("acme_live_51c0a", limit=7, cursor=cursor))
            seen += [key.id for key in found.keys]
            cursor = found.cursor
            if cursor is None:
                break
        assert (set(seen), cursor) == (ids, None)
        drive(gate.close())


def test_a_pasted_text_that_is_not_this_key_is_found_by_its_beginning_only() -> None:
    gate = Gate(MemoryStore(), brand="acme", peppers=[PEPPER])
    factory = Factory(1, [PEPPER])
    mine, typed = factory.key(), factory.key()
    draft = factory.draft("org_1", key=mine)._replace(handle=typed.handle)
    run(gate.store.insert(sealed_draft(draft, gate.format.peppers), None))
    assert run(gate.keys.find(typed.text)).by == "prefix"
    assert run(gate.keys.find(typed.text[:-1])).by == "prefix"
    wrong = run(gate.keys.find(f"KEY={typed.text[:-1]}{'b' if typed.text[-1] == 'a' else 'a'}"))
    assert (len(wrong.keys), wrong.by) == (1, "prefix")
    other = Gate(gate.store, brand="acme", peppers=[b"another-pepper-of-these-tests-6a"])
    created = run(gate.keys.create("org_2", "ci"))
    unverified = run(other.keys.find(created.text))
    assert ([key.id for key in unverified.keys], unverified.by) == ([created.key.id], "prefix")


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_of_another_system_is_found_by_its_prefix_and_text(
    kind: Kind, tmp_path: Path
) -> None:
    old = ImportedKeyFormat("old", r"sk_(?P<handle>[a-z0-9]{6})_[a-z0-9]{20}", schemes=["sha256"])
    text = f"sk_abc123_{'q' * 20}"
    with shared_store(kind, tmp_path) as url, driving("sync") as drive:
        gate = gate_on(url, legacy=[old])
        digest = sha256(text.encode()).hexdigest()
        row: dict[str, Any] = {
            "organization": "org_1",
            "name": "ci",
            "handle": "abc123",
            "digest": digest,
        }
        drive(gate.legacy.adopt("old", **row, prefix="sk_abc"))
        for wanted, by in (("sk_abc", "prefix"), ("sk_abc...", "prefix"), (text, "text")):
            found = drive(gate.keys.find(wanted))
            assert ([key.name for key in found.keys], found.by) == (["ci"], by)
        assert not drive(gate.keys.find("sk_ab")).keys
        drive(gate.close())


def test_a_page_of_the_keys_of_a_user_reads_a_hundred_accounts_and_the_next_continues_G10(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, factory = MemoryStore(), Factory()
    for number in range(105):
        id = f"org_{number:03}"
        run(store.register(factory.account(id), factory.draft(id)))
        run(store.claim_if_unclaimed(id, "ada", revoke=False, keep_token=False))
    gate, asked = Gate(store, brand="acme"), list[str]()

    async def without_keys(organization: str, limit: int, after: object = None) -> list[ApiKey]:
        asked.append(organization)
        return []

    monkeypatch.setattr(gate.store, "list", without_keys)
    first = run(gate.keys.of_user("ada"))
    assert (first.keys, len({*asked})) == ([], 100)
    last = run(gate.keys.of_user("ada", cursor=first.cursor))
    assert (last.keys, last.cursor, len({*asked})) == ([], None, 105)


@pytest.mark.parametrize("cursor", ["", "*", "a" * 801, "a", "_w"])
def test_a_malformed_cursor_is_named(cursor: str) -> None:
    for peppers in ([], [PEPPER]):
        gate = Gate(MemoryStore(), brand="acme", peppers=peppers)
        with pytest.raises(InvalidRequest, match="cursor"):
            run(gate.keys.find("acme_live_1", cursor=cursor))


@pytest.mark.parametrize("kind", ["memory", "redis"])
@pytest.mark.parametrize("step", ["x", "keys x", "x y", "0 x y"])
def test_a_cursor_of_another_store_is_named(kind: str, step: str, tmp_path: Path) -> None:
    url = nullcontext("memory://") if kind == "memory" else shared_store("redis", tmp_path)
    with url as found:
        gate = gate_on(found)
        seal = gate.format.peppers.cursors
        for call in (
            gate.keys.find("acme_live_1", cursor=write_step(step, seal, "search")),
            gate.keys.of_user("user_1", cursor=write_step(step, seal, "keys of user user_1")),
        ):
            with pytest.raises(InvalidRequest, match="cursor"):
                run(call)
        run(gate.close())


@pytest.mark.parametrize("limit", [0, 1001, True])
def test_a_page_has_1_to_1000_keys(limit: int) -> None:
    gate = Gate(MemoryStore(), brand="acme")
    with pytest.raises(InvalidRequest, match="limit"):
        run(gate.keys.find("acme_live_1", limit=limit))
