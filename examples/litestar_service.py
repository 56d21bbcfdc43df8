"""A Litestar service behind a gate. Serve it with ``uvicorn litestar_service:app``."""

import os
from typing import Any

from litestar import Litestar, Request, get, post

from lockgate import Gate, run
from lockgate.litestar import RouteMiddleware, protect, requires

gate = Gate(
    "memory://",
    brand="acme",
    # export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
)


@get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@get("/models", guards=[requires("models:read")])
async def models(request: Request[Any, Any, Any]) -> dict[str, Any]:
    return {"for": request.scope["state"]["principal"].organization, "data": ["m-1"]}


@post("/jobs", status_code=202, guards=[requires("jobs:write", cost=5)])
async def start_job() -> dict[str, str]:
    return {"status": "started"}


service = Litestar([health, models, start_job], openapi_config=None, middleware=[RouteMiddleware])
app = protect(service, gate, public=["GET /health"], strict=True)

run(gate.organizations.place("org_1", "starter"))
print("key:    ", run(gate.keys.create("org_1", name="first key")).text)
