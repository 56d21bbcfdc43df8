"""Operations of the directory that find their change made already, or their row changed."""

from __future__ import annotations

from typing import Any

import pytest

from lockgate import MemoryStore, run
from lockgate.core.changes import drafted_change
from lockgate.core.digests import Digest
from lockgate.stores.rows import Commit, Outcome
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
