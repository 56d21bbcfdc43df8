"""The messages of MCP clients: what a request calls, read from its headers or its body (D49).

Since protocol version 2026-07-28 ``Mcp-Method`` and ``Mcp-Name`` name the call, and servers hold
them against the body. The messages of earlier versions are named by their body alone.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, cast

from pydantic_core import SchemaValidator, ValidationError, core_schema

from ..error_formats import RATE_LIMITED, REFUSED
from ..errors import (
    Header,
    InvalidRequest,
    PayloadTooLarge,
    Problem,
    RateLimitExceeded,
    Refusal,
)
from ..gate import Gate
from .asgi_exchange import ClientGone
from .asgi_types import Message, Receive
from .entry import Entry
from .operations.operation import Reply
from .operations.table import Repeated, refused

BODY_LIMIT: Final = 1024 * 1024
"""The most bytes of a body that is read to find its calls, 1 MiB."""
BATCH_LIMIT: Final = 50
"""The most messages of a batch, which protocol version 2025-03-26 has."""

HANDSHAKE_VERSIONS: Final = frozenset({b"2024-11-05", b"2025-03-26", b"2025-06-18", b"2025-11-25"})
"""The protocol versions whose servers do not hold headers against the body."""
NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that names what is called, by method."""

_HEADER_MISMATCH: Final = -32020
_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600

_ENCODED: Final = re.compile(rb"=\?base64\?(.*)\?=", re.DOTALL)

Id = str | int | None


class Call(NamedTuple):
    """One message of a client: its method, and the tool, resource or prompt that it names."""

    method: str
    """The JSON-RPC method; ``response`` for an answer to a request of the server."""
    name: str = ""
    """The name of a tool or a prompt, or the URI of a resource; empty for other methods."""

    @classmethod
    def of(cls, method: str, params: object) -> "Call":
        """Return the call of a message with a method and parameters."""
        parameter, name = NAMED_BY.get(method), None
        if parameter is not None and isinstance(params, dict):
            name = cast(dict[str, object], params).get(parameter)
        return cls(method, name if isinstance(name, str) else "")


UNREAD: Final = Call("")
"""Stands for the call of a request that was not read: it is refused, or only watched."""


class Calls:
    """The calls of one HTTP request, as the gate has admitted them.

    Attributes:
        calls: the calls, more than one only for a batch.
        id: the id of the only request of the body; None: not read, or several.
        entry: the record of the admission of the first call; None: before it.
        pending: the calls that the server has not begun to run, each with its admission.
        ends: are called when the HTTP request has ended.
    """

    __slots__ = ("calls", "ends", "entry", "id", "pending")

    def __init__(self, calls: list[Call], request_id: Id = None) -> None:
        self.calls: Final = calls
        self.id: Final = request_id
        self.entry: Entry | None = None
        self.pending: Final[list[tuple[Call, Entry]]] = []
        self.ends: Final[set[Callable[[], None]]] = set()

    def admit(self, call: Call, entry: Entry) -> None:
        """Note the admission of a call, of the first one first."""
        self.entry = self.entry or entry
        self.pending.append((call, entry))

    def end(self) -> None:
        """Note that the HTTP request has ended."""
        for end in list(self.ends):
            end()


class _InvalidMessage(InvalidRequest):
    """The request is no message that the gate can read; ``rpc_code`` is its JSON-RPC error code."""

    rpc_code = _INVALID_REQUEST

    def __init__(self, message: str) -> None:
        super().__init__([Problem("", message)])
        self.message = message


class NotJson(_InvalidMessage):
    """The body is not JSON in UTF-8."""

    rpc_code = _PARSE_ERROR


class HeaderMismatch(_InvalidMessage):
    """The headers are not those that the body demands; ``-32020`` in the protocol."""

    rpc_code = _HEADER_MISMATCH


class InBatch(_InvalidMessage):
    """A call that takes a slot is part of a batch."""

    def __init__(self, call: Call) -> None:
        super().__init__(f"Send {call.method} by itself: it takes a slot.")


class RoutingHeaders(NamedTuple):
    """The headers by which a client names its call."""

    version: bytes | None
    method: bytes | None
    name: bytes | None

    @classmethod
    def of(cls, headers: Iterable[Header]) -> "RoutingHeaders":
        """Find them among the headers of a request.

        Raises:
            HeaderMismatch: one occurs twice: readers disagree which one counts.
        """
        version = method = name = None
        for key, value in headers:
            if key == b"mcp-method":
                twice, method = method is not None, value.strip(b" \t")
            elif key == b"mcp-name":
                twice, name = name is not None, value.strip(b" \t")
            elif key == b"mcp-protocol-version":
                twice, version = version is not None, value.strip(b" \t")
            else:
                continue
            if twice:
                raise HeaderMismatch(f"The header {key.decode()} occurs twice: send it once.")
        return cls(version, method, name)

    @property
    def call(self) -> Call | None:
        """The call that the headers name; None: the body names it.

        Raises:
            HeaderMismatch: ``Mcp-Name`` is missing, or a value is not plain ASCII or base64.
        """
        if self.method is None or self.version is None or self.version in HANDSHAKE_VERSIONS:
            return None
        return self._call(self.method)

    def check(self, calls: Iterable[Call], *, is_request: bool) -> None:
        """Hold the headers against the calls of the body.

        Raises:
            HeaderMismatch: a header names another call, or the version demands one.
        """
        if self.method is None:
            if is_request and self.version is not None and self.version not in HANDSHAKE_VERSIONS:
                raise HeaderMismatch("This protocol version needs the header Mcp-Method.")
            if self.name is not None:
                raise HeaderMismatch("The header Mcp-Name comes without Mcp-Method.")
        elif any(call != self._call(self.method) for call in calls):
            raise HeaderMismatch("Mcp-Method and Mcp-Name do not name what the body calls.")

    def _call(self, method: bytes) -> Call:
        read = _text(method, "Mcp-Method")
        if read not in NAMED_BY:
            return Call(read)
        if self.name is None:
            raise HeaderMismatch(f"The method {read} needs the header Mcp-Name.")
        return Call(read, _decoded(self.name))


def calls_of(body: bytes, headers: RoutingHeaders) -> Calls:
    """Read the calls of a JSON-RPC body: one message, or a batch.

    Raises:
        NotJson: it is not JSON in UTF-8.
        InvalidRequest: it is no message and no batch of messages, or a batch of too many.
        HeaderMismatch: the headers name another call.
    """
    value = _read(body)
    messages = cast(list[object], value) if isinstance(value, list) else [value]
    if not messages or len(messages) > BATCH_LIMIT:
        raise _InvalidMessage(f"A batch has 1 to {BATCH_LIMIT} messages.")
    calls = [_call_of(message) for message in messages]
    members = cast(dict[str, object], value) if isinstance(value, dict) else {}
    is_request = "id" in members and calls[0].method != _RESPONSE
    headers.check(calls, is_request=is_request)
    found = members["id"] if is_request else None
    return Calls(calls, found if isinstance(found, str | int) else None)


class ReadAhead:
    """Reads the body of a request, and gives it to the application again as its ``receive``.

    Args:
        receive: the callable of the server.
    """

    __slots__ = ("_given", "_read", "_receive")

    def __init__(self, receive: Receive) -> None:
        self._receive: Final = receive
        self._read: Final[list[Message]] = []
        self._given = 0

    async def body(self) -> bytes:
        """Return the body.

        Raises:
            PayloadTooLarge: it has more than :data:`BODY_LIMIT` bytes; the application may still
                read it whole.
            ClientGone: the client went away.
        """
        size = 0
        while True:
            message = await self._receive()
            self._read.append(message)
            if message["type"] == "http.disconnect":
                raise ClientGone
            size += len(message.get("body", b""))
            if size > BODY_LIMIT:
                raise PayloadTooLarge(BODY_LIMIT)
            if not message.get("more_body", False):
                break
        read = self._read
        return read[0].get("body", b"") if len(read) == 1 else b"".join(m["body"] for m in read)

    async def __call__(self) -> Message:
        """Return the next message of the client."""
        if self._given < len(self._read):
            self._given += 1
            return self._read[self._given - 1]
        return await self._receive()


def rpc_error(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal as a JSON-RPC error: its code, its sentence, and ``data`` with the rest.

    ``data`` has the fields of the body that other requests get, such as ``code`` and
    ``retryAfter``.
    """
    data = _repeated(refusal) if isinstance(refusal, Repeated) else refusal.body()
    is_limited = refusal.status == RateLimitExceeded.status
    code = RATE_LIMITED if is_limited else getattr(refusal, "rpc_code", REFUSED)
    return {"code": code, "message": data.pop("error"), "data": data}


def rpc_reply(refusal: Refusal, gate: Gate, request_id: Id, metadata: str | None) -> Reply:
    """Return a refusal as an HTTP response whose body is a JSON-RPC error.

    Args:
        refusal: what the gate answers.
        gate: the gate.
        request_id: the id of the request; None: not known.
        metadata: the URL of the protected-resource metadata of OAuth (RFC 9728), which the
            challenge names; None: OAuth is not in use.
    """
    status, headers, _ = refused(refusal, gate, None)
    if metadata is not None:
        headers = tuple(_with_metadata(header, metadata) for header in headers)
    if isinstance(request_id, str) and gate.format.redact(request_id) != request_id:
        request_id = None  # A key, in the wrong place (K11).
    error = {"jsonrpc": "2.0", "id": request_id, "error": rpc_error(refusal)}
    return Reply(status, headers, json.dumps(error, separators=(",", ":")).encode())


def _repeated(refusal: Repeated) -> dict[str, Any]:
    """Return the fields of a refusal that is answered from memory."""
    body = json.loads(refusal.answer.body)
    if isinstance(body, dict) and {"error", "code"} <= body.keys():
        return cast(dict[str, Any], body)
    wait = int(dict(refusal.answer.headers)[b"retry-after"])  # The host has its own bodies.
    return {**refusal.body(), "retryAfter": wait}


def _with_metadata(header: Header, metadata: str) -> Header:
    name, value = header
    if name != b"www-authenticate":
        return header
    joint = b", " if b"=" in value else b" "
    return name, b'%s%sresource_metadata="%s"' % (value, joint, metadata.encode())


_RESPONSE: Final = "response"


def _call_of(message: object) -> Call:
    if isinstance(message, dict):
        members = cast(dict[str, Any], message)
        method = members.get("method")
        if isinstance(method, str):
            return Call.of(method, members.get("params"))
        if "method" not in members and ("result" in members or "error" in members):
            return Call(_RESPONSE)
    raise _InvalidMessage("The body is no JSON-RPC message.")


def _text(value: bytes, header: str) -> str:
    text = value.decode("latin-1")
    if not (text.isascii() and text.isprintable()):
        raise HeaderMismatch(f"The header {header} is not plain ASCII.")
    return text


def _decoded(value: bytes) -> str:
    encoded = _ENCODED.fullmatch(value) if value[:2] == b"=?" else None
    if encoded is None:
        return _text(value, "Mcp-Name")
    try:
        decoded = b64decode(encoded[1], validate=True)
        if b64encode(decoded) == encoded[1]:  # Two spellings would be two names to others.
            return decoded.decode()
    except ValueError:
        pass
    raise HeaderMismatch("The header Mcp-Name is not base64 of UTF-8.")


def _read(body: bytes) -> object:
    """Read the members that name calls, by the parser of the servers, and make no objects of the
    others.

    Making them would hold up the event loop: a body of 1 MiB may have 300,000. Of a member that is
    named twice the last one counts, as for the servers.
    """
    try:
        return cast(object, _MESSAGES.validate_json(body))
    except ValidationError as problem:
        if any(error["type"] == "json_invalid" for error in problem.errors(include_url=False)):
            raise NotJson("The body is not JSON in UTF-8.") from None
        raise _InvalidMessage("The body is no JSON-RPC message.") from None


def _messages() -> SchemaValidator:
    def of(**schemas: core_schema.CoreSchema) -> core_schema.CoreSchema:
        fields = {n: core_schema.typed_dict_field(s) for n, s in schemas.items()}
        return core_schema.typed_dict_schema(fields, total=False)

    anything, nothing = core_schema.any_schema(), of()
    names = core_schema.nullable_schema(of(name=anything, uri=anything))
    message = of(method=anything, id=anything, params=names, result=nothing, error=nothing)
    return SchemaValidator(core_schema.union_schema([message, core_schema.list_schema(message)]))


_MESSAGES: Final = _messages()
