"""Answers to a key that was rotated: ``Deprecation`` and ``Sunset`` until it ends (D43)."""

from __future__ import annotations

from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from lockgate import run
from lockgate.asgi import GateMiddleware as AsgiGate
from lockgate.core.timestamps import DAY, SECOND
from lockgate.errors import NotFound
from lockgate.wsgi import GateMiddleware as WsgiGate

from .driving import Bench, ask_by

RULES = {"GET /jobs": "jobs:read", "GET /models": "models:read"}
OWN = [("Deprecation", "@1"), ("Sunset", "Thu, 01 Jan 1970 00:00:01 GMT"), ("X-Own", "1")]


async def asgi_application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/missing":
        raise NotFound
    headers = [(name.encode(), value.encode()) for name, value in OWN]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def wsgi_application(asked: Any, start_response: Any) -> Iterable[bytes]:
    if asked["PATH_INFO"] == "/missing":
        raise NotFound
    start_response("200 OK", list(OWN))
    return [b""]


class Rotated:
    """A key for jobs that was rotated a day ago, and its successor."""

    def __init__(self, rpm: int | None = 1000) -> None:
        self.bench = Bench(rpm=rpm)
        gate, clock = self.bench.gate, self.bench.clock
        created = run(gate.keys.create("org_1", "a key", ["jobs:*"]))
        self.at = clock.now
        rotated = run(gate.keys.rotate("org_1", created.key.id, overlap_days=7))
        self.old, self.new = created.text, rotated.text
        clock.now += DAY
        self.asgi = AsgiGate(asgi_application, gate, RULES)
        self.wsgi = WsgiGate(wsgi_application, gate, RULES)

    def ask(self, server: str, path: str, key: str) -> tuple[int, dict[str, list[str]]]:
        """Return the status and the headers of an answer."""
        answer = ask_by(server, self.asgi if server == "asgi" else self.wsgi, path=path, key=key)
        names = dict(answer.headers)
        return answer.status, {name: answer.all(name) for name in names}


SERVERS = pytest.mark.parametrize("server", ["asgi", "wsgi"])


@SERVERS
@pytest.mark.parametrize(("path", "status"), [("/jobs", 200), ("/models", 403), ("/missing", 404)])
def test_each_answer_to_the_old_key_has_deprecation_and_sunset(
    server: str, path: str, status: int
) -> None:
    rotated = Rotated()
    for _ in range(2):
        got, headers = rotated.ask(server, path, rotated.old)
        assert got == status
        assert headers["deprecation"] == [f"@{rotated.at // SECOND}"]
        (sunset,) = headers["sunset"]
        ends = parsedate_to_datetime(sunset).timestamp()
        assert ends == (rotated.at + 7 * DAY) // SECOND
        assert "x-ratelimit-remaining" in headers


@SERVERS
def test_a_refusal_from_the_cache_has_the_sunset_header_too(server: str) -> None:
    rotated = Rotated(rpm=1)
    answers = [rotated.ask(server, "/jobs", rotated.old) for _ in range(4)]
    assert [status for status, _ in answers] == [200, 429, 429, 429]
    assert all("sunset" in headers for _, headers in answers)


@SERVERS
def test_answers_to_the_successor_keep_the_headers_of_the_application(server: str) -> None:
    rotated = Rotated()
    status, headers = rotated.ask(server, "/jobs", rotated.new)
    assert (status, headers["deprecation"], headers["x-own"]) == (200, ["@1"], ["1"])
    status, headers = rotated.ask(server, "/models", rotated.new)
    assert status == 403
    assert not {"deprecation", "sunset"} & headers.keys()
