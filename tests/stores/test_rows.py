"""What `read` and `commit` promise beside the operations that the directory composes of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate import MemoryStore, run
from lockgate.core.api_keys import ApiKey
from lockgate.core.changes import ChangeDraft, drafted_change
from lockgate.core.plans import Organization
from lockgate.core.timestamps import DAY, MILLISECOND
from lockgate.stores.answers import OutcomeUnknown
from lockgate.stores.key_value import RecordStore
from lockgate.stores.redis import RedisStore
from lockgate.stores.rows import (
    KEY_BY_ID,
    KEYS_BY_CREATION,
    KEYS_BY_END,
    PLAN,
    STAMP,
    Commit,
    Outcome,
    Write,
)
from lockgate.stores.sql import SqlStore
from lockgate.testing.factories import NOW
from tests.testing.test_records import Counted

from .making import account, draft
from .redis.backends import opened, stop_servers
from .sql.backends import BACKENDS, close_backends

STORES = ["memory", "key_value", "server", "cluster", *BACKENDS]


@pytest.fixture(scope="module", autouse=True)
def servers(shared_servers: None) -> Iterator[None]:
    yield
    stop_servers()
    close_backends()


RowsStore = MemoryStore | RecordStore | RedisStore | SqlStore


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[RowsStore]:
    if request.param == "memory":
        made: RowsStore = MemoryStore()
    elif request.param == "key_value":
        made = RecordStore(Counted())
    elif request.param in BACKENDS:
        made = BACKENDS[request.param].open()
    else:
        made = opened(request.param)
    yield made
    run(made.close())


def revoked(key: ApiKey, version: object, id: str, change: ChangeDraft | None = None) -> Commit:
    write = Write(key, version, key._replace(revoked_at=STAMP))
    return Commit(key.organization, id, (write,), change=change)


def test_a_repeated_commit_is_made_once_and_answered_alike_D33(store: RowsStore) -> None:
    key = run(store.insert(draft(), None, NOW))
    read = run(store.read(KEY_BY_ID, (key.organization, key.id)))
    commit = revoked(key, read.version, "0a", drafted_change("key_revoked", key.id))
    first = run(store.commit(commit, NOW + 1))
    assert run(store.commit(commit, NOW + 2)) == first
    assert first.verdict == "done"
    assert [row and row[:-2] for row in first.rows] == [key._replace(revoked_at=NOW + 1)[:-2]]
    assert len(run(store.change_log(key.organization, 10))) == 1


def test_a_repeated_insertion_does_not_find_its_own_key_taken_D33(store: RowsStore) -> None:
    key = draft().created(NOW)
    commit = Commit(key.organization, "0b", (Write(None, None, key),), room=1)
    assert run(store.commit(commit, NOW)).verdict == "done"
    assert run(store.commit(commit, NOW)).verdict == "done"
    assert run(store.find(key.handle)) == key
    assert run(store.commit(commit._replace(id="0c"), NOW)).verdict in {"taken", "full"}
    assert run(store.find(key.handle)) == key


def test_an_operation_whose_reply_is_lost_is_made_once_D33(
    store: RowsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Commit] = []
    commit_once = store.commit

    async def losing(commit: Commit, now: int | None = None) -> Outcome:
        outcome = await commit_once(commit, now)
        if commit not in lost:
            lost.append(commit)
            raise OutcomeUnknown
        return outcome

    monkeypatch.setattr(store, "commit", losing)
    key = run(store.insert(draft(), 2, NOW, change=drafted_change("key_created", "1")))
    new, change = key._replace(name="new"), drafted_change("key_updated", key.id)
    assert run(store.update_if(key, new, NOW + 1, change=change))
    successor = run(store.rotate_if(new, new, draft(), 2, NOW + 2))
    assert successor is not None
    placed = Organization("org_1", "free")
    run(store.put_organization(placed, NOW, change=drafted_change("plan_assigned")))
    assert run(store.revoke_if_live("org_1", key.id, NOW + 3)) is not None
    registered, _ = run(store.register(account("org_2"), draft("org_2"), NOW))
    assert run(store.account("org_2")) == registered
    assert len(lost) == 6
    assert len(run(store.list("org_1", 10))) == 2
    assert [one.action for one in run(store.change_log("org_1", 10))] == [
        *("plan_assigned", "key_updated", "key_created")
    ]


def test_a_commit_with_an_outdated_version_changes_nothing(store: RowsStore) -> None:
    key = run(store.insert(draft(), None, NOW))
    before = run(store.read(KEY_BY_ID, (key.organization, key.id)))
    assert run(store.update_if(key, key._replace(name="new"), NOW))
    outcome = run(store.commit(revoked(key, before.version, "0d"), NOW))
    assert outcome.verdict == "changed"
    assert run(store.get(key.organization, key.id)) == key._replace(name="new")


def test_a_key_must_be_live_at_the_instant_of_the_step(store: RowsStore) -> None:
    key = run(store.insert(draft(lifetime=DAY), None, NOW))
    read = run(store.read(KEY_BY_ID, (key.organization, key.id)))
    write = Write(key, read.version, key._replace(name="new"), live=True)
    commit = Commit(key.organization, "0e", (write,))
    assert run(store.commit(commit, NOW + DAY)).verdict == "changed"
    assert run(store.commit(commit, NOW + DAY - 1)).verdict == "done"


def test_instants_and_records_are_of_the_step(store: RowsStore) -> None:
    """Two revocations that are read in one order and committed in the other."""
    keys = [run(store.insert(draft(), None, NOW)) for _ in "ab"]
    read = [run(store.read(KEY_BY_ID, (key.organization, key.id))) for key in keys]
    for at, number in enumerate((1, 0)):
        change = drafted_change("key_revoked", keys[number].id)
        commit = revoked(keys[number], read[number].version, f"{number}", change)
        assert run(store.commit(commit, NOW + at)).now == NOW + at
    records = run(store.change_log("org_1", 10))
    assert [(one.number, one.at) for one in records] == [(2, NOW + 1), (1, NOW)]
    ends = [one and one.revoked_at for one in (run(store.get("org_1", key.id)) for key in keys)]
    assert ends == [NOW + 1, NOW]


def test_the_clock_of_the_store_stamps_without_one_of_the_caller(store: RowsStore) -> None:
    before = run(store.now())
    key = run(store.insert(draft(), None))
    ended = run(store.revoke_if_live("org_1", key.id))
    after = run(store.now())
    assert ended is not None and ended.revoked_at is not None
    assert before - MILLISECOND < key.created_at <= ended.revoked_at <= after


def test_a_commit_that_changes_no_row_is_not_recorded(store: RowsStore) -> None:
    registered, _ = run(store.register(account(), draft(), NOW))
    run(store.revoke_if_live("org_1", run(store.list("org_1", 1))[0].id, NOW))
    read = run(store.read(PLAN, ("org_1",)))
    assert (read.first, read.version) == (None, None)
    commit = Commit("org_1", "0f", revoke_all=True, change=drafted_change("account_claimed"))
    assert run(store.commit(commit, NOW + 1)).ended == 0
    assert run(store.change_log("org_1", 10)) == []
    assert run(store.account("org_1")) == registered


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.none() | st.integers(0, 3)), max_size=8
    ),
    st.integers(1, 4),
    st.none() | st.integers(0, 7),
)
def test_a_page_of_an_index_follows_its_order(
    keys: list[tuple[int, int, int | None]], limit: int, after: int | None
) -> None:
    store = MemoryStore()
    for created, expires, ended in keys:
        at = NOW + created * DAY
        key = draft().created(at)._replace(expires_at=NOW + (expires + 4) * DAY)
        if ended is not None:
            key = key._replace(revoked_at=at + ended)
        run(store.commit(Commit("org_1", f"{key.handle}", (Write(None, None, key),)), at))
    rows = run(store.list("org_1", 100))
    for index in (KEYS_BY_CREATION, KEYS_BY_END):
        place = index.place
        assert place is not None
        held = index.page(rows, 100, None)
        start = None if after is None or after >= len(held) else place(held[after])
        read = run(store.read(index, ("org_1",), limit, start))
        assert read.rows == index.page(rows, limit, start)


def test_a_repeated_removal_of_the_last_rows_is_answered_alike_D33(store: RowsStore) -> None:
    run(store.register(account(), draft(), NOW))
    keys = [run(store.insert(draft("org_2", lifetime=1), None, NOW)) for _ in "ab"]
    for commit, at in (
        (Commit("org_1", "0a", remove_unused=NOW), NOW + DAY),
        (Commit("org_2", "0b", remove_ended=NOW + 1), NOW + DAY),
    ):
        first = run(store.commit(commit, at))
        assert (first.verdict, first.ended > 0) == ("done", True)
        assert run(store.commit(commit, at + 1)) == first
    again = run(store.insert(draft("org_2"), None, NOW + DAY))
    assert run(store.list("org_2", 9)) == [again]
    assert [run(store.find(key.handle)) for key in keys] == [None, None]
