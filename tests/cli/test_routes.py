"""``lockgate routes`` and ``lockgate openapi``, on applications of several frameworks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .calling import Service, Shell

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


def by_path(found: Any) -> dict[tuple[str, str], Any]:
    return {(one.pop("method"), one.pop("path")): one for one in found["routes"]}


def test_routes_are_open_guarded_or_undecided(shell: Shell, service: Service) -> None:
    name = service.write(GATE + STARLETTE)
    found = shell.json(f"routes {name}:app")
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


def test_strict_is_exit_code_1_where_a_route_is_undecided(shell: Shell, service: Service) -> None:
    name = service.write(GATE + STARLETTE)
    shell(f"routes {name}:app")
    out, err = shell(f"routes {name}:app --strict", code=1)
    assert "No rule names GET /forgotten" in err
    lines = [line.split() for line in out.splitlines()]
    assert ["GET", "undecided", "key", "-", "1", "-", "-", "/forgotten"] in lines
    limit = "export", "15/hour", "by", "organization"
    assert ["POST", "guarded", "key", "jobs:write", "5", "yes", *limit, "/jobs/{id}"] in lines
    shell(f"routes {service.write(GATE + FLASK)}:app --strict")


@pytest.mark.parametrize("text", [STRICT_FLASK, STRICT_STARLETTE])
def test_an_application_with_a_strict_audit_is_listed_and_exit_code_1(
    shell: Shell, service: Service, text: str
) -> None:
    """Also one that a factory makes."""
    made, factory = service.write(f"{GATE}{text}app = make()\n"), service.write(GATE + text)
    for named in (f"{made}:app", f"{factory}:make --factory"):
        out, err = shell(f"routes {named} --strict", code=1)
        assert "No rule names GET /forgotten" in err
        assert "/forgotten" in out and "/health" in out
        assert len(shell.json(f"routes {named}")["problems"]) == 1


def test_a_factory_makes_the_application(shell: Shell, service: Service) -> None:
    name = service.write(GATE + STARLETTE)
    assert shell.json(f"routes {name}:make --factory") == shell.json(f"routes {name}:app")
    shell(f"routes {name}:app.state --factory", code=2)


@pytest.mark.parametrize("command", ["routes", "openapi", "explain --request 'GET /health' --app"])
def test_a_factory_without_its_option_is_told_the_option(
    shell: Shell, service: Service, command: str
) -> None:
    """Also one that is written as a call, as servers take it."""
    name = service.write(GATE + STARLETTE + "from functools import partial\nhalf = partial(make)")
    for named in (f"{name}:make", f"{name}:half"):
        told = shell(f"{command} {named}", code=2).err
        assert f"'{named}' is no application" in told and "add --factory" in told
    for call in ("make()", "make(strict=True)"):
        told = shell(f"{command} '{name}:{call}'", code=2).err
        assert f"is a call: write {name}:make --factory" in told


@pytest.mark.parametrize("text", [STARLETTE, FASTAPI, FLASK])
def test_an_application_has_a_document_of_its_rules(
    shell: Shell, service: Service, text: str
) -> None:
    named = f"openapi {service.write(GATE + text)}:app"
    document = json.loads(shell(named).out)
    assert document["openapi"] == "3.1.0"
    ((method, job),) = document["paths"]["/jobs/{id}"].items()
    assert "401" in job["responses"] and "429" in job["responses"]
    assert [parameter["name"] for parameter in job["parameters"]] == ["id"]
    assert document["paths"]["/health"]["get"].get("security", []) == []
    if text == FASTAPI:
        assert document["info"]["title"] == "Rockets"
        document = json.loads(shell(f"{named} --title Other").out)
        assert document["info"]["title"] == "Other"
        return
    assert job["security"] == [{"key": ["jobs:write" if method == "post" else "jobs:read"]}]
    assert [limit["name"] for limit in job["x-rate-limits"]] == ["export"]
    assert "/api/v1/api-keys" in document["paths"]


def test_the_document_of_a_gate_has_its_operations(shell: Shell, service: Service) -> None:
    told = shell(f"openapi --gate {service.write(GATE)}:gate").out
    assert set(json.loads(told)["paths"]["/api/v1/api-keys"]) == {"get", "post"}
    assert "sessions" in shell("openapi", code=2).err


def test_a_service_that_cannot_be_loaded_is_exit_code_2_and_shows_no_secret(
    shell: Shell, service: Service
) -> None:
    for text, said in (
        ("", "No application can be loaded"),
        ("app = 3", "No gate is before this application"),
        ("secret = {}['hunter2 of the database']", "raises KeyError in"),
        ("gate = Gate(brand='')", "The brand ''"),
    ):
        out, err = shell(f"routes {service.write(GATE + text)}:app", code=2)
        assert (out, said in err) == ("", True), err
        assert "hunter2" not in err
