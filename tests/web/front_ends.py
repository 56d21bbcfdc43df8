"""Send one request to lockgate's operations behind every framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.test.utils import override_settings
from fastapi import FastAPI
from flask import Flask
from quart import Quart
from starlette.applications import Starlette

from lockgate import Gate, asgi, django, fastapi, flask, litestar, quart, starlette, wsgi

from .applications import Response, asking, of_litestar

KEYS = "/api/v1/api-keys"
STATUS = "/api/v1/account/rate-limits"
CLAIM = "/api/v1/auth/claim"

urlpatterns: list[Any] = []
_DJANGO = {
    "ROOT_URLCONF": __name__,
    "ALLOWED_HOSTS": ["*"],
    "MIDDLEWARE": ["lockgate.django.RouteMiddleware"],
}


def _nothing(*_: Any) -> Any:
    raise AssertionError("only lockgate's operations are asked for")


APPLICATIONS: dict[str, Callable[[Gate], Any]] = {
    "starlette": lambda gate: starlette.protect(Starlette(), gate),
    "fastapi": lambda gate: fastapi.protect(FastAPI(), gate),
    "litestar": lambda gate: litestar.protect(of_litestar([]), gate),
    "quart": lambda gate: quart.protect(Quart("service"), gate),
    "django-asgi": lambda gate: django.protect(ASGIHandler(), gate),
    "asgi": lambda gate: asgi.protect(_nothing, gate),
    "flask": lambda gate: flask.protect(Flask("service"), gate),
    "django-wsgi": lambda gate: django.protect(WSGIHandler(), gate),
    "wsgi": lambda gate: wsgi.protect(_nothing, gate),
}
WSGI = {"flask", "django-wsgi", "wsgi"}
FRAMEWORKS = pytest.mark.parametrize("framework", APPLICATIONS)


class FrontEnd:
    """A client of an application of one framework."""

    def __init__(self, framework: str, gate: Gate) -> None:
        self._ask = asking(APPLICATIONS[framework](gate), is_wsgi=framework in WSGI)

    def ask(
        self,
        method: str,
        path: str,
        *,
        cookie: str | None = None,
        bearer: str | None = None,
        sent: object = None,
        **headers: str,
    ) -> Response:
        """Send one request.

        Args:
            method: the method.
            path: the path.
            cookie: the whole ``Cookie`` header.
            bearer: the credential after ``Bearer``.
            sent: the JSON body.
            headers: more headers, ``_`` for ``-``.
        """
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie is not None:
            fields["cookie"] = cookie
        if bearer is not None:
            fields["authorization"] = f"Bearer {bearer}"
        body = {} if sent is None else {"json": sent}
        return self._ask(path, fields, method, **body)


@contextmanager
def django_settings() -> Iterator[None]:
    """Let Django serve this module's empty list of views."""
    if not settings.configured:
        settings.configure()
    with override_settings(**_DJANGO):
        yield


def agent_of(page: FrontEnd) -> tuple[str, str]:
    """Register an agent and sign it in; return its cookie and its dashboard token."""
    body = {"agent_name": "bot", "billing_email": "ada@example.com"}
    token = page.ask("POST", "/api/v1/auth/bot-register", sent=body).body["dashboard_token"]
    signed_in = page.ask("POST", "/api/v1/auth/bot-sign-in", sent={"dashboard_token": token})
    return signed_in.headers["set-cookie"].split(";")[0], token
