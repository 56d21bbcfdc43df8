"""The memory store beyond the contract: its clock, and state untracked by the garbage collector."""

from __future__ import annotations

import gc

from lockgate import MemoryStore, Store, run
from lockgate.clock import wall_clock
from lockgate.core.leases import TO_LIST, to_acquire, to_release, to_renew
from lockgate.core.ledger import Hit
from lockgate.core.timestamps import DAY, MINUTE
from lockgate.stores.answers import Verdict
from lockgate.testing import HandClock
from lockgate.testing.suite import StoreSuite

from ..making import BOOK, NOW, draft, draft_of, new_key, token_of

FREE = BOOK.default.windows


class TestContract(StoreSuite):
    def make_store(self) -> Store:
        return MemoryStore()

    def leftovers(self, store: Store, now: int) -> int:
        assert isinstance(store, MemoryStore)
        return max(len(store._windows), len(store._windows.limits), len(store._budgets))


class ComposedStore(MemoryStore):
    """Admits by the composition that every store inherits, verb by verb."""

    admit = Store.admit
    grants_leases = False


class TestComposition(StoreSuite):
    parts = ("admission",)

    def make_store(self) -> Store:
        return ComposedStore()


def test_the_composed_admit_uses_the_stores_clock() -> None:
    clock = HandClock()
    store = ComposedStore(clock)
    made = new_key()
    run(store.insert(draft_of(made, lifetime=DAY), None))
    clock.now += DAY
    assert run(store.admit(token_of(made), 1, BOOK)).verdict is Verdict.EXPIRED


def test_instant_zero_is_valid() -> None:
    """As of a clock that a test begins at 0."""
    store, made = MemoryStore(HandClock(0)), new_key()
    run(store.insert(draft_of(made), None))
    admitted = run(store.admit(token_of(made), 1, BOOK)).key
    assert admitted is not None
    assert admitted.last_used_at == 0
    assert run(store.find(made.handle)) == admitted


def test_the_clock_is_the_machines_unless_one_is_given() -> None:
    before = wall_clock()
    assert before <= run(MemoryStore().now()) <= wall_clock()
    clock = HandClock()
    store = MemoryStore(clock)
    assert run(store.now()) == NOW
    clock.now += 1
    assert run(store.now()) == NOW + 1


def test_every_verb_uses_the_given_clock() -> None:
    clock = HandClock()
    store = MemoryStore(clock)
    made = new_key()
    key = run(store.insert(draft_of(made, lifetime=DAY), None))
    assert (key.created_at, key.expires_at) == (NOW - NOW % 1000, NOW + DAY)
    admission = run(store.admit(token_of(made), 1, BOOK))
    assert admission.reading is not None
    assert admission.reading.now == NOW
    assert run(store.census()).counts == {"sha256": 1}
    lease = run(store.charge("org_1", to_acquire("job", "me", 1, MINUTE))).slot
    assert lease is not None
    assert lease.deadline == NOW + MINUTE
    clock.now += DAY
    assert run(store.admit(token_of(made), 1, BOOK)).verdict is Verdict.EXPIRED
    assert run(store.census()).counts == {}
    assert run(store.charge("org_1", TO_LIST)).slots == ()
    revoked = run(store.revoke_if_live("org_1", key.id))
    assert revoked is not None
    assert revoked.revoked_at == NOW + DAY


def test_an_organization_without_slots_leaves_nothing() -> None:
    store = MemoryStore()
    for number in range(3):
        run(store.charge(f"org_{number}", to_acquire("job", "me", 1, MINUTE), NOW))
    run(store.charge("org_0", to_release("job", "me"), NOW))
    run(store.charge("org_1", to_renew("job", "me", MINUTE), NOW + MINUTE))
    run(store.charge("org_2", to_acquire("other", "me", 0, MINUTE), NOW + MINUTE))
    assert len(store._budgets) == 0


def flush() -> None:
    """A tuple is untracked once its items are: one collection for each level."""
    for _ in range(3):
        gc.collect()


def filled(keys: int, organizations: int) -> MemoryStore:
    store = MemoryStore()
    for number in range(keys):
        made = new_key()
        organization = f"org_{number % organizations}"
        run(store.insert(draft_of(made, organization, scopes=("a:b", "c:d")), None, NOW))
        run(store.admit(token_of(made), 1, BOOK, NOW + number))
        if number % 3 == 0:
            run(store.charge(organization, Hit(FREE, 1), NOW + number + 1))
    return store


def test_the_collector_does_not_track_rows_and_windows() -> None:
    store = filled(200, 20)
    flush()
    assert not [row for row in store._rows.values() if gc.is_tracked(row)]
    assert not [state for state in store._windows._present.values() if gc.is_tracked(state)]
    for table in (store._requests, store._last_used, store._keys.handles_by_id):
        assert not gc.is_tracked(table)


def test_a_rehashed_row_is_untracked_too() -> None:
    store = filled(10, 1)
    for handle, row in list(store._rows.items()):
        from lockgate.core.digests import Digest

        assert run(store.rehash_if(handle, Digest(row[6], row[7]), Digest("new", b"digest")))
    flush()
    assert not [row for row in store._rows.values() if gc.is_tracked(row)]


def test_the_number_of_collected_objects_does_not_grow_with_keys() -> None:
    """The docstring: no pauses, however many keys; so too where each has its own organization."""
    flush()
    before = len(gc.get_objects())
    store = filled(3000, 3000)
    flush()
    grown = len(gc.get_objects()) - before
    assert len(run(store.list("org_7", 10))) == 1
    assert grown < 300


def test_changing_a_returned_list_does_not_change_the_store() -> None:
    store = MemoryStore()
    key = run(store.insert(draft("org_1"), None, NOW))
    run(store.list("org_1", 10)).clear()
    assert run(store.list("org_1", 10)) == [key]
