"""A Quart service behind a gate. Serve it with ``hypercorn quart_service:app``."""

import os

from quart import Quart, g

from lockgate import PUBLIC, Gate, Rule, run
from lockgate.quart import protect

gate = Gate(
    "memory://",
    brand="acme",
    # export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
)
app = Quart(__name__, static_folder=None)


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.get("/models")
async def models() -> dict[str, object]:
    return {"for": g.principal.organization, "data": ["m-1"]}


@app.post("/jobs")
async def start_job() -> tuple[dict[str, str], int]:
    return {"status": "started"}, 202


rules = {
    "GET /health": PUBLIC,
    "GET /models": "models:read",
    "POST /jobs": Rule("jobs:write", cost=5),
}
protect(app, gate, rules, strict=True)

run(gate.organizations.place("org_1", "starter"))
print("key:    ", run(gate.keys.create("org_1", name="first key")).text)
