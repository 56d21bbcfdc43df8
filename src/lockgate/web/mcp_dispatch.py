"""The check of MCP calls where a server dispatches them, and the caller of the one that runs.

A server runs a call only if the gate has admitted the HTTP request that brought it, by the rule of
what it runs (D31). So a server that is reached around its gate refuses all calls (G9).
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from logging import WARNING
from typing import Any, Final, NamedTuple

import anyio
from mcp.shared.exceptions import MCPError
from starlette.requests import HTTPConnection

from ..core.access_rule import Rule
from ..core.limits import Limit
from ..errors import ClientDisconnected, ConfigurationError, MissingAuth, NotFound, Refusal
from ..events import OnceAMinute, logger
from ..gate import Gate
from ..principal import Caller, Principal
from ..services.reservations.hold_block import Hold
from .disconnects import DisconnectBlock
from .entry import ENTRY, Entry
from .mcp_calls import Call, Calls, HeaderMismatch, rpc_error
from .mcp_rules import CallRules
from .requirements import admitted
from .shadow import Shadow

CALLS: Final = "lockgate.mcp"
"""The key of a scope that holds the calls of an HTTP request; it stays there (D54)."""

_CAUSES_AT_MOST: Final = 10
_AROUND: Final = (
    "An MCP server has got a call around its gate, and refused it. Serve it over streamable HTTP "
    "by the application that streamable_http_app() or http_app() returns after protect()."
)

_Next = Callable[[Any], Awaitable[Any]]


class Running(NamedTuple):
    """The call that runs."""

    calls: Calls
    call: Call
    entry: Entry


_running: Final = ContextVar[Running | None]("lockgate_mcp_call", default=None)


class DispatchCheck:
    """Middleware of an MCP server: runs the calls that the gate has admitted, and refuses others.

    Args:
        gate: the gate before the server.
        book: the rules of the server.
        shadow: what is only watched; None: nothing.
    """

    def __init__(self, gate: Gate, book: CallRules, shadow: Shadow | None) -> None:
        self._gate: Final = gate
        self._book: Final = book
        self._shadow: Final = shadow
        self._around: Final = OnceAMinute()

    async def __call__(self, ctx: Any, call_next: _Next) -> Any:
        """Run one message of a client, if the gate has admitted it."""
        try:
            running = self._admitted(ctx)
            token = _running.set(running)
            try:
                if running.entry.slot is None:
                    return await call_next(ctx)
                async with _while_connected(running.calls):
                    return await call_next(ctx)
            finally:
                _running.reset(token)
        except Refusal as refusal:
            raise mcp_error(refusal) from None

    def check(self, method: str, name: str) -> None:
        """Check a call that may be made by another one that runs, as FastMCP's tools can.

        Code of the host that runs for no client may call what it likes.

        Raises:
            Refusal: the rule that was charged is not for it.
        """
        running = _running.get()
        if running is not None and (method, name) != running.call:
            self._check_rule(running.entry, Call(method, name))

    def _admitted(self, ctx: Any) -> Running:
        """Return the call of a message, and the record of its admission.

        Raises:
            NotFound: no gate has admitted the HTTP request, or by the rule of something else.
            HeaderMismatch: the gate has admitted another call than this one.
        """
        request = ctx.request
        calls = request.scope.get(CALLS) if isinstance(request, HTTPConnection) else None
        if not isinstance(calls, Calls):
            raise self._refused_around()
        call = Call.of(ctx.method, ctx.params)
        for place, (pending, entry) in enumerate(calls.pending):
            if pending == call:
                del calls.pending[place]
                self._check_rule(entry, call)
                return Running(calls, call, entry)
            # The SDK lists the tools of a server to check the parameters in headers.
            if call.method == "tools/list" and pending.method == "tools/call":
                return Running(calls, call, entry)
        if self._shadow == "all" and calls.entry is not None:
            return Running(calls, call, calls.entry)
        raise HeaderMismatch("The headers do not name what the body calls.")

    def _check_rule(self, entry: Entry, call: Call) -> None:
        needed = self._book.match(*call)
        charged = entry.rule
        if charged is needed or charged.includes(needed) or self._shadow == "all":
            return
        redact = self._gate.format.redact
        self._gate.events.emit(
            "route_mismatch",
            WARNING,
            method=redact(call.method),
            path=redact(call.name),
            charged=str(charged),
            needed=str(needed),
        )
        raise NotFound

    def _refused_around(self) -> Refusal:
        if self._around.is_due():
            logger.error("%s", _AROUND)
        return NotFound("No gate has admitted this call.")


def principal() -> Principal | None:
    """Return the caller of the call that runs; None on a call that needs no key.

    Raises:
        ConfigurationError: no call runs that a gate has admitted.
    """
    return _now().entry.principal


def caller() -> Caller:
    """Return the caller of the call that runs, whose ``key`` is never None.

    Raises:
        MissingAuth: the call came without a key: by a public rule, or with a session.
        ConfigurationError: no call runs that a gate has admitted.
    """
    found = principal()
    if found is None or found.key is None:
        raise MissingAuth
    return Caller._make(found)


def check_declared(rule: Rule, function: object) -> None:
    """Check, where a function runs, that its caller has shown and paid what it declares.

    Raises:
        Refusal: the caller has not.
        ConfigurationError: no call runs that a gate has admitted, or the gate did not charge the
            rule.
    """
    entry = _now().entry
    if entry.guard.shadow == "all" or entry.rule.includes(rule):
        return
    admitted(rule, {ENTRY: entry}, function)


@asynccontextmanager
async def hold(units: Mapping[Limit, int], *, seconds: float | None = None) -> AsyncGenerator[Hold]:
    """Return a context manager that holds units of named limits for the caller, in a tool.

    As :meth:`Gate.hold() <lockgate.Gate.hold>`, whose errors it raises: the block names at its end
    what it used. It is cancelled when the client goes away, and settles what it had named until
    then.

    Args:
        units: the most that the work can use, by limit. All are taken, or none is.
        seconds: until the units count as used if this process dies; None: as the gate has it.
    """
    running = _now()
    holder = running.entry.principal
    if holder is None:
        raise MissingAuth
    holding = running.entry.gate.hold(holder, units, seconds=seconds)
    async with _while_connected(running.calls), holding as held:
        yield held


def mcp_error(refusal: Refusal) -> MCPError:
    """Return a refusal as the error that a server sends to its client."""
    error = rpc_error(refusal)
    return MCPError(error["code"], error["message"], error["data"])


@contextmanager
def refusals_sent() -> Any:
    """Raise a refusal, also one that a server has wrapped in an error of its own, as an MCPError.

    Servers turn what a tool raises into a result that tells neither code nor wait.
    """
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        for _ in range(_CAUSES_AT_MOST):
            if cause is None or isinstance(cause, Refusal):
                break
            cause = cause.__cause__
        if not isinstance(cause, Refusal):
            raise
        raise mcp_error(cause) from error


def _now() -> Running:
    running = _running.get()
    if running is None:
        raise ConfigurationError(
            "No MCP call runs here that a gate has admitted: call protect(server, gate), and serve "
            "what streamable_http_app() or http_app() returns after that."
        )
    return running


@asynccontextmanager
async def _while_connected(calls: Calls) -> AsyncGenerator[None]:
    """Cancel the block when the HTTP request of the call ends: its client has gone away.

    Raises:
        ClientDisconnected: it has.
    """
    entry = calls.entry
    assert entry is not None and entry.receive is not None, "the gate has admitted the request"
    with anyio.CancelScope() as scope:
        calls.ends.add(scope.cancel)
        try:
            async with DisconnectBlock(entry, entry.receive):
                yield
        finally:
            calls.ends.discard(scope.cancel)
    if scope.cancelled_caught:
        raise ClientDisconnected
