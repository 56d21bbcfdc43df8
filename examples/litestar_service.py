"""A Litestar service behind a gate. Serve it with ``uvicorn litestar_service:app``."""

import os
from typing import Any

from litestar import Litestar, Request, get, post

from lockgate import PUBLIC, Gate, Rule, run
from lockgate.litestar import RouteMiddleware, protect

gate = Gate(
    "memory://",
    brand="acme",
    # export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
)


@get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@get("/models")
async def models(request: Request[Any, Any, Any]) -> dict[str, Any]:
    return {"for": request.scope["state"]["principal"].organization, "data": ["m-1"]}


@post("/jobs", status_code=202)
async def start_job() -> dict[str, str]:
    return {"status": "started"}


rules = {
    "GET /health": PUBLIC,
    "GET /models": "models:read",
    "POST /jobs": Rule("jobs:write", cost=5),
}
service = Litestar([health, models, start_job], openapi_config=None, middleware=[RouteMiddleware])
app = protect(service, gate, rules, strict=True)

run(gate.organizations.place("org_1", "starter"))
print("key:    ", run(gate.keys.create("org_1", name="first key")).text)
