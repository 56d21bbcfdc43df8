"""Reports of leaked keys on every framework, and over real servers of ASGI and WSGI."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from waitress.server import create_server

from lockgate import Gate, LeakReports, flask, run, starlette, wsgi

from ..serving import served
from ..test_protect import ADAPTERS, asking, made_with_flask, made_with_starlette
from .leak_senders import PATH, Published, Sender, report

Address = tuple[str, int]


@contextmanager
def served_by_waitress(app: Any) -> Iterator[Address]:
    server: Any = create_server(app, host="127.0.0.1", port=0, threads=4)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield "127.0.0.1", server.effective_port
    finally:
        server.task_dispatcher.shutdown()  # First: a worker that ends pulls the trigger.
        server.trigger.pull_trigger(server.close)
        thread.join(60)


def by_starlette(gate: Gate) -> Any:
    return served(starlette.protect(made_with_starlette(), gate, errors="lockgate"))


def by_flask(gate: Gate) -> Any:
    return served_by_waitress(flask.protect(made_with_flask(), gate, errors="lockgate"))


def by_wsgi(gate: Gate) -> Any:
    def app(environ: Any, start_response: Any) -> Any:
        start_response("404 Not Found", [("Content-Length", "2")])
        return [b"{}"]

    return served_by_waitress(wsgi.protect(app, gate))


def post(address: Address, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize("serve", [by_starlette, by_flask, by_wsgi])
def test_a_signed_report_revokes_a_key_over_a_real_server(serve: Callable[[Gate], Any]) -> None:
    sender = Sender()
    leaks = LeakReports(keys=Published(sender), revoke=True, timeout=60)
    gate = Gate("memory://", brand="acme", features=[leaks])
    created = run(gate.keys.create("org_1", "leaked"))
    key = {"Authorization": f"Bearer {created.text}"}
    body = report(created.text)
    with serve(gate) as address:
        assert post(address, "/nowhere", b"", key)[0] == 404
        status, refused = post(address, PATH, body, dict(Sender("first").headers(body)))
        assert (status, refused["code"]) == (401, "REPORT_NOT_ACCEPTED")
        assert post(address, "/nowhere", b"", key)[0] == 404
        status, labels = post(address, PATH, body, dict(sender.headers(body)))
        assert (status, [label["label"] for label in labels]) == (200, ["true_positive"])
        status, refused = post(address, "/nowhere", b"", key)
        assert (status, refused["code"]) == (401, "KEY_REVOKED")


@pytest.mark.parametrize("framework", ADAPTERS)
def test_every_framework_takes_reports_without_sessions(framework: str) -> None:
    sender = Sender()
    leaks = LeakReports(keys=Published(sender), revoke=True, timeout=60)
    gate = Gate("memory://", brand="acme", features=[leaks])
    created = run(gate.keys.create("org_1", "leaked"))
    adapter, make = ADAPTERS[framework]
    app = adapter.protect(make(), gate)
    ask = asking(app, wsgi=framework == "flask")
    body = report(created.text)
    sent = {"data" if framework == "flask" else "content": body}
    answer = ask(PATH, dict(sender.headers(body)), **sent)
    assert (answer.status, answer.body[0]["label"]) == (200, "true_positive")
    assert ask("/models", {"Authorization": f"Bearer {created.text}"}).body["code"] == "KEY_REVOKED"
    assert ask("/api/v1/api-keys").body["code"] == "MISSING_AUTH"
    if framework == "fastapi":
        operation = app.openapi()["paths"][PATH]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        assert schema["items"]["required"] == ["token", "type"]
        assert "$ref" not in json.dumps(schema)
