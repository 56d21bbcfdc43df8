"""What the Flask adapter does itself, inside applications of every build.

tests/web/test_protect.py holds what is alike on every framework.
"""

from __future__ import annotations

from functools import wraps
from threading import Thread
from typing import Any

import pytest
from flask import Blueprint, Flask, g, request
from flask.views import MethodView
from flask_cors import CORS
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.serving import make_server
from werkzeug.test import Client, TestResponse

from lockgate import ConfigurationError, Gate, Rule, run
from lockgate.errors import NotFound
from lockgate.flask import audit, protect, requires
from lockgate.flask import operations as operations_of
from lockgate.options import WebOptions
from lockgate.sessions import Session, SignedCookie

from .web.serving import exchange, status_of

sessions = SignedCookie(["a session secret of the tests"])
KEYS = "/api/v1/api-keys"
PAGE = "https://console.example.com"


@pytest.fixture
def gate() -> Gate:
    return Gate(
        "memory://",
        brand="acme",
        sessions=sessions,
        web_options=WebOptions(public_url=PAGE),
    )


def bearer(gate: Gate, *scopes: str) -> dict[str, str]:
    key = run(gate.keys.create("org_1", "a key", scopes or ("*",)))
    return {"Authorization": f"Bearer {key.text}"}


def create_app(gate: Gate, *, routes_first: bool = False, **options: Any) -> Flask:
    """As application factories do it, in either order."""
    app = Flask("service")
    app.testing = True
    if not routes_first:
        protect(app, gate, **options)
    app.add_url_rule("/health", view_func=lambda: "ok", endpoint="health")
    app.add_url_rule("/whoami", view_func=lambda: g.principal.organization, endpoint="whoami")

    @app.get("/jobs/<int:number>")
    @requires("jobs:read")
    def job(number: int) -> dict[str, int]:
        return {"job": number}

    @app.post("/jobs")
    @requires("jobs:write", cost=4)
    def start() -> tuple[str, int]:
        return "", 202

    @app.get("/missing")
    def missing() -> str:
        raise NotFound

    if routes_first:
        protect(app, gate, **options)
    return app


@requires("jobs:read")
def jobs() -> str:
    return "jobs"


def code(answer: TestResponse) -> str:
    body: Any = answer.json
    return f"{answer.status_code} {body['code']}"


@pytest.mark.parametrize("routes_first", [False, True])
def test_views_before_and_after_protect_are_closed_and_know_their_caller(
    gate: Gate, routes_first: bool
) -> None:
    rules: Any = {"GET /gone": "jobs:read"}
    app = create_app(gate, routes_first=routes_first, public=["GET /health"], rules=rules)
    client = app.test_client()
    assert client.get("/health").text == "ok"
    for path in ("/whoami", "/jobs/1", "/nowhere"):
        assert code(client.get(path)) == "401 MISSING_AUTH"
    key, reader = bearer(gate), bearer(gate, "jobs:read")
    answer = client.get("/whoami", headers=key)
    assert (answer.text, answer.headers["X-RateLimit-Remaining"]) == ("org_1", "9")
    assert client.get("/jobs/7", headers=reader).json == {"job": 7}
    assert code(client.get("/missing", headers=key)) == "404 NOT_FOUND"
    assert client.get("/nowhere", headers=key).mimetype == "text/html"
    assert code(client.post("/jobs", headers=reader)) == "403 INSUFFICIENT_SCOPE"
    assert code(client.post("/jobs", headers=key)) == "429 RATE_LIMIT_EXCEEDED"
    report = audit(app)
    named = {f"{route.method} {route.path}": route.rule for route in report.routes if route.named}
    assert named["GET /jobs/{number}"] == Rule("jobs:read")
    assert named["POST /jobs"] == Rule("jobs:write", cost=4)
    assert named[f"DELETE {KEYS}/{{id}}"].own
    assert [route.path for route in report.unguarded] == ["/health"]
    assert any("GET /gone" in problem for problem in report.problems)


def test_a_handler_for_all_exceptions_does_not_replace_refusals(gate: Gate) -> None:
    app = create_app(gate)
    inner = Blueprint("inner", "inner")

    @app.errorhandler(Exception)
    @inner.errorhandler(Exception)
    def everything(_: Exception) -> tuple[str, int]:
        return "swallowed", 500

    @inner.get("/inner")
    @requires("models:read")
    def view() -> str:
        raise ArithmeticError

    app.register_blueprint(inner)
    client = app.test_client()
    narrow = bearer(gate, "jobs:read")
    assert code(client.get("/missing", headers=narrow)) == "404 NOT_FOUND"
    assert code(client.get("/inner", headers=narrow)) == "403 INSUFFICIENT_SCOPE"
    assert code(client.get(f"{KEYS}/x", headers=bearer(gate))) == "404 NOT_FOUND"
    crash = client.get("/inner", headers=bearer(gate))
    assert (crash.text, crash.headers["X-RateLimit-Remaining"]) == ("swallowed", "6")


def test_async_views_and_class_views(gate: Gate) -> None:
    app = Flask("service")
    protect(app, gate)

    @app.get("/async")
    @requires("jobs:read")
    async def asynchronous() -> str:
        return "awaited"

    @app.get("/files/<path:name>")
    @requires("jobs:write")
    def file(name: str) -> str:
        return name

    class Jobs(MethodView):
        decorators = [requires("jobs:write")]  # noqa: RUF012 - as Flask has it

        def get(self) -> str:
            return "by class"

    app.add_url_rule("/class", view_func=Jobs.as_view("jobs"))
    client = app.test_client()
    reader = bearer(gate, "jobs:read")
    assert client.get("/async", headers=reader).text == "awaited"
    assert code(client.get("/class", headers=reader)) == "403 INSUFFICIENT_SCOPE"
    assert client.get("/class", headers=bearer(gate)).text == "by class"
    assert code(client.get("/files/a/b", headers=reader)) == "403 INSUFFICIENT_SCOPE"
    assert client.get("/files/a/b", headers=bearer(gate)).text == "a/b"


def test_shadow_mode_admits_to_views_with_a_decorator(gate: Gate) -> None:
    client = create_app(gate, shadow="all").test_client()
    assert client.get("/jobs/1").json == {"job": 1}


def test_a_strict_application_logs_its_routes_once_and_again_if_others_were_added(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    def tables() -> int:
        return sum("routes and what they require" in r.getMessage() for r in caplog.records)

    def made() -> Flask:
        app = Flask("service", static_folder=None)
        app.add_url_rule("/jobs", view_func=jobs)
        return protect(app, gate, strict=True)

    with caplog.at_level("INFO", "lockgate"):
        app = made()
        app.test_client().get("/jobs")
        assert tables() == 1
        later = made()
        later.add_url_rule("/more", "more", view_func=jobs)
        later.test_client().get("/jobs")
        assert tables() == 3


@pytest.mark.parametrize("asked", [{"cost": 2}, {"slot": True}], ids=["cost", "slot"])
def test_a_decorator_that_hides_a_cost_or_a_slot_is_an_error(gate: Gate, asked: Any) -> None:
    app = Flask("service")
    app.testing = True
    ran: list[str] = []

    @requires("jobs:write", **asked)
    def decorated() -> str:
        ran.append("job")
        return "job"

    def without_wraps() -> Any:
        return decorated()

    @wraps(decorated)
    def with_wraps() -> Any:
        return decorated()

    app.add_url_rule("/hidden", "hidden", without_wraps, methods=["POST"])
    app.add_url_rule("/known", "known", with_wraps, methods=["POST"])
    protect(app, gate)
    client, key = app.test_client(), bearer(gate)
    assert code(client.post("/hidden", headers=bearer(gate, "jobs:read"))) == (
        "403 INSUFFICIENT_SCOPE"
    )
    with pytest.raises(ConfigurationError, match=r"'hidden' requires .*functools\.wraps"):
        client.post("/hidden", headers=key)
    assert ran == []
    assert client.post("/known", headers=key).text == "job"


# --- lockgate's own operations ------------------------------------------------------------


def test_the_blueprint_of_the_operations_takes_no_other_prefix(gate: Gate) -> None:
    with pytest.raises(ConfigurationError, match="gate's prefix"):
        Flask("service").register_blueprint(operations_of(gate), url_prefix="/x")


def test_mounted_below_a_prefix(gate: Gate) -> None:
    app = create_app(gate, public=["GET /health"])
    client = Client(DispatcherMiddleware(Flask("outer"), {"/inner": app}))
    assert client.get("/inner/health").text == "ok"
    assert code(client.get("/inner/jobs/1")) == "401 MISSING_AUTH"
    assert client.get(f"/inner{KEYS}", headers=bearer(gate)).status_code == 200


# --- Flask-CORS ---------------------------------------------------------------------------


@pytest.mark.parametrize("cors_first", [True, False])
def test_flask_cors_in_either_order(gate: Gate, cors_first: bool) -> None:
    app = Flask("service")
    if cors_first:
        CORS(app, origins=[PAGE])
    protect(app, gate)
    if not cors_first:
        CORS(app, origins=[PAGE])
    app.add_url_rule("/jobs", view_func=jobs)
    client = app.test_client()
    asked = {"Origin": PAGE, "Access-Control-Request-Method": "GET"}
    preflight = client.options("/jobs", headers=asked)
    assert (preflight.status_code, preflight.headers["Access-Control-Allow-Origin"]) == (204, PAGE)
    refused = client.get("/jobs", headers={"Origin": PAGE})
    assert code(refused) == "401 MISSING_AUTH"
    assert refused.headers["Access-Control-Allow-Origin"] == PAGE
    assert refused.headers["X-RateLimit-Remaining"] == "999"
    foreign = client.get("/jobs", headers={"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in foreign.headers
    let_in = client.get("/jobs", headers={"Origin": PAGE, **bearer(gate)})
    assert (let_in.text, let_in.headers["Access-Control-Allow-Origin"]) == ("jobs", PAGE)


@pytest.mark.parametrize("hook", ["after_request", "teardown_request"])
def test_a_hook_that_fails_at_a_refusal_does_not_make_it_a_500(
    gate: Gate, caplog: pytest.LogCaptureFixture, hook: str
) -> None:
    """A hook may rely on a before_request function: no refused request reaches it."""
    app = Flask(__name__)
    protect(app, gate)
    app.add_url_rule("/jobs", view_func=lambda: "jobs", endpoint="jobs")

    @app.before_request
    def start() -> None:
        g.started = "now"

    def finish(response: Any) -> Any:
        assert g.started == "now"
        return response

    getattr(app, hook)(finish)
    client = app.test_client()
    assert client.get("/jobs", headers={"Origin": PAGE, **bearer(gate)}).text == "jobs"
    refused = client.get("/jobs", headers={"Origin": PAGE})
    assert code(refused) == "401 MISSING_AUTH"
    assert refused.headers["X-RateLimit-Remaining"] == "999"
    assert "failed at a refusal" in caplog.text


@pytest.mark.parametrize("read", ["get_json", "get_data", "stream", "values"])
def test_a_hook_may_have_read_the_body(gate: Gate, read: str) -> None:
    app = Flask(__name__)
    protect(app, gate)

    @app.before_request
    def log() -> None:
        found = getattr(request, read)
        if read.startswith("get_"):
            found()

    client = app.test_client(use_cookies=False)
    session = {"Cookie": f"__session={sessions.issue(Session('org_1', 'ada'))}"}
    made = client.post(KEYS, headers=session, json={"name": "made"})
    assert made.status_code == 201
    refused = client.post(KEYS, headers=session, json={"name": "x" * 101})
    assert [detail["field"] for detail in (refused.json or {})["details"]] == ["name"]
    large = client.post(KEYS, headers=session, json={"name": "x" * 70_000})
    assert code(large) == "413 PAYLOAD_TOO_LARGE"


@pytest.mark.parametrize("touched", [False, True])
def test_malformed_chunks_are_400_on_a_server(gate: Gate, touched: bool) -> None:
    app = Flask(__name__)
    protect(app, gate)

    @app.before_request
    def touch() -> None:
        if touched:
            assert request.stream.readable()

    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        cookie = sessions.issue(Session("org_1", "ada"))
        head = f"POST {KEYS} HTTP/1.1\r\nHost: h\r\nCookie: __session={cookie}\r\n"
        fields = f"Origin: {PAGE}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        sent = (head + fields).encode() + b"ZZ\r\nxx\r\n0\r\n\r\n"
        answer = exchange(("127.0.0.1", server.server_port), sent)
    finally:
        server.shutdown()
        thread.join(timeout=60)
        server.server_close()
    assert status_of(answer) == 400
    assert b"VALIDATION_ERROR" in answer


@pytest.mark.parametrize("path", ["/files/<path:name>/edit", "/<path:name>.json"])
def test_a_route_that_no_rule_can_name(gate: Gate, path: str) -> None:
    """Its view requires the scope; settings that only a rule supports are reported as mistakes."""
    app = Flask(__name__)
    protect(app, gate)
    app.get(path)(requires("jobs:read")(lambda name: name))
    client = app.test_client()
    asked = path.replace("<path:name>", "a/b")
    assert code(client.get(asked)) == "401 MISSING_AUTH"
    assert code(client.get(asked, headers=bearer(gate, "models:read"))) == "403 INSUFFICIENT_SCOPE"
    assert client.get(asked, headers=bearer(gate, "jobs:read")).text == "a/b"
    other = Flask(__name__)
    protect(other, gate)
    other.get(path)(requires("jobs:read", cost=2)(lambda name: name))
    with pytest.raises(ConfigurationError, match="whole last segment"):
        audit(other)
