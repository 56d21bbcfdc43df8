"""A process with a mistake in its gate never becomes ready, also where no lifespan tells of it."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from lockgate import ConfigurationError, Gate
from lockgate.options import WebOptions
from lockgate.sessions import SignedCookie

from .applications import ADAPTERS, asking

SESSIONS = SignedCookie(["a session secret of the tests"])
PAGE = "https://console.example.com"
PROTECTED = ("starlette", "fastapi", "flask")


def gate_of(public_url: str | None = PAGE) -> Gate:
    options = WebOptions(public_url=public_url, health="/health")
    return Gate(brand="acme", sessions=SESSIONS, web_options=options)


def made(
    framework: str, gate: Gate | None = None, scope: str = "models:read", other: Gate | None = None
) -> Any:
    """An application behind a gate, and the operations of another one."""
    adapter, make = ADAPTERS[framework]
    app = make(scope=scope)
    if other is not None:
        operations = adapter.operations(other)
        if framework == "starlette":
            app.router.routes.extend(operations)
        else:
            add = app.include_router if framework == "fastapi" else app.register_blueprint
            add(operations)
    return adapter.protect(app, gate or gate_of())


MISTAKES = {
    "modles:raed": lambda framework: made(framework, scope="modles:raed"),
    "operations of another gate": lambda framework: made(framework, other=gate_of()),
    "public_url": lambda framework: made(framework, gate_of(None)),
}


@pytest.mark.parametrize("framework", PROTECTED)
def test_a_process_without_a_mistake_is_ready(framework: str) -> None:
    gate = gate_of()
    for app in (made(framework, gate), made(framework, gate, other=gate)):
        assert asking(app, is_wsgi=framework == "flask")("/health/ready").status == 200


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("framework", ["starlette", "fastapi"])
def test_an_asgi_process_with_a_mistake_does_not_start_and_is_never_ready(
    framework: str, mistake: str
) -> None:
    app = MISTAKES[mistake](framework)
    with pytest.raises(ConfigurationError, match=mistake), TestClient(app):
        pass
    client = TestClient(MISTAKES[mistake](framework), raise_server_exceptions=False)
    assert {client.get("/health/ready").status_code for _ in range(2)} <= {500, 503}


def test_flask_is_not_protected_with_a_mistake_or_never_ready() -> None:
    for mistake in ("modles:raed", "operations of another gate"):
        with pytest.raises(ConfigurationError, match=mistake):
            MISTAKES[mistake]("flask")
    ask = asking(MISTAKES["public_url"]("flask"), is_wsgi=True)
    assert {ask("/health/ready").status for _ in range(2)} <= {500, 503}
