"""Plans that the application keeps in a table of its own: lockgate asks for them, and keeps none.

Make the pepper once, subscribe an organization, then serve. A changed row holds from the next
request on::

    export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    python own_plan_resolver.py org_1 creator
    waitress-serve --listen 127.0.0.1:8080 own_plan_resolver:app
"""

import os
import sqlite3
import sys

from flask import Flask, g

from lockgate import Gate, Organization, run
from lockgate.flask import protect, requires
from lockgate.stores.sql import SqlStore

OURS = "subscriptions.db"


def subscription(organization: str) -> Organization | None:
    """The plan that we sold; None for the default plan. Asked before each admission."""
    with sqlite3.connect(OURS) as database:
        found = database.execute(
            "SELECT plan FROM subscription WHERE organization = ?", [organization]
        ).fetchone()
    return Organization(organization, found[0]) if found else None


with sqlite3.connect(OURS) as database:
    database.execute(
        "CREATE TABLE IF NOT EXISTS subscription (organization TEXT PRIMARY KEY, plan TEXT)"
    )

gate = Gate(
    SqlStore("sqlite:///own_plan_resolver.db?mode=rwc", resolver=subscription),
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
)
app = Flask(__name__, static_folder=None)
protect(app, gate, public=["GET /health"], strict=True)


@app.get("/health")
def health() -> dict[str, str]:
    return {"status": "ok"}


@app.get("/plan")
@requires("account:read")
def plan() -> dict[str, str]:
    return {"plan": g.principal.plan.name}


if __name__ == "__main__":
    organization, name = sys.argv[1:]
    with sqlite3.connect(OURS) as database:
        database.execute("REPLACE INTO subscription VALUES (?, ?)", [organization, name])
    print("key:", run(gate.keys.create(organization, name="first key")).text)
    run(gate.close())
