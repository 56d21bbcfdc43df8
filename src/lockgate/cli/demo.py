"""``lockgate demo``: the service behind a gate, served until somebody stops it."""

import json
import os
import secrets
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..gate import Gate
from ..identity import SESSION_COOKIE, Session, SignedCookie
from ..run import run
from ..web.asgi import ClientGone, GateMiddleware, body_reader, principal_of
from ..web.bodies import BODY_LIMIT, written
from ..web.starlette import error_handlers, lockgate_routes
from .service import Operation, Service, Visit

BRAND: Final = "acme"
DEVELOPMENT_PEPPER: Final = "lockgate demo pepper, for development only"
DEVELOPMENT_SESSION_SECRET: Final = "lockgate demo session secret, for development only"  # noqa: S105 - its own words say so
_FOR_DEVELOPMENT: Final = (
    "lockgate demo: the pepper and the session secret are fixed ones, for development only, "
    "unless LOCKGATE_PEPPER and LOCKGATE_SESSION_SECRET are set."
)
PLANS: Final = ("free", "starter", "creator", "enterprise")
ENTERPRISE: Final = {"rpm": 100_000, "rph": 1_000_000, "rpd": 10_000_000, "concurrent": 100}
_GRACE: Final = 3
"""Seconds that open requests have when the demo is stopped."""


def demo(host: str, port: int, store: str, *, as_json: bool) -> int:
    """Serve the demo until SIGINT or SIGTERM.

    Raises:
        ConfigurationError: the store's URL names no store.
        StoreUnavailable: the store cannot be used.
        OSError: the address cannot be listened on.
    """
    with _listen(host, port) as listener:
        _serve(listener, _url(host, listener.getsockname()[1]), store, as_json=as_json)
    return 0


def _serve(listener: socket.socket, url: str, store: str, *, as_json: bool) -> None:
    sessions = SignedCookie([_secret("SESSION_SECRET", DEVELOPMENT_SESSION_SECRET)])
    gate = Gate(
        store,
        brand=BRAND,
        peppers=[_secret("PEPPER", DEVELOPMENT_PEPPER).encode()],
        sessions=sessions,
        public_url=url,
    )
    if gate.store.io != "async":
        run(gate.organizations.plan("demo"))  # A store that cannot be used: say so, serve nothing.
    server = _Server(gate, sessions, url, as_json=as_json)
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, _stopped)  # The server raises the signal again once it has stopped.
    server.run(sockets=[listener])


def _stopped(*_: object) -> None:
    raise SystemExit(0)


def application(gate: Gate) -> ASGIApp:
    """The demo's service as a Starlette application, behind the gate."""
    service = Service(gate)
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in service.operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    app = Starlette(
        routes=[
            *lockgate_routes(gate),
            *(Route(path, _endpoint(by), methods=[*by]) for path, by in by_path.items()),
        ],
        exception_handlers=error_handlers,
    )
    # A redirect to the path with its slash would be built from the caller's own Host header.
    app.router.redirect_slashes = False
    return GateMiddleware(app, gate, service.rules)


def _endpoint(operations: Mapping[str, Operation]) -> Any:
    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        try:
            body = await body_reader(request.receive)(BODY_LIMIT)
        except ClientGone:
            return Response(status_code=400)
        visit = Visit(principal_of(request.scope), request.path_params, body)
        status, value = await operations[method].handler(visit)
        return Response(written(value), status, media_type="application/json")

    return endpoint


class _Server(uvicorn.Server):
    """Makes the demo's organizations and tells about them once it is listening."""

    def __init__(self, gate: Gate, sessions: SignedCookie, url: str, *, as_json: bool) -> None:
        # The peer's address is what counts here: uvicorn would believe any X-Forwarded-For that
        # comes from this machine. Access logs would go to the output that is to hold one line.
        super().__init__(
            uvicorn.Config(
                application(gate),
                lifespan="on",
                proxy_headers=False,
                access_log=False,
                log_level="warning",
                timeout_graceful_shutdown=_GRACE,
            )
        )
        self._gate = gate
        self._sessions = sessions
        self._url = url
        self._as_json = as_json

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        organizations = {plan: await self._organization(plan) for plan in PLANS}
        print(_FOR_DEVELOPMENT, file=sys.stderr)
        if self._as_json:
            line = json.dumps({"base_url": self._url, "organizations": organizations})
        else:
            line = _invitation(self._url, organizations)
        print(line, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await self._gate.close()

    async def _organization(self, plan: str) -> dict[str, str]:
        id = f"org_{secrets.token_hex(8)}"
        overrides = ENTERPRISE if plan == "enterprise" else {}
        await self._gate.organizations.place(id, plan, **overrides)
        created = await self._gate.keys.create(id, f"{plan} demo key")
        session = Session(id, f"owner of {id}", f"owner@{plan}.example", email_verified=True)
        return {
            "id": id,
            "session_cookie": self._sessions.issue(session),
            "api_key": created.text,
        }


def _secret(name: str, development: str) -> str:
    return os.environ.get(f"LOCKGATE_{name}") or development


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the protocol named, asyncio would not switch off Nagle's algorithm: 44 ms a POST.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as problem:
        listener.close()
        raise OSError(f"cannot listen on {host} port {port}: {problem.strerror}.") from problem
    return listener


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _invitation(url: str, organizations: Mapping[str, Mapping[str, str]]) -> str:
    free = organizations["free"]
    lines = [
        f"lockgate demo on {url}, until Ctrl-C.",
        "",
        "An organization and a key for each plan:",
        *(f"  {plan:11} {made['id']}  {made['api_key']}" for plan, made in organizations.items()),
        "",
        "Call the service with the free plan's key, eleven times for its limit:",
        f"  curl -i {url}/api/v1/models -H 'Authorization: Bearer {free['api_key']}'",
        "",
        "Create a key with the free plan's dashboard session:",
        f"  curl -i {url}/api/v1/api-keys -H 'Content-Type: application/json' \\",
        f"    -H 'Cookie: {SESSION_COOKIE}={free['session_cookie']}' \\",
        '    -d \'{"name": "my key", "scopes": ["jobs:*"], "expiresInDays": 30}\'',
        "",
        "List the keys, and revoke one by its id:",
        f"  curl -i {url}/api/v1/api-keys -H 'Authorization: Bearer {free['api_key']}'",
        f"  curl -i -X DELETE {url}/api/v1/api-keys/KEY_ID "
        f"-H 'Authorization: Bearer {free['api_key']}'",
        "",
        "See what the limits say:",
        f"  curl -i {url}/api/v1/account/rate-limits -H 'Authorization: Bearer {free['api_key']}'",
    ]
    return "\n".join(lines)
