"""The directory: operations that find their change made, pages of rows, and the list of verbs."""

from __future__ import annotations

import re
from inspect import isfunction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate import MemoryStore, run
from lockgate.core.changes import drafted_change
from lockgate.core.digests import Digest
from lockgate.core.timestamps import DAY
from lockgate.stores import base
from lockgate.stores.rows import KEYS_BY_CREATION, KEYS_BY_END, Commit, Outcome, Write
from lockgate.testing.factories import NOW

from .making import account, draft


def test_a_repeated_operation_voids_answers_of_before_again_K4(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever made the change may have died before it held on every process."""
    store, voiding = MemoryStore(), list[bool]()
    registered, key = run(store.register(account("org_1"), draft("org_1"), NOW))
    commit_once = store.commit

    async def noting(commit: Commit, now: int | None = None) -> Outcome:
        outcome = await commit_once(commit, now)
        voiding.append(commit.has_voided(outcome) and commit.waits_for_leases)
        return outcome

    monkeypatch.setattr(store, "commit", noting)
    for _ in range(2):
        run(store.revoke_if_live("org_1", key.id, NOW))
    seals, log = (registered.seal, None), drafted_change("account_claimed")
    for _ in range(2):
        run(
            store.claim_if_unclaimed(
                "org_1", "ada", revoke=False, keep_token=False, seals=seals, now=NOW, change=log
            )
        )
    assert voiding == [True, True, False, True]
    assert len(run(store.change_log("org_1", 10))) == 1


def test_a_row_that_has_changed_since_its_caller_read_it_is_read_again_K9(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, reads = MemoryStore(), list[object]()
    known, key = run(store.register(account("org_1"), draft("org_1"), NOW))
    read_once, digest = store.read, Digest("new", b"1")

    async def noting(index: Any, *arguments: Any) -> Any:
        reads.append(index)
        return await read_once(index, *arguments)

    monkeypatch.setattr(store, "read", noting)
    signed_in = run(store.sign_in("org_1", NOW + 2, known=known))
    assert run(store.update_if(key, key._replace(name="other"), NOW))
    assert reads == []
    assert run(store.rehash_if(key.handle, key.kept, digest, known=key))
    assert len(reads) == 1
    assert run(store.sign_in("org_1", NOW + 1, known=known)) == signed_in
    assert len(reads) == 2
    found = run(store.find(key.handle))
    assert found is not None
    assert (found.name, found.kept) == ("other", digest)


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


PARTS = [base.KeyStore, base.WindowStore]
# Every store inherits these from the base class, and few have work to do there.
OF_FEW = {"cancel_waits", "reset_connections"}


@pytest.mark.parametrize("part", [*PARTS, base.Store])
def test_the_docstring_lists_the_verbs_of_each_part(part: type) -> None:
    listed = re.search(rf"^{part.__name__} +(.*(?:\n {{14}}.*)*)", base.__doc__ or "", re.MULTILINE)
    assert listed is not None
    verbs = {name for name, one in vars(part).items() if isfunction(one)} - OF_FEW
    assert verbs <= set(re.findall(r"\w+", listed[1]))
