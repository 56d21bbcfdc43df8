"""Shadow mode: watched and enforced decisions, and their events."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from lockgate import PUBLIC, Rule, asgi, run, wsgi
from lockgate.errors import ConfigurationError, KeyNotFound, RateLimitExceeded
from lockgate.events import Event, Events
from lockgate.web.entry import principal_of
from lockgate.web.operations import table
from lockgate.web.shadow import Watch, kind_of

from .driving import Bench, ask_by

RULES: Mapping[str, Any] = {
    "GET /x": Rule("jobs:read", accepts=("key", "session")),
    "GET /open": PUBLIC,
}
OTHERS = [("X-RateLimit-Limit", "7"), ("RateLimit", "theirs")]
"""The headers of another limiter, which decides as yet."""

Ask = Callable[..., tuple[int, dict[str, str], str]]


@pytest.fixture(params=["asgi", "wsgi"])
def served(request: pytest.FixtureRequest) -> Callable[..., Ask]:
    """Puts a gate in shadow mode before an application that answers with its caller's name."""
    return partial(_served, request.param)


def _served(face: str, bench: Bench, shadow: Any = "limits") -> Ask:
    async def app(scope: Any, _receive: Any, send: Any) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in OTHERS]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        body = _name(scope["state"]["principal"])
        await send({"type": "http.response.body", "body": body})

    def wsgi_app(asked: Any, start_response: Any) -> Any:
        start_response("200 OK", OTHERS)
        return [_name(principal_of(asked))]

    guarded: Any = (
        asgi.GateMiddleware(app, bench.gate, RULES, shadow=shadow)
        if face == "asgi"
        else wsgi.GateMiddleware(wsgi_app, bench.gate, RULES, shadow=shadow)
    )

    def asked(path: str = "/x", method: str = "GET", **credential: Any) -> tuple[int, Any, str]:
        answer = ask_by(face, guarded, method, path, **credential)
        return answer.status, dict(answer.headers), answer.body.decode()

    return asked


def _name(principal: Any) -> bytes:
    found = "nobody" if principal is None else f"{principal.organization} {principal.plan.name}"
    return found.encode()


def test_limits_are_only_watched_and_the_caller_stays_known(served: Callable[..., Ask]) -> None:
    bench = Bench(rpm=1)
    ask, key, session = served(bench), bench.key("jobs:read"), bench.session()
    for credential in ({"key": key}, {"session": session}, {"key": key}, {"key": key}):
        status, headers, name = ask(**credential)
        assert (status, name) == (200, "org_1 free")
        assert (headers["x-ratelimit-limit"], headers["ratelimit"]) == ("7", "theirs")
        assert (headers["x-shadow-ratelimit-limit"]) == "1"
        assert (headers["x-shadow-ratelimit-remaining"]) == "0"
    assert bench.names() == ["shadowed"] * 3
    assert [fields["window"] for fields in bench.fields()] == ["minute"] * 3
    (row,) = run(bench.gate.keys.list("org_1")).keys
    assert [fields["key"] for fields in bench.fields()] == [None, row.id, row.id]


def test_credentials_scopes_and_methods_are_enforced_while_limits_are_watched(
    served: Callable[..., Ask],
) -> None:
    bench = Bench(rpm=1, anonymous=1)
    ask, narrow, good = served(bench), bench.key("models:read"), bench.key("jobs:read")
    unknown = bench.gate.format.generate().text
    for _ in range(3):  # Within the limits, and beyond them.
        assert ask(key=narrow)[0] == 403
        assert ask(key=unknown)[0] == 401
        assert ask()[0] == 401
        assert ask(key=good, method="POST")[0] == 405
        # An address that has spent its budget of failures is watched as well.
        assert ask(key=good)[0] == 200
        assert ask("/open")[::2] == (200, "nobody")


def test_shadow_all_admits_every_request_and_keeps_the_principal(
    served: Callable[..., Ask],
) -> None:
    bench = Bench(rpm=1)
    ask, narrow = served(bench, "all"), bench.key("models:read")
    assert [ask(key=narrow)[2] for _ in range(3)] == ["org_1 free"] * 3
    assert ask()[::2] == (200, "nobody")
    assert set(bench.names()) == {"shadowed"}


def test_lockgates_own_operations_are_limited_as_ever(served: Callable[..., Ask]) -> None:
    bench = Bench(rpm=1)
    ask, key = served(bench), bench.key()
    path = next(rule[4:] for rule in table.rules(bench.gate) if rule.startswith("GET "))
    answers = [ask(path, key=key) for _ in range(3)]
    assert [status for status, *_ in answers][1:] == [429, 429]
    assert "x-ratelimit-limit" in answers[-1][1]
    assert "x-shadow-ratelimit-limit" not in answers[-1][1]
    spent = Bench(anonymous=2)
    ask = served(spent)
    assert [ask(path)[0] for _ in range(4)] == [401, 401, 429, 429]


@pytest.mark.parametrize("shadow", [True, False, "some", 1, ""])
def test_another_mode_is_refused(shadow: Any, served: Callable[..., Ask]) -> None:
    with pytest.raises(ConfigurationError, match="'limits', 'all' or None"):
        served(Bench(), shadow)


def test_shadow_mode_logs_one_summary_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Event] = []
    now = [1000.0]
    watch = Watch(Events(told.append), lambda: now[0])
    limited, unknown = RateLimitExceeded("minute", 10, 10, 60), KeyNotFound()
    caplog.set_level(logging.INFO, "lockgate")
    for second in range(61):
        now[0] = 1000 + second
        watch.count(kind_of(limited))
        if second % 10 == 0:
            watch.count(kind_of(unknown))
    (event,) = told
    assert event.name == "shadow_summary"
    assert event.fields["requests"] == 67
    assert event.fields["seconds"] == 60
    assert event.fields["most"] == (
        "61 x RATE_LIMIT_EXCEEDED window=minute",
        "6 x KEY_NOT_FOUND",
    )
    assert "61 x RATE_LIMIT_EXCEEDED" in caplog.text
    watch.tell()
    watch.tell()
    assert [e.fields["requests"] for e in told] == [67, 1]
    for number in range(5000):  # Many keys take a bounded place.
        watch.count(kind_of(limited)._replace(key=f"key {number}"))
    assert len(watch._counts) <= 1001
    watch.tell()
    assert told[-1].fields["requests"] == 5000


def test_an_event_loop_tells_when_the_minute_ends_without_another_request() -> None:
    told: list[Event] = []
    now = [1000.0]
    asked_in: ContextVar[bool] = ContextVar("asked_in", default=False)
    seen: list[bool] = []

    async def serve() -> None:
        told_one = asyncio.Event()

        def tell(event: Event) -> None:
            told.append(event)
            seen.append(asked_in.get())
            told_one.set()

        watch = Watch(Events(tell), lambda: now[0])
        asked_in.set(True)
        for _ in range(2):
            now[0] += 59.99
            watch.count(kind_of(KeyNotFound()))
            watch.count(kind_of(KeyNotFound()))
            assert not told_one.is_set()
            await asyncio.wait_for(told_one.wait(), 60)
            told_one.clear()

    asyncio.run(serve())
    assert [event.fields["requests"] for event in told] == [2, 2]
    assert seen == [False, False]


def test_a_process_that_ends_tells_what_it_has_not_told_yet() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    told = r"shadow_summary seconds=\d+ requests=1 most=\('1 x MISSING_AUTH',\)"
    assert re.search(told, done.stderr)


_PROGRAM = """
import io, logging
from wsgiref.util import setup_testing_defaults
from lockgate import Gate
from lockgate.wsgi import protect

logging.basicConfig(level=logging.WARNING)
app = protect(lambda environ, start: (start("200 OK", []), [b"ok"])[1],
              Gate("memory://", brand="acme"), rules={}, shadow="all")
environ = {"PATH_INFO": "/x"}
setup_testing_defaults(environ)
print(b"".join(app(environ, lambda *_: None)))
"""
