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

from lockgate import PUBLIC, Gate, Rule, run
from lockgate.asgi import GateMiddleware
from lockgate.sessions import Session, SignedCookie
from lockgate.starlette import error_handlers, lockgate_routes, requires

sessions = SignedCookie([os.environ["LOCKGATE_SESSION_SECRET"]])
gate = Gate(
    "memory://",
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
    sessions=sessions,
    public_url="http://127.0.0.1:8000",
)


async def health(_: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


async def models(request: Request) -> JSONResponse:
    return JSONResponse({"for": request.state.principal.organization, "data": ["m-1"]})


@requires("jobs:write")
async def start_job(_: Request) -> JSONResponse:
    return JSONResponse({"status": "started"}, 202)


service = Starlette(
    routes=[
        Route("/health", health),
        Route("/models", models),
        Route("/jobs", start_job, methods=["POST"]),
        *lockgate_routes(gate),
    ],
    exception_handlers=error_handlers,
)
rules = {
    "GET /health": PUBLIC,
    "GET /models": "models:read",
    "POST /jobs": Rule("jobs:write", cost=5),
}
app = GateMiddleware(service, gate, rules, strict=True)

run(gate.organizations.place("org_1", "starter"))
print("key:    ", run(gate.keys.create("org_1", name="first key")).text)
print("session:", sessions.issue(Session("org_1", "ada")))
