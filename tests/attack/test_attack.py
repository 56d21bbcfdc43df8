"""Attacks on real servers: whichever handler runs, its own rule was charged (G1, D31).

The long search is ``nox -s attack``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from .applications import APPLICATIONS
from .attack import Attack, Mutation, websocket
from .campaign import Attacker
from .handlers import BY_NAME
from .pairs import PAIRS, SERVERS, served
from .record import RunLog
from .wire import Headers, Request

Attackers = Callable[[str, str], Attacker]
Place = tuple[str, str]

PATIENCE = 20.0
"""Seconds in which a server answers, however busy the machine is."""
HANDSHAKE = websocket(Request(b"GET", b"/")).headers
FAKE_PREFLIGHT = ((b"Origin", b"x"), (b"Access-Control-Request-Method", b"x"))

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="gunicorn needs fork"),
    pytest.mark.usefixtures("untraced_processes"),
]


@pytest.fixture(scope="module")
def attackers() -> Iterator[Attackers]:
    """Gives the attacker of a pair; each pair is served once, until the last test is done."""
    running: dict[tuple[str, str], Attacker] = {}
    with ExitStack() as stack:

        def attacker(server: str, application: str) -> Attacker:
            if application not in APPLICATIONS:
                pytest.skip("djangorestframework is not installed here")
            pair = server, application
            if pair not in running:
                running[pair] = Attacker(stack.enter_context(served(*pair)), PATIENCE)
                stack.callback(running[pair].close)
            return running[pair]

        yield attacker


class Row(NamedTuple):
    """A request that once reached a handler past its rule."""

    pair: Place
    handler: str
    method: str
    target: bytes
    credential: str
    status: tuple[int, ...]
    headers: Headers = ()

    @property
    def attack(self) -> Attack:
        mutation = Mutation(
            "row",
            "row",
            lambda request: request._replace(
                target=self.target, headers=request.headers + self.headers
            ),
        )
        return Attack(BY_NAME[self.handler], self.method, self.credential, (mutation,))

    def __str__(self) -> str:
        target = self.target.decode("latin-1")
        return f"{'-'.join(self.pair)}-{self.method}-{target}-{self.credential}"


ASGI = "uvicorn-h11", "asgi-folding"
WSGI = "waitress", "wsgi-folding"
STARLETTE, FASTAPI = ("uvicorn-h11", "starlette"), ("uvicorn-h11", "fastapi")
LITESTAR, QUART = ("hypercorn", "litestar"), ("hypercorn", "quart")
QUART_H2, QUART_LOOSE = ("hypercorn-h2", "quart"), ("hypercorn", "quart-loose")
FLASK, FLASK_LOOSE = ("waitress", "flask"), ("gunicorn", "flask-loose")
DJANGO, DJANGO_ASGI = ("gunicorn", "django-wsgi"), ("uvicorn-h11", "django-asgi")
REST = "gunicorn", "rest-wsgi"
GRANIAN = "granian-asgi", "litestar"
ORDERED = "uvicorn-httptools", "starlette-ordered"
QUICK = {ASGI, WSGI, STARLETTE, LITESTAR, QUART_H2, FLASK, FLASK_LOOSE, DJANGO, DJANGO_ASGI}
"""What each run attacks; another server of a framework comes with the matrix."""


def in_each_run(of: Row | Place) -> Any:
    """A row or a pair as a parameter."""
    pair, name = (of.pair, str(of)) if isinstance(of, Row) else (of, "-".join(of))
    return pytest.param(of, marks=() if pair in QUICK else pytest.mark.matrix, id=name)


def fake_preflights() -> Iterator[Row]:
    """``OPTIONS`` with two headers ran handlers without a key."""
    handlers = {
        **dict.fromkeys((DJANGO_ASGI, DJANGO), "run"),
        **dict.fromkeys((STARLETTE, FASTAPI, LITESTAR, FLASK), "metrics"),
        **{REST: "models", ASGI: "admin", WSGI: "admin"},
    }
    for pair, handler in handlers.items():
        target = BY_NAME[handler].sample.encode()
        for credential in ("none", "weak"):
            yield Row(pair, handler, "OPTIONS", target, credential, (204,), FAKE_PREFLIGHT)


def without_a_scope(pair: Place, handler: str, *targets: bytes) -> Iterator[Row]:
    """Spellings of a handler's path, which need its scope."""
    for target in targets:
        yield Row(pair, handler, "GET", target, "none", (401,))
        yield Row(pair, handler, "GET", target, "weak", (403,))


def last_slashes() -> Iterator[Row]:
    """A last slash more or less found a handler and another rule, the public catch-all's."""
    for pair in (LITESTAR, FLASK_LOOSE, QUART_LOOSE):
        yield from without_a_scope(pair, "admin", b"/api/admin/")
        yield from without_a_scope(pair, "reports", b"/api/reports")
    yield Row(LITESTAR, "feed", "GET", b"/feed/", "none", (401, 403))


def unnamed_methods() -> Iterator[Row]:
    """A method that no rule names ran the handler of another, at the cost of 1."""
    for pair in (DJANGO_ASGI, DJANGO, FLASK, STARLETTE, LITESTAR, ASGI, WSGI):
        for method in ("GET", "PUT", "PATCH", "FOO", "OPTIONS"):
            yield Row(pair, "run", method, b"/runs", "models", (405,))
        # The public catch-all names GET for every path, but this path has a rule of its own.
        yield Row(pair, "run", "GET", b"/runs", "none", (401, 405))
    # A catch-all that a rule names for GET ran by every other method for any key.
    for pair in (ASGI, WSGI, STARLETTE, FASTAPI, LITESTAR, QUART_H2, FLASK, DJANGO, DJANGO_ASGI):
        for method in ("POST", "DELETE"):
            yield Row(pair, "page", method, b"/about", "weak", (405,))


def folded_readings() -> Iterator[Row]:
    """A reading that drops something, and the last slash of the rule or of the path besides."""
    reports = b"/api//reports", b"/API/reports", b"/api/./reports", b"/api/reports;x"
    admin = b"/api//admin/", b"/API/admin/", b"/api/x/../admin/", b"/api/admin/%0a"
    for pair in (ASGI, WSGI):
        yield from without_a_scope(pair, "reports", *reports)
        yield from without_a_scope(pair, "admin", *admin)
    # A router with expressions that end with ``$`` ignores a line feed at the end.
    for pair in (STARLETTE, FASTAPI):
        yield Row(pair, "reports", "GET", b"/api/reports/%0a", "weak", (403,))


def other_forms() -> Iterator[Row]:
    """A target in absolute form was one path to the rules, and another one to the router."""
    for pair in (QUART, QUART_H2):
        for target in (b"http://h/api/jobs", b"x:/api/jobs", b"%20/api/jobs"):
            yield Row(pair, "start", "POST", target, "models", (400,))
        yield Row(pair, "feed", "GET", b"x:/feed", "models", (400, 403))
    for target in (b"*/api/jobs/17", b";/api/jobs/17"):
        yield Row(FLASK, "cancel", "DELETE", target, "models", (400,))


def matched_routes() -> Iterator[Row]:
    """The route that the framework matched differs from the route of the rule."""
    django = [("loose", b"/api/looser"), ("secret", b"/api/Secret")]
    matched = [
        (ORDERED, "item", b"/items/newest"),
        *((pair, *row) for pair in (DJANGO, DJANGO_ASGI) for row in django),
        # A mount of Litestar takes every path that starts like it.
        (LITESTAR, "metrics", b"/metricsx"),
        *((REST, "models", target) for target in (b"/api/models.json", b"/api/models.json/")),
    ]
    for pair, handler, target in matched:
        for credential in ("none", "weak"):
            yield Row(pair, handler, "GET", target, credential, (401, 403, 404))
    # Whatever the server makes of a handshake by OPTIONS: the rule of GET holds at least.
    for handler in ("inner", "feed"):
        for method in ("OPTIONS", "PUT"):
            target = BY_NAME[handler].sample.encode()
            yield Row(GRANIAN, handler, method, target, "weak", (403,), HANDSHAKE)
    # Django decodes the path in the environment, where the report of a mismatch looked for bytes.
    for target in (b"/api/loose%e2%80%a8", b"/api/loose%ff"):
        yield Row(DJANGO, "loose", "GET", target, "weak", (403, 404))


ROWS = [
    *(*fake_preflights(), *last_slashes(), *unnamed_methods(), *folded_readings()),
    *(*other_forms(), *matched_routes()),
]


@pytest.mark.parametrize("row", [*map(in_each_run, ROWS)])
def test_a_request_reaches_no_handler_past_its_rule_G1(attackers: Attackers, row: Row) -> None:
    attacker = attackers(*row.pair)
    _, run, answer = attacker.send(row.attack)
    assert not run.handlers[row.handler]
    assert attacker.violations(row.attack) == []
    # Some servers refuse such a target by themselves, or cut the connection.
    assert answer.status in (*row.status, 400, None)


@pytest.mark.parametrize(
    "pair",
    [
        *map(in_each_run, (ASGI, WSGI, STARLETTE, FASTAPI, LITESTAR)),
        *map(in_each_run, (QUART_H2, FLASK, DJANGO, DJANGO_ASGI)),
    ],
)
def test_a_good_key_reaches_every_handler_at_its_own_cost_G1(
    attackers: Attackers, pair: tuple[str, str]
) -> None:
    attacker = attackers(*pair)
    for handler in attacker.target.application.handlers:
        if handler.name in ("secret", "loose"):
            continue  # Their routes take more than their rules name, and may be refused for it.
        method = "GET" if handler.methods == ("*",) else handler.methods[0]
        attack = Attack(handler, method, "full")
        _, run, answer = attacker.send(attack)
        assert run.handlers == {handler.name: 1}, (handler, answer)
        assert run.charged.total() == (0 if handler.public else handler.cost)


@pytest.mark.parametrize(
    "pair", [*map(in_each_run, (STARLETTE, LITESTAR, QUART_H2, WSGI, FLASK_LOOSE, DJANGO))]
)
def test_seeded_attacks_reach_no_guarded_handler_G1(
    attackers: Attackers, pair: tuple[str, str]
) -> None:
    report = Attacker(attackers(*pair).target, PATIENCE).run(seed=7, count=300, alone=False)
    assert [str(finding) for finding in report.findings] == []
    assert not report.deaths
    assert len(report.reached) > 5


def test_a_handler_that_runs_late_is_held_against_its_own_request(attackers: Attackers) -> None:
    target = attackers("uvicorn-h11", "starlette").target
    attacker = Attacker(target, PATIENCE)
    attacker.attack(Attack(BY_NAME["admin"], "GET", "weak"))
    late = target.record.new_id() - 1
    log = RunLog(target.folder / "log-of-runs")
    with log.request(str(late)):
        attacker.attack(Attack(BY_NAME["models"], "GET", "models"))
        log.ran("admin")
    assert attacker.report.findings == []
    attacker.finish()
    (finding,) = attacker.report.findings
    assert (finding.violation.handler, finding.credential) == ("admin", "weak")
    assert b"GET /api/admin " in finding.wire
    assert len(attacker.report.late) == 1


def test_pairs_name_servers_and_applications_of_one_interface() -> None:
    assert len(PAIRS) == len(set(PAIRS)) >= 29
    for server, application in PAIRS:
        assert SERVERS[server].interface == APPLICATIONS[application].interface
