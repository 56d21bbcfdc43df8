"""A FastAPI service behind a gate; its documentation page shows the scopes.

Make its secrets once, serve it, use the key that it prints, and open ``/docs``::

    export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    export LOCKGATE_SESSION_SECRET=$(python -c "import secrets; print(secrets.token_urlsafe())")
    uvicorn fastapi_service:app
"""

import os
from typing import Annotated

from fastapi import Depends, FastAPI

from lockgate import PUBLIC, Gate, Principal, Rule, run
from lockgate.asgi import GateMiddleware
from lockgate.fastapi import error_handlers, lockgate_router, require
from lockgate.sessions import Session, SignedCookie

sessions = SignedCookie([os.environ["LOCKGATE_SESSION_SECRET"]])
gate = Gate(
    "memory://",
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
    sessions=sessions,
    public_url="http://127.0.0.1:8000",
)
Reader = Annotated[Principal, Depends(require("models:read"))]

service = FastAPI(
    title="acme",
    exception_handlers=error_handlers,
    redoc_url=None,
    swagger_ui_oauth2_redirect_url=None,
)
service.include_router(lockgate_router(gate))


@service.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@service.get("/models")
async def models(caller: Reader) -> dict[str, object]:
    return {"for": caller.organization, "data": ["m-1"]}


@service.post("/jobs", status_code=202, dependencies=[Depends(require("jobs:write"))])
async def start_job() -> dict[str, str]:
    return {"status": "started"}


rules = {
    "GET /health": PUBLIC,
    "GET /docs": PUBLIC,
    "GET /openapi.json": PUBLIC,
    "GET /models": "models:read",
    "POST /jobs": Rule("jobs:write", cost=5),
}
app = GateMiddleware(service, gate, rules, strict=True)

run(gate.organizations.place("org_1", "starter"))
print("key:    ", run(gate.keys.create("org_1", name="first key")).text)
print("session:", sessions.issue(Session("org_1", "ada")))
