"""``lockgate demo``: serve the demo behind a gate until it is stopped."""

import json
import logging
import os
import secrets
import socket
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from importlib import import_module
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from lockgate.options import StoreOptions, WebOptions

from ..core.api_keys import ApiKey
from ..core.plans import Plan
from ..core.weak_secrets import DEMO_PEPPER, DEMO_SESSION_SECRET
from ..errors import ConfigurationError
from ..events import logger
from ..gate import Gate
from ..services.accounts.settings import Registration
from ..services.usage.rate_limit_status import LimitUsage
from ..services.usage.settings import UsageHistory
from ..sessions import SESSION_COOKIE, SignedCookie
from ..stores.answers import CREATED, NO_KEYS
from ..sync import run
from . import sign_in
from .applications import APPLICATIONS
from .mcp_tools import PATH as MCP_PATH
from .mcp_tools import is_offered
from .servers import Loaded, Serve, serve_asgi, serve_wsgi
from .service import TOKENS, Service
from .sign_in import SignIn
from .traffic import Traffic

BRAND: Final = "acme"
_DEVELOPMENT: Final = {
    "LOCKGATE_PEPPER": DEMO_PEPPER,
    "LOCKGATE_SESSION_SECRET": DEMO_SESSION_SECRET,
}
"""The text of each development secret, by the environment variable that overrides it."""
_MAKE: Final = "python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
PLANS: Final = ("free", "starter", "creator", "enterprise")
ENTERPRISE: Final = {"rpm": 100_000, "rph": 1_000_000, "rpd": 10_000_000, "concurrent": 100}
REGISTRATIONS_PER_HOUR: Final = 1_000
"""Per client address, which all users of the demo share."""


def demo(
    host: str,
    port: int,
    store: str,
    framework: str,
    deadline: float,
    *,
    as_json: bool,
    serve: Serve | None = None,
) -> int:
    """Serve the demo until SIGINT or SIGTERM.

    Args:
        host: the address to listen on.
        port: the port to listen on; 0 picks one.
        store: the URL of the store.
        framework: the framework of the application.
        deadline: the seconds that a request waits for a shared store.
        as_json: whether to print one line of JSON instead of an invitation.
        serve: the server; None: the demo's usual server for such an application.

    Raises:
        ConfigurationError: the store's URL names no store, or other machines can reach the address
            while a development secret is in use.
        StoreUnavailable: the store does not work.
        OSError: the address cannot be bound.
    """
    import_module(framework)  # A missing framework fails before the store is opened.
    if serve is None:
        serve = serve_wsgi if framework == "flask" else serve_asgi
    with _listen(host, port) as listener, _without_warnings_of_an_empty_store():
        is_local = _is_loopback(listener)
        if not is_local:
            _refuse_development_secrets(host)
        url = _url(host, listener.getsockname()[1])
        load = partial(_load, url, store, framework, deadline, as_json=as_json, is_local=is_local)
        serve(load, listener)
    return 0


@contextmanager
def _without_warnings_of_an_empty_store() -> Generator[None]:
    """Drop the warnings about a store without keys: the demo creates keys at each start."""

    def tells_more(record: logging.LogRecord) -> bool:
        return record.msg != CREATED and record.args != (NO_KEYS.text,)

    logger.addFilter(tells_more)
    try:
        yield
    finally:
        logger.removeFilter(tells_more)


class _DemoGate(Gate):
    async def named_usage(
        self, organization: str, key: ApiKey | None = None, plan: Plan | None = None
    ) -> tuple[LimitUsage, ...]:
        # The status of an organization that has only sent requests is that of the specification.
        found = await super().named_usage(organization, key, plan)
        return tuple(one for one in found if one.used)


def _load(
    url: str, store: str, framework: str, deadline: float, *, as_json: bool, is_local: bool
) -> Loaded:
    secret = _secret("LOCKGATE_SESSION_SECRET")
    sessions = SignedCookie([secret])
    registration = Registration(
        session_secrets=[secret],
        dashboard_url=f"{url}{sign_in.PATH}",
        per_address=REGISTRATIONS_PER_HOUR,
        per_network=None,
        per_service=None,
        development=True,
    )
    gate = _DemoGate(
        store,
        brand=BRAND,
        peppers=[os.fsencode(_secret("LOCKGATE_PEPPER"))],
        sessions=sessions,
        features=[registration, UsageHistory()],
        web_options=WebOptions(public_url=url, allowed_origins=other_names(url)),
        store_options=StoreOptions(deadline=deadline, hold_limits=[TOKENS]),
    )
    if gate.store.io != "async":
        # Fail early for a store that does not work. Creating its tables may take longer than the
        # deadline of a request.
        run(gate.keys.list("demo"))
    signs_in = SignIn(url, gate, sessions, is_local=is_local)
    service, busy = Service(gate, signs_in), Traffic(gate, _new_id())
    announce = partial(_announce, gate, signs_in, busy, url, framework, as_json=as_json)

    async def close() -> None:
        await busy.stop()
        await service.close()

    return Loaded(APPLICATIONS[framework](service), announce, gate.store.cancel_waits, close)


async def _announce(
    gate: Gate, signs_in: SignIn, busy: Traffic, url: str, framework: str, *, as_json: bool
) -> None:
    """Create the demo's organizations, begin the traffic of a further one, and print them."""
    await gate.ready()  # For a while calls may last for longer than the deadline of a request.
    await busy.begin()
    signs_in.add(
        "busy", busy.organization, "used by the demo itself: see its usage and its refusals"
    )
    organizations = {plan: await _organization(gate, signs_in, plan) for plan in PLANS}
    if used := development_secrets():
        print(
            "lockgate demo: the secrets are fixed ones that lockgate publishes, for development "
            f"only: set {' and '.join(used)} to your own.",
            file=sys.stderr,
        )
    if as_json:
        line = json.dumps({"base_url": url, "organizations": organizations})
    else:
        offers_tools = framework != "flask" and is_offered()
        line = _invitation(url, organizations, offers_tools=offers_tools)
    print(line, flush=True)


async def _organization(gate: Gate, signs_in: SignIn, plan: str) -> dict[str, str]:
    id = _new_id()
    await gate.organizations.place(id, plan, **(ENTERPRISE if plan == "enterprise" else {}))
    created = await gate.keys.create(id, f"{plan} demo key")
    limits = await gate.organizations.plan(id)
    cookie = signs_in.add(plan, id, f"at most {limits.rpm:,} requests a minute")
    return {"id": id, "session_cookie": cookie, "api_key": created.text}


def _new_id() -> str:
    return f"org_{secrets.token_hex(8)}"


def _secret(variable: str) -> str:
    """Return a secret from the environment, or else the development secret.

    A gate refuses published secrets, so the demo's are the SHA-256 of the published texts.
    """
    return os.environ.get(variable) or sha256(_DEVELOPMENT[variable].encode()).hexdigest()


def development_secrets() -> list[str]:
    """Return the environment variables without a secret, whose published defaults are used."""
    return [variable for variable in _DEVELOPMENT if not os.environ.get(variable)]


def _is_loopback(listener: socket.socket) -> bool:
    """Return whether only this machine can reach a bound socket.

    Its address decides, since a name may resolve to any address.
    """
    address = ip_address(listener.getsockname()[0].partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback


def _refuse_development_secrets(host: str) -> None:
    """Refuse to serve other machines with published secrets.

    Raises:
        ConfigurationError: a development secret is in use.
    """
    if used := development_secrets():
        raise ConfigurationError(
            f"Other machines can reach {host}, and the demo's own secrets are published: with them "
            f"anyone can sign in as any owner. Set {' and '.join(used)}, each to what this prints: "
            f"{_MAKE}. Or listen on 127.0.0.1."
        )


def _listen(host: str, port: int) -> socket.socket:
    if not host:
        raise ConfigurationError("The host is empty: use 127.0.0.1, or 0.0.0.0 for every address.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the protocol, asyncio does not disable Nagle's algorithm: 44 ms per POST.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as problem:
        listener.close()
        raise OSError(f"cannot listen on {host} port {port}: {problem.strerror}.") from problem
    return listener


def _url(host: str, port: int) -> str:
    """Return the URL by which a browser on this machine calls the demo."""
    with suppress(OSError):  # A browser writes the short forms of an address, such as 127.1, whole.
        host = socket.inet_ntoa(socket.inet_aton(host))
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def other_names(url: str) -> list[str]:
    """Return other URLs of the demo for a browser on this machine."""
    parts = urlsplit(url)
    try:
        address = ip_address(parts.hostname or "")
    except ValueError:
        here = parts.hostname == "localhost"
    else:
        here = address.is_loopback or address.is_unspecified
    names = ("localhost", "127.0.0.1", "[::1]") if here else ()
    return [f"http://{name}:{parts.port}" for name in names]


def _mcp_lines(url: str, key: str) -> list[str]:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    return [
        "",
        "Call a tool over MCP with the creator plan's key, or have an agent do it:",
        f"  curl -i {url}{MCP_PATH} -H 'Authorization: Bearer {key}' \\",
        "    -H 'Content-Type: application/json' \\",
        f"    -d '{json.dumps({**call, 'params': {'name': 'list_models'}})}'",
        f"  claude mcp add --transport http acme {url}{MCP_PATH} \\",
        f"    --header 'Authorization: Bearer {key}'",
    ]


def _invitation(
    url: str, organizations: Mapping[str, Mapping[str, str]], *, offers_tools: bool
) -> str:
    free = organizations["free"]
    lines = [
        f"lockgate demo on {url}, until Ctrl-C.",
        "",
        "An organization and a key for each plan:",
        *(f"  {plan:11} {made['id']}  {made['api_key']}" for plan, made in organizations.items()),
        "",
        "See keys, usage and refusals in a browser, and create and revoke keys there:",
        f"  {url}{sign_in.PATH}",
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
        "Register an agent, and see what the free plan's owner can claim:",
        f"  curl -i {url}/api/v1/auth/bot-register -H 'Content-Type: application/json' \\",
        '    -d \'{"agent_name": "my bot", "billing_email": "owner@free.example"}\'',
        f"  curl -i {url}/api/v1/auth/claim -H 'Cookie: {SESSION_COOKIE}={free['session_cookie']}'",
        "",
        "Export with the starter plan's key, eleven times for the named limit of exports:",
        f"  curl -i -X POST {url}/api/v1/exports "
        f"-H 'Authorization: Bearer {organizations['starter']['api_key']}'",
        "",
        "Complete a prompt, twice: each holds 1,000 tokens, the whole budget of a minute, until it",
        "settles the five that it used, so the second does not fit:",
        f"  curl -i -X POST {url}/api/v1/completions "
        f"-H 'Authorization: Bearer {organizations['creator']['api_key']}'",
        *(_mcp_lines(url, organizations["creator"]["api_key"]) if offers_tools else ()),
        "",
        "See what the limits say:",
        f"  curl -i {url}/api/v1/account/rate-limits -H 'Authorization: Bearer {free['api_key']}'",
    ]
    return "\n".join(lines)
