"""`protect`, `requires`, `operations` and `audit` are alike on every framework."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from flask import Flask
from litestar import Litestar, get
from litestar.openapi import OpenAPIConfig
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from werkzeug.test import Client as WsgiClient

from lockgate import PUBLIC, ConfigurationError, Gate, Rule
from lockgate import asgi as asgi_adapter
from lockgate import flask as flask_adapter
from lockgate import litestar as litestar_adapter
from lockgate import starlette as starlette_adapter
from lockgate import wsgi as wsgi_adapter
from lockgate.errors import RateLimitExceeded
from lockgate.fastapi import protect, requires
from lockgate.options import WebOptions
from lockgate.sessions import Session, SignedCookie

from .applications import (
    ADAPTERS,
    asking,
    bearer,
    gate_of,
    of_litestar,
    plain_asgi,
    plain_wsgi,
    protected,
    with_fastapi,
)

KEYS = "/api/v1/api-keys"
SESSIONS = SignedCookie(["a session secret of the tests"])
PAGE = "https://console.example.com"


@pytest.fixture
def gate() -> Gate:
    return gate_of(sessions=SESSIONS, public_url=PAGE)


@pytest.fixture(params=ADAPTERS)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_application_stays_the_object_to_serve(gate: Gate) -> None:
    for framework in ANSWER_ERRORS:
        adapter, make = ADAPTERS[framework]
        app = make()
        assert adapter.protect(app, gate) is app


def test_an_endpoint_declares_scope_and_cost_once(framework: str, gate: Gate) -> None:
    _, ask = protected(framework, gate)
    assert ask("/health").status == 200
    assert ask("/models").code == "MISSING_AUTH"
    assert ask("/models", bearer(gate, "models:read")).told == (200, "97", {"for": "a key"})
    lacking = ask("/models", bearer(gate, "jobs:read"))
    assert (lacking.code, lacking.remaining) == ("INSUFFICIENT_SCOPE", "94")


def test_protect_serves_the_operations_of_a_gate_with_sessions(framework: str, gate: Gate) -> None:
    _, ask = protected(framework, gate)
    signed_in = {"Cookie": f"__session={SESSIONS.issue(Session('org_1', 'ada'))}"}
    made = ask(KEYS, signed_in, "POST", json={"name": "made"})
    assert (made.status, made.remaining) == (201, "99")
    assert ask(f"{KEYS}/x", bearer(gate)).code == "NOT_FOUND"
    assert ask(KEYS, bearer(gate, "jobs:read")).code == "INSUFFICIENT_SCOPE"


def test_probes_answer_with_sessions_and_operations_only_with_them(framework: str) -> None:
    probes = WebOptions(health="/probes")
    sessions: dict[str, Any] = {"sessions": SESSIONS, "public_url": PAGE}
    for gate, status in (
        (gate_of(web_options=probes), 404),
        (gate_of(web_options=probes, **sessions), 200),
    ):
        _, ask = protected(framework, gate)
        for path in ("/probes/live", "/probes/ready"):
            answer = ask(path)
            assert (answer.status, answer.body) == (200, {"status": "ok"})
        assert ask(KEYS, bearer(gate)).status == status


def test_a_refusal_that_a_view_raises_is_answered_with_its_headers(
    framework: str, gate: Gate
) -> None:
    """Such as that of a hold that does not fit: the headers tell of the smaller room."""

    async def refuse(_: Any) -> dict[str, str]:
        raise RateLimitExceeded("minute", 100, 90, 60, limit_name="tokens")

    _, ask = protected(framework, gate, make={"view": refuse})
    answer = ask("/models", bearer(gate))
    assert (answer.status, answer.headers["retry-after"]) == (429, "60")
    assert answer.body["limits"]["name"] == "tokens"


@pytest.mark.parametrize("health", ["health", "/health/", "/", ""])
def test_an_invalid_path_for_probes_is_refused(health: str) -> None:
    with pytest.raises(ConfigurationError, match="'/health'"):
        gate_of(web_options=WebOptions(health=health))


def test_the_audit_lists_the_rules_that_endpoints_declare(framework: str, gate: Gate) -> None:
    served, _ = protected(framework, gate)
    report = ADAPTERS[framework][0].audit(served)
    found = {f"{route.method} {route.path}": route.rule for route in report.routes}
    assert found["GET /models"] == Rule("models:read", cost=3)
    documents = {"/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"}  # FastAPI's (D31).
    assert {route.path for route in report.unguarded} - documents == {"/health"}


# --- a rule and a declaration for the same route ------------------------------------------


def test_a_request_needs_the_scopes_of_its_endpoint_and_of_the_rule(
    framework: str, gate: Gate
) -> None:
    _, ask = protected(framework, gate, rules={"* /models": Rule("account:read", cost=7)})
    for scope in ("models:read", "account:read"):
        assert ask("/models", bearer(gate, scope)).code == "INSUFFICIENT_SCOPE"
    both = ask("/models", bearer(gate, "models:read", "account:read"))
    assert both.told == (200, "79", {"for": "a key"})


async def users(_: Any) -> JSONResponse:
    return JSONResponse({})


def test_a_rule_for_a_whole_tail_holds_for_an_endpoint_that_declares_less(gate: Gate) -> None:
    app = Starlette(routes=[Route("/admin/users", starlette_adapter.requires()(users))])
    starlette_adapter.protect(app, gate, rules={"* /admin/{rest:path}": "account:write"})
    rules = {route.path: route.rule for route in starlette_adapter.audit(app).routes}
    assert rules["/admin/users"] == Rule("account:write")


def test_a_public_tail_does_not_open_an_endpoint_that_declares_a_scope(
    framework: str, gate: Gate
) -> None:
    _, ask = protected(framework, gate, rules={"* /{rest:path}": PUBLIC})
    assert ask("/models").code == "MISSING_AUTH"


def test_a_public_route_with_an_endpoint_that_requires_a_key_is_an_error(
    framework: str, gate: Gate
) -> None:
    adapter, make = ADAPTERS[framework]
    with pytest.raises(ConfigurationError, match="'GET /models' is <Rule: public>"):
        adapter.audit(adapter.protect(make(), gate, public=["GET /models"]))


def test_requirements_of_a_router_and_its_endpoint_hold_together(gate: Gate) -> None:
    router = APIRouter(prefix="/v1", dependencies=[requires("account:read", cost=2)])

    @router.get("/jobs", dependencies=[requires("jobs:read", cost=5)])
    async def jobs() -> str:
        return "jobs"

    app = FastAPI()
    app.include_router(router)
    ask = asking(protect(app, gate))
    assert ask("/v1/jobs", bearer(gate, "jobs:read")).code == "INSUFFICIENT_SCOPE"
    assert ask("/v1/jobs", bearer(gate, "jobs:*", "account:*")).told == (200, "90", "jobs")


# --- the application's own errors ---------------------------------------------------------

ANSWER_ERRORS = ("starlette", "fastapi", "flask", "quart")


def answers_to_errors(served: Any, gate: Gate, framework: str) -> dict[str, tuple[int, Any]]:
    """The status and the body of an answer for each error of the application itself."""
    client: Any = WsgiClient(served) if framework == "flask" else TestClient(served)
    headers = bearer(gate)
    answers = {
        "404": client.get("/nowhere", headers=headers),
        "405": client.put("/late", headers=headers),
    }
    if framework == "fastapi":
        answers["422"] = client.get("/numbers/x", headers=headers)
    if framework != "quart":
        answers["405 by the gate"] = client.put("/models", headers=headers)
    return {name: (answer.status_code, answer.text) for name, answer in answers.items()}


def with_late_routes(app: Any, framework: str) -> Any:
    """Add a route without a rule, so that the router answers 405 and not the gate."""
    if framework == "starlette":
        app.router.routes.append(Route("/late", users))
    else:
        app.get("/late")(view_of_late)
    if framework == "fastapi":
        app.get("/numbers/{number}")(number_of)
    return app


async def view_of_late() -> dict[str, str]:
    return {}


def number_of(number: int) -> int:
    return number


@pytest.mark.parametrize("shadow", [None, "all"])
@pytest.mark.parametrize("framework", ANSWER_ERRORS, indirect=True)
def test_an_applications_own_errors_keep_their_form_D50(
    framework: str, gate: Gate, shadow: Any
) -> None:
    adapter, make = ADAPTERS[framework]
    bare = with_late_routes(make(), framework)
    guarded = adapter.protect(with_late_routes(make(), framework), gate, shadow=shadow)
    own = answers_to_errors(bare, gate, framework)
    assert answers_to_errors(guarded, gate, framework) == own
    assert [status for status, _ in own.values()] == [int(name[:3]) for name in own]


@pytest.mark.parametrize("framework", ANSWER_ERRORS, indirect=True)
def test_an_application_may_ask_for_lockgates_form_D50(framework: str, gate: Gate) -> None:
    adapter, make = ADAPTERS[framework]
    guarded = adapter.protect(with_late_routes(make(), framework), gate, errors="lockgate")
    found = answers_to_errors(guarded, gate, framework)
    codes = {"404": "NOT_FOUND", "405": "METHOD_NOT_ALLOWED", "422": "VALIDATION_ERROR"}
    assert {name: f'"code":"{codes[name[:3]]}"' in body for name, (_, body) in found.items()} == (
        dict.fromkeys(found, True)
    )


@pytest.mark.parametrize("framework", ["starlette", "fastapi", "flask"], indirect=True)
def test_an_applications_own_handler_answers_a_method_that_the_gate_refuses_D50(
    framework: str, gate: Gate
) -> None:
    app, ask = protected(framework, gate)
    if framework == "flask":
        app.register_error_handler(405, lambda wrong: (f"not {wrong.code}", 405))
        app.after_request(lambda response: response.headers.add("x-late", "1") or response)
    else:
        app.add_exception_handler(
            405, lambda _, wrong: PlainTextResponse(f"not {wrong.status_code}", 405)
        )
    answer = ask("/models", bearer(gate), "PUT")
    assert (answer.status, answer.text) == (405, "not 405")
    assert answer.remaining is not None
    assert answer.headers.get("x-late") == ("1" if framework == "flask" else None)
    assert ask("/models", method="PUT").code == "MISSING_AUTH"  # D31: before it.


@pytest.mark.parametrize("framework", ANSWER_ERRORS, indirect=True)
def test_refusals_and_operations_have_lockgates_form_D50(framework: str, gate: Gate) -> None:
    _, ask = protected(framework, gate)
    assert ask(KEYS, bearer(gate), "PATCH").code == "METHOD_NOT_ALLOWED"
    assert ask(f"{KEYS}/x", bearer(gate)).code == "NOT_FOUND"
    assert ask("/models").code == "MISSING_AUTH"


@pytest.mark.parametrize("given", ["Lockgate", None, ["lockgate"]])
@pytest.mark.parametrize("framework", ANSWER_ERRORS, indirect=True)
def test_another_form_of_errors_is_refused_with_the_two(
    framework: str, gate: Gate, given: Any
) -> None:
    with pytest.raises(ConfigurationError, match="errors is 'framework' or 'lockgate', not"):
        protected(framework, gate, errors=given)


# --- applications of other kinds ----------------------------------------------------------


@pytest.mark.parametrize("interface", ["asgi", "wsgi"])
def test_any_application_is_served_with_the_operations(interface: str, gate: Gate) -> None:
    """A cost that the gate cannot see is an error."""
    is_wsgi = interface == "wsgi"
    adapter: Any = wsgi_adapter if is_wsgi else asgi_adapter
    inner: Any = plain_wsgi if is_wsgi else plain_asgi
    app, rules = adapter.requires("models:read")(inner), {"GET /costly": Rule(cost=5)}
    ask = asking(adapter.protect(app, gate, rules=rules), is_wsgi=is_wsgi)
    assert ask("/models", bearer(gate, "jobs:read")).code == "INSUFFICIENT_SCOPE"
    assert ask("/costly", bearer(gate, "models:*")).told == (200, "94", {"for": "a key"})
    assert ask(KEYS).code == "MISSING_AUTH"
    assert len(ask(KEYS, bearer(gate)).body["data"]) == 3
    unseen = adapter.protect(adapter.requires(cost=5)(inner), gate)
    with pytest.raises(ConfigurationError, match="into rules="):
        asking(unseen, is_wsgi=is_wsgi)("/models", bearer(gate))


# --- mistakes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (lambda p, a, gate: p(gate, a), "Swap the arguments"),
        (lambda p, a, gate: p(a, "memory://"), "lockgate.Gate second, not str"),
        (lambda p, a, gate: p(a, gate, public="GET /health"), r"public is a list such as"),
        (lambda p, a, gate: p(a, gate, public=[1]), "public is a list of texts"),
        (lambda p, a, gate: p(a, gate, rules=["GET /a"]), "rules is a dict such as"),
        (lambda p, a, gate: p(a, gate, rules={"GET /a": None}), r"is None: write Rule\(\)"),
        (lambda p, a, gate: p(a, gate, rules={"GET /a": ["jobs:read"]}), "takes one scope"),
        (
            lambda p, a, gate: p(a, gate, public=["GET /a"], rules={"GET /a": "jobs:read"}),
            "'GET /a' is in public and in rules",
        ),
        (lambda p, a, gate: p(object(), gate), "not object"),
    ],
    ids=["swapped", "no-gate", "text", "number", "rules", "none", "list", "both", "other"],
)
def test_a_mistaken_argument_is_refused_with_the_remedy(
    framework: str, gate: Gate, mistake: Callable[..., object], told: str
) -> None:
    adapter, make = ADAPTERS[framework]
    with pytest.raises(ConfigurationError, match=told):
        mistake(adapter.protect, make(), gate)


@pytest.mark.parametrize("framework", ["starlette", "fastapi", "flask", "quart"], indirect=True)
def test_a_second_protect_is_an_error(framework: str, gate: Gate) -> None:
    served, _ = protected(framework, gate)
    with pytest.raises(ConfigurationError, match="has a gate already"):
        ADAPTERS[framework][0].protect(served, gate)


def test_a_strict_flask_application_is_audited_again_with_its_first_request(gate: Gate) -> None:
    app = Flask("service", static_folder=None)
    flask_adapter.protect(app, gate, strict=True)
    app.add_url_rule("/late", view_func=lambda: "late", endpoint="late")
    with pytest.raises(ConfigurationError, match="GET /late"):
        asking(app, is_wsgi=True)("/late")


def test_protecting_after_the_first_request_is_an_error(gate: Gate) -> None:
    app = Starlette()
    TestClient(app).get("/")
    with pytest.raises(ConfigurationError, match="before it starts"):
        starlette_adapter.protect(app, gate)


@pytest.mark.parametrize("framework", ["starlette", "fastapi", "flask"], indirect=True)
def test_an_application_under_test_without_its_gate_is_an_error(framework: str) -> None:
    app = ADAPTERS[framework][1]()
    app.testing = True  # Else Flask answers any exception with 500.
    ask = asking(app, is_wsgi=framework == "flask")
    with pytest.raises(ConfigurationError, match=r"No gate is before .* protect\(app, gate\)"):
        ask("/models")


@pytest.mark.parametrize(
    ("framework", "status"), [("quart", 500), ("litestar", 404)], indirect=["framework"]
)
def test_an_endpoint_without_a_gate_before_it_is_closed(framework: str, status: int) -> None:
    assert asking(ADAPTERS[framework][1]())("/models").status == status


@pytest.mark.parametrize("framework", ["starlette", "fastapi", "flask", "quart"], indirect=True)
def test_the_operations_of_another_gate_are_an_error(framework: str, gate: Gate) -> None:
    adapter, make = ADAPTERS[framework]
    app, other = make(), gate_of(sessions=SESSIONS, public_url=PAGE)
    if framework == "starlette":
        app.router.routes.extend(adapter.operations(other))
    elif framework == "fastapi":
        app.include_router(adapter.operations(other))
    else:
        app.register_blueprint(adapter.operations(other))
    with pytest.raises(ConfigurationError, match="operations of another gate"):
        adapter.audit(adapter.protect(app, gate))


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("fastapi", r"lockgate\[fastapi\]"),
        ("flask", r"lockgate\[flask\]"),
        ("django", "django"),
        ("litestar", "litestar"),
        ("quart", "quart"),
    ],
)
def test_a_missing_framework_is_an_error_that_names_the_extra(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in list(sys.modules):
        if module == name or module.startswith(f"{name}."):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"lockgate.{name}", raising=False)
    for module in list(sys.modules):  # Parts of the adapter, which import the framework as well.
        if module.startswith(f"lockgate.web.{name}_"):
            monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ModuleNotFoundError, match=f"pip install '{package}'"):
        importlib.import_module(f"lockgate.{name}")


# --- FastAPI's OpenAPI document -----------------------------------------------------------


def test_the_openapi_document_has_scopes_and_refusals_of_the_applications_operations_D50(
    gate: Gate,
) -> None:
    app = with_fastapi()
    app.get("/numbers/{number}")(number_of)
    protect(app, gate, public=["GET /health"], errors="lockgate")
    document = app.openapi()
    models = document["paths"]["/models"]["get"]
    assert models["security"] == [{"key": ["models:read"]}]
    assert models["responses"].keys() == {"200", "400", "401", "403", "429", "503"}
    assert "Retry-After" in models["responses"]["429"]["headers"]
    health = document["paths"]["/health"]["get"]
    assert "security" not in health
    assert health["responses"].keys() == {"200", "400", "429"}
    assert "422" not in document["paths"]["/numbers/{number}"]["get"]["responses"]
    assert "HTTPValidationError" not in document["components"]["schemas"]
    assert "Error" in document["components"]["schemas"]
    plain = FastAPI()  # Where FastAPI answers 422, its document tells of it.
    plain.get("/numbers/{number}")(number_of)
    document = protect(plain, gate).openapi()
    assert {"400", "422"} <= document["paths"]["/numbers/{number}"]["get"]["responses"].keys()
    assert "HTTPValidationError" in document["components"]["schemas"]


def test_the_document_follows_routes_that_are_added_later(gate: Gate) -> None:
    plain = FastAPI()
    app = protect(FastAPI(), gate)
    assert "/late" not in {**app.openapi()["paths"], **plain.openapi()["paths"]}

    @plain.get("/late")
    @app.get("/late", dependencies=[requires("jobs:read")])
    async def late() -> None: ...

    if "/late" not in plain.openapi()["paths"]:
        pytest.skip("This FastAPI keeps its first document.")
    assert app.openapi()["paths"]["/late"]["get"]["security"] == [{"key": ["jobs:read"]}]


# --- Litestar's OpenAPI document ----------------------------------------------------------

SCHEMA = ("", "/openapi.json", "/openapi.yaml", "/swagger", "/redoc", "/oauth2-redirect.html")


def made_with_a_document(**options: Any) -> Litestar:
    @get("/schema/private")
    async def private() -> str:
        return "private"

    return of_litestar([private], **{"openapi_config": OpenAPIConfig("a service", "1"), **options})


def documents_of(app: Litestar, gate: Gate, prefix: str = "/schema", **options: Any) -> set[int]:
    served: Any = litestar_adapter.protect(app, gate, **options)
    ask = asking(served)
    return {ask(prefix + path).status for path in SCHEMA}


def test_litestars_document_and_its_pages_need_no_key_D31(gate: Gate) -> None:
    rules = {"GET /schema/private": "models:read"}
    assert documents_of(made_with_a_document(), gate, rules=rules, strict=True) == {200}
    moved = OpenAPIConfig(title="moved", version="1", path="/help")
    assert documents_of(made_with_a_document(openapi_config=moved), gate, "/help") == {200}
    ask = asking(litestar_adapter.protect(made_with_a_document(), gate))
    for path in ("/schema/private", "/schema/nothing"):
        assert ask(path).code == "MISSING_AUTH"
    assert ask("/schema/nothing", bearer(gate)).status == 404


@pytest.mark.parametrize(
    "options",
    [
        {"docs": False},
        {"rules": {"GET /{rest:path}": "models:read"}},
        {"rules": {f"GET /schema{path}": "models:read" for path in SCHEMA}},
    ],
)
def test_a_rule_that_matches_litestars_document_closes_it_D31(
    gate: Gate, options: dict[str, Any]
) -> None:
    assert documents_of(made_with_a_document(), gate, **options) == {401}
    assert documents_of(made_with_a_document(openapi_config=None), gate) == {401}
    guards = [litestar_adapter.requires("models:read")]  # Of the whole application.
    assert documents_of(made_with_a_document(guards=guards), gate_of()) == {401}


def test_a_guard_of_a_whole_litestar_application_is_not_one_of_lockgates_operations_D31(
    gate: Gate,
) -> None:
    app = made_with_a_document(guards=[litestar_adapter.requires("models:read")])
    ask = asking(litestar_adapter.protect(app, gate, strict=True))
    signed_in = {"Cookie": f"__session={SESSIONS.issue(Session('org_1', 'ada'))}", "Origin": PAGE}
    assert ask("/api/v1/api-keys", signed_in, "POST", json={"name": "ci"}).status == 201
    assert ask("/api/v1/api-keys", bearer(gate, "account:read")).status == 200
    assert ask("/api/v1/api-keys", bearer(gate, "models:read")).status == 403
    assert ask("/schema/private", bearer(gate, "account:read")).status == 403


def test_an_applications_own_error_handlers_and_documentation_stay(gate: Gate) -> None:
    async def not_found(*_: Any) -> JSONResponse:
        return JSONResponse({"own": True}, status_code=404)

    app = FastAPI(exception_handlers={404: not_found})

    @app.get("/own", responses={403: {"description": "Its own."}})
    async def own() -> None: ...

    ask = asking(protect(app, gate, errors="lockgate"))
    assert ask("/nowhere", bearer(gate)).body == {"own": True}
    assert app.openapi()["paths"]["/own"]["get"]["responses"]["403"]["description"] == "Its own."
