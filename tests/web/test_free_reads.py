"""Reads by sessions that cost their organization nothing: on every framework and store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockgate import Gate, Plan, PlanBook, Refusal, Registration, Rule, UsageHistory, run
from lockgate.core.ledger import Peek
from lockgate.options import StoreOptions, WebOptions
from lockgate.sessions import Session, SignedCookie
from lockgate.stores.answers import StoreError
from lockgate.web.guard import Guard
from tests.by_verbs import MemoryByVerbs
from tests.services.shared_stores import KINDS, MODES, Drive, driving, gate_on, shared_store

from .driving import ORIGIN, SECRET, Bench
from .front_ends import FRAMEWORKS, KEYS, STATUS, FrontEnd, django_settings
from .test_guard import Asking, enter

FREE = WebOptions(session_free_reads=True)
SMALL = PlanBook([Plan("free", rpm=5, rph=100, rpd=1000, concurrent=1)])
PEOPLE = SignedCookie([SECRET])
COOKIE = f"__session={PEOPLE.issue(Session('org_1', 'ada'))}"


@pytest.fixture(autouse=True)
def _django() -> Iterator[None]:
    with django_settings():
        yield


@FRAMEWORKS
def test_a_session_reads_its_limits_and_keys_without_being_charged(framework: str) -> None:
    bench = Bench(web_options=FREE, plans=SMALL)
    page, key = FrontEnd(framework, bench.gate), bench.key()
    for used in (1, 2):
        by_key = page.ask("GET", STATUS, bearer=key).body
        assert by_key["usage"]["minute"] == {"used": used, "limit": 5}
        for _ in range(3):
            answer = page.ask("GET", STATUS, cookie=COOKIE)
            assert answer.status == 200
            assert {**answer.body, "timestamp": ""} == {**by_key, "timestamp": ""}
            assert answer.headers["x-ratelimit-remaining"] == str(5 - used)
            (listed,) = page.ask("GET", KEYS, cookie=COOKIE).body["data"]
            assert page.ask("GET", f"{KEYS}/{listed['id']}", cookie=COOKIE).status == 200
            # A browser's HEAD and an unknown key are reads too.
            assert page.ask("GET", f"{KEYS}/none", cookie=COOKIE).status == 404
        assert bench.used() == used
    made = page.ask("POST", KEYS, cookie=COOKIE, sent={"name": "k"}, origin=ORIGIN)
    assert (made.status, bench.used()) == (201, 3)


@FRAMEWORKS
def test_a_full_window_refuses_no_read(framework: str) -> None:
    bench = Bench(web_options=FREE, plans=SMALL)
    page, key = FrontEnd(framework, bench.gate), bench.key()
    while page.ask("GET", STATUS, bearer=key).status == 200:
        pass
    answer = page.ask("GET", STATUS, cookie=COOKIE)
    assert (answer.status, answer.body["usage"]["minute"]["used"]) == (200, 5)
    assert answer.headers["x-ratelimit-remaining"] == "0"
    assert page.ask("GET", KEYS, cookie=COOKIE).status == 200
    refused = page.ask("POST", KEYS, cookie=COOKIE, sent={"name": "k"})
    assert (refused.status, refused.code) == (429, "RATE_LIMIT_EXCEEDED")


@FRAMEWORKS
def test_by_default_a_read_is_charged_and_limits_need_a_key(framework: str) -> None:
    """D9, D29."""
    bench = Bench(plans=SMALL)
    page = FrontEnd(framework, bench.gate)
    assert page.ask("GET", KEYS, cookie=COOKIE).status == 200
    assert bench.used() == 1
    assert page.ask("GET", STATUS, cookie=COOKIE).code == "MISSING_AUTH"


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
    body = {"agent_name": "bot", "billing_email": "ada@example.com"}
    made = page.ask("POST", "/api/v1/auth/bot-register", sent=body).body
    token = {"dashboard_token": made["dashboard_token"]}
    pair = page.ask("POST", "/api/v1/auth/bot-sign-in", sent=token).headers["set-cookie"]
    status = page.ask("GET", STATUS, cookie=pair.split(";")[0])
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


# --- every store --------------------------------------------------------------------------------


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with shared_store(request.param, tmp_path) as found:
        yield found


@pytest.fixture(params=MODES)
def drive(request: pytest.FixtureRequest) -> Iterator[Drive]:
    with driving(request.param) as found:
        yield found


def test_reads_leave_the_windows_of_every_store_as_they_are(url: str, drive: Drive) -> None:
    settings: dict[str, Any] = {"sessions": PEOPLE, "web_options": FREE, "public_url": ORIGIN}
    one, two = (gate_on(url, plans=SMALL, **settings) for _ in range(2))
    key = drive(one.keys.create("org_1", "ci"))
    drive(one.authenticate(key.text, cost=2))
    windows = one.plans.default.windows
    before = drive(two.store.charge("org_1", Peek(windows)))
    for gate in (one, two):
        guard = Guard(gate)
        for path in (STATUS, KEYS, f"{KEYS}/{key.key.id}", STATUS):
            entry = drive(guard.enter(Asking(path=path, cookie=COOKIE)))
            assert entry.measured is not None
            assert entry.measured[1].used == (2, 2, 2)
            assert entry.measured[1].remaining == 3
    after = drive(one.store.charge("org_1", Peek(windows)))
    assert after.used == before.used == (2, 2, 2)
    # All that was left is still there, and not one unit more.
    drive(two.authenticate(key.text, cost=3))
    assert drive(Guard(one).enter(Asking(path=STATUS, cookie=COOKIE))).measured[1].remaining == 0
    for gate in (one, two):
        drive(gate.close())


# --- a store that fails -------------------------------------------------------------------------


class Away(MemoryByVerbs):
    """A store whose windows fail on demand."""

    io = "sync"
    is_away = False

    async def hit(self, *arguments: Any, **fields: Any) -> Any:
        if self.is_away:
            raise StoreError
        return await super().hit(*arguments, **fields)

    async def peek(self, *arguments: Any, **fields: Any) -> Any:
        if self.is_away:
            raise StoreError
        return await super().peek(*arguments, **fields)


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
    guard = Guard(gate)
    for _ in range(8):
        try:
            run(guard.enter(Asking(path=STATUS, cookie=COOKIE)))
        except Refusal as refusal:
            found = refusal.code
        else:
            found = "in"
        assert found == code
    store.is_away = False
    assert run(gate.store.charge("org_1", Peek(SMALL.default.windows))).used == (2, 2, 2)
