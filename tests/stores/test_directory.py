"""Operations of the directory that find their change made already."""

from __future__ import annotations

import pytest

from lockgate import MemoryStore, run
from lockgate.core.changes import drafted_change
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
