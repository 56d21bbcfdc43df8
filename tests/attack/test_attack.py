"""Attacks on real servers: whichever handler runs, its own rule was charged (G1, D31).

The long search is ``nox -s attack``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from .applications import APPLICATIONS
from .attack import Attack, Mutation, websocket
from .campaign import Attacker
from .handlers import BY_NAME
from .pairs import PAIRS, SERVERS, served
from .record import RunLog
from .wire import Headers, Request

Attackers = Callable[[str, str], Attacker]

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

    server: str
    application: str
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
        return f"{self.server}-{self.application}-{self.method}-{target}-{self.credential}"


def fake_preflights() -> Iterator[Row]:
    """``OPTIONS`` with two headers ran handlers without a key."""
    for server, application, handler in (
        ("uvicorn-h11", "django-asgi", "run"),
        ("gunicorn", "django-wsgi", "run"),
        ("uvicorn-h11", "starlette", "metrics"),
        ("uvicorn-h11", "fastapi", "metrics"),
        ("hypercorn", "litestar", "metrics"),
        ("waitress", "flask", "metrics"),
        ("gunicorn", "rest-wsgi", "models"),
        ("uvicorn-h11", "asgi-folding", "admin"),
        ("waitress", "wsgi-folding", "admin"),
    ):
        target = BY_NAME[handler].sample.encode()
        for credential in ("none", "weak"):
            where = server, application, handler
            yield Row(*where, "OPTIONS", target, credential, (204,), FAKE_PREFLIGHT)


def last_slashes() -> Iterator[Row]:
    """A last slash more or less found a handler and another rule, the public catch-all's."""
    for server, application in (
        ("hypercorn", "litestar"),
        ("gunicorn", "flask-loose"),
        ("hypercorn", "quart-loose"),
    ):
        for handler, target in (("admin", b"/api/admin/"), ("reports", b"/api/reports")):
            yield Row(server, application, handler, "GET", target, "none", (401,))
            yield Row(server, application, handler, "GET", target, "weak", (403,))

    yield Row("hypercorn", "litestar", "feed", "GET", b"/feed/", "none", (401, 403))


def unnamed_methods() -> Iterator[Row]:
    """A method that no rule names ran the handler of another, at the cost of 1."""
    for server, application in (
        ("uvicorn-h11", "django-asgi"),
        ("gunicorn", "django-wsgi"),
        ("waitress", "flask"),
        ("uvicorn-h11", "starlette"),
        ("hypercorn", "litestar"),
        ("uvicorn-h11", "asgi-folding"),
        ("waitress", "wsgi-folding"),
    ):
        for method in ("GET", "PUT", "PATCH", "FOO", "OPTIONS"):
            yield Row(server, application, "run", method, b"/runs", "models", (405,))
        # The public catch-all names GET for every path, but this path has a rule of its own.
        yield Row(server, application, "run", "GET", b"/runs", "none", (401, 405))


def methods_of_a_catch_all() -> Iterator[Row]:
    """A catch-all that a rule names for GET ran by every other method for any key."""
    for server, application in (
        ("uvicorn-h11", "asgi-folding"),
        ("waitress", "wsgi-folding"),
        ("uvicorn-h11", "starlette"),
        ("uvicorn-h11", "fastapi"),
        ("hypercorn", "litestar"),
        ("hypercorn", "quart"),
        ("waitress", "flask"),
        ("gunicorn", "django-wsgi"),
        ("uvicorn-h11", "django-asgi"),
    ):
        for method in ("POST", "DELETE"):
            yield Row(server, application, "page", method, b"/about", "weak", (405,))


def folded_readings() -> Iterator[Row]:
    """A reading that drops something, and the last slash of the rule or of the path besides."""
    for server, application in (("uvicorn-h11", "asgi-folding"), ("waitress", "wsgi-folding")):
        for target in (b"/api//reports", b"/API/reports", b"/api/./reports", b"/api/reports;x"):
            yield Row(server, application, "reports", "GET", target, "none", (401,))
            yield Row(server, application, "reports", "GET", target, "weak", (403,))
        for target in (b"/api//admin/", b"/API/admin/", b"/api/x/../admin/", b"/api/admin/%0a"):
            yield Row(server, application, "admin", "GET", target, "none", (401,))
            yield Row(server, application, "admin", "GET", target, "weak", (403,))


def other_forms() -> Iterator[Row]:
    """A target in absolute form was one path to the rules, and another one to the router."""
    for server, application in (
        ("hypercorn", "quart"),
        ("hypercorn-h2", "quart"),
    ):
        for target in (b"http://h/api/jobs", b"x:/api/jobs", b"%20/api/jobs"):
            yield Row(server, application, "start", "POST", target, "models", (400,))
        yield Row(server, application, "feed", "GET", b"x:/feed", "models", (400, 403))
    for target in (b"*/api/jobs/17", b";/api/jobs/17"):
        yield Row("waitress", "flask", "cancel", "DELETE", target, "models", (400,))


def control_characters() -> Iterator[Row]:
    """A router with expressions that end with ``$`` ignores a line feed at the end."""
    for application in ("starlette", "fastapi"):
        target = b"/api/reports/%0a"
        yield Row("uvicorn-h11", application, "reports", "GET", target, "weak", (403,))


def matched_routes() -> Iterator[Row]:
    """The route that the framework matched differs from the route of the rule."""
    for credential in ("none", "weak"):
        where = "uvicorn-httptools", "starlette-ordered", "item"
        yield Row(*where, "GET", b"/items/newest", credential, (401, 403, 404))
        for server, application in (("gunicorn", "django-wsgi"), ("uvicorn-h11", "django-asgi")):
            for handler, target in (("loose", b"/api/looser"), ("secret", b"/api/Secret")):
                where = server, application, handler
                yield Row(*where, "GET", target, credential, (401, 403, 404))
        # A mount of Litestar takes every path that starts like it.
        where = "hypercorn", "litestar", "metrics"
        yield Row(*where, "GET", b"/metricsx", credential, (401, 403, 404))
        where = "gunicorn", "rest-wsgi", "models"
        for target in (b"/api/models.json", b"/api/models.json/"):
            yield Row(*where, "GET", target, credential, (401, 403, 404))
    # Whatever the server makes of a handshake by OPTIONS: the rule of GET holds at least.
    for handler in ("inner", "feed"):
        for method in ("OPTIONS", "PUT"):
            target = BY_NAME[handler].sample.encode()
            yield Row(
                *("granian-asgi", "litestar", handler, method),
                target,
                "weak",
                (403,),
                HANDSHAKE,
            )
    # Django decodes the path in the environment, where the report of a mismatch looked for bytes.
    for target in (b"/api/loose%e2%80%a8", b"/api/loose%ff"):
        yield Row("gunicorn", "django-wsgi", "loose", "GET", target, "weak", (403, 404))


ROWS = [
    *fake_preflights(),
    *last_slashes(),
    *unnamed_methods(),
    *methods_of_a_catch_all(),
    *folded_readings(),
    *other_forms(),
    *control_characters(),
    *matched_routes(),
]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_request_reaches_no_handler_past_its_rule_G1(attackers: Attackers, row: Row) -> None:
    attacker = attackers(row.server, row.application)
    _, run, answer = attacker.send(row.attack)
    assert not run.handlers[row.handler]
    assert attacker.violations(row.attack) == []
    # Some servers refuse such a target by themselves, or cut the connection.
    assert answer.status in (*row.status, 400, None)


@pytest.mark.parametrize(
    "pair",
    [
        ("uvicorn-h11", "asgi-folding"),
        ("uvicorn-h11", "starlette"),
        ("uvicorn-h11", "fastapi"),
        ("hypercorn", "litestar"),
        ("hypercorn", "quart"),
        ("waitress", "flask"),
        ("gunicorn", "django-wsgi"),
        ("uvicorn-h11", "django-asgi"),
        ("waitress", "wsgi-folding"),
    ],
    ids="-".join,
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
    "pair",
    [
        ("uvicorn-h11", "starlette"),
        ("hypercorn", "litestar"),
        ("hypercorn-h2", "quart"),
        ("waitress", "wsgi-folding"),
        ("gunicorn", "flask-loose"),
        ("gunicorn", "django-wsgi"),
    ],
    ids="-".join,
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
