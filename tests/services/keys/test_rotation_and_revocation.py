"""Updating and rotating keys (D43), and revoking them with their successors."""

from __future__ import annotations

from typing import Any

import pytest

from lockgate import Event, run
from lockgate.core.api_keys import ApiKey, KeyDetails, KeyDraft
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
from lockgate.options import KeyOptions
from tests.stores.making import NOW

from ..bench import Bench, Hooked

OLD, NEW = b"an older pepper of the tests", b"a newer pepper of the tests"


class Service(Bench):
    """A gate with peppers on a store that others may share."""

    def __init__(self, store: Any = None, *peppers: bytes, **options: Any) -> None:
        super().__init__(store, peppers=peppers or (NEW,), **options)
        self.keys = self.gate.keys

    def key(self, text: str) -> ApiKey:
        key = self.admit(text).key
        assert key is not None
        return key


def problem(caught: pytest.ExceptionInfo[InvalidRequest]) -> str:
    (found,) = caught.value.problems
    return f"{found.field}: {found.message}"


def test_an_update_holds_from_the_next_request_on_and_keeps_the_secret() -> None:
    service = Service()
    created = service.create(scopes=["jobs:*"])
    assert service.key(created.text).scopes == ("jobs:*",)
    new: dict[str, Any] = {"name": " b ", "scopes": ["jobs:read"], "expires_in_days": 2}
    changed = run(service.keys.update("org_1", created.key.id, **new))
    assert (changed.name, changed.scopes) == ("b", ("jobs:read",))
    assert changed.expires_at == NOW + 2 * DAY
    assert changed.seal != created.key.seal
    admitted = service.key(created.text)
    assert (admitted.name, admitted.scopes) == ("b", ("jobs:read",))
    told = Event("key_updated", {"organization": "org_1", "id": created.key.id})
    assert told in service.told
    run(service.keys.update("org_1", created.key.id, expires_in_days=None))
    service.clock.now += 3 * DAY
    assert service.key(created.text).expires_at is None


def test_an_update_keeps_fields_that_are_not_given() -> None:
    service = Service()
    key = service.create(scopes=["jobs:*"], expires_in_days=5).key
    assert run(service.keys.update("org_1", key.id, name="b")) == key._replace(name="b")
    service.told.clear()
    assert run(service.keys.update("org_1", key.id, name="b")).name == "b"
    assert run(service.keys.update("org_1", key.id)).scopes == ("jobs:*",)
    assert service.told == []


def test_every_bad_argument_of_an_update_is_named() -> None:
    service = Service()
    key = service.create().key
    with pytest.raises(InvalidRequest) as caught:
        run(service.keys.update("org_1", key.id, name=" ", scopes=["no:such"], expires_in_days=0))
    fields = [found.field for found in caught.value.problems]
    assert fields == ["name", "scopes", "expires_in_days"]
    with pytest.raises(InvalidRequest) as caught:
        run(service.keys.update("org_1", key.id, expires_in_days=(MINUTE - 1) / DAY))
    assert "within a minute" in problem(caught)
    assert run(service.keys.get("org_1", key.id)) == key


def test_a_rotated_key_and_its_successor_work_side_by_side_until_the_deadline() -> None:
    service = Service()
    created = service.create(scopes=["jobs:*"], expires_in_days=30)
    service.clock.now += 10 * DAY
    rotated = run(service.keys.rotate("org_1", created.key.id))
    new = rotated.successor
    assert (new.name, new.scopes) == ("ci", ("jobs:*",))
    assert new.expires_at == service.clock.now + 30 * DAY, "the same lifetime"
    assert rotated.old.expires_at == service.clock.now + 7 * DAY
    assert rotated.old.details == KeyDetails(service.clock.now, new.id)
    assert rotated.text not in repr(rotated)
    assert service.key(created.text).successor == new.id
    assert service.key(rotated.text).successor is None
    fields = {"organization": "org_1", "id": created.key.id, "successor": new.id}
    assert Event("key_rotated", fields) in service.told
    service.clock.now += 7 * DAY
    service.refuses(KeyExpired, created.text)
    assert service.key(rotated.text).id == new.id


def test_the_overlap_is_0_to_90_days_within_the_expiry_and_the_cap() -> None:
    service = Service(key_options=KeyOptions(cap=2))
    created, short = service.create(), service.create(expires_in_days=2).key
    for overlap in (-1, 90.5, float("nan"), True):
        with pytest.raises(InvalidRequest) as caught:
            run(service.keys.rotate("org_1", created.key.id, overlap_days=overlap))
        assert problem(caught) == "overlap_days: Use a number of days from 0 to 90."
    with pytest.raises(KeyLimitReached):
        run(service.keys.rotate("org_1", created.key.id, overlap_days=0.01))
    assert run(service.keys.get("org_1", created.key.id)) == created.key
    rotated = run(service.keys.rotate("org_1", created.key.id, overlap_days=0))
    assert rotated.old.revoked_at == NOW, "in the same step"
    service.refuses(KeyRevoked, created.text)
    assert service.key(rotated.text).expires_at is None
    run(service.keys.revoke("org_1", rotated.successor.id))
    rotated = run(service.keys.rotate("org_1", short.id, overlap_days=90))
    assert rotated.old.expires_at == NOW + 2 * DAY, "an earlier expiry stays"


def test_a_key_has_one_successor_and_no_rotation_prolongs_it() -> None:
    service = Service()
    key = service.create().key
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


def test_no_change_brings_a_key_back_that_ended_K3() -> None:
    service = Service()
    revoked, expired = service.create().key, service.create(expires_in_days=1).key
    run(service.keys.revoke("org_1", revoked.id))
    service.clock.now += DAY
    for key in (revoked, expired):
        with pytest.raises(KeyNotLive):
            run(service.keys.update("org_1", key.id, expires_in_days=None))
        with pytest.raises(KeyNotLive):
            run(service.keys.rotate("org_1", key.id))
    assert len(run(service.keys.list("org_1")).keys) == 2


@pytest.mark.parametrize("verb", ["update", "rotate"])
def test_a_forged_row_gets_no_good_seal_K1(verb: str) -> None:
    """Else renaming a key would make the scopes real that a writer of the database gave it."""
    service = Service()
    key = service.create(scopes=["jobs:read"]).key
    forged = key._replace(scopes=("*",))
    assert run(service.store.update_if(key, forged, NOW))
    change = {"update": lambda: service.keys.update("org_1", key.id, name="b")}
    with pytest.raises(NotFound):
        run(change.get(verb, lambda: service.keys.rotate("org_1", key.id))())
    assert "key_row_rejected" in service.names
    assert run(service.store.list("org_1", 10)) == [forged]


def test_a_change_beside_a_rotation_of_the_pepper_keeps_both() -> None:
    """The row moves to another digest between the reading and the writing of a change."""
    store, moves = Hooked(), [True]

    async def moving(asked: Any, *arguments: Any, **options: Any) -> Any:
        if moves:
            moves.clear()
            Service(store, NEW, OLD).key(created.text)
        return await asked(*arguments, **options)

    store.on("update_if", moving)
    created = Service(store, OLD).create()
    service = Service(store, NEW, OLD)
    run(service.keys.update("org_1", created.key.id, name="b"))
    admitted = service.key(created.text)
    assert admitted.name == "b"
    assert admitted.scheme == service.gate.format.peppers.scheme
    assert service.names == ["key_updated"], "the digest has moved once"


def test_a_revocation_between_reading_and_rotating_wins_K3() -> None:
    store = Hooked()

    async def racing(asked: Any, old: ApiKey, *arguments: Any, **options: Any) -> Any:
        await store.revoke_if_live(old.organization, old.id, NOW)
        return await asked(old, *arguments, **options)

    service = Service(store.on("rotate_if", racing))
    key = service.create().key
    with pytest.raises(KeyNotLive):
        run(service.keys.rotate("org_1", key.id))
    assert [found.id for found in run(service.keys.list("org_1")).keys] == [key.id]


def test_revoking_can_include_all_successors_and_a_circle_of_them_ends() -> None:
    service = Service()
    created = service.create()
    second = run(service.keys.rotate("org_1", created.key.id))
    third = run(service.keys.rotate("org_1", second.successor.id))
    run(service.keys.revoke("org_1", created.key.id))
    assert service.key(third.text).id == third.successor.id
    assert run(service.keys.revoke("org_1", created.key.id, successors=True)).id == created.key.id
    for text in (created.text, second.text, third.text):
        service.refuses(KeyRevoked, text)
    key = service.create().key  # A writer of the database can make one: details are not sealed.
    assert run(service.store.update_if(key, key._replace(details=KeyDetails(NOW, key.id)), NOW))
    assert run(service.keys.revoke("org_1", key.id, successors=True)).revoked_at == NOW


def test_an_imported_key_is_rotated_to_a_native_key() -> None:
    service = Service()
    key: Any = service.create().key
    imported = key._replace(id="7" * 36, handle="~other", scheme="legacy:x:sha256", seal=None)
    fields: dict[str, Any] = {name: getattr(imported, name) for name in KeyDraft._fields[:10]}
    run(service.store.insert(KeyDraft(**fields), None, NOW))
    accepting = Service(service.store, NEW, key_options=KeyOptions(accept_unsealed=True))
    rotated = run(accepting.keys.rotate("org_1", imported.id))
    assert service.key(rotated.text).id == rotated.successor.id
