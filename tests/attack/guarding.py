"""How the application of each framework is put behind a gate: the one place that knows.

A server loads the framework of its own application: all of them take a second more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette

from lockgate import Gate, Rule, starlette
from lockgate.asgi import GateMiddleware as AsgiGate
from lockgate.wsgi import GateMiddleware as WsgiGate

Rules = Mapping[str, Rule | str]


def guard_asgi(app: Any, gate: Gate, rules: Rules) -> Any:
    """Guard any ASGI application; Starlette's and FastAPI's by their own adapter."""
    if isinstance(app, Starlette):
        return starlette.protect(app, gate, rules=rules)
    return AsgiGate(app, gate, rules)


def guard_wsgi(app: Any, gate: Gate, rules: Rules) -> Any:
    """Guard any WSGI application."""
    return WsgiGate(app, gate, rules)


def guard_flask(app: Any, gate: Gate, rules: Rules) -> Any:
    from lockgate.flask import protect

    return protect(app, gate, rules=rules)


def guard_quart(app: Any, gate: Gate, rules: Rules) -> Any:
    from lockgate import quart

    return quart.protect(app, gate, rules=rules)


def guard_django(app: Any, gate: Gate, rules: Rules) -> Any:
    from lockgate import django

    return django.protect(app, gate, rules=rules)


def guard_litestar(app: Any, gate: Gate, rules: Rules) -> Any:
    from lockgate import litestar

    return litestar.protect(app, gate, rules=rules)
