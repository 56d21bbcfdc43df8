"""The audit lists every route and reports problems of rules and routes."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Host, Mount, Route, Router, WebSocketRoute
from starlette.websockets import WebSocket

from lockgate import PUBLIC, ConfigurationError, Rule
from lockgate.starlette import operations, requires
from lockgate.web.audit import Audit, ServedRoute, audit_routes, report
from lockgate.web.guard import Guard
from lockgate.web.shadow import Shadow
from lockgate.web.starlette_routes import routes_of
from lockgate.web.watching_guard import WatchingGuard

from .driving import Bench


async def page(_: Request) -> Response:
    return PlainTextResponse("ok")


async def socket(websocket: WebSocket) -> None:
    await websocket.accept()


class Both(HTTPEndpoint):
    async def get(self, request: Request) -> Response:
        return PlainTextResponse("ok")

    async def post(self, request: Request) -> Response:
        return PlainTextResponse("ok")


async def raw(scope: Any, receive: Any, send: Any) -> None: ...


def audited(routes: list[Any], rules: dict[str, Any], **fields: Any) -> Audit:
    bench = Bench()
    return audit_routes(Guard(bench.gate, rules, **fields), routes_of(Starlette(routes=routes)))


def test_every_route_is_listed_with_its_requirements() -> None:
    routes = [
        Route("/health", page),
        Route("/jobs", page, methods=["GET", "POST"]),
        Route("/jobs/{id:int}", page, methods=["DELETE"]),
        Route("/files/{name:path}", page),
        WebSocketRoute("/feed", socket),
        Mount("/sub", routes=[Route("/inner", page), Mount("/deep", routes=[Route("/x", page)])]),
        Mount("/app", Starlette(routes=[Route("/mounted", page)])),
        Host("api.example.com", Router([Route("/hosted", page)])),
    ]
    rules: dict[str, Any] = {
        "GET /health": PUBLIC,
        "GET /jobs": "jobs:read",
        "POST /jobs": Rule("jobs:write", cost=5),
        "DELETE /jobs/{id}": "jobs:write",
        "GET /files/{name:path}": "upload:read",
        "GET /feed": "jobs:read",
        "GET /sub/inner": "models:read",
        "GET /sub/deep/x": "models:read",
        "GET /app/mounted": "models:read",
        "GET api.example.com/hosted": "models:read",
    }
    report = audited(routes, rules)
    assert report.problems == []
    found = {f"{r.method} {r.path}": r.rule for r in report.routes}
    wanted = {**rules, "DELETE /jobs/{id:int}": rules["DELETE /jobs/{id}"]}
    del wanted["DELETE /jobs/{id}"]
    assert found == {n: Rule(one) if isinstance(one, str) else one for n, one in wanted.items()}
    assert str(found["POST /jobs"]) == "key, scope jobs:write, cost 5"
    assert [route.path for route in report.unguarded] == ["/health"]
    text = str(report)
    assert all(route.path in text for route in report.routes)
    assert text.endswith("guarded by nothing: GET /health")


def test_lockgates_own_operations_are_listed_by_method() -> None:
    bench = Bench()
    app = Starlette(routes=operations(bench.gate))
    report = audit_routes(Guard(bench.gate), routes_of(app))
    assert [(r.method, r.path) for r in report.routes] == [
        ("GET", "/api/v1/account/rate-limits"),
        ("GET", "/api/v1/api-keys"),
        ("POST", "/api/v1/api-keys"),
        ("GET", "/api/v1/api-keys/{id}"),
        ("DELETE", "/api/v1/api-keys/{id}"),
    ]
    assert report.problems == []
    assert str(report).endswith("guarded by nothing: none")


def test_a_route_without_a_rule_is_named() -> None:
    async def other(_: Request) -> Response:
        return PlainTextResponse("ok")

    report = audited([Route("/a", page), Route("/b", other)], {"GET /a": "jobs:read"})
    (problem,) = report.problems
    assert "GET /b" in problem
    assert "any valid key" in problem
    assert "/b" in str(report) and "(no rule)" in str(report)


@pytest.mark.parametrize("path", ["/healthz", "/v1/health/db", "/readyz", "/webhooks/stripe"])
def test_a_closed_health_check_or_webhook_is_told_once_with_the_line_to_write(path: str) -> None:
    (problem,) = audited([Route(path, page)], {}).problems
    assert problem.startswith(f"No rule names GET {path}: any valid key is admitted")
    assert problem.endswith(f"if it is one, write public=['GET {path}'].")
    assert audited([Route(path, page)], {f"GET {path}": PUBLIC}).problems == []
    assert audited([Route(path, page)], {f"GET {path}": "jobs:read"}).problems == []
    for other in ("/healthcare-plans", "/jobs", "/alive", "/webhook-settings"):
        (problem,) = audited([Route(other, page)], {}).problems
        assert "public=" not in problem


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("/healthz", "GET /healthz"),
        ("/webhooks/stripe", "POST /webhooks/stripe"),
        ("/v1/Webhook", "POST /v1/Webhook"),
    ],
)
def test_the_line_for_a_view_of_every_method_names_the_usual_one(path: str, line: str) -> None:
    found = audit_routes(Guard(Bench().gate, {}), [ServedRoute("*", path)])
    assert found.problems[0].endswith(f"write public=[{line!r}].")
    assert (
        audit_routes(Guard(Bench().gate, {line: PUBLIC}), [ServedRoute("*", path)]).problems == []
    )


def test_a_rule_without_a_route_is_named() -> None:
    """Also a typing error in a rule that shares PUBLIC with another one, or any Rule object."""
    shared = Rule("jobs:read")
    rules = {"GET /a": PUBLIC, "GET /aa": PUBLIC, "GET /b": shared, "GET /bb": shared}
    rules |= {"POST /a": Rule("jobs:write")}
    problems = audited([Route("/a", page), Route("/b", page)], rules).problems
    named = [rule for rule in rules if any(repr(rule) in problem for problem in problems)]
    assert (len(problems), named) == (3, ["GET /aa", "GET /bb", "POST /a"])


def test_an_endpoint_class_is_audited_by_its_methods() -> None:
    report = audited([Route("/x", Both)], {"GET /x": PUBLIC, "POST /x": "jobs:write"})
    assert report.problems == []
    assert [(r.method, str(r.rule)) for r in report.routes] == [
        ("GET", "public"),
        ("POST", "key, scope jobs:write"),
    ]
    assert [route.path for route in report.unguarded] == ["/x"]


@pytest.mark.parametrize("method", ["GET", "*"])
def test_a_mounted_application_under_a_public_rule_is_listed_as_unguarded(method: str) -> None:
    found = audited([Mount("/static", raw)], {f"{method} /static/{{file:path}}": PUBLIC})
    assert [route.path for route in found.unguarded] == ["/static/{path:path}"]
    assert not [problem for problem in found.problems if "names no route" in problem]
    assert method == "GET" or found.problems == []


@pytest.mark.parametrize(
    ("shadow", "told"),
    [
        ("limits", "no limit is enforced."),
        ("all", "the gate refuses no request, only endpoints that need a caller do,"),
    ],
)
def test_shadow_mode_is_logged_with_what_is_still_refused(
    shadow: Shadow, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    guard = WatchingGuard(Bench().gate, {"GET /a": "jobs:read"}, shadow=shadow)
    report(guard, routes_of(Starlette(routes=[Route("/a", page)])), strict=True)
    assert f"Shadow mode is on: {told}" in caplog.text


def test_a_route_that_is_bound_to_a_host_needs_a_rule_for_this_host() -> None:
    routes = [Route("/", page), Host("admin.example", Router([Route("/", page)]))]
    found = audited(routes, {"GET /": PUBLIC})
    assert found.problems == [
        "No rule names GET admin.example/: any valid key is admitted, whatever its scopes."
    ]
    assert audited(routes, {"GET /": PUBLIC, "GET admin.example/": "jobs:read"}).problems == []


def test_a_method_that_no_rule_names_is_a_problem() -> None:
    found = audited([Route("/a", page, methods=["GET", "POST"])], {"GET /a": "jobs:read"})
    assert found.problems == [
        "No rule names POST for /a: it is answered with 405. Put requires() at its endpoint, or "
        "name it in rules."
    ]
    assert "405" in str(found)


def test_d31_an_unknown_scope_at_an_endpoint_is_an_error() -> None:
    async def typed(request: Request) -> Response:
        return PlainTextResponse("ok")

    with pytest.raises(ConfigurationError, match=r"GET /a: .*'jobs:raed'"):
        audited([Route("/a", requires("jobs:raed")(typed))], {"GET /a": Rule()})


def test_d31_a_function_that_is_served_without_its_decorator_is_an_error() -> None:
    async def undecorated(request: Request) -> Response:
        return PlainTextResponse("ok")

    requires("jobs:read")(undecorated)
    with pytest.raises(ConfigurationError, match="/a serves a function without its decorator"):
        audited([Route("/a", undecorated)], {"GET /a": Rule()})
    both = [Route("/a", requires("jobs:read")(undecorated)), Route("/b", undecorated)]
    assert audited(both, {"GET /a": Rule(), "GET /b": Rule()}).problems == []


def test_a_strict_audit_raises_the_problems_that_others_log() -> None:
    guard = Guard(Bench().gate, {"GET /aa": "jobs:read"})
    routes = routes_of(Starlette(routes=[Route("/a", page)]))
    with pytest.raises(ConfigurationError) as caught:
        report(guard, routes, strict=True)
    assert "No rule names GET /a" in str(caught.value)
    assert "'GET /aa' names no route" in str(caught.value)
    report(guard, routes, strict=False)


def test_the_audit_names_the_one_host_of_a_gate(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard(Bench().gate, {"GET /a": "jobs:read"}, host="api.example")
    with caplog.at_level("INFO", "lockgate"):
        report(guard, [], strict=True)
    assert "for the host api.example alone" in caplog.text


def test_operations_below_another_prefix_are_reported_with_the_remedy() -> None:
    """They are closed to sessions there: the rules name them at the root."""
    bench = Bench()
    at_root = Starlette(routes=operations(bench.gate))
    mounted = Starlette(routes=[Mount("/shop", routes=operations(bench.gate))])
    other = Starlette(routes=[Route("/shop/api/v1/api-keys", at_root)])
    problems = {
        name: [
            p for p in audit_routes(Guard(bench.gate), routes_of(app)).problems if "prefix=" in p
        ]
        for name, app in (("root", at_root), ("mounted", mounted), ("other", other))
    }
    assert (problems["root"], problems["other"]) == ([], [])
    (told,) = problems["mounted"]
    assert "below '/shop'" in told


def test_a_route_whose_other_reading_takes_no_such_method_is_named() -> None:
    routes = [Route("/orders/", page, methods=["POST"]), Route("/{name}", page)]
    rules = {"POST /orders/": Rule(), "GET /{name}": Rule()}
    (problem,) = audited(routes, rules).problems
    assert problem.startswith("POST /orders/ is always answered with 405")
    assert not audited(routes, {"POST /orders/": Rule(), "* /{name}": Rule()}).problems
    general = [Route("/users/{id}", page), Route("/users/me", page, methods=["PUT"])]
    assert not audited(general, {"GET /users/{id}": Rule(), "PUT /users/me": Rule()}).problems
