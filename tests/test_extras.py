"""A service imports only the packages that its framework and its features need."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import lockgate

FLASK = """
from flask import Flask
from lockgate.flask import protect
app = protect(Flask(__name__), gate)
app.add_url_rule("/models", view_func=lambda: "models")
answer = app.test_client().get("/models", headers={"Authorization": bearer})
status = answer.status_code
"""
WSGI = """
from lockgate.wsgi import protect
def models(environ, start_response):
    start_response("200 OK", [])
    return [b"models"]
environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/models", "HTTP_AUTHORIZATION": bearer}
list(protect(models, gate)(environ, lambda line, headers, *_: statuses.append(line)))
status = int(statuses[0].split()[0])
"""
DJANGO = """
from django.conf import settings
from django.http import HttpResponse
settings.configure(
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], MIDDLEWARE=["lockgate.django.RouteMiddleware"]
)
import django
django.setup()
from django.core.wsgi import get_wsgi_application
from django.urls import path
from lockgate.django import protect
urlpatterns = [path("models", lambda request: HttpResponse("models"))]
environ = {
    "REQUEST_METHOD": "GET", "PATH_INFO": "/models", "HTTP_AUTHORIZATION": bearer,
    "SERVER_NAME": "localhost", "SERVER_PORT": "80", "wsgi.input": io.BytesIO(),
}
app = protect(get_wsgi_application(), gate)
list(app(environ, lambda line, headers, *_: statuses.append(line)))
status = int(statuses[0].split()[0])
"""
ASGI = """
from lockgate.asgi import protect
async def models(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"models"})
async def send(message):
    statuses.append(message.get("status"))
scope = {
    "type": "http", "method": "GET", "path": "/models", "raw_path": b"/models",
    "headers": [(b"authorization", bearer.encode())], "query_string": b"", "client": None,
}
asyncio.run(protect(models, gate)(scope, None, send))
status = statuses[0]
"""
QUART = """
from quart import Quart
from lockgate.quart import protect
app = protect(Quart(__name__), gate)
@app.get("/models")
async def models():
    return "models"
async def get():
    return await app.test_client().get("/models", headers={"Authorization": bearer})
status = asyncio.run(get()).status_code
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    done = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(done, check=False, capture_output=True, text=True)


@pytest.mark.parametrize(
    "served", [FLASK, WSGI, DJANGO, ASGI, QUART], ids=["flask", "wsgi", "django", "asgi", "quart"]
)
def test_a_served_request_imports_neither_starlette_nor_anyio_nor_email_validator(
    served: str,
) -> None:
    before = """
import asyncio, io, sys
from lockgate import Gate, run
from lockgate.sessions import SignedCookie
gate = Gate(brand="acme", sessions=SignedCookie(["an-old-secret-of-16-bytes-at-least"]))
bearer = "Bearer " + run(gate.keys.create("org_1", "first")).text
statuses = []
"""
    after = """
imported = {name.partition(".")[0] for name in sys.modules}
print(status, sorted(imported & {"anyio", "email_validator", "sniffio", "starlette"}))
"""
    done = run(before + served + after)
    assert done.stdout == "200 []\n", done.stderr


NEEDED = [
    ("starlette", "starlette", "lockgate[starlette]"),
    ("fastapi", "fastapi", "lockgate[fastapi]"),
    ("fastapi", "starlette", "lockgate[fastapi]"),
    ("flask", "flask", "lockgate[flask]"),
    ("mcp", "mcp", "lockgate[mcp]"),
    ("mcp", "starlette", "lockgate[mcp]"),
    ("dashboard", "jinja2", "lockgate[dashboard]"),
    ("prometheus", "prometheus_client", "lockgate[prometheus]"),
    ("opentelemetry", "opentelemetry", "lockgate[otel]"),
    ("testing.strategies", "hypothesis", "lockgate[testing]"),
    ("testing.suite", "pytest", "lockgate[testing]"),
    ("litestar", "litestar", "litestar"),
    ("quart", "quart", "quart"),
    ("django", "django", "django"),
]


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    done = run(
        f"""
        import importlib, sys
        from lockgate import Gate, Registration
        sys.modules["email_validator"] = None
        registration = Registration(session_secrets=["a" * 32], dashboard_url="https://a.example")
        try:
            Gate(brand="acme", features=[registration])
        except ValueError as error:
            print(error)
        before = dict(sys.modules)
        for module, package, _ in {NEEDED}:
            sys.modules.clear()
            sys.modules.update(before, **{{package: None}})
            try:
                importlib.import_module(f"lockgate.{{module}}")
            except ModuleNotFoundError as error:
                print(error)
        """
    )
    by_registration, *others = done.stdout.splitlines()
    named = "Registration(...) needs email_validator: pip install 'lockgate[registration]'."
    assert by_registration == named, done.stderr
    assert others == [
        f"lockgate.{module.partition('.')[0]} needs {package}: pip install '{installs}'"
        for module, package, installs in NEEDED
    ], done.stderr


def test_the_package_and_a_gate_import_what_is_needed_and_no_more() -> None:
    done = run(
        """
        import sys
        import lockgate
        print([name for name in sys.modules if 'lockgate.' in name])
        lockgate.Gate(brand="acme")
        features = "explain", "accounts.registration", "leaks.leak_reports", "usage.recorder"
        print([name for name in features if f"lockgate.services.{name}" in sys.modules])
        """
    )
    assert done.stdout == "[]\n['usage.recorder']\n", done.stderr
    assert set(dir(lockgate)) >= {*lockgate.__all__}
    with pytest.raises(AttributeError, match="has no attribute 'Gatee'"):
        _ = lockgate.Gatee  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]


def test_a_public_name_comes_from_the_module_that_type_checkers_see() -> None:
    tree = ast.parse(Path(lockgate.__file__).read_text())
    seen = {
        alias.name: "." * node.level + (node.module or "")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    assert seen == lockgate._MODULES
    assert set(seen) == {*lockgate.__all__}
    assert all(getattr(lockgate, name) is not None for name in seen)
