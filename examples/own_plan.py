"""Plans and scopes of one's own, behind a proxy, on plain WSGI without any framework.

Make its pepper once, and serve it behind a proxy on this machine::

    export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    waitress-serve --listen 127.0.0.1:8000 own_plan:app

In memory each worker counts separately: for several workers set ``LOCKGATE_STORE`` to the URL of a
store that they share.
"""

import os

from lockgate import Catalogue, Gate, Plan, PlanBook, run
from lockgate.options import WebOptions
from lockgate.wsgi import protect

plans = PlanBook(
    [
        Plan("hobby", rpm=5, rph=50, rpd=200, concurrent=1),
        Plan("studio", rpm=600, rpd=100_000, concurrent=20),
    ],
    custom=[],
)
gate = Gate(
    os.environ.get("LOCKGATE_STORE", "memory://"),
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
    plans=plans,
    catalogue=Catalogue.of(["*", "render:read", "render:start"]),
    web_options=WebOptions(trusted_proxies=["127.0.0.1", "unix"]),
)


def service(environ, start_response):
    caller = environ["lockgate.entry"].principal
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [caller.plan.name.encode() if caller else b"ok"]


rules = {"GET /renders": "render:read", "POST /renders": "render:start"}
app = protect(service, gate, public=["GET /health"], rules=rules)

run(gate.organizations.place("org_1", "studio"))
print("key:    ", run(gate.keys.create("org_1", name="first key", scopes=["render:*"])).text)
