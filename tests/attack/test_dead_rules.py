"""Rules and requirements without a route are reported when the application is built (D31 f)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from flask import Flask
from flask.views import MethodView
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from lockgate import PUBLIC, ConfigurationError, Gate, Principal, Rule, run, starlette
from lockgate.asgi import GateMiddleware as AsgiGate
from lockgate.core.ledger import Peek
from lockgate.fastapi import requires as fastapi_requires
from lockgate.flask import protect, requires
from lockgate.wsgi import GateMiddleware as WsgiGate

# As frameworks and gateways write parameters and tails; as a rule each is a path of itself.
NEVER = ("/v1/<int:id>", "/v1/<id>", "/v1/<path:rest>/x", "/v1/*", "/v1/**", "/*/jobs")

Rules = dict[str, Rule | str]
STRICT: Any = {"strict": True}


@pytest.fixture
def gate() -> Gate:
    return Gate("memory://", brand="acme")


async def answer(_: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")


def nothing(_environ: Any, start_response: Any) -> Iterator[bytes]:
    start_response("200 OK", [])
    yield b""


def starts(app: Any) -> None:
    """Take an ASGI application up to its first request."""
    TestClient(app).get("/")


def flask_starts(app: Flask, gate: Gate, rules: Rules | None = None, **options: Any) -> None:
    """Take a Flask application up to its first request."""
    protect(app, gate, rules=rules, **options)
    app.test_client().get("/")


# --- rules that match no request ----------------------------------------------------------


GUARDS: dict[str, Callable[[Gate, Rules], object]] = {
    "asgi": lambda gate, rules: AsgiGate(Starlette(), gate, rules),
    "wsgi": lambda gate, rules: WsgiGate(nothing, gate, rules),
    "flask": lambda gate, rules: protect(Flask("dead"), gate, rules=rules),
}


@pytest.mark.parametrize("path", NEVER)
@pytest.mark.parametrize("guard", GUARDS)
def test_a_rule_that_no_request_matches_is_refused_D31(gate: Gate, guard: str, path: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        GUARDS[guard](gate, {f"GET {path}": "jobs:read"})
    assert path in str(refused.value)


@pytest.mark.parametrize(
    "rules",
    [
        {"GET /job": Rule("jobs:read")},  # The route is called /jobs.
        {"POST /jobs": Rule("jobs:read")},  # The route takes GET only.
        {"GET /jobs/{id}": Rule("jobs:read")},
        {"GET /sub": Rule("jobs:read")},
    ],
    ids=str,
)
def test_strict_refuses_a_rule_that_names_no_route_D31(gate: Gate, rules: Rules) -> None:
    routes = [Route("/jobs", answer), Mount("/sub", routes=[Route("/inner", answer)])]
    named: Rules = {"GET /jobs": "jobs:read", "GET /sub/inner": PUBLIC}
    starts(AsgiGate(Starlette(routes=routes), gate, named, **STRICT))
    with pytest.raises(ConfigurationError) as refused:
        starts(AsgiGate(Starlette(routes=routes), gate, {**named, **rules}, **STRICT))
    assert next(iter(rules)) in str(refused.value)


def test_strict_refuses_a_route_that_no_rule_names_D31(gate: Gate) -> None:
    routes = [Route("/jobs", answer), Route("/admin", answer)]
    with pytest.raises(ConfigurationError) as refused:
        starts(AsgiGate(Starlette(routes=routes), gate, {"GET /jobs": PUBLIC}, **STRICT))
    assert "GET /admin" in str(refused.value)


def test_strict_flask_refuses_routes_without_rules_and_rules_without_routes_D31(gate: Gate) -> None:
    def app() -> Flask:
        made = Flask("strict")
        made.add_url_rule("/jobs/<int:id>", "job", lambda id: "ok")
        made.add_url_rule("/admin", "admin", lambda: "ok")
        return made

    both: dict[str, Rule | str] = {"GET /jobs/{id}": "jobs:read", "GET /admin": "account:read"}
    # Flask itself adds /static.
    both["GET /static/{filename:path}"] = PUBLIC
    flask_starts(app(), gate, both, **STRICT)
    named = {route: rule for route, rule in both.items() if route != "GET /admin"}
    with pytest.raises(ConfigurationError, match="/admin"):
        flask_starts(app(), gate, named, **STRICT)
    with pytest.raises(ConfigurationError, match="/elsewhere"):
        flask_starts(app(), gate, {**both, "GET /elsewhere": PUBLIC}, **STRICT)


# --- requirements at endpoints ------------------------------------------------------------


def test_flask_requires_above_the_route_is_an_error_D31(gate: Gate) -> None:
    """The route holds the view below the decorator, which has no requirement."""
    app = Flask("upside down")

    @requires("jobs:write", cost=5)
    @app.get("/jobs")
    def jobs() -> str:
        return "jobs"

    with pytest.raises(ConfigurationError, match="jobs"):
        flask_starts(app, gate)


def test_starlette_requires_on_an_endpoint_without_a_route_is_an_error_D31(gate: Gate) -> None:
    async def jobs(request: Request) -> PlainTextResponse:
        return await answer(request)

    routes = [Route("/jobs", jobs)]
    starlette.requires("jobs:write")(jobs)
    with pytest.raises(ConfigurationError, match="jobs"):
        starts(AsgiGate(Starlette(routes=routes), gate))


@contextmanager
def told_or_done() -> Iterator[list[bool]]:
    """A block that is either refused when the application starts, or enforced."""
    done: list[bool] = []
    try:
        yield done
    except ConfigurationError:
        return
    assert done == [True]


class Posts(MethodView):
    """What a view does by its one method."""

    def post(self) -> str:
        return "jobs"


class OfTheMethod(Posts):
    post = requires("jobs:write", cost=3)(Posts.post)


class OfTheView(Posts):
    decorators = [requires("jobs:write", cost=3)]  # noqa: RUF012 - as Flask types it


@pytest.mark.parametrize(
    ("view", "scopes", "expected"),
    [(OfTheMethod, ["*"], (200, 3)), (OfTheView, ["jobs:read"], (403, None))],
)
def test_flask_requirement_of_a_view_holds_or_is_an_error_D31(
    gate: Gate, view: type[MethodView], scopes: list[str], expected: tuple[int, int | None]
) -> None:
    app = Flask("class-based")
    app.add_url_rule("/jobs", view_func=view.as_view("jobs"))
    key = run(gate.keys.create("org_1", name="key", scopes=scopes)).text
    plan = gate.plans.default
    with told_or_done() as done:
        protect(app, gate)
        answered = app.test_client().post("/jobs", headers={"Authorization": f"Bearer {key}"})
        used = run(gate.store.charge("org_1", Peek(plan.windows))).used[0]
        status = answered.status_code
        done.append(expected in ((status, used), (status, None)))


# --- scopes that do not exist -------------------------------------------------------------


def misspelled(caller: Annotated[Principal, fastapi_requires("jobs:raed")]) -> Principal:
    return caller


def nested(gate: Gate) -> None:
    app = FastAPI()

    @app.get("/jobs")
    async def jobs(caller: Annotated[Any, Depends(misspelled)]) -> str:
        return "jobs"

    starts(AsgiGate(app, gate))


def of_a_route(gate: Gate) -> None:
    app = FastAPI()
    app.get("/jobs", dependencies=[fastapi_requires("jobs:raed")])(lambda: "jobs")
    starts(AsgiGate(app, gate))


def of_starlette(gate: Gate) -> None:
    routes = [Route("/jobs", starlette.requires("jobs:raed")(answer))]
    starts(AsgiGate(Starlette(routes=routes), gate))


def of_flask(gate: Gate) -> None:
    app = Flask("misspelt")
    app.add_url_rule("/jobs", "jobs", requires("jobs:raed")(lambda: "jobs"))
    flask_starts(app, gate)


@pytest.mark.parametrize("start", [nested, of_a_route, of_starlette, of_flask])
def test_a_scope_that_does_not_exist_is_refused_D31(
    gate: Gate, start: Callable[[Gate], None]
) -> None:
    with pytest.raises(ConfigurationError, match="jobs:raed"):
        start(gate)


# --- costs that no plan admits ------------------------------------------------------------


def test_a_cost_above_the_smallest_plan_is_logged_D31(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    app = Starlette(routes=[Route("/jobs", answer)])
    with caplog.at_level(logging.WARNING, "lockgate"):
        starts(AsgiGate(app, gate, {"GET /jobs": Rule("jobs:read", cost=11)}))
    assert "GET /jobs" in caplog.text and "11" in caplog.text
