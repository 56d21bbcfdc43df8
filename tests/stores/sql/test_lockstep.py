"""The same trace gives the same answers here and in memory, whichever the database (W14)."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockgate import MemoryStore, Plan, PlanBook, run
from lockgate.rules.credentials import Digest, NewKey
from lockgate.rules.instants import DAY, HOUR, MINUTE, SECOND
from lockgate.rules.keys import KeyDraft
from lockgate.rules.plans import Organization
from lockgate.stores.contract import Store, Usage

from ..making import NOW, draft_of, new_key, token_of
from .backends import Backend

PLANS = PlanBook(
    [
        Plan("narrow", rpm=3, rph=5, rpd=8, concurrent=2),
        Plan("wide", rpm=40, rph=None, rpd=60, concurrent=None, resolution=None),
    ],
    custom=(),
    default="narrow",
)
VERBS = [
    *("admit", "admit", "admit", "hit", "look", "revoke", "place", "usage", "rehash"),
    *("acquire", "renew", "release"),
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, SECOND, 20 * SECOND, MINUTE, HOUR, DAY, -SECOND, -2 * DAY]),
        st.sampled_from(VERBS),
        st.integers(0, 3),
        st.integers(1, 3),
    ),
    max_size=40,
)


async def step(store: Store, verb: str, key: NewKey, draft: KeyDraft, amount: int, now: int) -> Any:
    organization, job = draft.organization, f"job {amount}"
    windows = PLANS.default.windows
    match verb:
        case "admit":
            return await store.admit(token_of(key), amount, PLANS, now)
        case "hit":
            return await store.hit(organization, windows, amount, now)
        case "look":
            return await store.look(organization, windows, now)
        case "revoke":
            return await store.revoke_if_live(organization, draft.id, now)
        case "place":
            plan = ("narrow", "wide", "gone")[amount - 1]
            overrides = (("rpm", amount),) if amount == 1 else ()
            await store.put_organization(Organization(organization, plan, overrides))
            return await store.organization(organization)
        case "usage":
            return await store.add_usage(
                {key.handle: Usage(amount, now), "........": Usage(1, now)}
            )
        case "rehash":
            old = Digest(draft.scheme, draft.digest)
            return await store.rehash_if(key.handle, old, Digest("other", bytes(amount)))
        case "acquire":
            return await store.acquire(organization, job, "me", 2, amount * MINUTE, now)
        case "renew":
            return await store.renew(organization, job, "me", amount * MINUTE, now)
        case _:
            return await store.release(organization, job, "me", now)


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(STEPS)
def test_w14_every_verb_answers_as_in_memory(
    backend: Backend, steps: list[tuple[int, str, int, int]]
) -> None:
    mine, memory = backend.open(), MemoryStore()
    keys = [new_key() for _ in range(4)]
    drafts = [
        draft_of(key, f"org_{index % 2}", lifetime=(None, HOUR, None, DAY)[index])
        for index, key in enumerate(keys)
    ]
    for draft in drafts:
        assert run(mine.insert(draft, 3, NOW)) == run(memory.insert(draft, 3, NOW))
    now = NOW
    for ahead, verb, which, amount in steps:
        now += ahead
        key, draft = keys[which], drafts[which]
        answer = run(step(mine, verb, key, draft, amount, now))
        assert answer == run(step(memory, verb, key, draft, amount, now)), verb
    for organization in ("org_0", "org_1"):
        assert run(mine.list(organization)) == run(memory.list(organization))
        assert run(mine.held(organization, now)) == run(memory.held(organization, now))
    assert run(mine.census(now)) == run(memory.census(now))
    run(mine.close())
