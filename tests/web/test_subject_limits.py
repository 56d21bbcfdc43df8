"""Named limits by address, by user and by a function of the request: before any plan is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import pytest

from lockgate import (
    ConfigurationError,
    Gate,
    Limit,
    MemoryStore,
    Plan,
    PlanBook,
    Rule,
    run,
)
from lockgate.asgi import GateMiddleware
from lockgate.core.digests import Peppers
from lockgate.core.sliding_window import Reading
from lockgate.errors import RateLimitExceeded
from lockgate.options import StoreOptions
from lockgate.services.limits import subject_limits
from lockgate.services.limits.subject_limits import SubjectLimits
from lockgate.sessions import Session
from lockgate.testing import HandClock
from lockgate.web.guard import Guard
from lockgate.web.request import RequestView
from tests.by_verbs import MemoryByVerbs

from .driving import Answer, Bench, ask, say

LOGIN = Limit("login", "2/minute", by="address")
SEARCH = Limit("search", "5/minute", by="address")
PLANS = PlanBook([Plan("free", rpm=4, rph=200, rpd=2000, concurrent=2)], custom=[])


def by_tenant(request: RequestView) -> str | None:
    values = request.header(b"x-tenant")
    return values[0].decode() if values else None


TENANT = Limit("tenant", "2/minute;9/day", by=by_tenant)


RULES = {
    "GET /login": Rule(public=True, limits=[LOGIN]),
    "GET /other": Rule(public=True),
    "GET /data": Rule("jobs:read", limits=[LOGIN]),
    "GET /tenant": Rule("jobs:read", limits=[TENANT]),
}


class Service:
    """A gate with a key before an application, behind a proxy."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        rules: Mapping[str, Rule] = RULES,
        shadow: Any = None,
        **options: Any,
    ) -> None:
        proxies = {"trusted_proxies": ["127.0.0.1"]}
        self.bench = Bench(store=store or MemoryStore(), plans=PLANS, **{**proxies, **options})
        self.gate, self.clock = self.bench.gate, self.bench.clock
        self.key = self.bench.key()
        self.app = GateMiddleware(say, self.gate, rules, shadow=shadow)

    def get(
        self,
        path: str,
        client: str = "192.0.2.1",
        key: str | None = None,
        tenant: str | None = None,
        session: str | None = None,
    ) -> Answer:
        headers = [("x-forwarded-for", client)]
        headers += [] if tenant is None else [("x-tenant", tenant)]
        peer = ("127.0.0.1", 1)
        asked = ask(self.app, path=path, key=key, session=session, headers=headers, client=peer)
        return asyncio.run(asked)

    def statuses(self, times: int, path: str, **fields: Any) -> list[int]:
        return [self.get(path, **fields).status for _ in range(times)]

    def left(self, times: int, path: str, **fields: Any) -> list[tuple[int, str]]:
        answers = [self.get(path, **fields) for _ in range(times)]
        return [(answer.status, answer.one("x-ratelimit-remaining")) for answer in answers]

    def named(self, kind: str) -> list[Any]:
        told = [event for event in self.bench.told if event.name == kind]
        return [event.fields["limit_name"] for event in told]


def test_a_public_route_is_limited_by_address_without_a_key() -> None:
    service = Service()
    assert service.left(2, "/login") == [(200, "1"), (200, "0")]
    refused = service.get("/login")
    assert (refused.status, refused.one("retry-after")) == (429, "60")
    assert refused.rate[:2] == (1000, 0)
    limits = {"type": "minute", "limit": 2, "used": 2, "name": "login"}
    assert refused.json()["limits"] == limits
    assert service.get("/other").status == 200
    assert service.get("/login", "192.0.2.2").status == 200
    assert service.named("refused") == ["login"]
    service.clock.now += 60_000_000
    assert service.get("/login").status == 200


def test_a_refusal_before_the_key_is_verified_has_the_headers_of_its_limit_D40() -> None:
    """The plan is not known yet, and so neither is its limit of requests per minute."""
    service = Service()
    for path, tenant in (("/data", None), ("/tenant", "a")):
        answers = [service.get(path, key=service.key, tenant=tenant) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert answers[0].one("x-ratelimit-limit") == "4"
        left = [answer.one("x-ratelimit-remaining") for answer in answers]
        assert left == ["1", "0", "0"]
        reset = -(-service.clock.now // 1_000_000) + int(answers[2].one("retry-after"))
        assert int(answers[2].one("x-ratelimit-reset")) == reset
        assert answers[2].all("x-ratelimit-limit") == []


def test_the_addresses_of_an_ipv6_48_are_admitted_16_times_a_limit_D40() -> None:
    service = Service()
    admitted = [service.get("/login", f"2001:db8:1::{last}").status for last in range(1, 41)]
    assert admitted == [200, 200] + [429] * 38  # Refused ones cost the neighbours nothing.
    statuses = [service.get("/login", f"2001:db8:1:{net:x}::1").status for net in range(1, 40)]
    assert statuses == [200] * 30 + [429] * 9
    refused = service.get("/login", "2001:db8:1:99::1")
    assert (refused.status, refused.json()["limits"]["limit"]) == (429, 32)
    assert service.get("/login", "2001:db8:2::1").status == 200
    assert service.get("/login").status == 200
    assert service.named("refused")[-1] == "login"
    service.clock.now += int(refused.one("retry-after")) * 1_000_000
    assert service.get("/login", "2001:db8:1:99::1").status == 200


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


def test_attempts_with_wrong_keys_count_by_address_before_the_key() -> None:
    service = Service()
    wrong = service.key[:-1] + ("a" if service.key[-1] != "a" else "b")
    assert service.left(1, "/data", key=wrong) == [(401, "1")]
    assert service.get("/data", key=service.key).status == 200
    refused = service.get("/data", key=service.key)
    assert (refused.status, refused.json()["limits"]["name"]) == (429, "login")
    assert service.left(1, "/data", client="192.0.2.2", key=service.key) == [(200, "1")]
    assert run(service.gate.authenticate(service.key)).reading.used[0] == 3


def test_a_plan_that_refuses_leaves_the_address_charged() -> None:
    """It admits no more than it says, and the plan is not charged for what it refuses."""
    service = Service()
    for last in range(1, 5):
        assert service.get("/data", f"192.0.2.{last}", service.key).status == 200
    told = [service.get("/data", "192.0.2.9", service.key).json()["limits"] for _ in range(3)]
    assert [one.get("name") for one in told] == [None, None, "login"]


def test_a_function_of_the_request_names_the_subject() -> None:
    service = Service()
    assert service.statuses(2, "/tenant", key=service.key, tenant="a") == [200, 200]
    assert service.get("/tenant", key=service.key, tenant="b").status == 200
    refused = service.get("/tenant", key=service.key, tenant="a")
    assert (refused.status, refused.json()["limits"]["name"]) == (429, "tenant")
    assert service.get("/tenant", key=service.key).status == 200  # It does not count.


@pytest.mark.parametrize(
    "wrong", [lambda request: 3, lambda request: 1 // 0], ids=["type", "error"]
)
def test_a_function_that_fails_is_a_mistake_of_the_host_that_is_told(wrong: Any) -> None:
    service = Service(rules={"GET /t": Rule(limits=[Limit("tenant", "2/minute", by=wrong)])})
    with pytest.raises((TypeError, ZeroDivisionError)):
        service.get("/t", key=service.key)


@pytest.mark.parametrize("shadow", ["limits", "all"])
def test_shadow_mode_tells_of_a_subject_and_still_asks_for_a_key(shadow: Any) -> None:
    service = Service(shadow=shadow)
    assert service.statuses(4, "/login") == [200] * 4
    assert service.named("shadowed") == ["login", "login"]
    assert service.get("/data").status == (401 if shadow == "limits" else 200)
    assert service.get("/data", key=service.key).status == 200


def test_a_limit_by_user_counts_each_user_of_an_organization() -> None:
    limit = Limit("downloads", "1/minute", by="user")
    rule = Rule("jobs:read", accepts=("key", "session"), limits=[limit])
    service = Service(rules={"GET /data": rule})
    ada, bob = (service.bench.sessions.issue(Session("org_1", user)) for user in ("ada", "bob"))
    assert service.left(2, "/data", session=ada) == [(200, "0"), (429, "0")]
    assert service.left(1, "/data", session=bob) == [(200, "0")]
    assert service.named("refused") == ["downloads"]
    assert service.statuses(2, "/data", key=service.key) == [200, 200]


def test_a_limit_by_user_needs_a_gate_that_verifies_sessions() -> None:
    """A rule of `protect` and one that an endpoint declares are both refused at the start."""
    limit = Limit("downloads", "1/minute", by="user")
    rules = {"GET /x": Rule(accepts=("key", "session"), limits=[limit])}
    gate = Service(sessions=None).gate
    for make in (lambda: GateMiddleware(say, gate, rules), lambda: Guard(gate).declare(rules)):
        with pytest.raises(ConfigurationError, match=r"'downloads' is by user, .* no sessions"):
            make()


def test_a_guard_inside_another_charges_the_subjects_that_are_left() -> None:
    service = Service(rules={"GET /login": Rule(public=True, limits=[LOGIN, TENANT])})
    outer = {"GET /{rest:path}": Rule(public=True, limits=[LOGIN])}
    service.app = GateMiddleware(service.app, service.gate, outer)
    told = service.left(3, "/login", tenant="a")
    assert told == [(200, "1"), (200, "0"), (429, "0")]
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
    assert [limit.subject for limit in (LOGIN, TENANT)] == ["address", "function"]
    assert str(TENANT) == "tenant 2/minute;9/day by function"
    assert str(RULES["GET /data"]) == "key, scope jobs:read, login 2/minute by address"


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
    service = Service(store, peppers=[b"a pepper of thirty-two bytes, no"])
    assert service.get("/login", "198.51.100.77").status == 200
    assert service.get("/tenant", key="wrong", tenant="a").status == 401
    one, other = store.owners
    assert one != other
    assert all(129 <= len(owner) <= 192 and owner.isascii() for owner in store.owners)
    assert "198.51" not in one


def test_d24_a_spent_address_is_refused_before_a_store_counts_its_subjects() -> None:
    store = Counting()
    service = Service(store, anonymous=3)
    assert service.get("/data", "192.0.2.2", service.key).status == 200
    # The limit by tenant is 2 a minute.
    assert service.statuses(4, "/tenant", tenant="a") == [401, 401, 429, 429]
    while service.get("/missing").status == 401:
        pass
    store.owners.clear()
    for path in ("/data", "/tenant"):
        for credential in (None, "wrong", service.key[:-1]):
            for number in range(3):
                refused = service.get(path, key=credential, tenant=f"tenant {number}")
                assert (refused.status, refused.rate[0]) == (429, 3)
                assert "name" not in refused.json()["limits"]
    assert store.owners == []
    assert service.get("/data", key=service.key).status == 200
    assert len(store.owners) == 1


def test_d24_a_spent_address_needs_a_good_session_before_a_store_counts_its_subjects() -> None:
    store = Counting()
    rule = Rule("jobs:read", accepts=("key", "session"), limits=[SEARCH])
    service = Service(store, {"GET /data": rule}, anonymous=2)
    assert service.statuses(3, "/data", session="forged") == [401, 401, 429]
    store.owners.clear()
    assert service.statuses(5, "/data", session="forged") == [429] * 5
    assert store.owners == []
    assert service.get("/data", session=service.bench.session()).status == 200
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


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], tuple[Counting, Service]]:
    """Bring few new subjects to a store in any hour."""

    def make(subjects: int) -> tuple[Counting, Service]:
        monkeypatch.setattr(subject_limits, "NEW_AN_HOUR", subjects)
        return Counting(), Service()

    return make


Few = Callable[[int], tuple[Counting, Service]]


@pytest.mark.parametrize(("flooded", "kind"), [(TENANT, "function tenant"), (SEARCH, "address")])
def test_a_flood_of_one_limit_leaves_another_exact_over_all_processes(
    flooded: Limit, kind: str, few: Few
) -> None:
    store, service = few(5)
    one, other = subjects_on(store, service), subjects_on(store, service)
    for number in range(100):
        admits(one, f"text {number}", flooded, kind=kind)
    admitted = [admits(each, "192.0.2.7", LOGIN) for each in (one, other, one, other)]
    assert admitted == [True, True, False, False]
    assert service.named("subjects_fell_back") == [flooded.name]


def test_a_flooded_limit_leaves_another_of_the_same_subject_exact(few: Few) -> None:
    store, service = few(5)
    one, other = subjects_on(store, service), subjects_on(store, service)
    for number in range(100):
        for each in (one, other):
            admits(each, f"192.0.3.{number}", SEARCH)
    both = [admits(each, "192.0.2.7", SEARCH, LOGIN) for each in (one, other, one, other)]
    assert both == [True, True, False, False]
    assert service.named("subjects_fell_back") == ["search", "search"]


def test_no_flood_of_names_resets_the_count_of_another_D40(few: Few) -> None:
    subjects = subjects_on(*few(10))
    guesses = 0
    for flood in range(3):
        for number in range(21_000 if flood == 1 else 100):
            admits(subjects, f"{flood} {number}", TENANT, kind="function tenant")
        guesses += sum(admits(subjects, "victim", TENANT, kind="function tenant") for _ in range(8))
    assert guesses == 2


def test_a_subject_that_was_counted_alone_is_so_until_its_count_expires_D40(few: Few) -> None:
    """Otherwise it would begin at zero in the store, in which there is room in the next hour."""
    store, service = few(1)
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


def test_a_limit_that_is_counted_alone_refuses_before_the_store_is_asked(few: Few) -> None:
    store, service = few(1)
    subjects = subjects_on(store, service)
    assert admits(subjects, "192.0.2.1", SEARCH)
    assert admits(subjects, "192.0.2.7", SEARCH, LOGIN, cost=2)
    assert len(store.owners) == 2
    assert not admits(subjects, "192.0.2.7", SEARCH, LOGIN, cost=4)
    assert len(store.owners) == 2


def test_a_flood_is_told_once_a_minute_with_the_remedy(
    few: Few, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at = [1000.0]
    monkeypatch.setattr("lockgate.events.monotonic", lambda: at[0])
    store, service = few(1)
    subjects = subjects_on(store, service)
    for number, at[0] in enumerate((1000.0, 1001.0, 1060.0, 1061.0, 1121.0)):
        assert admits(subjects, f"192.0.2.{number}", LOGIN)
    assert service.named("subjects_fell_back") == ["login"] * 3
    assert caplog.text.count("name a limit by address beside this one") == 3


def test_the_bounds_of_limits_are_few(few: Few, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their memory is bounded; a flood of one of too many limits reaches another one."""
    monkeypatch.setattr(subject_limits, "_APART_AT_MOST", 2)
    store, service = few(5)
    subjects = subjects_on(store, service)
    limits = [Limit(f"limit-{number}", "1/minute", by="address") for number in range(7)]
    for limit in limits:
        for number in range(9):
            assert admits(subjects, f"{limit.name} {number}", limit)
    assert len(store.owners) == 2 * 5


def test_a_flood_of_new_addresses_does_not_reach_the_store(few: Few) -> None:
    store, service = few(5)
    charge = partial(admits, subjects_on(store, service))
    assert all(charge(f"192.0.2.{last}", LOGIN) for last in range(100))
    assert len(store.owners) == 5
    assert [charge("192.0.2.99", LOGIN) for _ in range(2)] == [True, False]  # Counted here.
    assert [charge("192.0.2.1", LOGIN) for _ in range(2)] == [True, False]  # In the store.
    assert len(store.owners) == 7
    service.clock.now += 3_700_000_000
    assert charge("192.0.2.200", LOGIN)
    assert len(store.owners) == 8
