"""A Starlette service under ``/shop``, a prefix that a proxy on this machine takes off.

The server is told of the prefix, so that links come out right; rules name paths without it. The
client's address is the one that the proxy adds to ``X-Forwarded-For``: what stood there before is
the client's own word, and is not believed::

    export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    uvicorn behind_a_proxy:app --root-path /shop --no-proxy-headers
"""

import os

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from lockgate import Gate, run
from lockgate.options import WebOptions
from lockgate.starlette import protect, requires


async def health(request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


@requires("models:read")
async def models(request: Request) -> JSONResponse:
    principal = request.state.principal
    return JSONResponse({"for": principal.organization, "url": str(request.url_for("models"))})


gate = Gate(
    os.environ.get("LOCKGATE_STORE", "memory://"),
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
    web_options=WebOptions(trusted_proxies=["127.0.0.1"]),
)
app = Starlette(
    routes=[Route("/health", health), Route("/models", models, name="models")],
)
protect(app, gate, public=["GET /health"], strict=True)

print("key:", run(gate.keys.create("org_1", name="first key")).text)
