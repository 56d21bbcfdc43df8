"""``lockgate routes`` and ``lockgate openapi``, on applications of several frameworks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from lockgate.cli import main

from .calling import Said, done

GATE = """
from lockgate import Gate, Limit, Rule
from lockgate.options import WebOptions
from lockgate.sessions import SignedCookie
gate = Gate(brand='acme', sessions=SignedCookie(['fedcba9876543210' * 2]),
            web_options=WebOptions(public_url='https://console.example.com'))
print('a line of the service')
"""
STARLETTE = """
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from lockgate.starlette import protect, requires

EXPORT = Limit('export', '15/hour')

@requires('jobs:write', cost=5, slot=True, limits=[EXPORT])
async def jobs(request): ...
async def other(request): ...

def make(strict=False):
    routes = [Route('/jobs/{id}', jobs, methods=['POST']), Route('/health', other),
              Route('/forgotten', other)]
    return protect(Starlette(routes=routes), gate, public=['GET /health'], strict=strict)
app = make()
"""
FASTAPI = """
from fastapi import FastAPI
from lockgate.fastapi import protect, requires
app = FastAPI(title='Rockets', docs_url=None, redoc_url=None)

@app.get('/jobs/{id}')
def job(id: int, caller = requires('jobs:read')): ...
@app.get('/health')
def health(): ...
protect(app, gate, public=['GET /health', 'GET /openapi.json'])
"""
FLASK = """
from flask import Flask
from lockgate.flask import protect
app = Flask(__name__, static_folder=None)
@app.get('/jobs/<id>')
def job(id): ...
@app.get('/health')
def health(): ...
protect(app, gate, public=['GET /health'],
        rules={'GET /jobs/{id}': Rule('jobs:read', limits=[Limit('export', '3/hour')])})
"""
STRICT_FLASK = """
from flask import Flask
from lockgate.flask import protect
def make():
    app = Flask(__name__, static_folder=None)
    app.add_url_rule('/forgotten', 'forgotten', lambda: '')
    app.add_url_rule('/health', 'health', lambda: '')
    protect(app, gate, public=['GET /health'], strict=True)
    return app
"""
STRICT_STARLETTE = """
from starlette.applications import Starlette
from starlette.routing import Route
from lockgate.starlette import protect
async def any(request): ...
def make():
    routes = [Route('/health', any), Route('/forgotten', any)]
    return protect(Starlette(routes=routes), gate, public=['GET /health'], strict=True)
"""
Service = Callable[[str], str]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    """Return a function that writes a service's module and returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)

    def write(text: str) -> str:
        name = f"service_{token_hex(4)}"
        (tmp_path / f"{name}.py").write_text(GATE + text)
        return name

    return write


def by_path(found: Any) -> dict[tuple[str, str], Any]:
    return {(one.pop("method"), one.pop("path")): one for one in found["routes"]}


def test_routes_are_open_guarded_or_undecided(capsys: Said, service: Service) -> None:
    name = service(STARLETTE)
    found = done(capsys, "routes", f"{name}:app")
    assert set(found) == {"routes", "problems"}
    routes = by_path(found)
    assert routes["POST", "/jobs/{id}"] == {
        "access": "guarded",
        "accepts": ["key"],
        "scopes": ["jobs:write"],
        "cost": 5,
        "slot": True,
        "limits": ["export 15/hour by organization"],
    }
    assert routes["GET", "/health"] == {
        "access": "open",
        "accepts": [],
        "scopes": [],
        "cost": None,
        "slot": False,
        "limits": [],
    }
    assert routes["GET", "/forgotten"]["access"] == "undecided"
    assert routes["POST", "/api/v1/api-keys"]["accepts"] == ["session"]
    assert any("/forgotten" in problem for problem in found["problems"])


def test_strict_is_exit_code_1_where_a_route_is_undecided(capsys: Said, service: Service) -> None:
    name = service(STARLETTE)
    assert main(["routes", f"{name}:app"]) == 0
    assert main(["routes", f"{name}:app", "--strict"]) == 1
    out, err = capsys.readouterr()
    assert "No rule names GET /forgotten" in err
    lines = [line.split() for line in out.splitlines()]
    assert ["GET", "undecided", "key", "-", "1", "-", "-", "/forgotten"] in lines
    limit = "export", "15/hour", "by", "organization"
    assert ["POST", "guarded", "key", "jobs:write", "5", "yes", *limit, "/jobs/{id}"] in lines
    tidy = service(FLASK)
    assert main(["routes", f"{tidy}:app", "--strict"]) == 0


@pytest.mark.parametrize("options", [[], ["--factory"]])
@pytest.mark.parametrize("text", [STRICT_FLASK, STRICT_STARLETTE])
def test_an_application_with_a_strict_audit_is_listed_and_exit_code_1(
    capsys: Said, service: Service, text: str, options: list[str]
) -> None:
    name = service(text if options else f"{text}app = make()\n")
    named = f"{name}:make" if options else f"{name}:app"
    assert main(["routes", named, "--strict", *options]) == 1
    out, err = capsys.readouterr()
    assert "No rule names GET /forgotten" in err
    assert "/forgotten" in out and "/health" in out
    found = done(capsys, "routes", named, *options)
    assert len(found["problems"]) == 1


def test_a_factory_makes_the_application(capsys: Said, service: Service) -> None:
    name = service(STARLETTE)
    made = done(capsys, "routes", f"{name}:make", "--factory")
    assert made == done(capsys, "routes", f"{name}:app")
    assert main(["routes", f"{name}:make"]) == 2
    assert "No gate is before this application" in capsys.readouterr().err
    assert main(["routes", f"{name}:app.state", "--factory"]) == 2


def test_the_document_of_fastapi_tells_scopes_and_refusals(capsys: Said, service: Service) -> None:
    name = service(FASTAPI)
    assert main(["openapi", f"{name}:app"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["info"]["title"] == "Rockets"
    job = document["paths"]["/jobs/{id}"]["get"]
    assert "401" in job["responses"] and "429" in job["responses"]
    assert main(["openapi", f"{name}:app", "--title", "Other"]) == 0
    assert json.loads(capsys.readouterr().out)["info"]["title"] == "Other"


@pytest.mark.parametrize("text", [STARLETTE, FLASK])
def test_other_frameworks_get_a_document_of_their_rules(
    capsys: Said, service: Service, text: str
) -> None:
    name = service(text)
    assert main(["openapi", f"{name}:app"]) == 0
    out = capsys.readouterr().out
    document = json.loads(out)
    assert document["openapi"] == "3.1.0"
    ((method, job),) = document["paths"]["/jobs/{id}"].items()
    scope = "jobs:write" if method == "post" else "jobs:read"
    assert job["security"] == [{"key": [scope]}]
    assert [parameter["name"] for parameter in job["parameters"]] == ["id"]
    assert [limit["name"] for limit in job["x-rate-limits"]] == ["export"]
    assert document["paths"]["/health"]["get"]["security"] == []
    assert "/api/v1/api-keys" in document["paths"]


def test_the_document_of_a_gate_has_its_operations(
    capsys: Said, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = service("")
    assert main(["openapi", "--gate", f"{name}:gate"]) == 0
    paths = json.loads(capsys.readouterr().out)["paths"]
    assert set(paths["/api/v1/api-keys"]) == {"get", "post"}
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_STORE", "memory://")
    assert main(["openapi"]) == 2
    assert "sessions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "named", "said"),
    [
        ("", "app", "No application can be loaded"),
        ("app = 3", "app", "No gate is before this application"),
        ("secret = {}['hunter2 of the database']", "app", "raises KeyError in"),
        ("gate = Gate(brand='')", "app", "The brand ''"),
    ],
)
def test_a_service_that_cannot_be_loaded_is_exit_code_2_and_shows_no_secret(
    capsys: Said, service: Service, text: str, named: str, said: str
) -> None:
    name = service(text)
    assert main(["routes", f"{name}:{named}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "hunter2" not in err and "Traceback" not in err
