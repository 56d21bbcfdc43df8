"""A gate inside another one: its rules hold as well, and one request is charged once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from lockgate import PUBLIC, Gate, Rule, asgi, run, wsgi
from lockgate.errors import ConfigurationError
from lockgate.web.shadow import Shadow

from .driving import Bench, ask, ask_by, say

Ask = Callable[..., int]
Rules = dict[str, Any]

PREFLIGHT = {"origin": "https://page.example", "access-control-request-method": "POST"}


class Nested:
    """Guards inside one another before an application that counts what reaches it.

    Args:
        face: the interface.
        bench: gives the gate of all guards.
        rules: of each guard, the outermost one first.
        shadow: whether the innermost guard only watches.
        app: is before the application that counts.
    """

    def __init__(
        self,
        face: str,
        bench: Bench,
        *rules: Rules,
        shadow: Shadow | None = None,
        app: Any = None,
    ) -> None:
        self.ran = 0
        self.late = False
        """Whether the WSGI application begins its response with the first part of its body."""
        self.held: list[int] = []
        """The slots that were held whenever the application ran."""
        self.headers: list[tuple[str, str]] = []
        self.face = face
        self._slots = bench.gate.slots
        app = app or (self._asgi if face == "asgi" else self._wsgi)
        middleware: Any = asgi.GateMiddleware if face == "asgi" else wsgi.GateMiddleware
        for one in reversed(rules):
            app = middleware(app, bench.gate, one, shadow=shadow)
            shadow = None
        self.app = app

    def ask(self, method: str = "POST", path: str = "/jobs", **headers: str) -> int:
        """The status of the answer."""
        fields = [(name.replace("_", "-"), value) for name, value in headers.items()]
        answer = ask_by(self.face, self.app, method, path, headers=fields)
        self.headers = answer.headers
        return answer.status

    @property
    def rate(self) -> list[int]:
        """Every value of the headers of limits and remaining units, in order."""
        names = "x-ratelimit-limit", "x-ratelimit-remaining"
        return [int(value) for name, value in self.headers if name in names]

    async def _asgi(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        self.ran += 1
        self.held.append(len(await self._slots.held("org_1")))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    def _wsgi(self, _: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        def answer() -> Iterable[bytes]:
            self.ran += 1
            self.held.append(len(run(self._slots.held("org_1"))))
            start_response("200 OK", [])
            yield b""

        return answer() if self.late else list(answer())


@pytest.fixture(params=["asgi", "wsgi"])
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("costs", "charged"),
    [((1, 5), 5), ((5, 1), 5), ((2, 3, 7), 7), ((5, 1, 5), 5), ((1, 5, 2, 6), 6), ((5, 0, 5), 5)],
)
def test_a_request_is_charged_the_highest_cost_of_all_gates(
    face: str, costs: tuple[int, ...], charged: int
) -> None:
    """A public gate (0) between two others changes nothing."""
    bench = Bench()
    rules = [{"POST /jobs": Rule(cost=cost) if cost else PUBLIC} for cost in costs]
    nested = Nested(face, bench, *rules)
    assert nested.ask(authorization=f"Bearer {bench.key()}") == 200
    assert nested.ran == 1
    assert bench.used() == charged


def with_key(app: Any, key: str) -> Any:
    """An application that asks another one with another key."""

    async def ask_with(scope: Scope, receive: Receive, send: Send) -> None:
        fields = [(b"authorization", f"Bearer {key}".encode())]
        await app({**scope, "headers": fields}, receive, send)

    return ask_with


async def test_an_inner_gate_does_not_share_the_slot_of_another_gate_D26() -> None:
    outer, inner = Bench(), Bench()
    held: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for bench in (outer, inner):
            held.append(len(await bench.gate.slots.held("org_1")))
        await say(scope, receive, send)

    rules = {"POST /jobs": Rule(slot=True)}
    last = asgi.GateMiddleware(app, inner.gate, rules)
    middle = asgi.GateMiddleware(last, inner.gate, {"POST /jobs": Rule()})
    first = asgi.GateMiddleware(with_key(middle, inner.key()), outer.gate, rules)
    assert (await ask(first, "POST", "/jobs", key=outer.key())).status == 200
    assert held == [1, 1]
    # Nor does an endpoint take it for its own.
    endpoint: Any = asgi.requires("jobs:write", slot=True)(say)
    within = with_key(asgi.GateMiddleware(endpoint, inner.gate), inner.key())
    guarded = asgi.GateMiddleware(within, outer.gate, rules)
    with pytest.raises(ConfigurationError, match="put @requires directly below"):
        await ask(guarded, "POST", "/jobs", key=outer.key())


@pytest.mark.parametrize("slot", [False, True])
async def test_a_gate_around_another_gate_charges_its_own_requests_once(slot: bool) -> None:
    bench, other = Bench(), Bench()
    seen: list[tuple[int, int]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        entry = scope["lockgate.entry"]
        assert entry.gate is bench.gate
        assert (entry.slot is not None) is slot
        assert entry.outer.gate is other.gate
        seen.append((bench.used(), len(await bench.gate.slots.held("org_1"))))
        await say(scope, receive, send)

    rules = {"POST /jobs": Rule(cost=3, slot=slot)}
    key = bench.key()
    within = with_key(asgi.GateMiddleware(app, bench.gate, rules), key)
    between = with_key(asgi.GateMiddleware(within, other.gate), other.key())
    guarded = asgi.GateMiddleware(between, bench.gate, rules)
    assert (await ask(guarded, "POST", "/jobs", key=key)).status == 200
    assert seen == [(3, int(slot))]
    assert other.used() == 1


def test_the_further_cost_of_an_inner_gate_is_refused_by_a_full_window(face: str) -> None:
    bench = Bench(rpm=9)
    nested = Nested(face, bench, {"POST /jobs": Rule()}, {"POST /jobs": Rule(cost=5)})
    bearer = f"Bearer {bench.key()}"
    assert [nested.ask(authorization=bearer) for _ in range(2)] == [200, 429]
    assert nested.ran == 1
    assert bench.used() == 6
    assert "refused" in bench.names()


def test_a_scope_that_the_inner_gate_misses_is_charged_at_its_cost_D19(face: str) -> None:
    bench = Bench()
    nested = Nested(face, bench, {"POST /jobs": Rule()}, {"POST /jobs": Rule("jobs:write", cost=5)})
    assert nested.ask(authorization=f"Bearer {bench.key('jobs:read')}") == 403
    assert nested.ran == 0
    assert bench.used() == 5


def test_a_store_that_fails_at_the_inner_gate_is_503(
    face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    nested = Nested(face, bench, {"POST /jobs": Rule()}, {"POST /jobs": Rule(cost=5)})
    bearer = f"Bearer {bench.key()}"

    async def fail(*_: object, **__: object) -> Any:
        raise OSError("gone")

    monkeypatch.setattr(type(bench.gate.store), "charge", fail)
    assert nested.ask(authorization=bearer) == 503
    assert nested.ran == 0


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (({"POST /jobs": PUBLIC}, {"POST /jobs": Rule()}), [[3, 2], [3, 1], [3, 0], [3, 0]]),
        (({"POST /jobs": Rule()}, {"POST /jobs": PUBLIC}), [[3, 2], [3, 1], [3, 0], [3, 0]]),
        (({"POST /jobs": Rule()}, {"POST /jobs": Rule(cost=2)}), [[3, 1], [3, 0], [3, 0]]),
        (({"POST /jobs": PUBLIC}, {"POST /jobs": PUBLIC}), [[7, 6], [7, 5]]),
    ],
)
def test_the_rate_headers_come_from_the_innermost_gate_that_measured(
    face: str, rules: tuple[Rules, ...], told: list[list[int]]
) -> None:
    bench = Bench(rpm=3, anonymous=7)
    nested, bearer = Nested(face, bench, *rules), f"Bearer {bench.key()}"
    for limit_and_remaining in told:
        status = nested.ask(authorization=bearer)
        assert nested.rate == limit_and_remaining, status


def test_an_inner_gate_in_shadow_mode_passes_admitted_requests_on(face: str) -> None:
    bench = Bench(rpm=3)
    inner = {"POST /jobs": Rule("jobs:write", cost=5)}
    nested = Nested(face, bench, {"POST /jobs": Rule()}, inner, shadow="all")
    assert nested.ask(authorization=f"Bearer {bench.key('jobs:read')}") == 200
    assert nested.ran == 1
    assert "shadowed" in bench.names()


def test_a_session_opens_no_inner_rule_that_takes_keys_only(face: str) -> None:
    bench = Bench()
    outer = {"GET /jobs": Rule(accepts=("key", "session"))}
    nested = Nested(face, bench, outer, {"GET /jobs": Rule()})
    assert nested.ask("GET", cookie=f"__session={bench.session()}") == 401
    assert nested.ran == 0


@pytest.mark.parametrize("inner", [{}, {"OPTIONS /jobs": Rule(cost=5)}, {"* /jobs": PUBLIC}])
@pytest.mark.parametrize("outer", [{}, {"* /jobs": Rule()}, {"* /jobs": PUBLIC}])
def test_a_preflight_reaches_no_handler_behind_two_gates_D31(
    face: str, outer: Rules, inner: Rules
) -> None:
    bench = Bench()
    nested = Nested(face, bench, outer, inner)
    for bearer in ({}, {"authorization": f"Bearer {bench.key()}"}):
        assert nested.ask("OPTIONS", **PREFLIGHT, **bearer) == 204
    assert nested.ran == 0
    assert bench.used() == 0


def test_options_is_a_method_like_others_behind_two_gates_D31(face: str) -> None:
    bench = Bench()
    inner = {"OPTIONS /jobs": Rule("jobs:read", cost=5), "GET /jobs": Rule("jobs:read", cost=2)}
    nested = Nested(face, bench, {"* /jobs": Rule()}, inner)
    assert nested.ask("OPTIONS", authorization=f"Bearer {bench.key('models:read')}") == 403
    assert nested.ask("OPTIONS", authorization=f"Bearer {bench.key('jobs:read')}") == 200
    assert nested.ask("POST", authorization=f"Bearer {bench.key('jobs:read')}") == 405
    assert nested.ran == 1
    assert bench.used() == 11


async def _said(_: Request) -> Response:
    return PlainTextResponse("said")


@pytest.mark.parametrize("same", [True, False])
async def test_the_outer_gate_checks_the_matched_route_as_well_D31(same: bool) -> None:
    """Its public rule is for a path that the first route takes, which has another rule."""
    bench, other = Bench(), Bench()
    app = Starlette(routes=[Route("/items/{id}", _said), Route("/items/newest", _said)])
    inner: Gate = bench.gate if same else other.gate
    guarded = asgi.GateMiddleware(
        asgi.GateMiddleware(app, inner),
        bench.gate,
        {"GET /items/{id}": "account:read", "GET /items/newest": PUBLIC},
    )
    weak = (bench if same else other).key("models:read")
    assert (await ask(guarded, path="/items/newest", key=weak)).status == 404


def both_in_turn(face: str, first: Any, second: Any) -> Any:
    """An application that tries two others with one scope or environment; the second answers."""

    async def ask_both(scope: Scope, receive: Receive, send: Send) -> None:
        async def drop(_: Message) -> None:
            pass

        await first(scope, receive, drop)
        await second(scope, receive, send)

    def call_both(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = first(environ, lambda *_: None)
        b"".join(body)
        getattr(body, "close", lambda: None)()
        return second(environ, start_response)  # type: ignore[no-any-return]

    return ask_both if face == "asgi" else call_both


@pytest.mark.parametrize(
    ("first", "ran", "charged"),
    [
        (Rule("jobs:write", cost=3), 2, 3),
        (Rule("jobs:write", cost=3, slot=True), 2, 3),
        (Rule("account:write", cost=3), 1, 3),  # Refused, at its cost (D19).
    ],
)
@pytest.mark.parametrize(("inside", "late"), [(False, False), (False, True), (True, True)])
def test_a_gate_beside_another_gate_admits_independently_D26(
    face: str, late: bool, inside: bool, first: Rule, ran: int, charged: int
) -> None:
    """The admission by the first gate has ended: its slot and cost do not count at the second."""
    bench = Bench()
    application = Nested(face, bench)
    application.late = late
    middleware: Any = asgi.GateMiddleware if face == "asgi" else wsgi.GateMiddleware
    second = Rule("jobs:write", cost=5, slot=True)
    gates = [
        middleware(application.app, bench.gate, {"POST /jobs": rule}) for rule in (first, second)
    ]
    outer: list[Rules] = [{"POST /jobs": Rule(cost=2)}] if inside else []
    nested = Nested(face, bench, *outer, app=both_in_turn(face, *gates))
    assert nested.ask(authorization=f"Bearer {bench.key('jobs:write')}") == 200
    assert application.ran == ran
    assert application.held[-1] == 1
    assert bench.used() == (charged + 5 if not inside else 2 + (charged - 2) + (5 - 2))
    assert nested.rate == [1000, 1000 - bench.used()]
