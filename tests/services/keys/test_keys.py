"""Creating, listing, inspecting and revoking keys, as the library's own callers do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lockgate import Event, run
from lockgate.core.api_keys import KeyState
from lockgate.core.key_format import KeyFormat
from lockgate.core.timestamps import DAY
from lockgate.errors import (
    HandleTaken,
    InvalidRequest,
    KeyLimitReached,
    NotFound,
    StoreUnavailable,
)
from lockgate.options import KeyOptions
from tests.stores.making import NOW

from ..bench import Bench, Hooked

PEPPER = b"a pepper of the tests"


def test_a_new_key_has_its_fields_and_matches_its_text() -> None:
    bench = Bench(peppers=[PEPPER])
    created = bench.create(
        name="  my key ", scopes=["jobs:*", "jobs:*", "models:read"], expires_in_days=1.5
    )
    key, format = created.key, bench.gate.format
    assert (key.organization, key.name) == ("org_1", "my key")
    assert key.scopes == ("jobs:*", "models:read")
    assert key.expires_at == NOW + DAY + DAY // 2
    assert key.prefix == created.text[:15]
    token = format.read([b"Bearer " + created.text.encode()])
    assert token.matches(key.scheme, key.digest)
    assert key.scheme == format.peppers.scheme
    assert run(bench.store.find(key.handle)) == key
    assert bench.told == [Event("key_created", {"organization": "org_1", "id": key.id})]
    assert created.text not in f"{created!r} {created} {created!s}"
    plain = bench.create().key
    assert (plain.scopes, plain.expires_at) == (("*",), None)


@pytest.mark.parametrize(
    ("arguments", "fields", "said"),
    [
        *(((id, "a"), ["organization"], "128") for id in ("", "o" * 129, 7, None)),
        (("org_1", "a", "jobs:read"), ["scopes"], "Use a list of scopes: ['jobs:read']"),
        (
            ("", "", ["no:such"], -1),
            ["organization", "name", "scopes", "expires_in_days"],
            "expires_in_days, name, organization, scopes",
        ),
    ],
    ids=str,
)
def test_every_bad_argument_is_named_at_once(arguments: Any, fields: list[str], said: str) -> None:
    bench = Bench()
    with pytest.raises(InvalidRequest) as caught:
        run(bench.gate.keys.create(*arguments))
    assert [problem.field for problem in caught.value.problems] == fields
    assert said in str(caught.value)
    assert not run(bench.store.scan(None, 100)).keys
    assert bench.told == []


def test_a_key_over_the_cap_is_refused_until_one_is_revoked_K8() -> None:
    bench = Bench(key_options=KeyOptions(cap=2))
    first, _ = bench.create(), bench.create()
    with pytest.raises(KeyLimitReached, match="2 live API keys"):
        bench.create()
    assert len(bench.told) == 2
    run(bench.gate.keys.revoke("org_1", first.key.id))
    bench.create()


def test_a_handle_that_is_taken_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: Iterator[str] = iter(["aaaaaaaa", "aaaaaaaa", "aaaaaaaa", "bbbbbbbb"])
    format = KeyFormat("acme", draw=lambda length: next(drawn) if length == 8 else "r" * length)
    bench = Bench()
    monkeypatch.setattr(bench.gate.format, "generate", format.generate)
    first, second = bench.create(), bench.create("org_2")
    assert (first.key.handle, second.key.handle) == ("aaaaaaaa", "bbbbbbbb")
    assert second.text.startswith("acme_live_bbbbbbbb_")
    assert run(bench.store.find("aaaaaaaa")) == first.key
    assert bench.names == ["key_created"] * 2
    assert len(run(bench.gate.changes.list("org_2")).changes) == 1


def test_a_draw_that_never_finds_a_free_handle_ends() -> None:
    """In a store, or with a draw, that is broken."""

    async def taken(*_: object, **__: object) -> None:
        asked.append("insert")
        assert len(asked) < 1000
        raise HandleTaken

    bench, asked = Bench(Hooked().on("insert", taken)), list[str]()
    with pytest.raises(StoreUnavailable):
        bench.create()


def test_a_key_with_a_given_handle_is_created_once_with_a_random_secret() -> None:
    bench = Bench()
    first = bench.create(handle="Handle01")
    assert first.key.handle == "Handle01" and first.text.startswith("acme_live_Handle01_")
    with pytest.raises(HandleTaken):
        bench.create(handle="Handle01")
    assert first.text != Bench().create(handle="Handle01").text
    assert len(run(bench.gate.keys.list("org_1")).keys) == 1
    for wrong in ("", "short", "Handle012", "Handle-1", "Händle01", "Handle01\n"):
        with pytest.raises(InvalidRequest):
            bench.create(handle=wrong)


def test_list_get_and_revoke() -> None:
    bench = Bench()
    keys = bench.gate.keys
    first = bench.create().key
    bench.clock.now += 1000
    second = bench.create().key
    bench.create("org_2")
    assert run(keys.list("org_1")).keys == [second, first]
    assert run(keys.get("org_1", first.id)) == first
    bench.told.clear()
    revoked = run(keys.revoke("org_1", first.id))
    assert revoked.revoked_at == bench.clock.now
    bench.clock.now += 1
    assert run(keys.revoke("org_1", first.id)) == revoked
    assert bench.told[0] == Event("key_revoked", {"organization": "org_1", "id": first.id})
    states: Any = ["active", KeyState.ACTIVE, "live"]
    for state in states[:2]:
        assert run(keys.list("org_1", state=state)).keys == [second]
    with pytest.raises(InvalidRequest) as refused:
        run(keys.list("org_1", state=states[2]))
    assert [problem.field for problem in refused.value.problems] == ["state"]


def test_k6_another_organizations_key_is_not_found() -> None:
    bench = Bench()
    keys, key = bench.gate.keys, bench.create().key
    bench.told.clear()
    for flow in (keys.get, keys.revoke, keys.update, keys.rotate):
        for id in (key.id, "no such id"):
            with pytest.raises(NotFound) as caught:
                run(flow("org_2", id))
            assert str(caught.value) == NotFound.default_message
    assert bench.told == []
    assert run(keys.get("org_1", key.id)).revoked_at is None


def test_now_and_the_census_use_the_clock_of_the_gate_or_of_the_store() -> None:
    """Or keys that are live by that clock are not counted before their pepper is dropped (K9)."""
    bench = Bench()
    assert run(bench.gate.keys.now()) == NOW
    bench.create(expires_in_days=1)
    bench.create()
    assert run(bench.gate.keys.census()) == {"sha256": 2}
    bench.clock.now += DAY
    assert run(bench.gate.keys.census()) == {"sha256": 1}
    store = Hooked(lambda: 42)
    assert run(Bench(store, clock=None).gate.keys.now()) == 42


@pytest.mark.parametrize(
    ("flow", "arguments"),
    [
        ("create", ("org_1", "name")),
        ("list", ("org_1",)),
        ("get", ("org_1", "id")),
        ("revoke", ("org_1", "id")),
        ("census", ()),
        ("now", ()),
    ],
)
def test_a_store_that_fails_is_503_and_reported_by_its_type(
    flow: str, arguments: tuple[str, ...]
) -> None:
    store = Hooked().failing("insert", "list", "get", "revoke_if_live", "census", "now")
    bench = Bench(store, clock=None)
    with pytest.raises(StoreUnavailable) as caught:
        run(getattr(bench.gate.keys, flow)(*arguments))
    assert "hunter2" not in str(caught.value)
    assert bench.told == [Event("store_failed", {"error": "OSError"})]
