"""A Quart service behind a gate. Serve it with ``hypercorn quart_service:app``."""

import os

from quart import Quart, request

from lockgate import PUBLIC, Gate, Rule, run
from lockgate.web.asgi import GateMiddleware

gate = Gate(
    "memory://",
    brand="acme",
    peppers=[os.environ.get("PEPPER", "a pepper for development only").encode()],
)
service = Quart(__name__)


@service.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@service.get("/models")
async def models() -> dict[str, object]:
    return {"for": request.scope["state"]["principal"].organization, "data": ["m-1"]}


@service.post("/jobs")
async def start_job() -> tuple[dict[str, str], int]:
    return {"status": "started"}, 202


rules = {
    "GET /health": PUBLIC,
    "GET /models": "models:read",
    "POST /jobs": Rule("jobs:write", cost=5),
}
app = GateMiddleware(service, gate, rules)

run(gate.organizations.place("org_1", "starter"))
print("key:    ", run(gate.keys.create("org_1", name="first key")).text)
