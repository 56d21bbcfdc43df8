"""The Flask adapter, inside applications of every build."""

from __future__ import annotations

from functools import wraps
from threading import Thread
from typing import Any

import pytest
from flask import Blueprint, Flask, g, request
from flask.testing import FlaskClient
from flask.views import MethodView
from flask_cors import CORS
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.serving import make_server
from werkzeug.test import Client, TestResponse

from lockgate import ConfigurationError, Gate, MemoryStore, Rule, run
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

    @app.get("/health")
    def health() -> str:
        return "ok"

    @app.get("/whoami")
    def whoami() -> str:
        return f"{g.principal.organization}"

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


@pytest.fixture(params=[False, True], ids=["init-first", "routes-first"])
def client(request: pytest.FixtureRequest, gate: Gate) -> FlaskClient:
    app = create_app(gate, routes_first=request.param, public=["GET /health"])
    return app.test_client()


def test_the_application_is_closed(client: FlaskClient) -> None:
    assert client.get("/health").text == "ok"
    for path in ("/whoami", "/jobs/1", "/nowhere"):
        assert code(client.get(path)) == "401 MISSING_AUTH"


def test_views_know_the_caller(client: FlaskClient, gate: Gate) -> None:
    answer = client.get("/whoami", headers=bearer(gate))
    assert answer.text == "org_1"
    assert answer.headers["X-RateLimit-Remaining"] == "9"


def test_the_decorator_names_scope_and_cost(client: FlaskClient, gate: Gate) -> None:
    reader = bearer(gate, "jobs:read")
    assert client.get("/jobs/7", headers=reader).json == {"job": 7}
    assert code(client.post("/jobs", headers=reader)) == "403 INSUFFICIENT_SCOPE"
    started = client.post("/jobs", headers=bearer(gate))
    assert (started.status_code, started.headers["X-RateLimit-Remaining"]) == (202, "1")
    refused = client.post("/jobs", headers=bearer(gate))
    assert code(refused) == "429 RATE_LIMIT_EXCEEDED"


def test_refusals_of_the_views_have_the_error_form_D50(client: FlaskClient, gate: Gate) -> None:
    key = bearer(gate)
    assert code(client.get("/missing", headers=key)) == "404 NOT_FOUND"
    assert client.get("/nowhere", headers=key).mimetype == "text/html"


def test_the_errors_of_the_router_take_the_error_form_where_asked_D50(gate: Gate) -> None:
    app = Flask("service")
    app.add_url_rule("/whoami", view_func=lambda: "", endpoint="whoami")
    client, key = protect(app, gate, errors="lockgate").test_client(), bearer(gate)
    assert code(client.get("/nowhere", headers=key)) == "404 NOT_FOUND"
    wrong = client.put("/whoami", headers=key)
    assert code(wrong) == "405 METHOD_NOT_ALLOWED"
    assert wrong.headers["Allow"] == "GET, HEAD, OPTIONS"


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


def test_a_crash_carries_the_rate_headers(gate: Gate) -> None:
    app = Flask("service")
    protect(app, gate)

    @app.get("/crash")
    def crash() -> str:
        raise ArithmeticError

    answer = app.test_client().get("/crash", headers=bearer(gate))
    assert (answer.status_code, answer.headers["X-RateLimit-Remaining"]) == (500, "9")


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


def test_streams_are_not_read_ahead(gate: Gate) -> None:
    app = Flask("service")
    protect(app, gate)
    made: list[int] = []

    @app.get("/stream")
    def stream() -> Any:
        def parts() -> Any:
            for number in range(3):
                made.append(number)
                yield str(number)

        return parts()

    answer = app.test_client().get("/stream", headers=bearer(gate), buffered=False)
    body = answer.iter_encoded()
    assert (next(iter(body)), made) == (b"0", [0])
    answer.close()


def test_shadow_mode_admits_to_views_with_a_decorator(gate: Gate) -> None:
    client = create_app(gate, shadow="all").test_client()
    assert client.get("/jobs/1").json == {"job": 1}


# --- what does not fit together -----------------------------------------------------------


def test_a_decorated_view_without_a_gate_is_closed() -> None:
    app = Flask("service")
    app.testing = True

    app.add_url_rule("/jobs", view_func=jobs)
    with pytest.raises(ConfigurationError, match=r"call protect\(app, gate\)"):
        app.test_client().get("/jobs")


def test_rules_that_contradict_the_views(gate: Gate) -> None:
    app = protect(Flask("service"), gate, public=["GET /jobs"])
    app.add_url_rule("/jobs", view_func=jobs)
    with pytest.raises(ConfigurationError, match="GET /jobs"):
        audit(app)


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


def test_a_rule_with_an_unknown_scope_is_an_error_at_construction(gate: Gate) -> None:
    with pytest.raises(ConfigurationError, match="jobs:fly"):
        protect(Flask("service"), gate, rules={"GET /jobs": "jobs:fly"})


def test_a_store_that_needs_an_event_loop() -> None:
    class Looped(MemoryStore):
        io = "async"

    with pytest.raises(ConfigurationError, match="Looped"):
        protect(Flask("service"), Gate(Looped(), brand="acme"))


def test_the_audit_reads_decorators_and_rules(gate: Gate) -> None:
    rules = {"GET /gone": "jobs:read"}
    report = audit(create_app(gate, public=["GET /health"], rules=rules))
    named = {f"{route.method} {route.path}": route.rule for route in report.routes if route.named}
    assert named["GET /jobs/{number}"] == Rule("jobs:read")
    assert named["POST /jobs"] == Rule("jobs:write", cost=4)
    assert named[f"DELETE {KEYS}/{{id}}"].own
    assert [route.path for route in report.unguarded] == ["/health"]
    assert any("GET /gone" in problem for problem in report.problems)


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


@pytest.fixture(params=[True, False], ids=["guarded", "alone"])
def operations(request: pytest.FixtureRequest, gate: Gate) -> FlaskClient:
    app = Flask("service")
    if request.param:
        protect(app, gate)
    else:
        app.register_blueprint(operations_of(gate))
    return app.test_client()


def test_the_operations_create_list_and_refuse(operations: FlaskClient, gate: Gate) -> None:
    cookie = sessions.issue(Session("org_1", "ada"))
    operations.set_cookie("__session", cookie)
    made = operations.post(KEYS, json={"name": "made"})
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    body: Any = made.json
    operations.delete_cookie("__session")
    key = {"Authorization": f"Bearer {body['key']}"}
    assert operations.get("/api/v1/account/rate-limits", headers=key).status_code == 200
    head = operations.head(KEYS, headers=key)
    assert (head.status_code, head.data) == (200, b"")
    wrong = operations.patch(KEYS, headers=key)
    assert code(wrong) == "405 METHOD_NOT_ALLOWED"
    assert wrong.headers["Allow"] == "GET, HEAD, POST"
    assert operations.delete(f"{KEYS}/{body['id']}", headers=key).status_code == 200
    assert code(operations.get(KEYS, headers=key)) == "401 KEY_REVOKED"


def test_operations_refuse_requests_without_a_gate_in_front(operations: FlaskClient) -> None:
    assert code(operations.get(KEYS)) == "401 MISSING_AUTH"
    assert code(operations.post(KEYS, json={"name": "x"})) == "401 SESSION_REQUIRED"
    assert int(operations.get(KEYS).headers["X-RateLimit-Limit"]) == 1000


def test_operations_need_a_session_verifier() -> None:
    with pytest.raises(ConfigurationError, match="session verifier"):
        operations_of(Gate("memory://", brand="acme"))


def test_a_blueprint_with_another_prefix_is_refused(gate: Gate) -> None:
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
