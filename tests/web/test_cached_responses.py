"""A refusal from the cache equals the refusal that the store would give."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lockgate import MemoryStore, Plan, PlanBook, Rule, run
from lockgate.asgi import GateMiddleware
from lockgate.core.timestamps import DAY, HOUR, MINUTE, SECOND
from lockgate.web import cached_responses

from .driving import Bench, ask, say

FREE = Plan("free", rpm=3, rph=5, rpd=8, concurrent=1)
MORE = Plan("more", rpm=4, rph=9, rpd=9, concurrent=1)
SHUT = Plan("shut", rpm=0, rph=5, rpd=8, concurrent=1)
RULES: dict[str, Rule | str] = {
    "GET /one": "models:read",
    "GET /two": Rule(cost=2),
    "GET /all": "jobs:read",
}


class Service:
    """A gate before an application, two keys of one organization and a key that ends tomorrow."""

    def __init__(self, **fields: Any) -> None:
        self.bench = Bench(plans=PlanBook([FREE, MORE, SHUT]), **fields)
        self.gate = self.bench.gate
        self.app = GateMiddleware(say, self.gate, RULES)
        made = [
            run(self.gate.keys.create("org_1", name, expires_in_days=days))
            for name, days in (("one", None), ("other", None), ("short", 1.0))
        ]
        self.ids = [created.key.id for created in made]
        self.keys = [created.text for created in made]

    async def call(self, key: int, path: str, method: str = "GET") -> tuple[object, ...]:
        answer = await ask(self.app, method, path, key=self.keys[key])
        return answer.status, sorted(answer.headers), answer.body

    async def apply(self, step: tuple[Any, ...]) -> tuple[object, ...] | None:
        kind, *details = step
        if kind == "ask":
            return await self.call(*details)
        if kind == "wait":
            self.bench.clock.now += details[0]
        elif kind == "revoke":
            await self.gate.keys.revoke("org_1", self.ids[details[0]])
        else:
            await self.gate.organizations.place("org_1", details[0])
        return None


ASK = st.tuples(
    st.just("ask"),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from(["/one", "/one", "/all", "/two"]),
    st.sampled_from(["GET", "GET", "HEAD"]),
)
SPANS = [1, SECOND - 1, SECOND, 7 * SECOND, MINUTE - 1, MINUTE, HOUR, DAY - 1, DAY]
WAIT = st.tuples(
    st.just("wait"), st.one_of(st.integers(0, 3 * SECOND), st.sampled_from([*SPANS, -5, -SECOND]))
)
CHANGE = st.one_of(
    st.tuples(st.just("revoke"), st.integers(0, 2)),
    st.tuples(st.just("place"), st.sampled_from(["free", "more", "shut"])),
)
ONCE = ("ask", 0, "/one", "GET")
FULL = [ONCE] * 5
SHORT = ("ask", 2, "/one", "GET")
TWICE = ("ask", 0, "/two", "GET")
HALF_HOUR = HOUR // 2
# The hour counts more than the plan admits now, and loses some before the minute loses any.
LOWERED = [
    *(("place", "more"), ONCE, ("wait", HALF_HOUR + 300_000), ONCE, ONCE, ONCE),
    *(("wait", HALF_HOUR - 800_000), ONCE, ONCE, ONCE, ("place", "free"), ONCE, ONCE),
]


@settings(deadline=None)
@given(st.lists(st.one_of(ASK, ASK, ASK, WAIT, CHANGE), max_size=60))
@example([*FULL, ("revoke", 0), ONCE])
@example([*FULL, ("place", "more"), ONCE])
@example([*FULL, ("wait", 1), ONCE, ("wait", SECOND), ONCE])
@example([*FULL, ("wait", MINUTE - 1), ONCE, ("wait", 1), ONCE])
@example([*FULL, ("wait", -2 * SECOND), ONCE, ONCE])
@example([ONCE, ("wait", 9 * SECOND), *FULL, TWICE])
@example([*LOWERED, ("wait", 500_000), ONCE])
@example([("wait", DAY - 500_000), *[SHORT] * 5, ("wait", 500_000), SHORT])
@example([*FULL, TWICE, ("ask", 0, "/one", "HEAD"), ("ask", 1, "/all", "GET")])
async def test_every_answer_equals_that_of_a_gate_without_a_cache(
    steps: list[tuple[Any, ...]],
) -> None:
    """The same traffic to a gate that has an observer: that one answers each request anew."""
    remembering, forgetful = Service(observer=None), Service()
    for step in steps:
        assert await remembering.apply(step) == await forgetful.apply(step), step


async def test_a_flood_does_not_reach_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(observer=None)
    for _ in range(3):
        await service.call(0, "/one")
    refused = await service.call(0, "/one")
    asked: list[str] = []
    monkeypatch.setattr(MemoryStore, "admit", lambda *_: asked.append("admit"))
    assert [await service.call(0, "/all") for _ in range(50)] == [refused] * 50
    assert asked == []


async def test_an_observer_hears_of_every_refusal() -> None:
    service = Service()
    for _ in range(9):
        await service.call(0, "/one")
    assert service.bench.names().count("refused") == 6


@pytest.mark.parametrize("way", ["shadow mode", "a store that does not see every change"])
async def test_no_refusal_is_cached_that_may_change_unseen(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(observer=None)
    if way == "shadow mode":
        service.app = GateMiddleware(say, service.gate, RULES, shadow="all")
    else:
        monkeypatch.setattr(service.gate.store, "local_version", None)
    statuses = {(await service.call(0, "/one"))[0] for _ in range(9)}
    assert statuses == ({200} if way == "shadow mode" else {200, 429})
    assert service.app.guard.cached_responses.known == {}


async def test_the_number_of_cached_responses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_responses, "_AT_MOST", 2)
    service = Service(observer=None)
    for key in (0, 1, 2) * 2:
        await service.call(key, "/one")
    assert len(service.app.guard.cached_responses.known) == 2
