"""Finding keys of any organization."""

from __future__ import annotations

from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lockgate import run
from lockgate.core.imported_keys import ImportedKeyFormat
from lockgate.core.row_seals import sealed_draft
from lockgate.errors import InvalidRequest
from lockgate.services.cursors import write_step
from lockgate.testing.factories import Factory

from ..bench import Bench
from ..shared_stores import Drive, gate_on, shared_store

PEPPER = b"a-pepper-of-these-tests-8f2c41d0"
OLD = ImportedKeyFormat("old", r"sk_(?P<handle>[a-z0-9]{6})_[a-z0-9]{20}", schemes=["sha256"])


def test_a_key_is_found_by_its_text_prefix_and_id(url: str, drive: Drive) -> None:
    gate = gate_on(url, peppers=[PEPPER], legacy=[OLD])
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
    # A key of another system has its own prefix and text.
    text = f"sk_abc123_{'q' * 20}"
    row: dict[str, Any] = {"handle": "abc123", "digest": sha256(text.encode()).hexdigest()}
    drive(gate.legacy.adopt("old", organization="org_1", name="ci", prefix="sk_abc", **row))
    for wanted, by in (("sk_abc", "prefix"), ("sk_abc...", "prefix"), (text, "text")):
        found = drive(gate.keys.find(wanted))
        assert ([key.name for key in found.keys], found.by) == (["ci"], by)
    assert not drive(gate.keys.find("sk_ab")).keys
    drive(gate.close())


def test_pages_of_keys_that_begin_alike_miss_none() -> None:
    bench, factory, ids = Bench(), Factory(), set[str]()
    for number in range(30):
        draft = factory.draft(f"org_{number % 7}")._replace(handle=f"51c0a{number:03}")
        run(bench.store.insert(draft, None))
        ids.add(draft.id)
        run(bench.store.insert(factory.draft(f"org_{number % 7}"), None))
    seen: list[str] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        found = run(bench.gate.keys.find("acme_live_51c0a", limit=7, cursor=cursor))
        seen += [key.id for key in found.keys]
        cursor, pages = found.cursor, pages + 1
        assert pages < 100
    assert sorted(seen) == sorted(ids)


def test_a_pasted_text_that_is_not_this_key_is_found_by_its_beginning_only() -> None:
    bench, factory = Bench(peppers=[PEPPER]), Factory(1, [PEPPER])
    keys, (mine, typed) = bench.gate.keys, (factory.key(), factory.key())
    draft = factory.draft("org_1", key=mine)._replace(handle=typed.handle)
    run(bench.store.insert(sealed_draft(draft, bench.gate.format.peppers), None))
    wrong = f"KEY={typed.text[:-1]}{'b' if typed.text[-1] == 'a' else 'a'}"
    for text in (typed.text, typed.text[:-1], wrong):
        found = run(keys.find(text))
        assert (len(found.keys), found.by) == (1, "prefix")
    other = Bench(bench.store, peppers=[b"another-pepper-of-these-tests-6a"])
    created = bench.create("org_2")
    unverified = run(other.gate.keys.find(created.text))
    assert ([key.id for key in unverified.keys], unverified.by) == ([created.key.id], "prefix")


def test_a_page_of_the_keys_of_a_user_reads_a_hundred_accounts_and_the_next_continues_G10() -> None:
    bench, factory, asked = Bench(), Factory(), list[str]()
    for number in range(105):
        id = f"org_{number:03}"
        run(bench.store.register(factory.account(id), factory.draft(id)))
        run(bench.store.claim_if_unclaimed(id, "ada", revoke=False, keep_token=False))

    async def without_keys(_: Any, organization: str, *__: Any) -> list[Any]:
        asked.append(organization)
        return []

    bench.store.on("list", without_keys)
    first = run(bench.gate.keys.of_user("ada"))
    assert (first.keys, len({*asked})) == ([], 100)
    last = run(bench.gate.keys.of_user("ada", cursor=first.cursor))
    assert (last.keys, last.cursor, len({*asked})) == ([], None, 105)


@pytest.mark.parametrize("peppers", [[], [PEPPER]], ids=["plain", "pepper"])
def test_malformed_cursors_and_limits_of_a_search_are_named(peppers: list[bytes]) -> None:
    keys = Bench(peppers=peppers).gate.keys
    for cursor in ("", "*", "a" * 801, "a", "_w"):
        with pytest.raises(InvalidRequest, match="cursor"):
            run(keys.find("acme_live_1", cursor=cursor))
    for limit in (0, 1001, True):
        with pytest.raises(InvalidRequest, match="limit"):
            run(keys.find("acme_live_1", limit=limit))


@pytest.mark.parametrize("kind", ["memory", "redis"])
@pytest.mark.parametrize("step", ["x", "keys x", "x y", "0 x y"])
def test_a_cursor_of_another_store_is_named(kind: str, step: str, tmp_path: Path) -> None:
    with nullcontext("memory://") if kind == "memory" else shared_store("redis", tmp_path) as url:
        gate = gate_on(url)
        seal = gate.format.peppers.cursors
        for call in (
            gate.keys.find("acme_live_1", cursor=write_step(step, seal, "search")),
            gate.keys.of_user("user_1", cursor=write_step(step, seal, "keys of user user_1")),
        ):
            with pytest.raises(InvalidRequest, match="cursor"):
                run(call)
        run(gate.close())
