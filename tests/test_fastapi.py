"""What the FastAPI adapter does itself, inside applications of every build.

tests/web/test_protect.py holds what is alike on every framework.
"""

from __future__ import annotations

from typing import Annotated, Any

import httpx2 as httpx
import pytest
from fastapi import APIRouter, Body, Depends, FastAPI, HTTPException, WebSocket
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Mount
from starlette.testclient import WebSocketDenialResponse

from lockgate import PUBLIC, ConfigurationError, Gate, Principal, Rule, run
from lockgate.asgi import GateMiddleware
from lockgate.errors import NotFound
from lockgate.fastapi import error_handlers, operations, protect, requires
from lockgate.options import WebOptions
from lockgate.sessions import SignedCookie
from lockgate.web.audit import audit_routes
from lockgate.web.starlette_routes import routes_of

from .web.driving import Bench

sessions = SignedCookie(["a session secret of the tests"])
KEYS = "/api/v1/api-keys"
Reader = Annotated[Principal, requires("jobs:read")]
Anybody = Annotated[Principal, requires()]


@pytest.fixture
def gate() -> Gate:
    page = "https://console.example.com"
    return Gate(
        "memory://",
        brand="acme",
        sessions=sessions,
        web_options=WebOptions(public_url=page),
    )


def bearer(gate: Gate, *scopes: str) -> dict[str, str]:
    key = run(gate.keys.create("org_1", "a key", scopes or ("*",)))
    return {"Authorization": f"Bearer {key.text}"}


def service(gate: Gate, **options: Any) -> FastAPI:
    app = FastAPI(exception_handlers=error_handlers, **options)
    app.include_router(operations(gate))
    inner = APIRouter(prefix="/inner")

    @inner.get("/jobs/{number}")
    async def job(number: int, caller: Reader) -> dict[str, Any]:
        return {"job": number, "of": caller.organization}

    @inner.get("/missing")
    def missing(_: Anybody) -> None:
        raise NotFound

    outer = APIRouter(prefix="/outer")
    outer.include_router(inner)
    app.include_router(outer)

    @app.get("/health")
    async def health() -> str:
        return "ok"

    @app.get("/mine")
    async def mine(caller: Reader) -> str:
        return caller.organization

    return app


RULES = {"GET /health": PUBLIC, "GET /openapi.json": PUBLIC}


@pytest.fixture
def client(gate: Gate) -> TestClient:
    return TestClient(GateMiddleware(service(gate), gate, RULES))


def code(answer: httpx.Response) -> str:
    return f"{answer.status_code} {answer.json()['code']}"


def test_the_dependency_gives_the_caller_and_refuses_as_lockgate_does(
    client: TestClient, gate: Gate
) -> None:
    answer = client.get("/outer/inner/jobs/7", headers=bearer(gate, "jobs:*"))
    assert answer.json() == {"job": 7, "of": "org_1"}
    assert answer.headers["x-ratelimit-remaining"] == "9"
    refused = client.get("/outer/inner/jobs/7", headers=bearer(gate, "models:read"))
    assert code(refused) == "403 INSUFFICIENT_SCOPE"
    assert 'scope="jobs:read"' in refused.headers["www-authenticate"]
    assert refused.headers["x-ratelimit-remaining"] == "8"
    assert refused.headers["cache-control"] == "no-store"
    assert code(client.get("/outer/inner/jobs/7")) == "401 MISSING_AUTH"


def test_a_principal_is_never_read_from_a_request(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where ``Depends`` was forgotten; nor does an answer tell all that is known of a caller."""
    # FastAPI treats a tuple as files, and requires the package that reads them first.
    installed = "fastapi.dependencies.utils.ensure_multipart_is_installed"
    monkeypatch.setattr(installed, lambda: None, raising=False)

    def asked(principal: Principal) -> None: ...

    def told(principal: Anybody) -> Principal:
        return principal

    for endpoint in (asked, told):
        with pytest.raises(ConfigurationError, match="requires"):
            service(gate).post("/me")(endpoint)


def test_without_a_middleware_endpoints_raise(gate: Gate) -> None:
    with pytest.raises(ConfigurationError, match=r"No gate .* call protect\(app, gate\)"):
        TestClient(service(gate)).get("/mine", headers=bearer(gate))


def test_all_errors_have_the_error_form(client: TestClient, gate: Gate) -> None:
    key = bearer(gate)
    assert code(client.get("/nowhere", headers=key)) == "404 NOT_FOUND"
    assert code(client.get("/outer/inner/missing", headers=key)) == "404 NOT_FOUND"
    assert code(client.put("/health", headers=key)) == "405 METHOD_NOT_ALLOWED"
    wrong = client.get("/outer/inner/jobs/seven", headers=key)
    assert code(wrong) == "400 VALIDATION_ERROR"
    assert [detail["field"] for detail in wrong.json()["details"]] == ["number"]


# --- the document -------------------------------------------------------------------------


@pytest.fixture
def document(client: TestClient) -> Any:
    return client.get("/openapi.json").json()


def test_scopes_are_in_the_document(document: Any) -> None:
    assert document["paths"]["/outer/inner/jobs/{number}"]["get"]["security"] == [
        {"key": ["jobs:read"]}
    ]
    assert document["paths"][KEYS]["get"]["security"] == [
        {"key": ["account:read"]},
        {"session": ["account:read"]},
    ]
    assert document["paths"][KEYS]["post"]["security"] == [{"session": []}]
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert document["components"]["securitySchemes"]["session"]["name"] == "__session"


def test_every_answer_is_in_the_document(document: Any) -> None:
    operations = [
        operation
        for path, by_method in document["paths"].items()
        if path.startswith("/api/v1")
        for operation in by_method.values()
    ]
    assert len(operations) == 5
    errors = {"400", "401", "403", "404", "405", "409", "413", "415", "429", "503"}
    for operation in operations:
        responses = operation["responses"]
        assert responses.keys() - errors in ({"200"}, {"201"})
        for status, response in responses.items():
            assert response["headers"].keys() >= {"X-RateLimit-Limit", "X-RateLimit-Reset"}
            schema = response["content"]["application/json"]["schema"]["$ref"]
            assert schema.endswith("/Error") is (status in errors)
        assert "Retry-After" in responses["429"]["headers"]
        assert "WWW-Authenticate" in responses["401"]["headers"]
    body = document["paths"][KEYS]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"]["properties"].keys() == {"name", "scopes", "expiresInDays"}
    assert body["schema"]["properties"]["name"]["examples"]
    (parameter,) = document["paths"][f"{KEYS}/{{id}}"]["get"]["parameters"]
    assert (parameter["name"], parameter["in"]) == ("id", "path")


# --- as applications are built ------------------------------------------------------------


def test_the_audit_sees_included_routers(gate: Gate) -> None:
    app = service(gate)
    guard = GateMiddleware(app, gate, {**RULES, "GET /outer/inner/jobs/{number}": "jobs:read"})
    report = audit_routes(guard.guard, routes_of(app))
    shown = [f"{route.method} {route.path}" for route in report.routes]
    assert "GET /outer/inner/jobs/{number}" in shown
    assert shown.count(f"POST {KEYS}") == 1
    assert not any("/jobs" in problem for problem in report.problems)


@pytest.mark.parametrize("way", ["mount", "nested", "included", "host"])
def test_a_mounted_application_answers_the_refusals_of_its_endpoints(gate: Gate, way: str) -> None:
    """Its own answer to a crash would come before that of the outer application."""
    mounted, app, router = FastAPI(), FastAPI(exception_handlers=error_handlers), APIRouter()

    @mounted.get("/jobs")
    async def jobs(caller: Reader) -> str:
        return caller.organization

    @mounted.websocket("/feed")
    async def feed(websocket: WebSocket, caller: Reader) -> None:
        await websocket.accept(subprotocol=caller.organization)
        await websocket.close()

    if way == "mount":
        app.mount("/v1", mounted)
    elif way == "nested":
        app.mount("/v1", Starlette(routes=[Mount("", mounted)]))
    elif way == "included":
        router.mount("", mounted)
        app.include_router(router, prefix="/v1")
        if TestClient(app).get("/v1/docs").status_code == 404:
            pytest.skip("This FastAPI leaves the mounts of an included router out.")
    else:
        app.host("testserver", Starlette(routes=[Mount("/v1", mounted)]))
    client = TestClient(GateMiddleware(app, gate))
    assert client.get("/v1/jobs", headers=bearer(gate, "jobs:read")).status_code == 200
    answer = client.get("/v1/jobs", headers=bearer(gate, "models:read"))
    assert (answer.status_code, answer.json()["code"]) == (403, "INSUFFICIENT_SCOPE")
    with pytest.raises(WebSocketDenialResponse) as denied:
        client.websocket_connect("/v1/feed", headers=bearer(gate, "models:read")).__enter__()
    assert denied.value.status_code == 403


def test_an_applications_own_errors_stay_fastapis(gate: Gate) -> None:
    """A detail may be any JSON; only the router's 404 and 405 are to look like lockgate's."""
    app = service(gate)

    @app.get("/raise/{status}")
    def raising(status: int, structured: bool) -> None:
        detail = {"why": ["this"]} if structured else "own words"
        raise HTTPException(status, detail, headers={"X-Job": "7"})

    client = TestClient(GateMiddleware(app, gate, {"GET /raise/{status}": PUBLIC}))
    for status, structured in ((400, True), (400, False), (404, True), (405, True), (409, True)):
        answer = client.get(f"/raise/{status}", params={"structured": structured})
        detail = {"why": ["this"]} if structured else "own words"
        assert (answer.status_code, answer.json()) == (status, {"detail": detail})
        assert answer.headers["X-Job"] == "7"
    worded = client.get("/raise/404", params={"structured": False})
    assert worded.json() == {"error": "own words", "code": "NOT_FOUND"}


def length_of(body: Annotated[dict[str, int], Body()]) -> int:
    return len(body)


def taking_numbers(gate: Gate) -> TestClient:
    """Serve an endpoint that takes an object of numbers, as does a function that it depends on."""
    app = service(gate)

    @app.post("/anything")
    def anything(
        body: Annotated[dict[str, int], Body()], length: Annotated[int, Depends(length_of)]
    ) -> int:
        return length

    return TestClient(GateMiddleware(app, gate, {"POST /anything": PUBLIC}))


@pytest.mark.parametrize("text", ["{", "nul", '{"a": 1,}', "[1, 2"])
def test_a_text_that_is_no_json_has_no_fields(gate: Gate, text: str) -> None:
    answer = taking_numbers(gate).post(
        "/anything", content=text, headers={"Content-Type": "application/json"}
    )
    assert code(answer) == "400 VALIDATION_ERROR"
    assert answer.json()["details"] == [{"field": "", "message": "The body is not JSON."}]


def test_k2_no_part_of_a_key_is_in_an_error(gate: Gate) -> None:
    key = run(gate.keys.create("org_1", "a key")).text
    body = {key: "x", **{f"x{n}": "x" for n in range(99)}}
    answer = taking_numbers(gate).post("/anything", json=body)
    assert code(answer) == "400 VALIDATION_ERROR"
    assert key[19:31] not in answer.text
    assert len(answer.json()["details"]) == 50


def test_a_field_of_a_body_that_several_functions_take_is_told_once(gate: Gate) -> None:
    """FastAPI validates it for each of them, and reports its errors as often."""
    answer = taking_numbers(gate).post("/anything", json={"text": "x", "tokens": "x"})
    assert [one["field"] for one in answer.json()["details"]] == ["text", "tokens"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_prefix_that_fastapi_takes_off_is_no_part_of_a_rule(gate: Gate, wrapped: bool) -> None:
    """It does so after the middleware, by its own ``root_path``, where a path begins with that."""
    app = FastAPI(exception_handlers=error_handlers)
    app.root_path = "/shop"
    inner = CORSMiddleware(app) if wrapped else app
    client = TestClient(
        GateMiddleware(inner, gate, {"GET /admin": "account:write", "GET /health": PUBLIC})
    )

    @app.get("/admin")
    def admin() -> str:
        return "reached"

    @app.get("/health")
    def health() -> str:
        return "ok"

    for path in ("/admin", "/shop/admin"):
        lacking = client.get(path, headers=bearer(gate, "jobs:read"))
        assert code(lacking) == "403 INSUFFICIENT_SCOPE"
        assert client.get(path, headers=bearer(gate)).json() == "reached"
    assert [client.get(path).json() for path in ("/health", "/shop/health")] == ["ok", "ok"]
    assert code(client.get("/shop/shop/health")) == "401 MISSING_AUTH"


@pytest.mark.parametrize(
    "routes", [[["GET"]], [["GET", "HEAD"]], [["GET", "POST"]], [["GET"], ["HEAD"]]], ids=str
)
def test_the_allow_of_a_405_names_head_where_a_route_answers_it(routes: list[list[str]]) -> None:
    """FastAPI's own routes for GET do not answer HEAD (RFC 9110, 10.2.1)."""
    bench, app, router = Bench(), FastAPI(), APIRouter()
    needs = [requires("jobs:read")]
    for methods in routes:
        app.add_api_route("/jobs/{id}", lambda: "said", methods=methods, dependencies=needs)
        router.add_api_route("/included", lambda: "said", methods=methods, dependencies=needs)
    app.include_router(router)
    client = TestClient(protect(app, bench.gate))
    good = {"Authorization": f"Bearer {bench.key()}"}
    allowed = [method for methods in routes for method in methods]
    for path in ("/jobs/1", "/included"):
        told = client.patch(path, headers=good)
        assert (told.status_code, told.headers["allow"]) == (405, ", ".join(allowed))
        answered = client.head(path, headers=good).status_code
        assert answered == (200 if "HEAD" in allowed else 405)


DOCUMENTS = ("/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json")


def test_the_document_and_its_pages_need_no_key_D31(gate: Gate) -> None:
    app = protect(FastAPI(), gate, strict=True)
    client = TestClient(app)
    assert [client.get(path).status_code for path in DOCUMENTS] == [200] * 4
    assert code(client.get("/docs/other")) == "401 MISSING_AUTH"
    moved = protect(FastAPI(docs_url="/help", redoc_url=None, openapi_url="/api.json"), gate)
    client = TestClient(moved)
    answers = [client.get(path).status_code for path in ("/help", "/api.json", "/redoc", "/docs")]
    assert answers == [200, 200, 401, 401]


@pytest.mark.parametrize(
    "options",
    [
        {"docs": False},
        {"rules": {"GET /{rest:path}": "models:read"}},
        {"rules": {f"GET {path}": "models:read" for path in DOCUMENTS}},
        {"rules": {f"* {path}": Rule() for path in DOCUMENTS}},
    ],
)
def test_a_rule_that_matches_the_document_closes_it_D31(
    gate: Gate, options: dict[str, Any]
) -> None:
    client = TestClient(protect(FastAPI(), gate, **options))
    assert [client.get(path).status_code for path in DOCUMENTS] == [401] * 4
    bare = TestClient(protect(FastAPI(openapi_url=None), gate))
    assert [bare.get(path).status_code for path in DOCUMENTS] == [401] * 4
