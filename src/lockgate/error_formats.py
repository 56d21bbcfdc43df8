"""Error bodies in the formats that clients of other services read.

A service that speaks the protocol of another one is called with the SDK of that one, which looks
for the message and the code of an error in its own places::

    from lockgate import error_formats

    formats = {"/v1": error_formats.openai, "/v1/messages": error_formats.anthropic}
    web_options = WebOptions(error_body=error_formats.by_path(formats))

:data:`ErrorFormat` is the signature of all of them. A function of the host chooses by calling one::

    def error_body(refusal, request):
        if request.header("anthropic-version") is not None:
            return error_formats.anthropic(refusal, request)
        return refusal.body()
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol, TypeAlias

from .errors import ConcurrentLimitExceeded, ConfigurationError, RateLimitExceeded, Refusal

QUOTA_EXCEEDED: Final = "https://iana.org/assignments/http-problem-types#quota-exceeded"
"""The problem type of a full window, of draft-ietf-httpapi-ratelimit-headers, not registered."""

_ANTHROPIC: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
_SERVER_ERROR: Final = 500
RATE_LIMITED: Final = -32023
"""The JSON-RPC error code of a refusal by a limit, as SEP-3304 proposes it for MCP: no version of
the protocol has one yet."""
REFUSED: Final = -32010
"""The JSON-RPC error code of every other refusal of the gate, from the range that MCP leaves to
implementations."""


class RefusedRequest(Protocol):
    """The request that is refused."""

    @property
    def method(self) -> str:
        """The HTTP method."""
        ...

    @property
    def path(self) -> str:
        """The decoded path."""
        ...

    def header(self, name: str) -> str | None:
        """Return the first value of a header, by its name in any case; None without one."""
        ...


class ErrorBody(NamedTuple):
    """A body with headers of its own."""

    content: object
    """What JSON can hold."""
    headers: Mapping[str, str] = {}
    """They replace those of the refusal with the same name."""


ErrorFormat: TypeAlias = Callable[[Refusal, RefusedRequest], object]
"""Returns the JSON body of a refusal, or an :class:`ErrorBody`."""


def by_path(formats: Mapping[str, ErrorFormat]) -> ErrorFormat:
    """Choose the format by the path: the longest prefix of whole segments; else lockgate's body.

    Args:
        formats: the formats by prefix, such as ``"/v1"``.

    Raises:
        ConfigurationError: a prefix does not start with ``/``.
    """
    chosen = sorted(formats.items(), key=lambda item: -len(item[0]))
    for prefix, _ in chosen:
        if not prefix.startswith("/"):
            raise ConfigurationError(f"The prefix {prefix!r} must start with '/'.")

    def error_body(refusal: Refusal, request: RefusedRequest) -> object:
        path = request.path
        for prefix, format in chosen:
            if path == prefix or path.startswith(prefix.rstrip("/") + "/"):
                return format(refusal, request)
        return refusal.body()

    return error_body


def openai(refusal: Refusal, request: RefusedRequest) -> object:
    """Return the body of OpenAI: ``error`` with ``message``, ``type``, ``param`` and ``code``.

    Its SDK raises the message and the code of the refusal. ``retryAfter`` and ``limits`` stay in
    ``error``.
    """
    content = refusal.body()
    message, code = content.pop("error"), content.pop("code")
    type = "invalid_request_error"
    if refusal.status == RateLimitExceeded.status:
        type = "requests"
    elif refusal.status >= _SERVER_ERROR:
        type = "server_error"
    return {"error": {"message": message, "type": type, "param": None, "code": code, **content}}


def anthropic(refusal: Refusal, request: RefusedRequest) -> object:
    """Return the body of Anthropic: ``type`` and ``error`` with ``type`` and ``message``.

    The code of the refusal, ``retryAfter`` and ``limits`` stay in ``error``.
    """
    content = refusal.body()
    message = content.pop("error")
    other = "api_error" if refusal.status >= _SERVER_ERROR else "invalid_request_error"
    type = _ANTHROPIC.get(refusal.status, other)
    return {"type": "error", "error": {"type": type, "message": message, **content}}


def problem(refusal: Refusal, request: RefusedRequest) -> ErrorBody:
    """Return problem details (RFC 9457), as ``application/problem+json``.

    The problem of a full window has the type and the member ``violated-policies`` of
    draft-ietf-httpapi-ratelimit-headers, which may change. All others are of ``about:blank``.
    """
    content = refusal.body()
    detail = content.pop("error")
    details: dict[str, object] = {"type": "about:blank", "title": HTTPStatus(refusal.status).phrase}
    if isinstance(refusal, RateLimitExceeded) and not isinstance(refusal, ConcurrentLimitExceeded):
        details["type"] = QUOTA_EXCEEDED
        details["title"] = "Request cannot be satisfied as assigned quota has been exceeded"
        details["violated-policies"] = [policy_of(refusal)]
    details |= {"status": refusal.status, "detail": detail, **content}
    return ErrorBody(details, {"content-type": "application/problem+json"})


def policy_of(refusal: RateLimitExceeded) -> str:
    """Return the name of the window that refused, with that of its named limit."""
    name = refusal.limit_name
    return refusal.type if name is None else f"{name} {refusal.type}"


def jsonrpc(refusal: Refusal, request: RefusedRequest) -> object:
    """Return an error of JSON-RPC 2.0 with the rest of lockgate's body as its ``data``.

    ``id`` is null, since the gate refuses before the body of the request is read. For MCP servers
    see ``lockgate.mcp``, which reads the id.
    """
    data = refusal.body()
    code = RATE_LIMITED if refusal.status == RateLimitExceeded.status else REFUSED
    error = {"code": code, "message": data.pop("error"), "data": data}
    return {"jsonrpc": "2.0", "id": None, "error": error}
