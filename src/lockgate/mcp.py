"""The adapter for servers of the Model Context Protocol: the SDK's and FastMCP's, over HTTP.

Use::

    server = MCPServer("search")

    @server.tool()
    @requires("search:read", limits=[Limit("search", "30/minute", by="key")])
    async def search(query: str) -> str: ...

    protect(server, gate, rules={"tools/list": "search:read"})
    app = server.streamable_http_app()

The steps of a call, and the statuses that each may answer:

1. ``RoutingHeaders`` in ``web/mcp_calls.py`` reads the call from the headers, ``calls_of`` from the
   body where the protocol version has no such headers: 400, 413.
2. ``GateMiddleware`` in ``asgi.py`` admits it by the rule that ``CallRules.match`` in
   ``web/mcp_rules.py`` finds: 401, 403, 429, 503. ``rpc_reply`` gives each refusal its body.
3. The application runs: middleware, and the session manager of the SDK.
4. ``DispatchCheck`` in ``web/mcp_dispatch.py`` refuses, where the server dispatches a call, what
   step 2 did not admit, or by the rule of something else.
5. A function with :func:`requires` checks that its rule was charged.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any, Final, ParamSpec, TypeVar, cast

from .asgi import GateMiddleware
from .core.access_rule import PUBLIC, Credential, Rule, SlotUse
from .core.extras import extra
from .core.limits import Limit
from .error_formats import RATE_LIMITED
from .errors import ConfigurationError, Refusal, Unauthenticated
from .events import logger
from .gate import Gate
from .principal import Caller, Principal
from .web.asgi_exchange import REPLY_OF, ClientGone, Exchange, refuse
from .web.asgi_types import ASGIApp, Receive, Scope, Send
from .web.audit import Audit, StrictAuditFailed
from .web.entry import entry_in, principal_of
from .web.mcp_calls import (
    UNREAD,
    Calls,
    InBatch,
    ReadAhead,
    RoutingHeaders,
    calls_of,
    rpc_reply,
)
from .web.mcp_rules import CallRules, Component, audit_calls
from .web.operations.operation import Reply
from .web.protection import EXTENSION, combined_rules
from .web.requirements import mark
from .web.shadow import Shadow

with extra("mcp", "lockgate[mcp]", "mcp", "starlette"):
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
    from mcp.server.auth.settings import AuthSettings
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route

    from .web.mcp_dispatch import CALLS, DispatchCheck, caller, check_declared, hold, principal
    from .web.mcp_servers import BuildApp, McpServer, endpoint_of, server_of
    from .web.starlette_stack import guarded_stack

__all__ = [
    "RATE_LIMITED",
    "Caller",
    "KeyVerifier",
    "audit",
    "caller",
    "hold",
    "principal",
    "protect",
    "requires",
]

P = ParamSpec("P")
R = TypeVar("R")
Server = TypeVar("Server")

_NOT_LISTED: Final = (
    "The tools, resources and prompts of an MCP server could not be listed: rules by their names "
    "hold, and functions with @requires refuse calls until they are listed."
)
_GATE: Final = "__lockgate_mcp__"
_METADATA: Final = "/.well-known/oauth-protected-resource"
_request: Final = ContextVar[Principal | None]("lockgate_mcp_request", default=None)
"""The caller of the HTTP request, for :class:`KeyVerifier`."""


def protect(
    server: Server,
    gate: Gate,
    *,
    public: Iterable[str] = (),
    rules: Mapping[str, Rule | str] | None = None,
    strict: bool = False,
    shadow: Shadow | None = None,
    auth: AuthSettings | None = None,
) -> Server:
    """Put a gate before an MCP server: every call and every route, closed by default.

    The HTTP applications that the server makes afterwards have the gate, outside all middleware.
    Over other transports the server refuses all calls. Tools, resources and prompts may be added
    at any time.

    Args:
        server: an ``MCPServer`` or ``Server`` of the SDK, or a ``FastMCP``.
        gate: the gate that admits or refuses each call.
        public: what needs no key: calls such as ``"tools/list"``, routes such as ``"GET /health"``.
        rules: by ``"tools/call NAME"``, ``"prompts/get NAME"``, ``"resources/read URI"`` or another
            method such as ``"tools/list"``, what calls require beside what their functions declare
            with :func:`requires`: a scope or a :class:`~lockgate.Rule`. The name ``*`` is for every
            call of the method that no other rule names. Routes beside MCP are named
            ``"METHOD /path"``.
        strict: refuse to start while the audit finds anything: a tool, a resource, a prompt or a
            route that no rule names, or a rule that names none.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.
        auth: where clients use OAuth, the resource and its authorization server: the application
            serves the metadata of RFC 9728, and refusals name it. None: those of the server.

    Returns:
        The server itself.

    Raises:
        ConfigurationError: an argument is of the wrong kind, a rule is malformed, or the server has
            a gate already.
    """
    combined = combined_rules(server, gate, public, rules)
    if hasattr(server, _GATE):
        raise ConfigurationError("The server has a gate already: call protect() once.")
    routes = {key: rule for key, rule in combined.items() if _names_route(key)}
    calls = {key: rule for key, rule in combined.items() if key not in routes}
    accepts: tuple[Credential, ...] = ("key",)
    if gate.session_access.bearer is not None:
        accepts = ("key", "session")
    book = CallRules(calls, gate.catalogue, Rule(accepts=accepts))
    gate.know_limits(limit for _, _, rule in book for limit in rule.limits)
    served = server_of(server)
    served.check(DispatchCheck(gate, book, shadow))
    own: AuthSettings | None = getattr(getattr(server, "settings", None), "auth", None)
    gates: list[_McpGate] = []

    def wrapper(build: BuildApp) -> BuildApp:
        @wraps(build)
        def built(*args: Any, **kwargs: Any) -> Starlette:
            app = build(*args, **kwargs)
            if own is None and auth is not None:
                app.router.routes.extend(_metadata_routes(auth))
            guarded = _McpGate(
                app, served, gate, book, routes, accepts, auth or own, strict=strict, shadow=shadow
            )
            stack = app.build_middleware_stack
            app.build_middleware_stack = partial(guarded_stack, app, guarded, stack)  # type: ignore[method-assign]
            setattr(app.state, EXTENSION, guarded)
            gates[:] = [guarded]
            return app

        return built

    served.wrap(wrapper)
    setattr(server, _GATE, gates)
    return server


def requires(
    scope: str | None = None,
    *,
    cost: int = 1,
    slot: SlotUse = False,
    limits: Iterable[Limit] = (),
    accepts: tuple[Credential, ...] = ("key",),
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate the function of a tool, a resource or a prompt with what a caller must bring.

    The declaration is a rule of the gate before the server, so a refused call never reaches the
    function. Put it directly above the function, below ``@server.tool()``.

    Args:
        scope: the scope that a key needs; None: any key will do.
        cost: the units that the call takes from each window, at least 1.
        slot: whether the call holds a slot for concurrent jobs until it is answered; the function
            is cancelled when the client goes away.
        limits: named limits that the call is charged for as well (D40).
        accepts: the credentials that are accepted: API keys, and with ``session`` the tokens of an
            identity provider, where the gate has ``WebOptions(session_bearer=...)``.

    Raises:
        ConfigurationError: the scope is no exact scope, the cost is less than 1, or the limits do
            not fit together.
    """
    rule = Rule(scope, cost=cost, slot=slot, limits=limits, accepts=accepts)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            check_declared(rule, function)
            return function(*args, **kwargs)

        @wraps(function)
        async def guarded_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            check_declared(rule, function)
            return await cast(Callable[P, Awaitable[Any]], function)(*args, **kwargs)

        is_async = iscoroutinefunction(function)
        made = cast(Callable[P, R], guarded_async) if is_async else guarded
        mark(function, made, rule)
        return made

    return decorate


def audit(server: object) -> Audit:
    """Return what each call and route of a protected server requires, and what is undecided.

    Args:
        server: what :func:`protect` returned, or the application that it made.

    Raises:
        ConfigurationError: the server has no gate or has made no application yet, or its functions
            and its rules contradict each other.
    """
    gates: list[_McpGate] = getattr(server, _GATE, [])
    found = getattr(getattr(server, "state", None), EXTENSION, gates[0] if gates else None)
    if not isinstance(found, _McpGate):
        raise ConfigurationError(
            "No gate is before this server: call protect(server, gate), then streamable_http_app() "
            "or http_app(), then audit(server)."
        )
    return found.audit()


class KeyVerifier:
    """Verifies keys for the SDK's own authentication, by the interface of its token verifiers.

    Behind :func:`protect` it returns the caller that the gate has admitted. Without it, it admits a
    key by itself, so that a server with nothing but ``MCPServer(token_verifier=KeyVerifier(gate),
    auth=...)`` has keys and the limits of plans, but no rule for a tool.

    Args:
        gate: the gate that has the keys.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate: Final = gate

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return who has a token; None: it is not accepted.

        Raises:
            Refusal: the token is good, and a limit or a store refuses it.
        """
        admitted = _request.get()
        if admitted is None:
            try:
                admitted = await self._gate.authenticate(token)
            except Unauthenticated:
                return None
        covered = [name for name in self._gate.catalogue.scopes if name in admitted.scopes]
        return _access_token(admitted, covered)


class _CallExchange(Exchange):
    """A call, and the response to it: its rule is found by the JSON-RPC method and the name."""

    __slots__ = ()

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.method, self.path = scope[CALLS].calls[0]
        self.raw_path = b""

    def header(self, name: bytes) -> list[bytes]:
        # Without cookies: a page of another site could have a browser call a tool.
        return [] if name == b"cookie" else super().header(name)


class _CallGate(GateMiddleware):
    """Puts the rules of calls before the endpoint of a server."""

    exchange = _CallExchange

    def __init__(self, app: ASGIApp, gate: Gate, book: CallRules, shadow: Shadow | None) -> None:
        super().__init__(app, gate, shadow=shadow)
        self.guard.audited = True
        book_of_calls: Any = book
        self.guard.book = book_of_calls


class _RouteGate(GateMiddleware):
    """Puts the rules of routes before the application of a server; does not start after a mistake
    in the rules of calls."""

    mistake: ConfigurationError | None = None

    def start(self) -> None:
        if self.mistake is not None:
            raise self.mistake
        super().start()


class _McpGate:
    """Puts a gate before the HTTP application of an MCP server.

    Attributes:
        app: the middleware of the application inside the gate.
        guard: of the routes beside MCP.
    """

    def __init__(
        self,
        app: Starlette,
        server: McpServer,
        gate: Gate,
        book: CallRules,
        routes: Mapping[str, Rule | str],
        accepts: tuple[Credential, ...],
        auth: AuthSettings | None,
        *,
        strict: bool,
        shadow: Shadow | None,
    ) -> None:
        self.app: ASGIApp = app
        self._server: Final = server
        self._gate: Final = gate
        self._book: Final = book
        self._is_strict: Final = strict
        self._shadow: Final = shadow
        path = endpoint_of(app)
        self._path: Final = path
        served = {route.path for route in app.routes if isinstance(route, Route | Mount)}
        open_to_all = {f"* {at}": PUBLIC for at in served if at.startswith(_METADATA)}
        named = {f"* {path}": Rule(accepts=accepts), **open_to_all, **routes}
        self._routes: Final = _RouteGate(app, gate, named, strict=strict, shadow=shadow)
        self._routes.app = self._run
        self._calls: Final = _CallGate(self._run_calls, gate, book, shadow)
        self.guard: Final = self._routes.guard
        self._components: list[Component] | None = None
        self._seen = -1
        """The number of components at the latest :meth:`_learn`; -1: before the first."""
        resource = None if auth is None else auth.resource_server_url
        self._metadata: Final = (
            None if resource is None else str(build_resource_metadata_url(resource))
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit a call or another request and run the application, or answer with a refusal."""
        kind = scope["type"]
        if kind == "http":
            path, root = scope["path"], scope.get("root_path", "")
            if root and path.startswith(root):
                path = path[len(root) :]
            if path == self._path:
                if scope["method"] == "POST":
                    await self._call(scope, receive, send)
                    return
                scope[REPLY_OF] = partial(self._reply, None)
        elif kind == "lifespan":
            try:
                await self._learn()
            except ConfigurationError as mistake:
                self._routes.mistake = mistake
        await self._routes(scope, receive, send)
        if kind == "lifespan":
            self._calls.guard.ended()

    def audit(self) -> Audit:
        """Return what each call and route requires, and what is undecided."""
        with ThreadPoolExecutor(1) as thread:  # An event loop may run in this one.
            self._book.learn(thread.submit(asyncio.run, self._server.components()).result())
        routes, calls = self._routes.audit(), audit_calls(self._calls.guard, self._book)
        return Audit([*calls.routes, *routes.routes], [*calls.problems, *routes.problems])

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the calls of a request, and run those that are admitted."""
        try:
            headers = RoutingHeaders.of(scope["headers"])
            call = headers.call
            if call is not None:
                calls = Calls([call])
            else:
                receive = ahead = ReadAhead(receive)
                calls = await self._read(scope, headers, ahead)
            is_known = self._book.known.issuperset(calls.calls)
            if not is_known and self._server.size() != self._seen:
                await self._learn()
        except ClientGone:
            return
        except Refusal as refusal:
            if self._shadow != "all":
                scope[REPLY_OF] = partial(self._reply, None)
                await refuse(refusal, scope, send, self._gate)
                return
            calls = Calls([UNREAD])
        scope[CALLS], scope[REPLY_OF] = calls, partial(self._reply, calls)
        await self._calls(scope, receive, send)

    async def _read(self, scope: Scope, headers: RoutingHeaders, ahead: ReadAhead) -> Calls:
        """Read the calls of a body, unless it is refused whatever it calls.

        Raises:
            Refusal: the body cannot be read, or the address has spent its budget of failures.
        """
        gate, guard = self._gate, self._calls.guard
        if self._shadow != "all":
            names = {b"authorization", gate.key_header}
            if not self._book.has_public and not any(n in names for n, _ in scope["headers"]):
                return Calls([UNREAD])
            if gate.failures.has_spent:
                caller = _CallExchange({**scope, CALLS: Calls([UNREAD])})
                await guard.refuse_unknown(caller, self._book.match(*UNREAD))
        return calls_of(await ahead.body(), headers)

    async def _run_calls(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application for admitted calls: the first of them, and after this the others."""
        calls: Calls = scope[CALLS]
        entry = entry_in(scope)
        assert entry is not None, "the gate has admitted the request"
        calls.admit(calls.calls[0], entry)
        for call in calls.calls[1:]:
            further = await self._calls.guard.enter(_CallExchange({**scope, CALLS: Calls([call])}))
            if further.slot is not None:
                raise InBatch(call)
            calls.admit(call, further)
        try:
            await self._run(scope, receive, send)
        finally:
            if calls.ends:
                calls.end()

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; the SDK finds the caller as its own authentication would give it.

        It binds sessions to the caller: a session of another key is not found.
        """
        if REPLY_OF not in scope:
            await self.app(scope, receive, send)
            return
        admitted = principal_of(scope)
        if admitted is not None:
            scope["user"] = _User(admitted)
        token = _request.set(admitted)
        try:
            await self.app(scope, receive, send)
        finally:
            _request.reset(token)

    def _reply(self, calls: Calls | None, refusal: Refusal) -> Reply:
        request_id = None if calls is None else calls.id
        return rpc_reply(refusal, self._gate, request_id, self._metadata)

    async def _learn(self) -> None:
        """Learn what the server has now, and audit it if that has changed.

        Raises:
            StrictAuditFailed: strict mode, and the audit finds anything.
            ConfigurationError: the functions and the rules contradict each other.
        """
        size = self._server.size()
        self._server.settle()
        try:
            components = await self._server.components()
        except Exception:  # Of a provider, such as a server that FastMCP passes calls on to.
            logger.exception("%s", _NOT_LISTED)
            components = self._components or []
        if components != self._components:
            self._book.learn(components)
            self._gate.know_limits(limit for _, _, rule in self._book for limit in rule.limits)
            found = audit_calls(self._calls.guard, self._book)
            logger.info("calls and what they require:\n%s", "\n".join(map(str, found.routes)))
            if self._is_strict and found.problems:
                raise StrictAuditFailed(found)
            for problem in found.problems:
                logger.warning("%s", problem)
        self._components, self._seen = components, size


class _User(AuthenticatedUser):
    """A caller as the SDK's authentication gives one; its token is made when it is asked for."""

    def __init__(self, admitted: Principal) -> None:
        self._admitted = admitted

    @property
    def username(self) -> str:  # type: ignore[override]
        return self._admitted.organization

    @property
    def scopes(self) -> list[str]:  # type: ignore[override]
        return [*self._admitted.scopes]

    @property
    def access_token(self) -> AccessToken:  # type: ignore[override]
        return _access_token(self._admitted)


def _access_token(admitted: Principal, covered: Iterable[str] = ()) -> AccessToken:
    """Return a caller as the SDK's authentication gives one, without the text of the key (K2).

    Args:
        admitted: the caller.
        covered: further scopes that those of the caller cover: the SDK knows no wildcards.
    """
    key = admitted.key
    return AccessToken(
        token="" if key is None else key.prefix,
        client_id=admitted.organization,
        scopes=list(dict.fromkeys([*admitted.scopes, *covered])),
        subject=admitted.identity,
    )


def _metadata_routes(auth: AuthSettings) -> list[Route]:
    if auth.resource_server_url is None:
        raise ConfigurationError("auth= needs resource_server_url: the URL of this MCP endpoint.")
    return create_protected_resource_routes(
        auth.resource_server_url, [auth.issuer_url], auth.required_scopes
    )


def _names_route(key: str) -> bool:
    """Return whether a rule is for a route beside MCP: ``"GET /health"``."""
    method, _, target = key.partition(" ")
    return "/" in target and (method == "*" or (method.isalpha() and method.isupper()))
