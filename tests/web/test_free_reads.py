"""Reads by sessions that cost their organization nothing, on every framework."""

from __future__ import annotations

from typing import Any

import pytest

from lockgate import Gate, MemoryStore, Plan, PlanBook, Registration, Rule, UsageHistory, run
from lockgate.core.ledger import Peek
from lockgate.options import StoreOptions, WebOptions
from lockgate.sessions import Session, SignedCookie
from lockgate.stores.answers import StoreError

from .driving import ORIGIN, SECRET, Bench
from .front_ends import FRAMEWORKS, KEYS, STATUS, FrontEnd, agent_of, django_settings
from .test_guard import Asking, enter

FREE = WebOptions(session_free_reads=True)
SMALL = PlanBook([Plan("free", rpm=5, rph=100, rpd=1000, concurrent=1)])
PEOPLE = SignedCookie([SECRET])
COOKIE = f"__session={PEOPLE.issue(Session('org_1', 'ada'))}"


@FRAMEWORKS
def test_a_session_reads_its_limits_and_keys_without_being_charged(framework: str) -> None:
    """Also where the window is full; without the option it is charged, and limits need a key."""
    with django_settings():
        bench = Bench(web_options=FREE, plans=SMALL)
        page, key = FrontEnd(framework, bench.gate), bench.key()
        by_key = page.ask("GET", STATUS, bearer=key).body
        assert by_key["usage"]["minute"] == {"used": 1, "limit": 5}
        for _ in range(2):
            answer = page.ask("GET", STATUS, cookie=COOKIE)
            assert answer.status == 200
            assert {**answer.body, "timestamp": ""} == {**by_key, "timestamp": ""}
            assert answer.headers["x-ratelimit-remaining"] == "4"
            (listed,) = page.ask("GET", KEYS, cookie=COOKIE).body["data"]
            assert page.ask("GET", f"{KEYS}/{listed['id']}", cookie=COOKIE).status == 200
            assert page.ask("GET", f"{KEYS}/none", cookie=COOKIE).status == 404
        assert bench.used() == 1
        made = page.ask("POST", KEYS, cookie=COOKIE, sent={"name": "k"}, origin=ORIGIN)
        assert (made.status, bench.used()) == (201, 2)
        while page.ask("GET", STATUS, bearer=key).status == 200:
            pass
        answer = page.ask("GET", STATUS, cookie=COOKIE)
        assert (answer.status, answer.body["usage"]["minute"]["used"]) == (200, 5)
        assert answer.headers["x-ratelimit-remaining"] == "0"
        assert page.ask("GET", KEYS, cookie=COOKIE).status == 200
        refused = page.ask("POST", KEYS, cookie=COOKIE, sent={"name": "k"})
        assert (refused.status, refused.code) == (429, "RATE_LIMIT_EXCEEDED")


def test_by_default_a_read_is_charged_and_limits_need_a_key_D9_D29() -> None:
    bench = Bench(plans=SMALL)
    assert enter(bench, Asking(path=KEYS, cookie=COOKIE))[0] == "in"
    assert bench.used() == 1
    assert enter(bench, Asking(path=STATUS, cookie=COOKIE))[0] == "MISSING_AUTH"


def test_free_reads_have_a_budget_of_their_session() -> None:
    bench = Bench(web_options=FREE, anonymous=3)
    ada = Asking(path=STATUS, cookie=f"__session={bench.session()}")
    assert [enter(bench, ada)[0] for _ in range(4)] == ["in"] * 3 + ["RATE_LIMIT_EXCEEDED"]
    # Others, at the same address and in the same organization, have theirs.
    bob = bench.sessions.issue(Session("org_1", "bob"))
    assert enter(bench, Asking(path=STATUS, cookie=f"__session={bob}"))[0] == "in"
    assert enter(bench, Asking("POST", cookie=f"__session={bench.session()}"))[0] == "in"
    assert enter(bench, Asking(authorization=f"Bearer {bench.key()}"))[0] == "in"
    assert bench.gate.anonymous.peek("192.0.2.1").used[0] == 0


def test_other_methods_and_routes_of_the_application_are_charged() -> None:
    bench = Bench(web_options=FREE)
    cookie = f"__session={bench.session()}"
    rules = {"GET /x": Rule(accepts=("key", "session"), cost=3)}
    assert enter(bench, Asking(path="/x", cookie=cookie), rules=rules)[0] == "in"
    assert bench.used() == 3
    assert enter(bench, Asking("PUT", path=STATUS, cookie=cookie))[0] == "METHOD_NOT_ALLOWED"
    assert bench.used() == 4


def test_an_agent_reads_its_limits() -> None:
    bench = Bench(web_options=FREE, registration=Registration(session_secrets=[SECRET]))
    page = FrontEnd("starlette", bench.gate)
    status = page.ask("GET", STATUS, cookie=agent_of(page)[0])
    assert (status.status, status.body["usage"]["minute"]["used"]) == (200, 0)


def test_a_role_without_reading_reads_no_limits() -> None:
    bench = Bench(web_options=WebOptions(session_free_reads=True, session_roles={"none": []}))
    cookie = bench.sessions.issue(Session("org_1", "ada", role="none"))
    caller = Asking(path=STATUS, cookie=f"__session={cookie}")
    assert enter(bench, caller)[0] == "INSUFFICIENT_SCOPE"
    assert bench.used() == 0


def test_usage_and_thresholds_leave_free_reads_out() -> None:
    bench = Bench(web_options=FREE, usage_history=UsageHistory(), plans=SMALL)
    for _ in range(20):
        assert enter(bench, Asking(path=STATUS, cookie=COOKIE))[0] == "in"
    assert run(bench.gate.usage("org_1")).admitted == 0
    assert bench.told == []


class Away(MemoryStore):
    """A store whose windows fail on demand."""

    io = "sync"
    is_away = False

    async def charge(self, owner: str, action: Any, now: int | None = None) -> Any:
        if self.is_away:
            raise StoreError
        return await super().charge(owner, action, now)


@pytest.mark.parametrize(
    ("mode", "code"), [("local", "in"), ("open", "in"), ("closed", "STORE_UNAVAILABLE")]
)
def test_reads_go_on_by_local_limits_while_the_windows_are_away(mode: Any, code: str) -> None:
    store = Away()
    gate = Gate(
        store,
        brand="acme",
        plans=SMALL,
        sessions=PEOPLE,
        web_options=WebOptions(session_free_reads=True, public_url=ORIGIN),
        store_options=StoreOptions(on_failure=mode),
    )
    run(gate.admit_session(Session("org_1", "ada"), 2))
    store.is_away = True
    for _ in range(8):
        assert enter(gate, Asking(path=STATUS, cookie=COOKIE))[0] == code
    store.is_away = False
    assert run(gate.store.charge("org_1", Peek(SMALL.default.windows))).used == (2, 2, 2)
