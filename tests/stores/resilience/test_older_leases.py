"""How a change waits for the quota leases that were granted before it (K4, W13)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from lockgate import Plan, PlanBook
from lockgate.core.api_keys import ApiKey
from lockgate.core.digests import Digest
from lockgate.core.plans import Organization
from lockgate.core.quota_leases import LONGEST, LeaseRequest, QuotaLeases
from lockgate.core.reservations import Reservation
from lockgate.core.timestamps import SECOND
from lockgate.errors import ChangeCommitted
from lockgate.events import Events
from lockgate.stores.redis import RedisStore
from lockgate.stores.resilience import older_leases
from lockgate.stores.resilience.older_leases import (
    LEASES_OUT,
    are_noted,
    leases_ended,
    note_leases,
    noted_leases,
)
from lockgate.stores.resilience.store import ResilientStore
from lockgate.stores.rows import Commit, Outcome
from lockgate.sync import run
from tests.by_verbs import MemoryByVerbs
from tests.servers import redis_server
from tests.stores.making import draft_of, new_key, token_of

OLDER = Reservation("0" * 16, 5, 100 * SECOND, SECOND)
ENDED = OLDER._replace(units=0)
NEWER = OLDER._replace(id="1" * 16)


class Looked(MemoryByVerbs):
    """Answers each look at leases with the next of some readings, and counts them."""

    def __init__(self, readings: Sequence[QuotaLeases]) -> None:
        super().__init__()
        self.readings = [*readings]
        self.looks = 0

    async def quota_leases(self, organization: str, now: int | None = None) -> QuotaLeases:
        self.looks += 1
        return self.readings.pop(0)

    leases_in_use = quota_leases


@pytest.mark.parametrize(
    ("noted", "readings"),
    [
        ([()], []),
        ([(), (NEWER,)], []),
        ([(OLDER,), ()], []),
        ([(OLDER,), (NEWER,)], []),
        ([(OLDER,)], [()]),
        ([(OLDER,)], [(OLDER,), (NEWER,)]),
        ([(OLDER,), (OLDER, NEWER)], [(ENDED,), (NEWER,)]),
        ([], [()]),
        ([], [(OLDER,), (OLDER,), (NEWER,)]),
    ],
)
def test_k4_a_change_waits_for_the_leases_that_were_out_at_it_and_looks_no_more_than_needed(
    noted: list[QuotaLeases], readings: list[QuotaLeases]
) -> None:
    store = Looked(readings)
    run(leases_ended(store, "org_1", noted))
    assert store.looks == len(readings)


@pytest.mark.parametrize(
    ("noted", "took", "pauses"),
    [
        ([(OLDER,)], 0.04, [0.01, 0.0125]),
        ([(OLDER,)], 0.0, [0.001, 0.00125]),
        ([(OLDER,)], 60.0, [0.05, 0.05]),
        ([(OLDER,), (OLDER,)], 0.04, [0.001, 0.00125]),
    ],
)
def test_holders_get_a_part_of_the_time_of_the_change_before_the_first_look(
    noted: list[QuotaLeases],
    took: float,
    pauses: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(older_leases, "pause", pause)
    run(leases_ended(Looked([(OLDER,), ()]), "org_1", noted, took))
    assert paused == pytest.approx(pauses)


def test_a_change_that_has_read_the_leases_needs_no_look() -> None:
    class Noting(Looked):
        notes = True

        async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
            if self.notes:
                note_leases(())
            return await super().commit(commit, now)

    store = Noting([()])
    key = run(store.insert(draft_of(new_key()), None))
    resilient = ResilientStore(store, Events(None))
    named = key._replace(name="other")
    assert run(resilient.update_if(key, named))
    assert store.looks == 0
    store.notes = False
    assert run(resilient.update_if(named, key))
    assert store.looks == 1


async def revoked_again(store: ResilientStore, key: ApiKey) -> None:
    """Whatever revoked the key may have died before older leases had ended."""
    for _ in range(2):
        await store.revoke_if_live("org_1", key.id)


@pytest.mark.parametrize(
    ("change", "looks"),
    [
        (lambda store, key: store.revoke_if_live("org_1", key.id), 1),
        (revoked_again, 2),
        (lambda store, key: store.update_if(key, key._replace(scopes=("a:b",))), 1),
        (lambda store, key: store.update_if(key._replace(name="of before"), key), 0),
        (lambda store, _: store.put_organization(Organization("org_1", "free")), 1),
        (lambda store, _: store.organization_changed("org_1"), 1),
        (lambda store, key: store.rehash_if(key.handle, key.kept, Digest("sha256", b"y" * 32)), 0),
        (lambda store, _: store.insert(draft_of(new_key()), None), 0),
        (lambda store, _: store.remove_ended(0), 0),
    ],
    ids=[
        "revoke",
        "revoke again",
        "update",
        "vain update",
        "plan",
        "plan of the host",
        "rehash",
        "insert",
        "end",
    ],
)
def test_a_change_waits_for_older_leases_if_they_may_admit_what_it_forbids_K4(
    change: Callable[[ResilientStore, ApiKey], Coroutine[Any, Any, Any]], looks: int
) -> None:
    store = Looked([()] * looks)
    key = run(store.insert(draft_of(new_key()), None))
    run(change(ResilientStore(store, Events(None)), key))
    assert store.looks == looks


def test_notes_belong_to_the_change_in_whose_block_they_are_made() -> None:
    note_leases((OLDER,))
    assert not are_noted()
    with noted_leases() as outer:
        with noted_leases() as inner:
            note_leases((OLDER,))
        note_leases((NEWER,))
    assert (outer, inner) == ([(NEWER,)], [(OLDER,)])


def test_a_revocation_has_its_result_if_the_store_dies_before_its_leases_have_ended_D52(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with redis_server() as server:
        inner = RedisStore(server.url())
        store = ResilientStore(inner, Events(None), deadline=30)
        made = new_key()
        key = run(store.insert(draft_of(made), None))
        asked = LeaseRequest("0" * 16, 5, LONGEST)
        plans = PlanBook([Plan("free", 1_000, None, None, 1)])
        admission = run(store.admit(token_of(made), 1, plans, lease=asked))
        assert admission.lease is not None
        commit = inner.commit

        async def last(*arguments: Any) -> Outcome:
            outcome = await commit(*arguments)
            server.stop()
            return outcome

        monkeypatch.setattr(inner, "commit", last)
        with pytest.raises(ChangeCommitted) as told:
            run(store.revoke_if_live("org_1", key.id))
        assert isinstance(told.value.result, ApiKey)
        assert told.value.result.revoked_at is not None
        assert told.value.remains == (LEASES_OUT,)
        run(store.close())
