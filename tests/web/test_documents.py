"""The OpenAPI documents hold: no server error, and no answer that is not in them."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from lockgate import Gate, Plan, Registration, run
from lockgate.asgi import GateMiddleware
from lockgate.demo.applications import fastapi_application, flask_application, starlette_application
from lockgate.demo.service import Service
from lockgate.demo.sign_in import SignIn
from lockgate.fastapi import error_handlers, operations
from lockgate.options import KeyOptions, WebOptions
from lockgate.sessions import Session, SignedCookie

sessions = SignedCookie(["a session secret of the tests"])
CHECKS: Any = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
CASES_OF_A_CAMPAIGN = 10_000


def gate() -> Gate:
    plenty = Plan("anonymous", rpm=10**9, rph=10**9, rpd=10**9, concurrent=None)
    made = Gate(
        "memory://",
        brand="acme",
        sessions=sessions,
        web_options=WebOptions(public_url="https://console.example.com", anonymous=plenty),
        features=[
            Registration(
                session_secrets=["a session secret of the tests"],
                dashboard_url="https://console.example.com",
                per_address=10**9,
            )
        ],
        key_options=KeyOptions(cap=None),
    )
    limits = {"rpm": 10**9, "rph": 10**9, "rpd": 10**9, "concurrent": 100}
    run(made.organizations.place("org_1", "enterprise", **limits))
    return made


def plain_fastapi(service: Service) -> Any:
    gate = service.gate
    app = FastAPI(exception_handlers=error_handlers)
    app.include_router(operations(gate))
    return GateMiddleware(app, gate)


FACES: dict[str, Any] = {
    "starlette": (starlette_application, schemathesis.openapi.from_asgi),
    "fastapi": (fastapi_application, schemathesis.openapi.from_asgi),
    "flask": (flask_application, schemathesis.openapi.from_wsgi),
    "fastapi-own-document": (plain_fastapi, schemathesis.openapi.from_asgi),
}


def hold(face: str, cases: int) -> None:
    """Send ``cases`` requests to an adapter, with and without credentials; check each answer."""
    make, load = FACES[face]
    behind = gate()
    key = run(behind.keys.create("org_1", "a key")).text
    bearer = {"Authorization": f"Bearer {key}"}
    cookie = {"Cookie": f"__session={sessions.issue(Session('org_1', 'ada', 'ada@example.com'))}"}
    service = Service(behind, SignIn("http://127.0.0.1", behind, sessions, is_local=True))
    schema = load("/openapi.json", make(service), headers=bearer)
    operations = [found.ok() for found in schema.get_all_operations()]
    credentials = st.sampled_from([bearer, cookie, {}])

    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(case=st.one_of([o.as_strategy() for o in operations]), credential=credentials)
    def ask(case: Any, credential: dict[str, str]) -> None:
        case.headers.pop("Authorization", None)
        case.cookies.clear()
        case.call_and_validate(headers=credential, checks=CHECKS)

    ask()


@pytest.mark.parametrize("face", FACES)
def test_the_document_holds(face: str) -> None:
    hold(face, 100)


@pytest.mark.campaign
@pytest.mark.parametrize("face", FACES)
def test_the_document_holds_for_long(face: str) -> None:
    hold(face, CASES_OF_A_CAMPAIGN)
