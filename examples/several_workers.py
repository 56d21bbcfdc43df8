"""One service in several worker processes that share a store, so that a limit holds over them all.

Make the pepper and a key once, then serve with any number of workers, also on several machines if
``LOCKGATE_STORE`` is the URL of a database server::

    export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    python several_workers.py
    gunicorn several_workers:app --workers 4 --threads 8
"""

import os

from flask import Flask, g

from lockgate import Gate, run
from lockgate.flask import protect, requires

gate = Gate(
    os.environ.get("LOCKGATE_STORE", "sqlite:///several_workers.db?mode=rwc"),
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
)


def create_app() -> Flask:
    app = Flask(__name__, static_folder=None)

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/worker")
    @requires("models:read")
    def worker() -> dict[str, object]:
        return {"for": g.principal.organization, "process": os.getpid()}

    return protect(app, gate, public=["GET /health"], strict=True)


app = create_app()

if __name__ == "__main__":
    print("key:", run(gate.keys.create("org_1", name="first key")).text)
    run(gate.close())
