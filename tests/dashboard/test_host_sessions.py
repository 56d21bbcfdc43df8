"""The sessions of Django and Starlette open the pages, by the examples of the documentation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from lockgate import PUBLIC, Gate
from lockgate.dashboard import dashboard
from lockgate.options import WebOptions
from lockgate.starlette import protect
from tests.docs.blocks import ROOT, blocks

from .consoles import make_gate

_PAGE = (ROOT / "docs" / "dashboard.md").read_text()
_SETTINGS = """
SECRET_KEY = "the secret key of a test's project"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "people.sqlite3"}}
INSTALLED_APPS = [
    "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "lockgate.django.RouteMiddleware",
]
"""
_VISIT = """
import django, httpx
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from shop.wsgi import application
call_command("migrate", verbosity=0)
signed_in = Client()
signed_in.force_login(User.objects.create_user("ada"))
wsgi = httpx.WSGITransport(application)
person = httpx.Client(transport=wsgi, base_url="https://shop.example.com")
def keys(): return person.get("/settings/keys").status_code
def leave(site): return person.get("/sign-out", headers={"sec-fetch-site": site}).status_code
told = [keys()]
person.cookies.set("sessionid", signed_in.cookies["sessionid"].value)
told += [keys(), leave("cross-site"), keys(), leave("same-origin"), keys()]
print("told", told)
"""


def test_a_session_of_django_opens_the_pages_until_its_person_signs_out(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    for _, source in blocks(_PAGE, "py"):
        name = re.match(r"# shop/(\w+\.py)", source)
        assert name
        (package / name[1]).write_text(source)
    (package / "settings.py").write_text(_SETTINGS)
    variables = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "LOCKGATE_PEPPER": "the pepper of a test's project",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'src'}",
    }
    ran = subprocess.run(
        [sys.executable, "-c", _VISIT],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "told [401, 200, 403, 200, 302, 401]" in ran.stdout, ran.stdout + ran.stderr


async def _sign_in(request: Request) -> Response:
    request.session.update(organization="org_1", user="ada")
    return PlainTextResponse("")


def _verifier(secret: str) -> Any:
    (source,) = (text for _, text in blocks(_PAGE, "python") if "StarletteSessions" in text)
    names: dict[str, Any] = {}
    head = "from lockgate.sessions import Session\n"
    exec(head + source, names)
    return names["StarletteSessions"](secret)


def test_a_session_of_starlettes_middleware_opens_the_pages() -> None:
    secret = "the secret of a test's sessions"
    gate: Gate = make_gate(
        "http://testserver",
        sessions=_verifier(secret),
        web_options=WebOptions(session_cookie="session"),
    )
    app = Starlette(
        routes=[Route("/login", _sign_in), Mount("/settings", dashboard(gate))],
        middleware=[Middleware(SessionMiddleware, secret_key=secret)],
    )
    protect(app, gate, rules={"GET /login": PUBLIC}, strict=True)
    with TestClient(app) as person:
        assert person.get("/settings/keys").status_code == httpx.codes.UNAUTHORIZED
        person.get("/login")
        assert "org_1" in person.get("/settings/keys").text
        person.cookies.clear()
        person.cookies.set("session", "forged")
        assert person.get("/settings/keys").status_code == httpx.codes.UNAUTHORIZED
