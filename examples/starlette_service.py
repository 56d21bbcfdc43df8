"""A Starlette service behind a gate, with lockgate's own operations beside its routes.

Make its secrets once, serve it, and use the key and the session cookie that it prints::

    export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    export LOCKGATE_SESSION_SECRET=$(python -c "import secrets; print(secrets.token_urlsafe())")
    uvicorn starlette_service:app
"""

import os

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from lockgate import Gate, run
from lockgate.options import WebOptions
from lockgate.sessions import Session, SignedCookie
from lockgate.starlette import protect, requires

sessions = SignedCookie([os.environ["LOCKGATE_SESSION_SECRET"]])
gate = Gate(
    "memory://",
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
    sessions=sessions,
    web_options=WebOptions(public_url="http://127.0.0.1:8000"),
)


async def health(_: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


@requires("models:read")
async def models(request: Request) -> JSONResponse:
    return JSONResponse({"for": request.state.principal.organization, "data": ["m-1"]})


@requires("jobs:write", cost=5)
async def start_job(_: Request) -> JSONResponse:
    return JSONResponse({"status": "started"}, 202)


app = Starlette(
    routes=[
        Route("/health", health),
        Route("/models", models),
        Route("/jobs", start_job, methods=["POST"]),
    ]
)
protect(app, gate, public=["GET /health"], strict=True)

run(gate.organizations.place("org_1", "starter"))
print("key:    ", run(gate.keys.create("org_1", name="first key")).text)
print("session:", sessions.issue(Session("org_1", "ada")))
