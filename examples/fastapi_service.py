"""A FastAPI service behind a gate; its documentation page shows the scopes.

Make its secrets once, serve it, use the key that it prints, and open ``/docs``::

    export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    export LOCKGATE_SESSION_SECRET=$(python -c "import secrets; print(secrets.token_urlsafe())")
    uvicorn fastapi_service:app
"""

import os

from fastapi import FastAPI

from lockgate import Gate, run
from lockgate.fastapi import Caller, protect, requires
from lockgate.options import WebOptions
from lockgate.sessions import Session, SignedCookie

sessions = SignedCookie([os.environ["LOCKGATE_SESSION_SECRET"]])
gate = Gate(
    "memory://",
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
    sessions=sessions,
    web_options=WebOptions(public_url="http://127.0.0.1:8000"),
)
app = FastAPI(title="acme", redoc_url=None, swagger_ui_oauth2_redirect_url=None)


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.get("/models")
async def models(caller: Caller = requires("models:read")) -> dict[str, object]:
    return {"for": caller.organization, "data": ["m-1"]}


@app.post("/jobs", status_code=202, dependencies=[requires("jobs:write", cost=5)])
async def start_job() -> dict[str, str]:
    return {"status": "started"}


protect(app, gate, public=["GET /health"], strict=True)

run(gate.organizations.place("org_1", "starter"))
print("key:    ", run(gate.keys.create("org_1", name="first key")).text)
print("session:", sessions.issue(Session("org_1", "ada")))
