"""Creating, listing, inspecting and revoking keys, as the library's own callers do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from lockgate import Catalogue, Event, Gate, MemoryStore, run
from lockgate.core.api_keys import ApiKey, KeyDraft, KeyState
from lockgate.core.digests import Peppers
from lockgate.core.key_format import KeyFormat
from lockgate.core.timestamps import DAY
from lockgate.errors import (
    HandleTaken,
    InvalidRequest,
    KeyLimitReached,
    NotFound,
    StoreUnavailable,
)
from lockgate.events import Events
from lockgate.services.keys.keys import Keys
from lockgate.services.keys.rejected_rows import RejectedRows
from lockgate.services.keys.retention import Retention
from tests.stores.making import NOW, HandClock


class Bench:
    """The flow with everything around it in reach."""

    def __init__(
        self,
        *,
        store: MemoryStore | None = None,
        format: KeyFormat | None = None,
        cap: int | None = 1000,
        clocked: bool = True,
    ) -> None:
        self.clock = HandClock()
        self.store = store or MemoryStore()
        self.told: list[Event] = []
        self.format = format or KeyFormat("acme", peppers=Peppers([b"a pepper of the tests"]))
        self.keys = Keys(
            self.store,
            self.format,
            Catalogue.of(),
            cap,
            *(clock := self.clock if clocked else None, events := Events(self.told.append)),
            Retention(self.store, 400, clock, events),
            RejectedRows(events),
        )


def test_a_new_key_has_its_fields_and_matches_its_text() -> None:
    bench = Bench()
    created = run(bench.keys.create("org_1", "  my key ", ["jobs:*", "jobs:*", "models:read"], 1.5))
    key = created.key
    assert (key.organization, key.name, key.scopes) == (
        "org_1",
        "my key",
        ("jobs:*", "models:read"),
    )
    assert key.expires_at == NOW + DAY + DAY // 2
    assert key.prefix == created.text[:15]
    token = bench.format.read([b"Bearer " + created.text.encode()])
    assert token.matches(key.scheme, key.digest)
    assert key.scheme == bench.format.peppers.scheme
    assert run(bench.store.find(key.handle)) == key
    assert bench.told == [Event("key_created", {"organization": "org_1", "id": key.id})]


def test_a_key_has_all_scopes_and_no_expiry_by_default() -> None:
    key = run(Bench().keys.create("org_1", "a")).key
    assert (key.scopes, key.expires_at) == (("*",), None)


@pytest.mark.parametrize("organization", ["", "o" * 129, 7, None])
def test_an_organization_id_is_a_text_of_1_to_128_characters(organization: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        run(Bench().keys.create(organization, "a"))
    assert [problem.field for problem in caught.value.problems] == ["organization"]
    assert "128" in caught.value.problems[0].message


def test_scopes_given_as_text_are_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidRequest, match=r"scopes: Use a list of scopes: \['jobs:read'\]"):
        run(Bench().keys.create("org_1", "a", "jobs:read"))


def test_every_bad_argument_is_named_at_once() -> None:
    bench = Bench()
    with pytest.raises(InvalidRequest) as caught:
        run(bench.keys.create("", "", ["no:such"], -1))
    fields = [problem.field for problem in caught.value.problems]
    assert fields == ["organization", "name", "scopes", "expires_in_days"]
    assert "expires_in_days, name, organization, scopes" in str(caught.value)
    assert run(bench.store.list("", 100)) == []
    assert bench.told == []


def test_a_key_over_the_cap_is_refused_until_one_is_revoked() -> None:
    bench = Bench(cap=2)
    first = run(bench.keys.create("org_1", "a"))
    run(bench.keys.create("org_1", "b"))
    with pytest.raises(KeyLimitReached, match="2 live API keys"):
        run(bench.keys.create("org_1", "c"))
    assert len(bench.told) == 2
    run(bench.keys.revoke("org_1", first.key.id))
    run(bench.keys.create("org_1", "c"))


def drawing(*handles: str) -> KeyFormat:
    """A key format with given handles, and with equal random parts."""
    drawn: Iterator[str] = iter(handles)
    return KeyFormat("acme", draw=lambda length: next(drawn) if length == 8 else "r" * length)


def test_a_handle_that_is_taken_is_drawn_again() -> None:
    bench = Bench(format=drawing("aaaaaaaa", "aaaaaaaa", "aaaaaaaa", "bbbbbbbb"))
    first = run(bench.keys.create("org_1", "a"))
    second = run(bench.keys.create("org_2", "b"))
    assert (first.key.handle, second.key.handle) == ("aaaaaaaa", "bbbbbbbb")
    assert second.text.startswith("acme_live_bbbbbbbb_")
    assert run(bench.store.find("aaaaaaaa")) == first.key
    assert first.key.id != second.key.id
    assert [event.name for event in bench.told] == ["key_created"] * 2


class GoneOn(BaseException):
    """It would have gone on for ever."""


class AlwaysTaken(MemoryStore):
    """A store that never finds a handle free: broken, or the draw is."""

    def __init__(self) -> None:
        super().__init__()
        self.inserts = 0

    async def insert(
        self, draft: KeyDraft, cap: int | None, now: int | None = None, **options: Any
    ) -> ApiKey:
        self.inserts += 1
        if self.inserts > 1000:
            raise GoneOn
        raise HandleTaken


def test_a_key_with_a_given_handle_is_created_once_with_a_random_secret() -> None:
    bench = Bench()
    first = run(bench.keys.create("org_1", "once", handle="Handle01"))
    assert first.key.handle == "Handle01" and first.text.startswith("acme_live_Handle01_")
    with pytest.raises(HandleTaken):
        run(bench.keys.create("org_1", "once", handle="Handle01"))
    assert first.text != run(Bench().keys.create("org_1", "once", handle="Handle01")).text
    assert len(run(bench.keys.list("org_1")).keys) == 1
    for wrong in ("", "short", "Handle012", "Handle-1", "Händle01", "Handle01\n"):
        with pytest.raises(InvalidRequest):
            run(bench.keys.create("org_1", "wrong", handle=wrong))


def test_a_draw_that_never_finds_a_free_handle_ends() -> None:
    bench = Bench(store=AlwaysTaken())
    with pytest.raises(StoreUnavailable):
        run(bench.keys.create("org_1", "a"))


def test_a_list_of_a_state_takes_its_name_and_refuses_another() -> None:
    gate = Gate(MemoryStore(), brand="acme")
    first, second = (run(gate.keys.create("org_1", name)).key for name in ("one", "two"))
    run(gate.keys.revoke("org_1", first.id))
    for state in ("active", KeyState.ACTIVE):
        assert [key.id for key in run(gate.keys.list("org_1", state=state)).keys] == [second.id]
    with pytest.raises(InvalidRequest) as refused:
        run(gate.keys.list("org_1", state=cast(Any, "live")))
    assert [problem.field for problem in refused.value.problems] == ["state"]


def test_list_get_and_revoke() -> None:
    bench = Bench()
    first = run(bench.keys.create("org_1", "a")).key
    bench.clock.now += 1000
    second = run(bench.keys.create("org_1", "b")).key
    run(bench.keys.create("org_2", "c"))
    assert run(bench.keys.list("org_1")).keys == [second, first]
    assert run(bench.keys.get("org_1", first.id)) == first
    bench.told.clear()
    revoked = run(bench.keys.revoke("org_1", first.id))
    assert revoked.revoked_at == bench.clock.now
    bench.clock.now += 1
    assert run(bench.keys.revoke("org_1", first.id)) == revoked
    assert bench.told[0] == Event("key_revoked", {"organization": "org_1", "id": first.id})


def test_k6_another_organizations_key_is_not_found() -> None:
    bench = Bench()
    key = run(bench.keys.create("org_1", "a")).key
    bench.told.clear()
    for flow in (bench.keys.get, bench.keys.revoke, bench.keys.update, bench.keys.rotate):
        for id in (key.id, "no such id"):
            with pytest.raises(NotFound) as caught:
                run(flow("org_2", id))
            assert str(caught.value) == NotFound.default_message
    assert bench.told == []
    assert run(bench.keys.get("org_1", key.id)).revoked_at is None


def test_the_census_uses_the_clock_of_the_gate() -> None:
    """Or keys that are live by that clock are not counted before their pepper is dropped (K9)."""
    bench = Bench()
    run(bench.keys.create("org_1", "for a day", expires_in_days=1))
    run(bench.keys.create("org_1", "for ever"))
    scheme = bench.format.peppers.scheme
    assert run(bench.keys.census()) == {scheme: 2}
    bench.clock.now += DAY
    assert run(bench.keys.census()) == {scheme: 1}


def test_now_is_the_clocks_or_the_stores() -> None:
    assert run(Bench().keys.now()) == NOW
    store = MemoryStore(lambda: 42)
    assert run(Bench(store=store, clocked=False).keys.now()) == 42


class Broken(MemoryStore):
    """Fails at whatever it is asked."""

    def __getattribute__(self, name: str) -> object:
        if name in {"insert", "list", "get", "revoke_if_live", "census", "now"}:

            async def fail(*_: object, **__: object) -> object:
                raise OSError("password=hunter2")

            return fail
        return super().__getattribute__(name)


def test_a_store_that_fails_is_503_and_reported_by_its_type() -> None:
    for number, flow in enumerate(["create", "list", "get", "revoke", "census", "now"]):
        bench = Bench(store=Broken(), clocked=False)
        arguments = [("org_1", "name"), ("org_1",), ("org_1", "id"), ("org_1", "id"), (), ()]
        with pytest.raises(StoreUnavailable) as caught:
            run(getattr(bench.keys, flow)(*arguments[number]))
        assert "hunter2" not in str(caught.value)
        assert bench.told == [Event("store_failed", {"error": "OSError"})]


def test_a_created_key_is_not_in_its_representation() -> None:
    created = run(Bench().keys.create("org_1", "a"))
    assert created.text not in repr(created)
    assert created.text not in f"{created} {created!s}"
