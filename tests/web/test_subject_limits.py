"""Named limits by address, by user and by a function of the request: before any plan is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from flask import Flask
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from lockgate import (
    ConfigurationError,
    Event,
    Gate,
    Limit,
    MemoryStore,
    Plan,
    PlanBook,
    Rule,
    asgi,
    flask,
    run,
)
from lockgate.core.digests import Peppers
from lockgate.core.sliding_window import Reading
from lockgate.errors import RateLimitExceeded
from lockgate.options import StoreOptions
from lockgate.services.limits import subject_limits
from lockgate.services.limits.subject_limits import SubjectLimits
from lockgate.sessions import Session, SignedCookie
from lockgate.testing import HandClock
from lockgate.web.guard import Guard
from lockgate.web.request import RequestView
from tests.by_verbs import MemoryByVerbs
from tests.gates import flat_gate

LOGIN = Limit("login", "2/minute", by="address")
SEARCH = Limit("search", "5/minute", by="address")
PLANS = PlanBook([Plan("free", rpm=4, rph=200, rpd=2000, concurrent=2)], custom=[])


def by_tenant(request: RequestView) -> str | None:
    values = request.header(b"x-tenant")
    return values[0].decode() if values else None


TENANT = Limit("tenant", "2/minute;9/day", by=by_tenant)


class Service:
    """A gate with a key, behind a proxy."""

    def __init__(self, store: MemoryStore | None = None, **options: Any) -> None:
        self.clock = HandClock()
        self.events: list[Event] = []
        self.gate = flat_gate(
            store or MemoryStore(),
            brand="acme",
            plans=PLANS,
            clock=self.clock,
            observer=self.events.append,
            trusted_proxies=["127.0.0.1"],
            **options,
        )
        self.key = run(self.gate.keys.create("org_1", "key")).text

    def fell_back(self) -> list[Any]:
        told = [event for event in self.events if event.name == "subjects_fell_back"]
        return [event.fields["limit_name"] for event in told]

    def named(self, kind: str) -> list[Any]:
        return [event.fields["limit_name"] for event in self.events if event.name == kind]


Get = Callable[..., tuple[int, dict[str, str], Any]]
RULES = {
    "GET /login": Rule(public=True, limits=[LOGIN]),
    "GET /other": Rule(public=True),
    "GET /data": Rule("jobs:read", limits=[LOGIN]),
    "GET /tenant": Rule("jobs:read", limits=[TENANT]),
}


def _headers(client: str | None, key: str | None, tenant: str | None) -> dict[str, str]:
    headers = {"x-forwarded-for": client or "192.0.2.1"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    if tenant is not None:
        headers["x-tenant"] = tenant
    return headers


def over_asgi(service: Service, rules: Any = RULES, **options: Any) -> Get:
    async def answer(request: Request) -> PlainTextResponse:
        return PlainTextResponse("done")

    app = Starlette(routes=[Route(rule.split(" ")[1], answer) for rule in rules])
    guarded = asgi.protect(app, service.gate, rules=rules, **options)
    client = TestClient(guarded, client=("127.0.0.1", 1))

    def get(
        path: str, client_: str | None = None, key: str | None = None, tenant: str | None = None
    ) -> tuple[int, dict[str, str], Any]:
        answer = client.get(path, headers=_headers(client_, key, tenant))
        return answer.status_code, dict(answer.headers), answer.text

    return get


def over_wsgi(service: Service, rules: Any = RULES, **options: Any) -> Get:
    app = Flask("service")
    for rule in rules:
        path = rule.split(" ")[1]
        app.add_url_rule(path, path, lambda: "done")
    flask.protect(app, service.gate, rules=rules, **options)
    client = app.test_client()

    def get(
        path: str, client_: str | None = None, key: str | None = None, tenant: str | None = None
    ) -> tuple[int, dict[str, str], Any]:
        answer = client.get(path, headers=_headers(client_, key, tenant))
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return answer.status_code, headers, answer.text

    return get


BOTH = pytest.mark.parametrize("serve", [over_asgi, over_wsgi])


@BOTH
def test_a_public_route_is_limited_by_address_without_a_key(serve: Callable[..., Get]) -> None:
    service = Service()
    get = serve(service)
    answers = [get("/login") for _ in range(2)]
    assert [(a[0], a[1]["x-ratelimit-remaining"]) for a in answers] == [(200, "1"), (200, "0")]
    status, headers, body = get("/login")
    assert (status, headers["retry-after"], headers["x-ratelimit-limit"]) == (429, "60", "1000")
    assert headers["x-ratelimit-remaining"] == "0"
    assert json.loads(body)["limits"] == {
        "type": "minute",
        "limit": 2,
        "used": 2,
        "name": "login",
    }
    assert get("/other")[0] == 200
    assert get("/login", "192.0.2.2")[0] == 200
    assert service.named("refused") == ["login"]
    service.clock.now += 60_000_000
    assert get("/login")[0] == 200


@BOTH
def test_a_refusal_before_the_key_is_verified_has_the_headers_of_its_limit_D40(
    serve: Callable[..., Get],
) -> None:
    """The plan is not known yet, and so neither is its limit of requests per minute."""
    service = Service()
    get = serve(service)
    for path, tenant in (("/data", None), ("/tenant", "a")):
        answers = [get(path, key=service.key, tenant=tenant) for _ in range(3)]
        assert [answer[0] for answer in answers] == [200, 200, 429]
        assert answers[0][1]["x-ratelimit-limit"] == "4"
        left = [answer[1]["x-ratelimit-remaining"] for answer in answers]
        assert left == ["1", "0", "0"]
        _, headers, _ = answers[2]
        reset = -(-service.clock.now // 1_000_000) + int(headers["retry-after"])
        assert int(headers["x-ratelimit-reset"]) == reset
        assert "x-ratelimit-limit" not in headers


@BOTH
def test_an_ipv6_client_is_counted_by_its_network(serve: Callable[..., Get]) -> None:
    get = serve(Service())
    statuses = [get("/login", f"2001:db8:1:2::{last}")[0] for last in (1, 2, 3)]
    assert statuses == [200, 200, 429]
    assert get("/login", "2001:db8:1:3::1")[0] == 200


@BOTH
def test_the_addresses_of_an_ipv6_48_are_admitted_16_times_a_limit_D40(
    serve: Callable[..., Get],
) -> None:
    service = Service()
    get = serve(service)
    for _ in range(40):  # Refused ones cost the neighbours nothing.
        get("/login", "2001:db8:1::1")
    statuses = [get("/login", f"2001:db8:1:{net:x}::1")[0] for net in range(1, 40)]
    assert statuses == [200] * 30 + [429] * 9
    status, headers, body = get("/login", "2001:db8:1:99::1")
    assert (status, json.loads(body)["limits"]["limit"]) == (429, 32)
    assert get("/login", "2001:db8:2::1")[0] == 200
    assert get("/login", "192.0.2.1")[0] == 200
    assert service.named("refused")[-1] == "login"
    service.clock.now += int(headers["retry-after"]) * 1_000_000
    assert get("/login", "2001:db8:1:99::1")[0] == 200


class Late(MemoryByVerbs):
    """Answers no charge of a subject before 32 have been made."""

    io = "async"

    def __init__(self) -> None:
        super().__init__()
        self.made = 0
        self.all_made = asyncio.Event()

    async def hit(self, *arguments: Any, **options: Any) -> Reading:
        self.made += 1
        if self.made == 32:
            self.all_made.set()
        await self.all_made.wait()
        return await super().hit(*arguments, **options)


async def test_addresses_of_a_48_that_are_charged_at_once_are_counted_together_D40() -> None:
    gate = Gate(Late(), brand="acme")
    limits = SubjectLimits(gate.charge_subject, Peppers([]), HandClock(), gate.events)
    login = Limit("login", "2/minute", by="address")

    async def charge(number: int) -> bool:
        try:
            await limits.charge("address", f"2001:db8:1:{number:x}::/64", [login], 1)
        except RateLimitExceeded:
            return False
        return True

    assert sum(await asyncio.gather(*map(charge, range(100)))) == 32


@BOTH
def test_attempts_with_wrong_keys_count_by_address_before_the_key(
    serve: Callable[..., Get],
) -> None:
    service = Service()
    get = serve(service)
    wrong = service.key[:-1] + ("a" if service.key[-1] != "a" else "b")
    status, headers, _ = get("/data", key=wrong)
    assert (status, headers["x-ratelimit-remaining"]) == (401, "1")
    assert get("/data", key=service.key)[0] == 200
    status, _, body = get("/data", key=service.key)
    assert (status, json.loads(body)["limits"]["name"]) == (429, "login")
    assert get("/data", "192.0.2.2", service.key)[1]["x-ratelimit-remaining"] == "1"
    assert run(service.gate.authenticate(service.key)).reading.used[0] == 3


@BOTH
def test_a_plan_that_refuses_leaves_the_address_charged(serve: Callable[..., Get]) -> None:
    """It admits no more than it says, and the plan is not charged for what it refuses."""
    service = Service()
    get = serve(service)
    for last in range(1, 5):
        assert get("/data", f"192.0.2.{last}", service.key)[0] == 200
    told = [json.loads(get("/data", "192.0.2.9", service.key)[2])["limits"] for _ in range(3)]
    assert [one.get("name") for one in told] == [None, None, "login"]


@BOTH
def test_a_function_of_the_request_names_the_subject(serve: Callable[..., Get]) -> None:
    service = Service()
    get = serve(service)
    assert [get("/tenant", key=service.key, tenant="a")[0] for _ in range(2)] == [200, 200]
    assert get("/tenant", key=service.key, tenant="b")[0] == 200
    status, _, body = get("/tenant", key=service.key, tenant="a")
    assert (status, json.loads(body)["limits"]["name"]) == (429, "tenant")
    assert get("/tenant", key=service.key)[0] == 200  # It does not count.


@pytest.mark.parametrize(
    "wrong", [lambda request: 3, lambda request: 1 // 0], ids=["type", "error"]
)
def test_a_function_that_fails_is_a_mistake_of_the_host_that_is_told(wrong: Any) -> None:
    service = Service()
    rules = {"GET /tenant": Rule(limits=[Limit("tenant", "2/minute", by=wrong)])}
    get = over_asgi(service, rules)
    with pytest.raises((TypeError, ZeroDivisionError)):
        get("/tenant", key=service.key)
    app = over_wsgi(service, rules)
    with pytest.raises((TypeError, ZeroDivisionError)):
        app("/tenant", key=service.key)


@BOTH
@pytest.mark.parametrize("shadow", ["limits", "all"])
def test_shadow_mode_tells_of_a_subject_and_still_asks_for_a_key(
    serve: Callable[..., Get], shadow: Any
) -> None:
    service = Service()
    get = serve(service, shadow=shadow)
    assert [get("/login")[0] for _ in range(4)] == [200] * 4
    assert service.named("shadowed") == ["login", "login"]
    assert get("/data")[0] == (401 if shadow == "limits" else 200)
    assert get("/data", key=service.key)[0] == 200


def test_a_limit_by_user_counts_each_user_of_an_organization() -> None:
    cookie = SignedCookie(["a secret of many distinct bytes"])
    service = Service(sessions=cookie, public_url="http://testserver")
    limit = Limit("downloads", "1/minute", by="user")
    rule = Rule("jobs:read", accepts=("key", "session"), limits=[limit])

    async def answer(request: Request) -> PlainTextResponse:
        return PlainTextResponse("done")

    app = Starlette(routes=[Route("/data", answer)])
    client = TestClient(asgi.protect(app, service.gate, rules={"GET /data": rule}))

    def get(user: str | None) -> tuple[int, str]:
        name = service.gate.session_access.cookie
        text = cookie.issue(Session("org_1", user))
        answer = client.get("/data", headers={"cookie": f"{name}={text}"})
        return answer.status_code, answer.headers["x-ratelimit-remaining"]

    assert [get("ada"), get("ada"), get("bob")] == [(200, "0"), (429, "0"), (200, "0")]
    assert service.named("refused") == ["downloads"]
    by_key = {"authorization": f"Bearer {service.key}"}
    assert [client.get("/data", headers=by_key).status_code for _ in range(2)] == [200, 200]


def test_a_limit_by_user_needs_a_gate_that_verifies_sessions() -> None:
    """A rule of `protect` and one that an endpoint declares are both refused at the start."""
    limit = Limit("downloads", "1/minute", by="user")
    rule = Rule(accepts=("key", "session"), limits=[limit])
    with pytest.raises(ConfigurationError, match=r"'downloads' is by user, .* no sessions"):
        over_asgi(Service(), {"GET /data": rule})
    with pytest.raises(ConfigurationError, match=r"'downloads' is by user, .* no sessions"):
        over_wsgi(Service(), {"GET /data": rule})
    guard = Guard(Service().gate)
    with pytest.raises(ConfigurationError, match=r"'downloads' is by user, .* no sessions"):
        guard.declare({"GET /data": rule})


def test_a_guard_inside_another_charges_the_subjects_that_are_left() -> None:
    service = Service()

    async def answer(request: Request) -> PlainTextResponse:
        return PlainTextResponse("done")

    inner = asgi.protect(
        Starlette(routes=[Route("/login", answer)]),
        service.gate,
        rules={"GET /login": Rule(public=True, limits=[LOGIN, TENANT])},
    )
    outer = asgi.protect(
        Starlette(routes=[Mount("/inner", app=inner)]),
        service.gate,
        rules={"GET /inner/{rest:path}": Rule(public=True, limits=[LOGIN])},
    )
    client = TestClient(outer)
    answers = [client.get("/inner/login", headers={"x-tenant": "a"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    left = [answer.headers["x-ratelimit-remaining"] for answer in answers]
    assert left == ["1", "0", "0"]
    assert service.named("refused") == ["login"]


def test_rules_and_plans_with_subjects_that_cannot_be_are_refused_at_the_start() -> None:
    service, user = Service(), Limit("mine", "1/day", by="user")
    for make in (
        lambda: Limit("mine", "1/day", by=cast("Any", "planet")),
        lambda: Rule(public=True, limits=[Limit("all", "1/day")]),
        lambda: Rule(public=True, limits=[user]),
        lambda: Rule(limits=[user]),
        lambda: Plan("free", rpm=1, rph=1, rpd=1, concurrent=1, limits=(LOGIN,)),
        lambda: run(service.gate.authenticate(service.key, limits=[LOGIN])),
        lambda: run(service.gate.holds.take("org_1", {LOGIN: 1})),
    ):
        with pytest.raises(ConfigurationError):
            make()
    assert str(TENANT) == "tenant 2/minute;9/day by function"


class Counting(MemoryByVerbs):
    """Notes the owners that are charged."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: list[str] = []

    async def hit(self, organization: str, *args: Any, **kwargs: Any) -> Reading:
        self.owners.append(organization)
        return await super().hit(organization, *args, **kwargs)


def test_no_address_is_readable_in_the_store() -> None:
    store = Counting()
    get = over_asgi(Service(store, peppers=[b"a pepper of thirty-two bytes, no"]))
    assert get("/login", "198.51.100.77")[0] == 200
    assert get("/tenant", key="wrong", tenant="a")[0] == 401
    one, other = store.owners
    assert one != other
    assert all(129 <= len(owner) <= 192 and owner.isascii() for owner in store.owners)
    assert "198.51" not in one


@BOTH
def test_d24_a_spent_address_is_refused_before_a_store_counts_its_subjects(
    serve: Callable[..., Get],
) -> None:
    store = Counting()
    service = Service(store, anonymous=Plan("anonymous", rpm=3, rph=None, rpd=None, concurrent=0))
    get = serve(service)
    assert get("/data", "192.0.2.2", service.key)[0] == 200
    spending = [get("/tenant", tenant="a")[0] for _ in range(4)]
    assert spending == [401, 401, 429, 429]  # The limit by tenant is 2 a minute.
    while get("/missing")[0] == 401:
        pass
    store.owners.clear()
    for path in ("/data", "/tenant"):
        for credential in (None, "wrong", service.key[:-1]):
            for number in range(3):
                status, headers, body = get(path, None, credential, f"tenant {number}")
                assert (status, headers["x-ratelimit-limit"]) == (429, "3")
                assert "name" not in json.loads(body)["limits"]
    assert store.owners == []
    assert get("/data", key=service.key)[0] == 200
    assert len(store.owners) == 1


def test_d24_a_spent_address_needs_a_good_session_before_a_store_counts_its_subjects() -> None:
    store, cookie = Counting(), SignedCookie(["a secret of many distinct bytes"])
    service = Service(
        store,
        sessions=cookie,
        public_url="http://testserver",
        anonymous=Plan("anonymous", rpm=2, rph=None, rpd=None, concurrent=0),
    )
    rule = Rule("jobs:read", accepts=("key", "session"), limits=[SEARCH])

    async def answer(request: Request) -> PlainTextResponse:
        return PlainTextResponse("done")

    app = asgi.protect(
        Starlette(routes=[Route("/data", answer)]), service.gate, rules={"GET /data": rule}
    )
    client = TestClient(app)

    def get(session: str) -> int:
        return client.get("/data", headers={"cookie": f"__session={session}"}).status_code

    assert [get("forged") for _ in range(3)] == [401, 401, 429]
    store.owners.clear()
    assert [get("forged") for _ in range(5)] == [429] * 5
    assert store.owners == []
    assert get(cookie.issue(Session("org_1", "ada"))) == 200
    assert len(store.owners) > 0


def subjects_on(store: MemoryStore, service: Service) -> SubjectLimits:
    """The counts of another process on a store."""
    options = StoreOptions(clock=service.clock)
    gate = Gate(store, brand="acme", store_options=options)
    peppers = service.gate.format.peppers
    return SubjectLimits(gate.charge_subject, peppers, service.clock, service.gate.events)


def admits(
    subjects: SubjectLimits, subject: str, *limits: Limit, kind: str = "address", cost: int = 1
) -> bool:
    try:
        run(subjects.charge(kind, subject, limits, cost))
    except RateLimitExceeded:
        return False
    return True


@pytest.mark.parametrize(("flooded", "kind"), [(TENANT, "function tenant"), (SEARCH, "address")])
def test_a_flood_of_one_limit_leaves_another_exact_over_all_processes(
    flooded: Limit, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject_limits, "NEW_AN_HOUR", 5)
    store, service = MemoryStore(), Service()
    one, other = subjects_on(store, service), subjects_on(store, service)
    for number in range(100):
        admits(one, f"text {number}", flooded, kind=kind)
    admitted = [admits(each, "192.0.2.7", LOGIN) for each in (one, other, one, other)]
    assert admitted == [True, True, False, False]
    assert service.fell_back() == [flooded.name]


def test_a_flooded_limit_leaves_another_of_the_same_subject_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject_limits, "NEW_AN_HOUR", 5)
    store, service = MemoryStore(), Service()
    one, other = subjects_on(store, service), subjects_on(store, service)
    for number in range(100):
        for each in (one, other):
            admits(each, f"192.0.3.{number}", SEARCH)
    both = [admits(each, "192.0.2.7", SEARCH, LOGIN) for each in (one, other, one, other)]
    assert both == [True, True, False, False]
    assert service.fell_back() == ["search", "search"]


def test_no_flood_of_names_resets_the_count_of_another_D40(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject_limits, "NEW_AN_HOUR", 10)
    subjects = subjects_on(MemoryStore(), Service())
    guesses = 0
    for flood in range(3):
        for number in range(21_000 if flood == 1 else 100):
            admits(subjects, f"{flood} {number}", TENANT, kind="function tenant")
        guesses += sum(admits(subjects, "victim", TENANT, kind="function tenant") for _ in range(8))
    assert guesses == 2


def test_a_subject_that_was_counted_alone_is_so_until_its_count_expires_D40(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it would begin at zero in the store, in which there is room in the next hour."""
    monkeypatch.setattr(subject_limits, "NEW_AN_HOUR", 1)
    store, service = Counting(), Service()
    subjects, daily = subjects_on(store, service), Limit("mail", "2/day", by="address")
    assert admits(subjects, "192.0.2.1", daily)
    assert [admits(subjects, "192.0.2.7", daily) for _ in range(3)] == [True, True, False]
    service.clock.now += 3_700_000_000
    assert not admits(subjects, "192.0.2.7", daily)
    assert admits(subjects, "192.0.2.9", daily)  # There is room in the store.
    assert len(store.owners) == 2
    service.clock.now += 30 * 3_600_000_000
    assert admits(subjects, "192.0.2.7", daily)
    assert len(store.owners) == 3


def test_a_limit_that_is_counted_alone_refuses_before_the_store_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject_limits, "NEW_AN_HOUR", 1)
    store, service = Counting(), Service()
    subjects = subjects_on(store, service)
    assert admits(subjects, "192.0.2.1", SEARCH)
    assert admits(subjects, "192.0.2.7", SEARCH, LOGIN, cost=2)
    assert len(store.owners) == 2
    assert not admits(subjects, "192.0.2.7", SEARCH, LOGIN, cost=4)
    assert len(store.owners) == 2


def test_a_flood_is_told_once_a_minute_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at = [1000.0]
    monkeypatch.setattr("lockgate.events.monotonic", lambda: at[0])
    monkeypatch.setattr(subject_limits, "NEW_AN_HOUR", 1)
    service = Service()
    subjects = subjects_on(MemoryStore(), service)
    for number, at[0] in enumerate((1000.0, 1001.0, 1060.0, 1061.0, 1121.0)):
        assert admits(subjects, f"192.0.2.{number}", LOGIN)
    assert service.fell_back() == ["login"] * 3
    assert caplog.text.count("name a limit by address beside this one") == 3


def test_the_bounds_of_limits_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their memory is bounded; a flood of one of too many limits reaches another one."""
    monkeypatch.setattr(subject_limits, "NEW_AN_HOUR", 5)
    monkeypatch.setattr(subject_limits, "_APART_AT_MOST", 2)
    service = Service()
    store = Counting()
    subjects = subjects_on(store, service)
    limits = [Limit(f"limit-{number}", "1/minute", by="address") for number in range(7)]
    for limit in limits:
        for number in range(9):
            assert admits(subjects, f"{limit.name} {number}", limit)
    assert len(store.owners) == 2 * 5


def test_a_flood_of_new_addresses_does_not_reach_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject_limits, "NEW_AN_HOUR", 5)
    store, service = Counting(), Service()
    subjects = subjects_on(store, service)

    def charge(address: str) -> bool:
        return admits(subjects, address, LOGIN)

    assert all(charge(f"192.0.2.{last}") for last in range(100))
    assert len(store.owners) == 5
    assert [charge("192.0.2.99") for _ in range(2)] == [True, False]  # Counted here.
    assert [charge("192.0.2.1") for _ in range(2)] == [True, False]  # Counted in the store.
    assert len(store.owners) == 7
    service.clock.now += 3_700_000_000
    assert charge("192.0.2.200")
    assert len(store.owners) == 8


def test_openapi_and_the_list_of_routes_tell_the_subject() -> None:
    assert [limit.subject for limit in (LOGIN, TENANT)] == ["address", "function"]
    assert str(RULES["GET /data"]) == "key, scope jobs:read, login 2/minute by address"
