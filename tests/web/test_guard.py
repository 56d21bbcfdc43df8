"""The guard, which all adapters share: sessions, budgets, and the owner of each charge."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from lockgate import (
    PUBLIC,
    ConfigurationError,
    Gate,
    Limit,
    MemoryStore,
    Principal,
    Refusal,
    Registration,
    Rule,
    run,
)
from lockgate.core.rate_limit_headers import rate_headers
from lockgate.core.rule_book import RouteRules, RuleBook
from lockgate.core.sliding_window import Reading
from lockgate.core.timestamps import MINUTE
from lockgate.errors import InsufficientScope, MissingAuth, NotFound, SessionRequired
from lockgate.options import WebOptions
from lockgate.sessions import Session
from lockgate.stores.answers import Admission
from lockgate.stores.base import IoMode
from lockgate.web.guard import Guard
from lockgate.web.operations.table import answer, endpoints
from tests import migrated

from .driving import ORIGIN, SECRET, Bench

KEYS = "/api/v1/api-keys"


class Asking:
    """A request of no framework at all."""

    def __init__(
        self, method: str = "GET", path: str = KEYS, peer: str | None = "192.0.2.1", **headers: Any
    ) -> None:
        self.method = method
        self.path = path
        self.raw_path = path.encode()
        self.query = b""
        self.peer = peer
        self._headers = headers
        self.authorizations = self.header(b"authorization")
        self.outside: Reading | None = None

    @property
    def hosts(self) -> list[bytes]:
        return self.header(b"host")

    def header(self, name: bytes) -> list[bytes]:
        found = self._headers.get(name.decode().replace("-", "_"), [])
        values = found if isinstance(found, list) else [found]
        return [value.encode("latin-1") for value in values]

    def whole(self, name: bytes) -> list[bytes]:
        return self.header(name)

    def has_any(self, names: frozenset[bytes]) -> bool:
        return any(self.header(name) for name in names)

    async def pause(self) -> None:
        pass

    def turn(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()


def enter(bench: Bench | Gate, caller: Asking, **fields: Any) -> tuple[str, Principal | None]:
    """Return the code of the refusal, or "in", and the principal."""
    gate = bench if isinstance(bench, Gate) else bench.gate
    kind: type[Guard] = fields.pop("guard", Guard)
    guard = kind(gate, fields.pop("rules", None), **fields)
    try:
        entry = run(guard.enter(caller))
    except Refusal as refusal:
        code, rate = refusal.code, refusal.rate
        principal = None
    else:
        assert entry.measured is not None
        principal, code, rate = entry.principal, "in", rate_headers(*entry.measured)
    assert len(rate) == 3
    return code, principal


@pytest.mark.parametrize(
    ("method", "cookie", "code"),
    [
        ("POST", None, "SESSION_REQUIRED"),
        ("POST", "__session=", "SESSION_REQUIRED"),
        ("POST", "other=x", "SESSION_REQUIRED"),
        ("POST", "__session=forged", "SESSION_INVALID"),
        ("POST", "__session={good}", "in"),
        ("POST", "__session={good}; __session={good}", "SESSION_INVALID"),
        ("POST", "__session={good}\xff", "SESSION_INVALID"),
        ("GET", None, "MISSING_AUTH"),
        ("GET", "__session=", "MISSING_AUTH"),
        ("GET", "__session=forged", "SESSION_INVALID"),
        ("GET", "__session={good}", "in"),
        ("DELETE", "__session={good}", "MISSING_AUTH"),
    ],
)
def test_d11_sessions(method: str, cookie: str | None, code: str) -> None:
    bench = Bench()
    headers = {"cookie": cookie.format(good=bench.session())} if cookie else {}
    path = KEYS if method != "DELETE" else "/api/v1/account/rate-limits"
    found, principal = enter(bench, Asking(method, path, **headers))
    assert found == code
    assert bench.used() == (code == "in")
    assert (principal is not None) is (code == "in")
    left = bench.gate.failures.peek("192.0.2.1").remaining
    assert left == (1000 if code == "in" else 999)


def test_d9_a_key_decides_alone_where_both_are_shown() -> None:
    bench = Bench()
    cookie = f"__session={bench.session('org_2')}"
    key = bench.key(organization="org_1")
    code, principal = enter(bench, Asking(cookie=cookie, authorization=f"Bearer {key}"))
    assert code == "in"
    assert principal is not None
    assert principal.organization == "org_1"
    assert enter(bench, Asking(cookie=cookie, authorization="Bearer x"))[0] == "INVALID_FORMAT"
    both = [f"Bearer {key}", f"Bearer {key}"]
    assert enter(bench, Asking(cookie=cookie, authorization=both))[0] == "INVALID_FORMAT"


def test_a_session_is_for_lockgates_own_operations_only() -> None:
    bench = Bench()
    caller = Asking("GET", "/anything", cookie=f"__session={bench.session()}")
    assert enter(bench, caller)[0] == "MISSING_AUTH"


def test_an_application_may_accept_sessions_by_its_own_rule() -> None:
    bench = Bench()
    rules = {"POST /x": Rule("jobs:write", accepts=("key", "session"), cost=3)}
    caller = Asking("POST", "/x", cookie=f"__session={bench.session()}", origin=ORIGIN)
    assert enter(bench, caller, rules=rules)[0] == "in"
    assert bench.used() == 3
    evil = Asking(
        "POST", "/x", cookie=f"__session={bench.session()}", origin="https://evil.example"
    )
    assert enter(bench, evil, rules=rules)[0] == "CROSS_SITE_REQUEST"
    assert enter(bench, Asking("POST", "/x"), rules=rules)[0] == "MISSING_AUTH"


def test_a_session_is_refused_by_a_gate_without_a_verifier() -> None:
    bench = Bench(sessions=None)
    rules = {"POST /x": Rule(accepts=("session",))}
    caller = Asking("POST", "/x", cookie="__session=x")
    assert enter(bench, caller, rules=rules)[0] == "SESSION_REQUIRED"


def test_a_spent_organization_is_spent_for_sessions_too() -> None:
    bench = Bench(rpm=1)
    caller = Asking(cookie=f"__session={bench.session()}")
    assert [enter(bench, caller)[0] for _ in range(2)] == ["in", "RATE_LIMIT_EXCEEDED"]
    assert bench.gate.failures.peek("192.0.2.1").remaining == 1000


# --- the budget of failures (D24) -----------------------------------------------------------


class Counted(MemoryStore):
    """Counts how often it admits or refuses."""

    admissions = 0

    async def admit(self, *arguments: Any, **fields: Any) -> Admission:
        self.admissions += 1
        return await super().admit(*arguments, **fields)


class Directory:
    """Sessions kept in a store of their own; the value of a cookie is its organization."""

    def __init__(self, io: IoMode) -> None:
        self.io: IoMode = io
        self.verified: list[str] = []

    async def verify(self, cookie: str) -> Session | None:
        self.verified.append(cookie)
        return Session(cookie, "ada") if cookie.startswith("org_") else None


class Sorting(Directory):
    """Tells for each cookie whether it is verified without that store."""

    def verifies_offline(self, cookie: str) -> bool:
        return cookie.endswith("_offline")


def spend(bench: Bench) -> None:
    """Spend the budget of failures of the address that requests come from."""
    while enter(bench, Asking(path="/x"))[0] == "MISSING_AUTH":
        pass


@pytest.mark.parametrize("io", ["sync", "both", "async"])
def test_d24_a_spent_address_is_refused_before_its_session_is_verified(io: IoMode) -> None:
    sessions = Directory(io)
    bench = Bench(sessions=sessions, anonymous=2)
    codes = [enter(bench, Asking(cookie="__session=x"))[0] for _ in range(4)]
    assert codes == ["SESSION_INVALID"] * 2 + ["RATE_LIMIT_EXCEEDED"] * 2
    assert len(sessions.verified) == 2
    assert enter(bench, Asking(cookie="__session=org_1"))[0] == "RATE_LIMIT_EXCEEDED"
    assert len(sessions.verified) == 2
    bench.clock.now += MINUTE
    assert enter(bench, Asking(cookie="__session=org_1"))[0] == "in"


async def test_d24_look_ups_under_way_count_as_failures_of_their_address() -> None:
    """Otherwise an address has as many tries as connections."""

    class Waiting(Counted):
        async def admit(self, *arguments: Any, **fields: Any) -> Admission:
            await asyncio.sleep(0)
            return await super().admit(*arguments, **fields)

    store = Waiting()
    bench = Bench(store=store, anonymous=3)
    guard, wrong = Guard(bench.gate), bench.gate.format.generate().text
    callers = [Asking(authorization=f"Bearer {wrong}") for _ in range(9)]
    told = await asyncio.gather(*map(guard.enter, callers), return_exceptions=True)
    codes = [refusal.code for refusal in told if isinstance(refusal, Refusal)]
    assert sorted(codes) == ["KEY_NOT_FOUND"] * 3 + ["STORE_UNAVAILABLE"] * 6
    assert store.admissions == 3


def test_d24_a_session_that_is_verified_offline_is_admitted_from_a_spent_address() -> None:
    """Otherwise one client locks every other one at its address out of revoking a leaked key."""
    bench = Bench(anonymous=2)
    spend(bench)
    good, cookie = bench.session(), "__session={}"
    for _ in range(3):
        assert enter(bench, Asking(cookie=cookie.format(good)))[0] == "in"
    assert enter(bench, Asking(cookie=cookie.format("forged")))[0] == "RATE_LIMIT_EXCEEDED"
    assert enter(bench, Asking(cookie=cookie.format(good + "x")))[0] == "RATE_LIMIT_EXCEEDED"
    two = f"__session={good}; __session={good}"
    assert enter(bench, Asking(cookie=two))[0] == "RATE_LIMIT_EXCEEDED"
    assert enter(bench, Asking("POST"))[0] == "RATE_LIMIT_EXCEEDED"
    assert bench.used() == 3


def test_d24_a_verifier_decides_for_each_cookie_whether_it_needs_a_store() -> None:
    sessions = Sorting("both")
    bench = Bench(sessions=sessions, anonymous=2)
    spend(bench)
    assert enter(bench, Asking(cookie="__session=org_1_offline"))[0] == "in"
    assert enter(bench, Asking(cookie="__session=org_1"))[0] == "RATE_LIMIT_EXCEEDED"
    assert enter(bench, Asking(cookie="__session=bad_offline"))[0] == "RATE_LIMIT_EXCEEDED"
    assert sessions.verified == ["org_1_offline", "bad_offline"]


def test_d24_public_routes_and_failures_have_a_budget_each() -> None:
    bench = Bench(anonymous=2)
    rules = {"GET /health": PUBLIC}
    spend(bench)
    health = Asking(path="/health")
    codes = [enter(bench, health, rules=rules)[0] for _ in range(3)]
    assert codes == ["in", "in", "RATE_LIMIT_EXCEEDED"]
    bench.clock.now += MINUTE
    codes = [enter(bench, health, rules=rules)[0] for _ in range(3)]
    assert codes == ["in", "in", "RATE_LIMIT_EXCEEDED"]
    fresh = Asking(path="/x", authorization=f"Bearer {bench.key()}")
    assert enter(bench, fresh)[0] == "in"
    assert enter(bench, Asking(path="/x"))[0] == "MISSING_AUTH"


def test_d24_a_probe_is_admitted_from_a_spent_address() -> None:
    """Behind a proxy that is not configured, all clients share the address of the orchestrator."""
    bench = Bench(anonymous=2, web_options=WebOptions(health="/health"))
    run(bench.gate.readiness.prepare())
    for path in ("/health/live", "/health/ready"):
        codes = [enter(bench, Asking(path=path))[0] for _ in range(5)]
        assert codes == ["in"] * 5


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/prices"),
        ("GET", "/health/live/"),
        ("GET", "/HEALTH/live"),
        ("GET", "//health/live"),
        ("POST", "/api/v1/auth/bot-register"),
        ("GET", "/health/ready"),  # It would ask the store, while the process is not ready.
    ],
)
def test_d24_a_spent_address_is_spent_for_all_public_routes_but_probes(
    method: str, path: str
) -> None:
    registration = Registration(session_secrets=[SECRET])
    bench = Bench(
        anonymous=2,
        web_options=WebOptions(health="/health"),
        registration=registration,
        public_url=ORIGIN,
    )
    rules = {"GET /{p:path}": PUBLIC}
    codes = [enter(bench, Asking(method, path), rules=rules)[0] for _ in range(3)]
    assert codes == ["in", "in", "RATE_LIMIT_EXCEEDED"]


def test_d24_a_refusal_for_another_reason_is_its_own_from_a_spent_address() -> None:
    """A recently admitted key gets the refusals of its plan and scopes, as from any address."""
    bench = Bench(rpm=3, anonymous=2)
    rules = {"GET /y": "jobs:read"}
    key = f"Bearer {bench.key('models:read')}"
    spend(bench)
    with pytest.raises(Refusal) as caught:  # It is not known yet.
        run(Guard(bench.gate).enter(Asking(path="/x", authorization=key)))
    assert dict(caught.value.rate)[b"x-ratelimit-limit"] == b"2"
    assert caught.value.headers()[0] == (b"retry-after", b"60")
    bench.clock.now += MINUTE
    assert enter(bench, Asking(path="/x", authorization=key), rules=rules)[0] == "in"
    spend(bench)
    guard = Guard(bench.gate, rules)
    for path, code, limit, remaining in (
        ("/y", "INSUFFICIENT_SCOPE", b"3", b"1"),
        ("/x", "in", b"3", b"0"),
        ("/x", "RATE_LIMIT_EXCEEDED", b"3", b"0"),
        ("/x", "RATE_LIMIT_EXCEEDED", b"3", b"0"),
    ):
        try:
            measured = run(guard.enter(Asking(path=path, authorization=key))).measured
        except Refusal as refusal:
            found, rate = refusal.code, dict(refusal.rate)
        else:
            assert measured is not None
            found, rate = "in", dict(rate_headers(*measured))
        assert found == code
        assert (rate[b"x-ratelimit-limit"], rate[b"x-ratelimit-remaining"]) == (limit, remaining)


def test_d24_a_known_key_with_a_moved_digest_is_admitted_from_a_spent_address() -> None:
    """Another process has moved it to a newer pepper since it was admitted here (K9)."""
    store, old, new = MemoryStore(), b"an old pepper of the tests", b"a new pepper of the tests"
    bench = Bench(store=store, peppers=[old, new], anonymous=2)
    caller = Asking(path="/x", authorization=f"Bearer {bench.key()}")
    assert enter(bench, caller)[0] == "in"
    spend(bench)
    other = Bench(store=store, peppers=[new, old])
    assert enter(other, caller)[0] == "in"
    assert "key_rehashed" in other.names()
    assert [enter(bench, caller)[0] for _ in range(2)] == ["in", "in"]


def test_d24_a_known_key_that_was_revoked_asks_the_store_once_more_only() -> None:
    store = Counted()
    bench = Bench(store=store, anonymous=2)
    text = bench.key()
    caller = Asking(path="/x", authorization=f"Bearer {text}")
    assert enter(bench, caller)[0] == "in"
    spend(bench)
    bench.revoke(text)
    assert enter(bench, caller)[0] == "RATE_LIMIT_EXCEEDED"
    asked = store.admissions
    assert [enter(bench, caller)[0] for _ in range(3)] == ["RATE_LIMIT_EXCEEDED"] * 3
    assert store.admissions == asked


def test_d24_a_cross_site_write_with_a_good_session_is_charged_to_no_budget() -> None:
    """A page of another origin spends no budget of its visitor's address, and does not see it."""
    bench = Bench(anonymous=2)
    evil = {"cookie": f"__session={bench.session()}", "origin": "https://evil.example"}
    codes = [enter(bench, Asking("POST", **evil))[0] for _ in range(4)]
    assert codes == ["CROSS_SITE_REQUEST"] * 4
    assert bench.gate.failures.peek("192.0.2.1").remaining == 2
    spend(bench)
    assert enter(bench, Asking("POST", **evil))[0] == "CROSS_SITE_REQUEST"
    forged = {**evil, "cookie": "__session=forged"}
    assert enter(bench, Asking("POST", **forged))[0] == "RATE_LIMIT_EXCEEDED"
    assert bench.used() == 0


def test_d24_a_session_without_an_organization_is_charged_to_its_user() -> None:
    """It was verified, so its address is not charged; and no flood of it reaches a store."""
    bench = Bench(anonymous=2)
    people = [(None, "ada"), (None, "eve"), ("org_1", "ada"), ("ada", "eve")]
    ada, *others = (
        Asking(cookie=f"__session={bench.sessions.issue(Session(*one))}") for one in people
    )
    codes = [enter(bench, ada)[0] for _ in range(4)]
    assert codes == ["NO_ORGANIZATION"] * 2 + ["RATE_LIMIT_EXCEEDED"] * 2
    # And no budget of a member or of an organization of the same id (W8).
    assert [enter(bench, other)[0] for other in others] == ["NO_ORGANIZATION", "in", "in"]
    assert bench.gate.failures.peek("192.0.2.1").remaining == 2


def test_sessions_of_two_organizations_share_no_budget_whatever_their_ids_W8() -> None:
    """Neither do a user and an agent, nor a user and an organization of the same id."""
    roles = WebOptions(session_free_reads=True)
    sessions = [
        Session("org_1", "ada"),
        Session("org_2", "ada"),
        Session("ada", None),
        Session("ada", "org_1"),
        Session("org_1', 'ada", None),
        Session("org_1', 'ada", "ada"),
    ]
    for spends in sessions:
        bench = Bench(anonymous=2, web_options=roles)
        asked = {one: Asking(cookie=f"__session={bench.sessions.issue(one)}") for one in sessions}
        codes = [enter(bench, asked[spends])[0] for _ in range(3)]
        assert codes == ["in", "in", "RATE_LIMIT_EXCEEDED"]
        others = [one for one in sessions if one != spends]
        assert [enter(bench, asked[one])[0] for one in others] == ["in"] * len(others)


@pytest.mark.parametrize("peer", ["192.0.2.1", "2001:db8::1", None, "not an address"])
def test_failures_are_charged_to_the_peer(peer: str | None) -> None:
    bench = Bench(anonymous=1)
    codes = [enter(bench, Asking(peer=peer))[0] for _ in range(2)]
    assert codes == ["MISSING_AUTH", "RATE_LIMIT_EXCEEDED"]
    assert enter(bench, Asking(peer="203.0.113.1"))[0] == "MISSING_AUTH"
    if peer == "2001:db8::1":  # A client counts by its network.
        assert enter(bench, Asking(peer="2001:db8::ffff:1"))[0] == "RATE_LIMIT_EXCEEDED"
        assert enter(bench, Asking(peer="2001:db8:0:1::1"))[0] == "MISSING_AUTH"


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"GET /x": "no:such"}, "no:such.*catalogue"),
        ({"GET /api/v1/api-keys": PUBLIC}, "lockgate's own"),
        ({"DELETE /api/v1/api-keys/{x}": PUBLIC}, "contradict"),
    ],
)
def test_contradicting_or_unreadable_rules_are_refused(rules: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Guard(Bench().gate, rules)


def test_made_up_methods_are_not_looked_up_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules of a route take a while to find, and a caller may name methods without end."""
    looked_up: list[str] = []
    for_route = RuleBook.for_route

    def looking(book: RuleBook, method: str, *args: Any) -> RouteRules:
        looked_up.append(method)
        return for_route(book, method, *args)

    monkeypatch.setattr(RuleBook, "for_route", looking)
    rules: dict[str, Rule | str] = {"* /{p:path}": PUBLIC}
    rules |= {"GET /jobs": "jobs:read", "PURGE /jobs": "jobs:write"}
    guard = Guard(Bench().gate, rules)
    guard.serve([("*", "/{p:path}", None, "page"), ("GET", "/jobs", None, "jobs")])

    def admitted(method: str, path: str, template: str) -> bool:
        rule = guard.book.match(method, path)
        try:
            guard.verify_route(rule, method, template, lambda: Asking(method, path))
        except NotFound:
            return False
        return True

    for number in range(100):
        assert admitted(f"M{number}", "/about", "/{p:path}")
        assert not admitted(f"M{number}", "/about", "/jobs")
    for spelling in ("purge", "Purge", "PuRGe", "gET", "Get", "PURGE", "GET"):
        assert admitted(spelling, "/jobs", "/jobs")
        assert not admitted(spelling, "/about", "/jobs")
    assert len(looked_up) <= 8


def test_an_operation_checks_its_own_rule_behind_any_other_rule() -> None:
    """Also where no guard knew the rule: the operation holds its own against the caller."""
    bench = Bench()
    by_key = run(bench.gate.authenticate(bench.key("models:read")))
    operations = endpoints(bench.gate)[KEYS]

    async def never(limit: int) -> bytes:
        raise AssertionError("the body is not to be read")

    calls: list[tuple[str, Principal | None, type[Refusal]]] = [
        ("GET", None, MissingAuth),
        ("GET", by_key, InsufficientScope),
        ("POST", None, SessionRequired),
        ("POST", by_key, SessionRequired),
    ]
    for method, principal, refusal in calls:
        with pytest.raises(refusal):
            run(answer(bench.gate, operations, Asking(method), principal, {}, never))


def test_d25_no_header_is_invented_for_an_organization_without_limits() -> None:
    """The headers of its address do not replace them when its key lacks a scope."""
    bench = Bench(rpm=None)
    guard = Guard(bench.gate, {"GET /x": "jobs:read"})
    key = bench.key("models:read")
    with pytest.raises(InsufficientScope) as caught:
        run(guard.enter(Asking("GET", "/x", authorization=f"Bearer {key}")))
    assert caught.value.rate == ()


def test_d24_a_key_is_known_although_it_was_just_moved_to_a_newer_pepper() -> None:
    """So it comes in from an address that others have spent, as any that was admitted lately."""
    store, old, new = MemoryStore(), b"an old pepper of the tests", b"a new pepper of the tests"
    text = Bench(store=store, peppers=[old]).key()
    bench = Bench(store=store, peppers=[new, old], anonymous=1)
    by_key = Asking(path="/x", authorization=f"Bearer {text}")
    codes = [enter(bench, caller)[0] for caller in (by_key, Asking(), Asking(), by_key)]
    assert codes == ["in", "MISSING_AUTH", "RATE_LIMIT_EXCEEDED", "in"]
    assert bench.names().count("key_rehashed") == 1


def test_a_known_key_that_is_revoked_is_refused_at_once() -> None:
    bench = Bench()
    text = bench.key()
    caller = Asking(path="/x", authorization=f"Bearer {text}")
    assert enter(bench, caller)[0] == "in"
    bench.revoke(text)
    assert [enter(bench, caller)[0] for _ in range(2)] == ["KEY_REVOKED"] * 2


@pytest.mark.parametrize("path", ["/jobs/7", "/elsewhere"])
def test_the_event_of_a_refusal_has_the_route_and_the_wait(path: str) -> None:
    bench = Bench(rpm=1)
    guard = Guard(bench.gate, {"GET /jobs/{id}": "jobs:read"})
    asking = Asking("GET", path, authorization=f"Bearer {bench.key()}")
    run(guard.enter(asking))
    with pytest.raises(Refusal):
        run(guard.enter(asking))
    (refused,) = bench.fields()
    assert refused["route"] == ("GET /jobs/{id}" if path == "/jobs/7" else None)
    assert (refused["wait"], refused["window"], refused["plan"]) == (60, "minute", "free")
    assert refused["key"]


# --- routes that charge nothing -----------------------------------------------------------------

EXEMPT = {"GET /x": Rule("models:read", cost=0), "GET /y": Rule()}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_rule_of_cost_0_needs_a_key_and_charges_no_window_D40_K7(
    kind: str, tmp_path: Path
) -> None:
    store = MemoryStore() if kind == "memory" else migrated.sqlite(tmp_path / "keys.db")
    bench = Bench(rpm=2, store=store)
    key, other = bench.key(), bench.key("jobs:read")
    exempt = Asking(path="/x", authorization=f"Bearer {key}")
    charged = Asking(path="/y", authorization=f"Bearer {key}")
    assert [enter(bench, exempt, rules=EXEMPT)[0] for _ in range(5)] == ["in"] * 5
    codes = [enter(bench, charged, rules=EXEMPT)[0] for _ in range(3)]
    assert codes == ["in", "in", "RATE_LIMIT_EXCEEDED"]
    told, principal = enter(bench, exempt, rules=EXEMPT)
    assert told == "in" and principal is not None and principal.key is not None
    assert principal.key.request_count == 8
    assert (principal.reading.used[0], principal.reading.remaining) == (2, 0)
    wrong = Asking(path="/x", authorization=f"Bearer {other}")
    assert enter(bench, wrong, rules=EXEMPT)[0] == "INSUFFICIENT_SCOPE"
    assert enter(bench, Asking(path="/x"), rules=EXEMPT)[0] == "MISSING_AUTH"
    listed = run(bench.gate.keys.list("org_1")).keys
    assert sorted(one.request_count for one in listed) == [1, 8]
    bench.revoke(key)
    assert enter(bench, exempt, rules=EXEMPT)[0] == "KEY_REVOKED"
    rules = {"GET /x": Rule(accepts=("key", "session"), cost=0)}
    session = Asking(path="/x", cookie=f"__session={bench.session()}")
    assert [enter(bench, session, rules=rules)[0] for _ in range(3)] == ["in"] * 3
    run(bench.gate.close())
    with pytest.raises(ConfigurationError, match="charges nothing, so it has no limits"):
        Rule(cost=0, limits=[Limit("export", "3/hour")])
