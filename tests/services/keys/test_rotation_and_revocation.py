"""Updating and rotating keys (D43), and revoking them with their successors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from lockgate import Event, Gate, MemoryStore, run
from lockgate.core.api_keys import ApiKey, KeyDetails, KeyDraft
from lockgate.core.digests import Digest
from lockgate.core.timestamps import DAY, MINUTE
from lockgate.errors import (
    InvalidRequest,
    KeyExpired,
    KeyLimitReached,
    KeyNotLive,
    KeyRevoked,
    KeyRotated,
    NotFound,
)
from lockgate.options import KeyOptions, StoreOptions
from tests.stores.making import NOW, HandClock

OLD, NEW = b"an older pepper of the tests", b"a newer pepper of the tests"


@dataclass
class Service:
    """A gate with peppers on a store that others may share."""

    store: MemoryStore = field(default_factory=MemoryStore)
    peppers: tuple[bytes, ...] = (NEW,)
    cap: int | None = None

    def __post_init__(self) -> None:
        self.clock = HandClock()
        self.told: list[Event] = []
        self.gate = Gate(
            self.store,
            brand="acme",
            peppers=self.peppers,
            key_options=KeyOptions(cap=self.cap),
            store_options=StoreOptions(clock=self.clock),
            observer=self.told.append,
        )
        self.keys = self.gate.keys

    def admit(self, text: str) -> ApiKey:
        key = run(self.gate.authenticate(text)).key
        assert key is not None
        return key

    def names(self) -> list[str]:
        return [event.name for event in self.told]


def problem(caught: pytest.ExceptionInfo[InvalidRequest]) -> str:
    (found,) = caught.value.problems
    return f"{found.field}: {found.message}"


def test_an_update_holds_from_the_next_request_on_and_keeps_the_secret() -> None:
    service = Service()
    created = run(service.keys.create("org_1", "a", ["jobs:*"]))
    assert service.admit(created.text).scopes == ("jobs:*",)
    changed = run(
        service.keys.update(
            "org_1", created.key.id, name=" b ", scopes=["jobs:read"], expires_in_days=2
        )
    )
    assert (changed.name, changed.scopes) == ("b", ("jobs:read",))
    assert changed.expires_at == NOW + 2 * DAY
    assert changed.seal != created.key.seal
    admitted = service.admit(created.text)
    assert (admitted.name, admitted.scopes) == ("b", ("jobs:read",))
    told = Event("key_updated", {"organization": "org_1", "id": created.key.id})
    assert told in service.told
    run(service.keys.update("org_1", created.key.id, expires_in_days=None))
    service.clock.now += 3 * DAY
    assert service.admit(created.text).expires_at is None


def test_an_update_keeps_fields_that_are_not_given() -> None:
    service = Service()
    key = run(service.keys.create("org_1", "a", ["jobs:*"], 5)).key
    assert run(service.keys.update("org_1", key.id, name="b")) == key._replace(name="b")
    service.told.clear()
    assert run(service.keys.update("org_1", key.id, name="b")).name == "b"
    assert run(service.keys.update("org_1", key.id)).scopes == ("jobs:*",)
    assert service.told == []


def test_every_bad_argument_of_an_update_is_named() -> None:
    service = Service()
    key = run(service.keys.create("org_1", "a")).key
    with pytest.raises(InvalidRequest) as caught:
        run(service.keys.update("org_1", key.id, name=" ", scopes=["no:such"], expires_in_days=0))
    fields = [found.field for found in caught.value.problems]
    assert fields == ["name", "scopes", "expires_in_days"]
    assert run(service.keys.get("org_1", key.id)) == key


def test_a_rotated_key_and_its_successor_work_side_by_side_until_the_deadline() -> None:
    service = Service()
    created = run(service.keys.create("org_1", "a", ["jobs:*"], 30))
    service.clock.now += 10 * DAY
    rotated = run(service.keys.rotate("org_1", created.key.id))
    new = rotated.successor
    assert (new.name, new.scopes) == ("a", ("jobs:*",))
    assert new.expires_at == service.clock.now + 30 * DAY, "the same lifetime"
    assert rotated.old.expires_at == service.clock.now + 7 * DAY
    assert rotated.old.details == KeyDetails(service.clock.now, new.id)
    assert rotated.text not in repr(rotated)
    assert service.admit(created.text).successor == new.id
    assert service.admit(rotated.text).successor is None
    fields = {"organization": "org_1", "id": created.key.id, "successor": new.id}
    assert Event("key_rotated", fields) in service.told
    service.clock.now += 7 * DAY
    with pytest.raises(KeyExpired):
        service.admit(created.text)
    assert service.admit(rotated.text).id == new.id


def test_an_overlap_of_0_revokes_the_key_in_the_same_step() -> None:
    service = Service(cap=1)
    created = run(service.keys.create("org_1", "a"))
    rotated = run(service.keys.rotate("org_1", created.key.id, overlap_days=0))
    assert rotated.old.revoked_at == NOW
    with pytest.raises(KeyRevoked):
        service.admit(created.text)
    assert service.admit(rotated.text).expires_at is None


def test_an_earlier_expiry_stays_when_a_key_is_rotated() -> None:
    service = Service()
    key = run(service.keys.create("org_1", "a", expires_in_days=2)).key
    rotated = run(service.keys.rotate("org_1", key.id, overlap_days=90))
    assert rotated.old.expires_at == NOW + 2 * DAY
    assert rotated.old.successor == rotated.successor.id


@pytest.mark.parametrize("overlap", [-1, 90.5, float("nan"), True])
def test_an_overlap_is_0_to_90_days(overlap: float) -> None:
    service = Service()
    key = run(service.keys.create("org_1", "a")).key
    with pytest.raises(InvalidRequest) as caught:
        run(service.keys.rotate("org_1", key.id, overlap_days=overlap))
    assert problem(caught) == "overlap_days: Use a number of days from 0 to 90."


def test_the_overlap_is_no_way_around_the_cap() -> None:
    service = Service(cap=2)
    key = run(service.keys.create("org_1", "a")).key
    run(service.keys.create("org_1", "b"))
    with pytest.raises(KeyLimitReached):
        run(service.keys.rotate("org_1", key.id, overlap_days=0.01))
    assert run(service.keys.get("org_1", key.id)) == key


def test_a_key_has_one_successor_and_no_rotation_prolongs_it() -> None:
    service = Service()
    key = run(service.keys.create("org_1", "a")).key
    rotated = run(service.keys.rotate("org_1", key.id, overlap_days=1))
    with pytest.raises(KeyRotated, match=rotated.successor.id):
        run(service.keys.rotate("org_1", key.id, overlap_days=90))
    for days in (None, 1.5):
        with pytest.raises(InvalidRequest) as caught:
            run(service.keys.update("org_1", key.id, expires_in_days=days))
        assert "only end sooner" in problem(caught)
    sooner = run(service.keys.update("org_1", key.id, expires_in_days=0.5))
    assert sooner.expires_at == NOW + DAY // 2
    assert sooner.successor == rotated.successor.id


def test_no_change_brings_a_key_back_that_ended() -> None:
    service = Service()
    revoked = run(service.keys.create("org_1", "a")).key
    expired = run(service.keys.create("org_1", "b", expires_in_days=1)).key
    run(service.keys.revoke("org_1", revoked.id))
    service.clock.now += DAY
    for key in (revoked, expired):
        with pytest.raises(KeyNotLive):
            run(service.keys.update("org_1", key.id, expires_in_days=None))
        with pytest.raises(KeyNotLive):
            run(service.keys.rotate("org_1", key.id))
    assert len(run(service.keys.list("org_1")).keys) == 2


@pytest.mark.parametrize("verb", ["update", "rotate"])
def test_a_forged_row_gets_no_good_seal(verb: str) -> None:
    """Else renaming a key would make the scopes real that a writer of the database gave it."""
    service = Service()
    key = run(service.keys.create("org_1", "a", ["jobs:read"])).key
    forged = key._replace(scopes=("*",))
    assert run(service.store.update_if(key, forged, NOW))
    change = {"update": lambda: service.keys.update("org_1", key.id, name="b")}
    with pytest.raises(NotFound):
        run(change.get(verb, lambda: service.keys.rotate("org_1", key.id))())
    assert "key_row_rejected" in service.names()
    assert run(service.store.list("org_1", 10)) == [forged]


def test_a_change_beside_a_rotation_of_the_pepper_keeps_both() -> None:
    """The row moves to another digest between the reading and the writing of a change."""

    class Moving(MemoryStore):
        moves = True

        async def update_if(
            self, old: ApiKey, new: ApiKey, now: int | None = None, **options: Any
        ) -> bool:
            if self.moves:
                self.moves = False
                Service(self, (NEW, OLD)).admit(created.text)
            return await super().update_if(old, new, now, **options)

    store = Moving()
    created = run(Service(store, (OLD,)).keys.create("org_1", "a"))
    service = Service(store, (NEW, OLD))
    run(service.keys.update("org_1", created.key.id, name="b"))
    admitted = service.admit(created.text)
    assert admitted.name == "b"
    assert admitted.scheme == service.gate.format.peppers.scheme
    assert service.names() == ["key_updated"], "the digest has moved once"


def test_a_revocation_between_reading_and_rotating_wins() -> None:
    class Racing(MemoryStore):
        async def rotate_if(
            self,
            old: ApiKey,
            new: ApiKey,
            successor: KeyDraft,
            cap: int | None,
            now: int | None = None,
            **options: Any,
        ) -> ApiKey | None:
            await self.revoke_if_live(old.organization, old.id, now)
            return await super().rotate_if(old, new, successor, cap, now, **options)

    service = Service(Racing())
    key = run(service.keys.create("org_1", "a")).key
    with pytest.raises(KeyNotLive):
        run(service.keys.rotate("org_1", key.id))
    assert [found.id for found in run(service.keys.list("org_1")).keys] == [key.id]


def test_revoking_can_include_all_successors() -> None:
    service = Service()
    created = run(service.keys.create("org_1", "a"))
    second = run(service.keys.rotate("org_1", created.key.id))
    third = run(service.keys.rotate("org_1", second.successor.id))
    run(service.keys.revoke("org_1", created.key.id))
    assert service.admit(third.text).id == third.successor.id
    assert run(service.keys.revoke("org_1", created.key.id, successors=True)).id == created.key.id
    for text in (created.text, second.text, third.text):
        with pytest.raises(KeyRevoked):
            service.admit(text)


def test_a_circle_of_successors_ends() -> None:
    """A writer of the database can make one: details are not sealed."""
    service = Service()
    key = run(service.keys.create("org_1", "a")).key
    circle = key._replace(details=KeyDetails(NOW, key.id))
    assert run(service.store.update_if(key, circle, NOW))
    assert run(service.keys.revoke("org_1", key.id, successors=True)).revoked_at == NOW


def test_an_imported_key_is_rotated_to_a_native_key() -> None:
    service = Service()
    draft: Any = run(service.keys.create("org_1", "a")).key
    imported = draft._replace(id="7" * 36, handle="~other", scheme="legacy:x:sha256", seal=None)
    fields: dict[str, Any] = {name: getattr(imported, name) for name in KeyDraft._fields[:10]}
    made = KeyDraft(**fields)
    open_gate = Gate(
        service.store,
        brand="acme",
        peppers=[NEW],
        key_options=KeyOptions(accept_unsealed=True),
        store_options=StoreOptions(clock=service.clock),
    )
    run(service.store.insert(made, None, NOW))
    rotated = run(open_gate.keys.rotate("org_1", imported.id))
    assert service.admit(rotated.text).id == rotated.successor.id


def test_a_lifetime_under_a_minute_is_a_mistake_for_an_update_too() -> None:
    service = Service()
    key = run(service.keys.create("org_1", "a")).key
    with pytest.raises(InvalidRequest) as caught:
        run(service.keys.update("org_1", key.id, expires_in_days=(MINUTE - 1) / DAY))
    assert "within a minute" in problem(caught)


def test_digests_are_compared_before_a_row_is_replaced() -> None:
    service = Service()
    key = run(service.keys.create("org_1", "a")).key
    other = Digest(key.scheme, bytes(32), key.seal)
    assert run(service.store.rehash_if(key.handle, key.kept, other))
    assert run(service.store.update_if(key, key._replace(name="b"), NOW)) is False
