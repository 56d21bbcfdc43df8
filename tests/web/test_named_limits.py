"""Named limits of routes: charged with the plan in every framework, told in answers and events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from starlette.applications import Starlette

from lockgate import (
    PUBLIC,
    ConfigurationError,
    Limit,
    Plan,
    PlanBook,
    Refusal,
    Rule,
    asgi,
    run,
)
from lockgate.core.api_keys import ApiKey, KeyDetails
from lockgate.errors import InvalidRequest, RateLimitExceeded, StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.sessions import Session
from tests.by_verbs import MemoryByVerbs

from .applications import ADAPTERS, protected
from .driving import Answer, Bench, ask, say

EXPORT = Limit("export", "3/hour")
BY_KEY = Limit("own", "2 per minute", by="key")
PLANS = PlanBook([Plan("free", rpm=20, rph=200, rpd=2000, concurrent=2)])
RULES = {"GET /export": Rule("jobs:read", limits=[EXPORT, BY_KEY]), "GET /other": Rule()}
STATUS = "/api/v1/account/rate-limits"
OF_PLAN = Limit("all-exports", "2/minute")
MINUTE = 60_000_000


def plan_of(*limits: Limit, name: str = "free") -> Plan:
    return Plan(name, rpm=20, rph=200, rpd=2000, concurrent=2, limits=limits)


class Service(Bench):
    """A gate before an application, and two keys of one organization."""

    def __init__(
        self, *plans: Plan, rules: Mapping[str, Rule] = RULES, shadow: Any = None, **options: Any
    ) -> None:
        book = PlanBook([*plans], custom=[]) if plans else PLANS
        super().__init__(plans=book, **options)
        self.keys = [run(self.gate.keys.create("org_1", name)).text for name in ("one", "two")]
        self.told.clear()
        self.app = asgi.protect(say, self.gate, rules=rules, shadow=shadow)

    def get(self, path: str, key: int = 0) -> Answer:
        return asyncio.run(ask(self.app, path=path, key=self.keys[key]))

    def statuses(self, times: int, path: str, key: int = 0) -> list[int]:
        return [self.get(path, key).status for _ in range(times)]

    def refused(self, path: str, key: int = 0) -> dict[str, Any]:
        """Return the limit of a refusal, with the seconds to wait."""
        answer = self.get(path, key)
        assert answer.status == 429
        return {**answer.json()["limits"], "wait": answer.json()["retryAfter"]}

    def left(self, path: str, key: int = 0) -> tuple[int, int]:
        """Return the remaining requests and the seconds until the reset, as headers tell them."""
        limit, remaining, reset = self.get(path, key).rate
        assert limit == 20
        return remaining, reset - -(-self.clock.now // 1_000_000)

    def row(self, key: int = 0) -> ApiKey:
        handle = self.gate.format.parse(self.keys[key]).handle
        found = run(self.gate.store.find(handle))
        assert found is not None
        return found

    def limits_of(self, kind: str) -> list[Any]:
        return [event.fields["limit_name"] for event in self.told if event.name == kind]


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


@pytest.mark.parametrize("framework", ADAPTERS)
def test_a_full_named_limit_refuses_its_route_and_no_other(framework: str) -> None:
    service = Service()
    make = {"limits": [EXPORT, BY_KEY], "cost": 1}
    _, ask = protected(framework, service.gate, public=[], make=make)
    one, other = ({"Authorization": f"Bearer {key}"} for key in service.keys)
    assert [ask("/models", one).status for _ in range(2)] == [200, 200]
    refused = ask("/models", one)
    assert (refused.status, refused.headers["retry-after"], refused.remaining) == (429, "60", "0")
    assert refused.headers["x-ratelimit-limit"] == "20"
    reset = -(-service.clock.now // 1_000_000) + 60
    assert int(refused.headers["x-ratelimit-reset"]) == reset
    assert refused.body == {
        "error": "Too many requests for 'own': 2 of 2 used in the last minute; try again in 60 s.",
        "code": "RATE_LIMIT_EXCEEDED",
        "retryAfter": 60,
        "limits": {"type": "minute", "limit": 2, "used": 2, "name": "own"},
    }
    assert ask("/health", one).status == 200
    assert ask("/models", other).status == 200  # Another key has a count of its own.
    told = ask("/models", other).body
    assert told["limits"] == {"type": "hour", "limit": 3, "used": 3, "name": "export"}
    assert told["retryAfter"] == 3600
    service.clock.now += MINUTE
    assert ask("/models", one).body["limits"]["name"] == "export"
    assert ask("/health", one).remaining == "19"  # The plan's: it was charged for no limit.
    assert service.limits_of("refused") == ["own", "export", "export"]


def test_the_headers_speak_of_the_tightest_window_that_was_charged_D40() -> None:
    service = Service()
    assert service.left("/export") == (1, 60)  # Of the key's 2 a minute.
    service.clock.now += MINUTE // 2
    assert service.left("/export", 1) == (1, 3570)  # 3 an hour, 2 a minute: the later reset.
    assert service.left("/other") == (17, 30)  # 20 a minute.
    assert service.left("/export") == (0, 3570)  # 3 an hour.
    assert service.left("/export") == (0, 3570)  # Refused.
    service.clock.now += MINUTE
    assert service.left("/export") == (0, 3510)
    assert service.left("/other") == (19, 60)

    # A scope that is missing is answered with it, too.
    service = Service()
    weak = run(service.gate.keys.create("org_1", "weak", scopes=["upload:*"])).text
    lacking = asyncio.run(ask(service.app, path="/export", key=weak))
    assert (lacking.status, lacking.one("x-ratelimit-remaining")) == (403, "1")


def test_a_calendar_quota_is_told_with_the_end_of_its_period_D40() -> None:
    service = Service(plan_of(Limit("credits", "3/month")))
    service.clock.now = int(datetime(2026, 2, 10, tzinfo=UTC).timestamp()) * 1_000_000
    march = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())
    told = [service.get("/other") for _ in range(4)]
    assert [answer.status for answer in told] == [200, 200, 200, 429]
    assert [answer.rate[1:] for answer in told] == [(left, march) for left in (2, 1, 0, 0)]

    # A soft quota leaves what the plan leaves.
    service = Service(plan_of(Limit("credits", "1/month", soft=True)))
    assert [service.left("/other")[0] for _ in range(3)] == [19, 18, 17]


def test_a_plan_that_refuses_tells_no_name_and_charges_no_limit() -> None:
    service = Service()
    assert service.statuses(20, "/other") == [200] * 20
    assert service.refused("/export") == {"type": "minute", "limit": 20, "used": 20, "wait": 60}
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


def test_the_status_and_an_explanation_list_named_limits() -> None:
    service = Service()
    assert service.get("/export").status == 200
    assert service.get(STATUS).json()["named"] == [
        {"name": "export", "type": "hour", "used": 1, "limit": 3, "held": 0},
        {"name": "own", "type": "minute", "used": 1, "limit": 2, "held": 0},
    ]
    found = run(service.gate.explain(service.keys[0]))
    shown = [(one.limit.name, one.windows[0].used, one.windows[0].left) for one in found.limits]
    assert shown == [("export", 1, 2), ("own", 1, 1)]
    assert [one.limit for one in run(service.gate.explain("org_1")).limits] == [EXPORT]
    plain = Service(rules={})
    assert set(plain.get(STATUS).json()) == {"plan", "limits", "usage", "timestamp"}


def test_the_status_has_limits_without_use_and_the_units_that_are_held() -> None:
    tokens, store = Limit("tokens", "100/minute"), Noting()
    options = StoreOptions(hold_limits=[tokens])
    service = Service(plan_of(Limit("credits", "1000/month")), store=store, store_options=options)

    def named() -> list[tuple[str, int, int]]:
        told = service.get(STATUS).json()["named"]
        return [(one["name"], one["used"], one["held"]) for one in told]

    assert named() == [("export", 0, 0), ("own", 0, 0), ("credits", 1, 0), ("tokens", 0, 0)]
    run(service.gate.holds.take("org_1", {tokens: 60}))
    store.calls.clear()
    assert named()[-1] == ("tokens", 60, 60)
    assert store.calls == ["peek", "hold"]  # After the admission, which has the plan.


def test_openapi_tells_the_limits_of_an_operation() -> None:
    app, _ = protected("fastapi", Service().gate, make={"limits": [EXPORT, BY_KEY]})
    assert app.openapi()["paths"]["/models"]["get"]["x-rate-limits"] == [
        {
            "name": "export",
            "by": "organization",
            "windows": [{"type": "hour", "limit": 3, "seconds": 3600}],
        },
        {"name": "own", "by": "key", "windows": [{"type": "minute", "limit": 2, "seconds": 60}]},
    ]


def test_shadow_mode_counts_a_named_limit_and_refuses_nothing() -> None:
    service = Service(rules={"GET /export": Rule(limits=[EXPORT])}, shadow="limits")
    assert service.statuses(5, "/export") == [200] * 5
    assert service.limits_of("shadowed") == ["export", "export"]


def test_a_guard_inside_another_charges_the_limits_that_are_left() -> None:
    service = Service(rules={"GET /export": Rule(limits=[EXPORT, BY_KEY])})
    outer = {"GET /{rest:path}": Rule(limits=[BY_KEY])}
    service.app = asgi.GateMiddleware(service.app, service.gate, outer)
    assert service.get("/export").status == 200
    named = run(service.gate.named_usage("org_1", None))
    assert [one.used for one in named if one.name == "export"] == [1]
    assert service.statuses(1, "/export") + service.statuses(1, "/export", 1) == [200, 200]
    refused = service.get("/export", 1)
    assert (refused.status, refused.json()["limits"]["name"]) == (429, "export")
    assert refused.rate[:2] == (20, 0)
    service.clock.now += MINUTE
    assert service.left("/other")[0] == 1  # Of the outer gate's limit.


def test_an_endpoint_whose_limits_no_gate_charged_is_a_mistake_that_is_told() -> None:
    service, export = Service(), cast(Any, asgi.requires(limits=[EXPORT])(say))
    app = asgi.protect(export, service.gate, rules={"GET /x": Rule()})
    with pytest.raises(ConfigurationError, match="write cost, slot and limits into rules="):
        asyncio.run(ask(app, path="/x", key=service.keys[0]))


def test_rules_with_limits_that_cannot_be_are_refused_at_the_start() -> None:
    gate = Service(plan_of(OF_PLAN)).gate
    other = Limit("export", "4/hour")

    def protect(*limits: Limit) -> object:
        rules = {f"GET /{n}": Rule(limits=[limit]) for n, limit in enumerate(limits)}
        return asgi.protect(Starlette(), gate, rules=rules)

    makers: list[Callable[[], object]] = [
        lambda: Rule(public=True, limits=[EXPORT]),
        lambda: Rule(accepts=("key", "session"), limits=[BY_KEY]),
        lambda: Rule(limits=cast("Any", ["3/hour"])),
        lambda: protect(EXPORT, other),
    ]
    for make in makers:
        with pytest.raises(ConfigurationError):
            make()
    protect(EXPORT)
    for limit in (other, Limit("all-exports", "9/minute")):
        with pytest.raises(ConfigurationError, match=f"Two limits are called '{limit.name}'"):
            protect(limit)
    with pytest.raises(ConfigurationError, match="Two limits are called 'export'"):
        run(gate.authenticate("acme_live_x", limits=[other]))
    by_key = Limit("export", "4/hour", by="key")
    with pytest.raises(ConfigurationError, match="by organization and by key: rename one"):
        PlanBook([Plan("free", limits=(EXPORT,)), Plan("pro", limits=(by_key,))])


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
    service = Service(observer=None)
    rules = {"GET /export": Rule(limits=[EXPORT]), "GET /other": Rule()}
    service.app = asgi.protect(say, service.gate, rules=rules)
    assert service.statuses(5, "/export") == [200] * 3 + [429] * 2
    assert service.statuses(20, "/other") == [200] * 17 + [429] * 3
    assert service.refused("/export")["name"] == "export"


def test_each_request_of_an_organization_counts_on_the_limits_of_its_plan() -> None:
    service = Service(plan_of(OF_PLAN), plan_of(name="other"))
    assert service.get("/export").status == 200
    assert service.get("/other", 1).rate[:2] == (20, 0)
    limits = {"type": "minute", "limit": 2, "used": 2, "name": "all-exports"}
    assert service.refused("/other") == {**limits, "wait": 60}
    run(service.gate.organizations.place("org_1", "other"))
    assert service.get("/other").status == 200


def test_each_request_of_a_key_counts_on_its_own_limits() -> None:
    service = Service()
    id = service.row().id
    run(service.gate.keys.update("org_1", id, limits={"export": "1/hour"}))
    assert service.get("/other").status == 200
    told = service.refused("/export")
    assert told == {"type": "hour", "limit": 1, "used": 1, "name": "export", "wait": 3600}
    assert service.statuses(2, "/export", 1) == [200, 200]
    run(service.gate.keys.update("org_1", id, limits={"export": "2/hour"}))
    assert service.statuses(2, "/other") == [200, 429]
    run(service.gate.keys.update("org_1", id, limits={}))
    assert service.get("/other").status == 200


def test_a_session_counts_on_the_limits_of_its_plan_by_organization() -> None:
    each = Limit("each", "1/hour", by="key")
    service = Service(plan_of(OF_PLAN, each))
    session = Session("org_1", "ada")
    assert run(service.gate.admit_session(session)).reading.used == (1, 1, 1)
    run(service.gate.admit_session(session))
    with pytest.raises(RateLimitExceeded) as found:
        run(service.gate.admit_session(session))
    assert found.value.limit_name == "all-exports"


def test_the_limits_of_a_plan_and_a_key_are_explained_and_in_the_status() -> None:
    service = Service(
        plan_of(OF_PLAN), plan_of(name="other"), rules={"GET /a": Rule(limits=[EXPORT])}
    )
    gate = service.gate
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


def test_a_limit_of_one_name_has_other_numbers_in_each_plan_D40() -> None:
    """The count is kept when the plan changes (W13); a rule cannot name such a limit."""
    more = Limit("export", "5/hour")
    free, pro = Plan("free", limits=(EXPORT,)), Plan("pro", limits=(more,))
    service = Service(free, pro, rules={})
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
    key = service.row()
    later = key._replace(details=KeyDetails(limits=(("own", "3/century"),)))
    assert run(service.gate.store.update_if(key, later))
    with pytest.raises(StoreUnavailable):
        run(service.gate.authenticate(service.keys[0]))
    assert len(run(service.gate.keys.list("org_1")).keys) == 2
