"""A Quart service behind a gate. Serve it with ``hypercorn quart_service:app``."""

import os

from quart import Quart, g

from lockgate import Gate, run
from lockgate.quart import protect, requires

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
@requires("models:read")
async def models() -> dict[str, object]:
    return {"for": g.principal.organization, "data": ["m-1"]}


@app.post("/jobs")
@requires("jobs:write", cost=5)
async def start_job() -> tuple[dict[str, str], int]:
    return {"status": "started"}, 202


protect(app, gate, public=["GET /health"], strict=True)

run(gate.organizations.place("org_1", "starter"))
print("key:    ", run(gate.keys.create("org_1", name="first key")).text)
