"""CPU time that a request costs in this process under Flask, beside flask-limiter."""

import io
from collections import deque
from collections.abc import Callable
from hmac import compare_digest, digest
from time import process_time_ns, time_ns

from flask import Flask, request
from flask_limiter import Limiter

from lockgate import Gate, MemoryStore, Plan, PlanBook, run
from lockgate.flask import protect, requires
from lockgate.wsgi import GateMiddleware

from .contenders import SPANS
from .measure import Spread, added, in_turns, ratio, table
from .workload import AUTHORIZATION, BRAND, EXACT, KEY, PEPPER, PLENTY, SPENT, TEMPLATES, draft

REQUESTS = 500
Limits = tuple[int, int, int]


def view(**_) -> str:
    return "ok"


def bare(endpoint: Callable[..., str] = view) -> Flask:
    app = Flask("bench", static_folder=None)
    for number, path in enumerate(TEMPLATES):
        rule = path.replace("{name:path}", "<path:name>").replace("{id}", "<id>")
        app.add_url_rule(rule, str(number), endpoint)
    return app


def nothing(limits: Limits) -> Flask:
    return bare()


def floor(limits: Limits):
    """The least code that does the work: one key, one organization, every hit in three deques."""
    app = bare()
    logs = [(deque(), span * 1_000_000, n) for span, n in zip(SPANS, limits, strict=True)]
    known = {KEY.handle: (digest(PEPPER, KEY.text.encode(), "sha256"), logs)}
    handle = slice(len(f"{BRAND}_live_"), len(f"{BRAND}_live_") + len(KEY.handle))
    rpm = str(limits[0])

    def guarded(environ, start_response):
        key = environ.get("HTTP_AUTHORIZATION", "").removeprefix("Bearer ")
        found = known.get(key[handle])
        if found is None or not compare_digest(digest(PEPPER, key.encode(), "sha256"), found[0]):
            start_response("401 Unauthorized", [])
            return []
        now = time_ns() // 1000
        remaining = limits[0]
        for hits, span, limit in found[1]:
            while hits and hits[0] <= now - span:
                hits.popleft()
            left = limit - len(hits) - 1
            if left < 0:
                start_response("429 Too Many Requests", [])
                return []
            if left < remaining:
                remaining, reset = left, hits[0] + span if hits else now + span
        for hits, _, _ in found[1]:
            hits.append(now)

        def answer(status, headers, exc_info=None):
            rate = [
                ("x-ratelimit-limit", rpm),
                ("x-ratelimit-remaining", str(remaining)),
                ("x-ratelimit-reset", str(-(-reset // 1_000_000))),
            ]
            return start_response(status, [*headers, *rate], exc_info)

        return app(environ, answer)

    return guarded


def gate(limits: Limits) -> Gate:
    store = MemoryStore()
    run(store.insert(draft(), None))
    plans = PlanBook([Plan("bench", *limits, concurrent=None)], default="bench")
    return Gate(store, brand=BRAND, peppers=[PEPPER], plans=plans)


def middleware(limits: Limits) -> GateMiddleware:
    """The plain middleware before Flask, a scope on every route."""
    return GateMiddleware(
        bare(), gate(limits), {f"GET {path}": "models:read" for path in TEMPLATES}
    )


def extension(limits: Limits) -> Flask:
    """The extension, the scope on the view."""
    app = bare(requires("models:read")(view))
    protect(app, gate(limits))
    return app


def flask_limiter(strategy: str) -> Callable[[Limits], Flask]:
    """flask-limiter as its documentation shows it. Checks no key."""

    def make(limits: Limits) -> Flask:
        app = bare()
        spans = zip(limits, ("minute", "hour", "day"), strict=True)
        Limiter(
            lambda: request.headers["Authorization"],
            app=app,
            storage_uri="memory://",
            strategy=strategy,
            headers_enabled=True,
            default_limits=[";".join(f"{n}/{span}" for n, span in spans)],
        )
        return app

    return make


BARE = "bare Flask"
EVERYBODY = {
    BARE: nothing,
    "floor, inlined by hand": floor,
    "lockgate, middleware": middleware,
    "lockgate, extension": extension,
    "flask-limiter, fixed window": flask_limiter("fixed-window"),
    "flask-limiter, sliding counter": flask_limiter("sliding-window-counter"),
}


class Turn:
    """Sends an application some requests, and says what one of them took."""

    def __init__(self, app, status: int = 200) -> None:
        self.app = app
        self.status = f"{status} "
        self._drive(1)

    def __call__(self) -> float:
        """Microseconds of this process's CPU time for one request."""
        took, statuses = self._drive(REQUESTS)
        assert all(status.startswith(self.status) for status in statuses), statuses
        return took / REQUESTS / 1000

    def _drive(self, requests: int) -> tuple[int, set[str]]:
        statuses: set[str] = set()

        def start_response(status, headers, exc_info=None):
            statuses.add(status)
            return statuses.add

        template = environ()
        started = process_time_ns()
        for _ in range(requests):
            body = self.app({**template}, start_response)
            for _ in body:
                pass
            if hasattr(body, "close"):
                body.close()
        return process_time_ns() - started, statuses


def environ() -> dict:
    return {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": EXACT,
        "QUERY_STRING": "",
        "REQUEST_URI": EXACT,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8000",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "api.example.com",
        "HTTP_USER_AGENT": "python-httpx/0.28.1",
        "HTTP_ACCEPT": "*/*",
        "HTTP_AUTHORIZATION": AUTHORIZATION.decode(),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


def main(quick: bool) -> None:
    rounds = 6 if quick else 60
    title = (
        "A request that is {}, under Flask\n(process CPU time; median and quartiles of "
        f"{rounds} rounds of {REQUESTS} requests, in turns)"
    )
    columns = ["", "CPU us", "times bare", "added us", "at best"]
    for what, limits, status in (("admitted", PLENTY, 200), ("refused", SPENT, 429)):
        turns = {
            name: Turn(make(PLENTY if name == BARE else limits), 200 if name == BARE else status)
            for name, make in EVERYBODY.items()
        }
        figures = in_turns(turns, rounds)
        rows = [
            [
                name,
                f"{Spread.of(figures[name]):.1f}",
                f"{ratio(figures, name, BARE):.2f}",
                f"{added(figures, name, BARE):.1f}",
                f"{min(figures[name]) - min(figures[BARE]):.1f}",
            ]
            for name in figures
        ]
        table(title.format(what), columns, rows)
