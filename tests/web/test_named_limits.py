"""Named limits of routes: charged with the plan in every framework, told in answers and events."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from lockgate import (
    PUBLIC,
    ConfigurationError,
    Event,
    Gate,
    Limit,
    Plan,
    PlanBook,
    Refusal,
    Rule,
    asgi,
    fastapi,
    flask,
    run,
    starlette,
)
from lockgate.core.api_keys import KeyDetails
from lockgate.errors import InvalidRequest, RateLimitExceeded, StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.sessions import Session, SignedCookie
from lockgate.testing import HandClock
from tests.by_verbs import MemoryByVerbs
from tests.gates import flat_gate

from . import front_ends

EXPORT = Limit("export", "3/hour")
BY_KEY = Limit("own", "2 per minute", by="key")
PLANS = PlanBook([Plan("free", rpm=20, rph=200, rpd=2000, concurrent=2)])


class Service:
    """A gate with two keys of one organization."""

    def __init__(self, **options: Any) -> None:
        self.clock = HandClock()
        self.events: list[Event] = []
        self.gate = flat_gate(
            brand="acme",
            clock=self.clock,
            observer=self.events.append,
            **{"plans": PLANS, **options},
        )
        self.keys = [run(self.gate.keys.create("org_1", name)).text for name in ("one", "two")]

    def of(self, key: int = 0) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[key]}"}

    def seconds_from_now(self, seconds: int) -> int:
        return -(-self.clock.now // 1_000_000) + seconds


class Noting(MemoryByVerbs):
    """Notes the reads of plans, windows and budgets."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    async def organization(self, *arguments: Any, **named: Any) -> Any:
        self.calls.append("organization")
        return await super().organization(*arguments, **named)

    async def peek(self, *arguments: Any, **named: Any) -> Any:
        self.calls.append("peek")
        return await super().peek(*arguments, **named)

    async def hold(self, *arguments: Any, **named: Any) -> Any:
        self.calls.append("hold")
        return await super().hold(*arguments, **named)


Get = Callable[[str, dict[str, str]], tuple[int, dict[str, str], Any]]


def _asgi_client(app: Any) -> Get:
    client = TestClient(app, raise_server_exceptions=False)

    def get(path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        answer = client.get(path, headers=headers)
        return answer.status_code, {k.lower(): v for k, v in answer.headers.items()}, answer.text

    return get


def _by_rules(service: Service) -> Get:
    async def export(request: Request) -> PlainTextResponse:
        return PlainTextResponse("done")

    app = Starlette(routes=[Route("/export", export), Route("/other", export)])
    rules = {"GET /export": Rule("jobs:read", limits=[EXPORT, BY_KEY]), "GET /other": Rule()}
    return _asgi_client(asgi.protect(app, service.gate, rules=rules))


def _by_starlette(service: Service) -> Get:
    @starlette.requires("jobs:read", limits=[EXPORT, BY_KEY])
    async def export(request: Request) -> PlainTextResponse:
        return PlainTextResponse("done")

    async def other(request: Request) -> PlainTextResponse:
        return PlainTextResponse("done")

    app = Starlette(routes=[Route("/export", export), Route("/other", other)])
    return _asgi_client(starlette.protect(app, service.gate))


def _by_fastapi(service: Service) -> Get:
    app = FastAPI()

    @app.get("/export", dependencies=[fastapi.requires("jobs:read", limits=[EXPORT, BY_KEY])])
    async def export() -> str:
        return "done"

    @app.get("/other")
    async def other() -> str:
        return "done"

    return _asgi_client(fastapi.protect(app, service.gate))


def _by_flask(service: Service) -> Get:
    app = Flask("service")

    @app.get("/export")
    @flask.requires("jobs:read", limits=[EXPORT, BY_KEY])
    def export() -> str:
        return "done"

    @app.get("/other")
    def other() -> str:
        return "done"

    flask.protect(app, service.gate)
    client = app.test_client()

    def get(path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        answer = client.get(path, headers=headers)
        return answer.status_code, {k.lower(): v for k, v in answer.headers.items()}, answer.text

    return get


@pytest.mark.parametrize("make", [_by_rules, _by_starlette, _by_fastapi, _by_flask])
def test_a_full_named_limit_refuses_its_route_and_no_other(make: Callable[[Service], Get]) -> None:
    service = Service()
    get = make(service)
    assert [get("/export", service.of())[0] for _ in range(2)] == [200, 200]
    status, headers, body = get("/export", service.of())
    assert status == 429
    assert headers["retry-after"] == "60"
    assert headers["x-ratelimit-limit"] == "20"
    assert headers["x-ratelimit-remaining"] == "0"
    assert int(headers["x-ratelimit-reset"]) == service.seconds_from_now(60)
    assert json.loads(body) == {
        "error": "Too many requests for 'own': 2 of 2 used in the last minute; try again in 60 s.",
        "code": "RATE_LIMIT_EXCEEDED",
        "retryAfter": 60,
        "limits": {"type": "minute", "limit": 2, "used": 2, "name": "own"},
    }
    assert get("/other", service.of())[0] == 200
    assert get("/export", service.of(1))[0] == 200  # Another key has a count of its own.
    told = json.loads(get("/export", service.of(1))[2])
    assert told["limits"] == {"type": "hour", "limit": 3, "used": 3, "name": "export"}
    assert told["retryAfter"] == 3600
    service.clock.now += 60_000_000
    assert json.loads(get("/export", service.of())[2])["limits"]["name"] == "export"
    answer = get("/other", service.of())[1]
    assert answer["x-ratelimit-remaining"] == "19"  # The plan's: it was charged for no limit.
    refused = [event for event in service.events if event.name == "refused"]
    assert [event.fields["limit_name"] for event in refused] == ["own", "export", "export"]


@pytest.mark.parametrize("make", [_by_rules, _by_starlette, _by_fastapi, _by_flask])
def test_the_headers_speak_of_the_tightest_window_that_was_charged_D40(
    make: Callable[[Service], Get],
) -> None:
    service = Service()
    get = make(service)

    def told(path: str, key: int = 0) -> tuple[int, int]:
        _, headers, _ = get(path, service.of(key))
        assert headers["x-ratelimit-limit"] == "20"
        left, reset = headers["x-ratelimit-remaining"], int(headers["x-ratelimit-reset"])
        return int(left), reset - service.seconds_from_now(0)

    assert told("/export") == (1, 60)  # Of the key's 2 a minute.
    service.clock.now += 30_000_000
    assert told("/export", 1) == (1, 3570)  # 3 an hour and 2 a minute leave 1: the later reset.
    assert told("/other") == (17, 30)  # 20 a minute.
    assert told("/export") == (0, 3570)  # 3 an hour.
    assert told("/export") == (0, 3570)  # Refused.
    service.clock.now += 60_000_000
    assert told("/export") == (0, 3510)
    assert told("/other") == (19, 60)


@front_ends.FRAMEWORKS
def test_the_limit_of_a_plan_is_told_behind_every_framework_D40(framework: str) -> None:
    with front_ends.django_settings():
        service = Service(
            plans=_limited_plans(),
            sessions=SignedCookie(["a secret of many distinct bytes"]),
            public_url="http://testserver",
        )
        front = front_ends.FrontEnd(framework, service.gate)
        told: list[tuple[int, str, str, int]] = []
        for _ in range(3):
            answer = front.ask("GET", front_ends.STATUS, bearer=service.keys[0])
            limit, left, reset = (
                answer.headers[f"x-ratelimit-{name}"] for name in ("limit", "remaining", "reset")
            )
            told.append((answer.status, limit, left, int(reset) - service.seconds_from_now(0)))
            service.clock.now += 10_000_000
        assert told == [(200, "20", "1", 60), (200, "20", "0", 50), (429, "20", "0", 40)]


def test_a_scope_that_is_missing_is_answered_with_the_tightest_window_D40() -> None:
    service = Service()
    key = run(service.gate.keys.create("org_1", "weak", scopes=["upload:*"])).text
    status, headers, _ = _by_rules(service)("/export", {"Authorization": f"Bearer {key}"})
    assert (status, headers["x-ratelimit-remaining"]) == (403, "1")


def test_a_calendar_quota_is_told_with_the_end_of_its_period_D40() -> None:
    quota = Limit("credits", "3/month")
    plan = Plan("free", rpm=20, rph=200, rpd=2000, concurrent=2, limits=(quota,))
    service = Service(plans=PlanBook([plan], custom=[]))
    service.clock.now = int(datetime(2026, 2, 10, tzinfo=UTC).timestamp()) * 1_000_000
    march = str(int(datetime(2026, 3, 1, tzinfo=UTC).timestamp()))
    get = _by_rules(service)
    told = [get("/other", service.of()) for _ in range(4)]
    assert [answer[0] for answer in told] == [200, 200, 200, 429]
    assert [answer[1]["x-ratelimit-remaining"] for answer in told] == ["2", "1", "0", "0"]
    assert {answer[1]["x-ratelimit-reset"] for answer in told} == {march}


def test_a_soft_quota_leaves_what_the_plan_leaves_D40() -> None:
    quota = Limit("credits", "1/month", soft=True)
    plan = Plan("free", rpm=20, rph=200, rpd=2000, concurrent=2, limits=(quota,))
    get = _by_rules(service := Service(plans=PlanBook([plan], custom=[])))
    told = [get("/other", service.of())[1]["x-ratelimit-remaining"] for _ in range(3)]
    assert told == ["19", "18", "17"]


def test_a_plan_that_refuses_tells_no_name_and_charges_no_limit() -> None:
    service = Service()
    get = _by_rules(service)
    for _ in range(20):
        assert get("/other", service.of())[0] == 200
    told = json.loads(get("/export", service.of())[2])
    assert told["limits"] == {"type": "minute", "limit": 20, "used": 20}
    named = run(service.gate.named_usage("org_1", None))
    assert [(one.name, one.type, one.used, one.limit) for one in named] == [
        ("export", "hour", 0, 3)
    ]


def test_d39_a_cost_above_a_named_limit_is_told_so() -> None:
    service = Service()
    with pytest.raises(Refusal) as found:
        run(service.gate.authenticate(service.keys[0], cost=4, limits=[EXPORT]))
    body: Any = found.value.body()
    assert body["error"].startswith("A request of cost 4 is never admitted for 'export', however")
    assert (body["retryAfter"], body["limits"]["name"]) == (3600, "export")


def test_a_principal_shows_the_reading_of_its_plan() -> None:
    service = Service()
    principal = run(service.gate.authenticate(service.keys[0], limits=[EXPORT, BY_KEY]))
    assert principal.reading.used == (1, 1, 1)
    assert len(principal.plan.windows) == 3


def test_the_status_and_an_explanation_list_named_limits() -> None:
    service = Service(
        sessions=SignedCookie(["a secret of many distinct bytes"]), public_url="http://testserver"
    )
    get = _by_rules(service)
    assert get("/export", service.of())[0] == 200
    status = json.loads(get("/api/v1/account/rate-limits", service.of())[2])
    assert status["named"] == [
        {"name": "export", "type": "hour", "used": 1, "limit": 3, "held": 0},
        {"name": "own", "type": "minute", "used": 1, "limit": 2, "held": 0},
    ]
    found = run(service.gate.explain(service.keys[0]))
    shown = [(one.limit.name, one.windows[0].used, one.windows[0].left) for one in found.limits]
    assert shown == [("export", 1, 2), ("own", 1, 1)]
    whole = run(service.gate.explain("org_1"))
    assert [one.limit for one in whole.limits] == [EXPORT]


def test_the_status_has_limits_without_use_and_the_units_that_are_held() -> None:
    credits = Limit("credits", "1000/month")
    tokens = Limit("tokens", "100/minute")
    plan = Plan("free", rpm=60, rph=None, rpd=None, concurrent=None, limits=(credits,))
    store = Noting()
    service = Service(
        store=store,
        sessions=SignedCookie(["a secret of many distinct bytes"]),
        public_url="http://testserver",
        plans=PlanBook([plan]),
        store_options=StoreOptions(hold_limits=[tokens]),
    )
    get = _by_rules(service)

    def named(key: dict[str, str]) -> list[tuple[str, int, int]]:
        status = json.loads(get("/api/v1/account/rate-limits", key)[2])
        return [(one["name"], one["used"], one["held"]) for one in status["named"]]

    unused = [("export", 0, 0), ("own", 0, 0), ("credits", 1, 0), ("tokens", 0, 0)]
    assert named(service.of()) == unused
    run(service.gate.holds.take("org_1", {tokens: 60}))
    store.calls.clear()
    assert named(service.of())[-1] == ("tokens", 60, 60)
    assert store.calls == ["peek", "hold"]  # After the admission, which has the plan.


def test_a_service_without_named_limits_has_the_status_of_the_specification() -> None:
    service = Service(
        sessions=SignedCookie(["a secret of many distinct bytes"]), public_url="http://testserver"
    )
    get = _asgi_client(asgi.protect(Starlette(), service.gate))
    status = json.loads(get("/api/v1/account/rate-limits", service.of())[2])
    assert set(status) == {"plan", "limits", "usage", "timestamp"}


def test_openapi_tells_the_limits_of_an_operation() -> None:
    service = Service()
    app = FastAPI()

    @app.get("/export", dependencies=[fastapi.requires("jobs:read", limits=[EXPORT, BY_KEY])])
    async def export() -> str:
        return "done"

    guarded = fastapi.protect(app, service.gate, public=["GET /openapi.json"])
    document = TestClient(guarded).get("/openapi.json").json()
    assert document["paths"]["/export"]["get"]["x-rate-limits"] == [
        {
            "name": "export",
            "by": "organization",
            "windows": [{"type": "hour", "limit": 3, "seconds": 3600}],
        },
        {"name": "own", "by": "key", "windows": [{"type": "minute", "limit": 2, "seconds": 60}]},
    ]


def test_shadow_mode_counts_a_named_limit_and_refuses_nothing() -> None:
    service = Service()
    app = Starlette(routes=[Route("/export", lambda request: PlainTextResponse("done"))])
    rules = {"GET /export": Rule(limits=[EXPORT])}
    get = _asgi_client(asgi.protect(app, service.gate, rules=rules, shadow="limits"))
    assert [get("/export", service.of())[0] for _ in range(5)] == [200] * 5
    shadowed = [event for event in service.events if event.name == "shadowed"]
    assert [event.fields["limit_name"] for event in shadowed] == ["export", "export"]


def test_a_guard_inside_another_charges_the_limits_that_are_left() -> None:
    service = Service()

    async def export(request: Request) -> PlainTextResponse:
        return PlainTextResponse("done")

    inner = asgi.protect(
        Starlette(routes=[Route("/export", export)]),
        service.gate,
        rules={"GET /export": Rule(limits=[EXPORT, BY_KEY])},
    )
    outer = asgi.protect(
        Starlette(routes=[Mount("/inner", app=inner)]),
        service.gate,
        rules={"GET /inner/{rest:path}": Rule(limits=[BY_KEY])},
    )
    get = _asgi_client(outer)
    assert get("/inner/export", service.of())[0] == 200
    named = run(service.gate.named_usage("org_1", None))
    assert [one.used for one in named if one.name == "export"] == [1]
    assert get("/inner/export", service.of())[0] == 200
    assert get("/inner/export", service.of(1))[0] == 200
    status, headers, body = get("/inner/export", service.of(1))
    assert (status, json.loads(body)["limits"]["name"]) == (429, "export")
    assert headers["x-ratelimit-limit"] == "20"
    assert headers["x-ratelimit-remaining"] == "0"
    service.clock.now += 60_000_000
    answer = get("/other", service.of())
    assert answer[0] == 404
    assert answer[1]["x-ratelimit-remaining"] == "19"


def test_an_endpoint_whose_limits_no_gate_charged_is_a_mistake_that_is_told() -> None:
    service = Service()

    @asgi.requires(limits=[EXPORT])
    async def export(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("done")(scope, receive, send)

    app = asgi.protect(export, service.gate, rules={"GET /export": Rule()})
    with pytest.raises(ConfigurationError, match="write cost, slot and limits into rules="):
        TestClient(app).get("/export", headers=service.of())


def test_rules_with_limits_that_cannot_be_are_refused_at_the_start() -> None:
    service = Service()
    other = Limit("export", "4/hour")
    for make in (
        lambda: Rule(public=True, limits=[EXPORT]),
        lambda: Rule(accepts=("key", "session"), limits=[BY_KEY]),
        lambda: Rule(limits=cast("Any", ["3/hour"])),
        lambda: asgi.protect(
            Starlette(),
            service.gate,
            rules={"GET /a": Rule(limits=[EXPORT]), "GET /b": Rule(limits=[other])},
        ),
    ):
        with pytest.raises(ConfigurationError):
            make()
    asgi.protect(Starlette(), service.gate, rules={"GET /a": Rule(limits=[EXPORT])})
    with pytest.raises(ConfigurationError, match="Two limits are called 'export'"):
        run(service.gate.authenticate(service.keys[0], limits=[other]))
    with pytest.raises(ConfigurationError, match="Two limits are called 'export'"):
        asgi.protect(Starlette(), service.gate, rules={"GET /b": Rule(limits=[other])})


def test_a_rule_with_limits_includes_one_with_fewer() -> None:
    both = Rule(limits=[EXPORT, BY_KEY])
    assert both.includes(Rule(limits=[EXPORT]))
    assert both.includes(Rule())
    assert not Rule(limits=[EXPORT]).includes(both)
    assert both.includes(PUBLIC)
    assert str(Rule("jobs:read", limits=[EXPORT])) == (
        "key, scope jobs:read, export 3/hour by organization"
    )


def test_a_refused_named_limit_leaves_no_answer_for_other_routes() -> None:
    """The memory store's refusals are cached by key, for routes without named limits only."""
    clock = HandClock()
    gate = Gate(brand="acme", plans=PLANS, store_options=StoreOptions(clock=clock))
    key = run(gate.keys.create("org_1", "key")).text
    app = Starlette(
        routes=[Route(path, lambda r: PlainTextResponse("done")) for path in ("/export", "/other")]
    )
    rules = {"GET /export": Rule(limits=[EXPORT]), "GET /other": Rule()}
    get = _asgi_client(asgi.protect(app, gate, rules=rules))
    headers = {"Authorization": f"Bearer {key}"}
    assert [get("/export", headers)[0] for _ in range(5)] == [200] * 3 + [429] * 2
    assert [get("/other", headers)[0] for _ in range(17)] == [200] * 17
    assert [get("/other", headers)[0] for _ in range(3)] == [429] * 3
    assert json.loads(get("/export", headers)[2])["limits"]["name"] == "export"


OF_PLAN = Limit("all-exports", "2/minute")


def _limited_plans() -> PlanBook:
    plans = [
        Plan("free", rpm=20, rph=200, rpd=2000, concurrent=2, limits=(OF_PLAN,)),
        Plan("other", rpm=20, rph=200, rpd=2000, concurrent=2),
    ]
    return PlanBook(plans, custom=[])


@pytest.mark.parametrize("make", [_by_rules, _by_starlette, _by_fastapi, _by_flask])
def test_each_request_of_an_organization_counts_on_the_limits_of_its_plan(
    make: Callable[[Service], Get],
) -> None:
    service = Service(plans=_limited_plans())
    get = make(service)
    assert get("/export", service.of())[0] == 200
    assert get("/other", service.of(1))[0] == 200
    status, headers, body = get("/other", service.of())
    assert (status, headers["retry-after"], headers["x-ratelimit-remaining"]) == (429, "60", "0")
    assert json.loads(body)["limits"] == {
        "type": "minute",
        "limit": 2,
        "used": 2,
        "name": "all-exports",
    }
    run(service.gate.organizations.place("org_1", "other"))
    assert get("/other", service.of())[0] == 200


@pytest.mark.parametrize("make", [_by_rules, _by_starlette, _by_fastapi, _by_flask])
def test_each_request_of_a_key_counts_on_its_own_limits(make: Callable[[Service], Get]) -> None:
    service = Service()
    key = run(service.gate.keys.list("org_1")).keys[0]
    first = next(i for i, text in enumerate(service.keys) if text.startswith(key.prefix))
    run(service.gate.keys.update("org_1", key.id, limits={"export": "1/hour"}))
    get = make(service)
    assert get("/other", service.of(first))[0] == 200
    told = json.loads(get("/export", service.of(first))[2])
    assert told["limits"] == {"type": "hour", "limit": 1, "used": 1, "name": "export"}
    assert [get("/export", service.of(1 - first))[0] for _ in range(2)] == [200, 200]
    run(service.gate.keys.update("org_1", key.id, limits={"export": "2/hour"}))
    assert [get("/other", service.of(first))[0] for _ in range(2)] == [200, 429]
    run(service.gate.keys.update("org_1", key.id, limits={}))
    assert get("/other", service.of(first))[0] == 200


def test_a_session_counts_on_the_limits_of_its_plan_by_organization() -> None:
    each = Limit("each", "1/hour", by="key")
    plan = Plan("free", rpm=20, rph=200, rpd=2000, concurrent=2, limits=(OF_PLAN, each))
    service = Service(plans=PlanBook([plan], custom=[]))
    session = Session("org_1", "ada")
    assert run(service.gate.admit_session(session)).reading.used == (1, 1, 1)
    run(service.gate.admit_session(session))
    with pytest.raises(RateLimitExceeded) as found:
        run(service.gate.admit_session(session))
    assert found.value.limit_name == "all-exports"


def test_the_limits_of_a_plan_and_a_key_are_explained_and_in_the_status() -> None:
    service = Service(plans=_limited_plans())
    gate = service.gate
    asgi.protect(Starlette(), gate, rules={"GET /a": Rule(limits=[EXPORT])})
    made = run(gate.keys.create("org_1", "third", limits={"own": "1/hour"}))
    found = run(gate.explain(made.text))
    assert found.refused is None
    assert [(one.limit.name, one.source) for one in found.limits] == [
        ("export", "rule"),
        ("all-exports", "plan"),
        ("own", "key"),
    ]
    run(gate.authenticate(made.text))
    refused = run(gate.explain(made.text)).refused
    assert refused is not None
    assert refused.advice == (
        "The limit 'own' of the key has 0 of 1 units left in the last hour, and the request costs "
        "1: wait until then, or give the key another by 'lockgate keys update --limit'."
    )
    assert refused.until == service.clock.now + 3_600_000_000
    key = run(gate.keys.get("org_1", made.key.id))
    named = [(one.name, one.used) for one in run(gate.named_usage("org_1", key))]
    assert named == [("export", 0), ("all-exports", 1), ("own", 1)]
    run(gate.organizations.place("org_1", "other"))
    assert [one.name for one in run(gate.named_usage("org_1"))] == ["export"]


def test_a_change_of_the_limits_of_a_key_is_in_the_audit_log() -> None:
    service = Service()
    gate = service.gate
    made = run(gate.keys.create("org_1", "third", limits={"own": "1/hour"}))
    run(gate.keys.update("org_1", made.key.id, limits={"own": "2/hour", "b": "1/day"}))
    rotated = run(gate.keys.rotate("org_1", made.key.id))
    assert rotated.successor.limits == (("b", "1/day"), ("own", "2/hour"))
    updated, created = run(gate.changes.list("org_1")).changes[1:3]
    assert ("limits", ("own=1/hour",)) in created.after
    assert updated.before == (("limits", ("own=1/hour",)),)
    assert updated.after == (("limits", ("b=1/day", "own=2/hour")),)


@pytest.mark.parametrize(
    "limits",
    [
        {"own": "3"},
        {"Own": "3/hour"},
        {"own": "3/hour;4/hour"},
        {str(f"n{n}"): "1/day" for n in range(5)},
    ],
)
def test_limits_of_a_key_that_cannot_be_are_refused(limits: dict[str, str]) -> None:
    gate = Service().gate
    with pytest.raises(InvalidRequest) as found:
        run(gate.keys.create("org_1", "third", limits=limits))
    assert [problem.field for problem in found.value.problems] == ["limits"]


def test_a_limit_of_a_plan_and_one_of_a_rule_with_its_name_are_written_alike() -> None:
    gate = Service(plans=_limited_plans()).gate
    rules = {"GET /a": Rule(limits=[Limit("all-exports", "9/minute")])}
    with pytest.raises(ConfigurationError, match="Two limits are called 'all-exports'"):
        asgi.protect(Starlette(), gate, rules=rules)
    by_key = Limit("export", "4/hour", by="key")
    with pytest.raises(ConfigurationError, match="by organization and by key: rename one"):
        PlanBook([Plan("free", limits=(EXPORT,)), Plan("pro", limits=(by_key,))])


def test_a_limit_of_one_name_has_other_numbers_in_each_plan_D40() -> None:
    """The count is kept when the plan changes (W13); a rule cannot name such a limit."""
    more = Limit("export", "5/hour")
    book = PlanBook([Plan("free", limits=(EXPORT,)), Plan("pro", limits=(more,))])
    service = Service(plans=book)
    gate, key = service.gate, service.keys[0]
    for _ in range(3):
        run(gate.authenticate(key))
    with pytest.raises(RateLimitExceeded) as refused:
        run(gate.authenticate(key))
    assert (refused.value.limit_name, refused.value.limit) == ("export", 3)
    run(gate.organizations.place("org_1", "pro"))
    (shown,) = run(gate.named_usage("org_1"))
    assert (shown.name, shown.used, shown.limit) == ("export", 3, 5)
    for _ in range(2):
        run(gate.authenticate(key))
    with pytest.raises(RateLimitExceeded) as refused:
        run(gate.authenticate(key))
    assert (refused.value.limit, refused.value.used) == (5, 5)
    assert [w.limit for one in run(gate.explain("org_1")).limits for w in one.windows] == [5]
    with pytest.raises(ConfigurationError, match="Two limits are called 'export'"):
        asgi.protect(Starlette(), gate, rules={"GET /a": Rule(limits=[EXPORT])})


def test_a_limit_of_a_key_that_a_later_release_wrote_refuses_and_keeps_the_list_readable() -> None:
    service = Service()
    key = run(service.gate.keys.list("org_1")).keys[0]
    first = next(i for i, text in enumerate(service.keys) if text.startswith(key.prefix))
    later = key._replace(details=KeyDetails(limits=(("own", "3/century"),)))
    assert run(service.gate.store.update_if(key, later))
    with pytest.raises(StoreUnavailable):
        run(service.gate.authenticate(service.keys[first]))
    assert len(run(service.gate.keys.list("org_1")).keys) == 2
