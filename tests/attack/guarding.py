"""How the application of each framework is put behind a gate: the one place that knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockgate import Gate, Rule
from lockgate.web.asgi import GateMiddleware as AsgiGate
from lockgate.web.flask import FlaskGate
from lockgate.web.wsgi import GateMiddleware as WsgiGate

Rules = Mapping[str, Rule | str]

HOST_RULES = False
"""Whether rules can be bound to a host: ``GET host.example/path``."""


def asgi(app: Any, gate: Gate, rules: Rules) -> Any:
    """Any ASGI application; Starlette's and FastAPI's are recognised."""
    return AsgiGate(app, gate, rules)


def wsgi(app: Any, gate: Gate, rules: Rules) -> Any:
    """Any WSGI application."""
    return WsgiGate(app, gate, rules)


def flask(app: Any, gate: Gate, rules: Rules) -> Any:
    FlaskGate(gate, rules).init_app(app)
    return app


def django_wsgi(app: Any, gate: Gate, rules: Rules) -> Any:
    return WsgiGate(app, gate, rules)


def django_asgi(app: Any, gate: Gate, rules: Rules) -> Any:
    return AsgiGate(app, gate, rules)


def litestar(app: Any, gate: Gate, rules: Rules) -> Any:
    return AsgiGate(app, gate, rules)


def quart(app: Any, gate: Gate, rules: Rules) -> Any:
    return AsgiGate(app, gate, rules)
