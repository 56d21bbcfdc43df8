"""A Flask service behind a gate, with lockgate's own operations beside its views.

Make its secrets once, serve it, and use the key and the session cookie that it prints::

    export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    export LOCKGATE_SESSION_SECRET=$(python -c "import secrets; print(secrets.token_urlsafe())")
    waitress-serve --listen 127.0.0.1:5000 flask_service:app
"""

import os

from flask import Flask, g

from lockgate import Gate, run
from lockgate.flask import protect, requires
from lockgate.options import WebOptions
from lockgate.sessions import Session, SignedCookie

sessions = SignedCookie([os.environ["LOCKGATE_SESSION_SECRET"]])
gate = Gate(
    "memory://",
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
    sessions=sessions,
    web_options=WebOptions(public_url="http://127.0.0.1:5000"),
)


def create_app() -> Flask:
    app = Flask(__name__, static_folder=None)

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/models")
    @requires("models:read")
    def models() -> dict[str, object]:
        return {"for": g.principal.organization, "data": ["m-1"]}

    @app.post("/jobs")
    @requires("jobs:write", cost=5)
    def start_job() -> tuple[dict[str, str], int]:
        return {"status": "started"}, 202

    # Last: a strict gate looks at all routes.
    return protect(app, gate, public=["GET /health"], strict=True)


app = create_app()

run(gate.organizations.place("org_1", "starter"))
print("key:    ", run(gate.keys.create("org_1", name="first key")).text)
print("session:", sessions.issue(Session("org_1", "ada")))
