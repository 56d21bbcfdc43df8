"""The OpenAPI description of a gate's operations, for the document of the host application."""

import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, Final, cast

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ...core.access_rule import Credential, Rule
from ...core.limits import Limit
from ...core.rule_book import RuleBook
from ...core.timestamps import SECOND
from ...gate import Gate
from ..queries import Parameter
from .schemas import Error
from .table import endpoints_of

_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
_REF: Final = "#/components/schemas/{model}"
_RATE_HEADERS: Final = {
    "X-RateLimit-Limit": "Maximum requests allowed per minute.",
    "X-RateLimit-Remaining": "Requests that would be admitted now.",
    "X-RateLimit-Reset": "Unix timestamp at which capacity comes back.",
}
_OTHER_HEADERS: Final = {
    401: ("WWW-Authenticate", "string", "What to authenticate with (RFC 6750)."),
    403: ("WWW-Authenticate", "string", "The scope that is missing, where one is (RFC 6750)."),
    405: ("Allow", "string", "The methods that the path takes."),
    429: ("Retry-After", "integer", "Seconds to wait."),
}
_ERRORS: Final = {
    400: "The request is not valid.",
    401: "No credential, or one that is not accepted.",
    403: "The scopes, the client's address, or the site that asks, do not allow this.",
    404: "There is nothing here.",
    405: "The path does not take this method.",
    409: "The organization has as many live keys as it may, or the job is running already.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    429: "A rate limit, or that of concurrent jobs, is reached.",
    503: "Credentials cannot be checked at the moment, or the job has lost its slot.",
}

_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
_KEY_REFUSALS: Final = (400, 401, 403, 429, 503)
_PUBLIC_REFUSALS: Final = (400, 429)
_FASTAPI_INVALID: Final = _REF.format(model="HTTPValidationError")
_KEY_HEADER: Final = "keyHeader"
"""The scheme of ``WebOptions(key_header=)``."""

Described = tuple[str, str, Rule, str]
"""Another operation to describe: method, path, rule, summary."""


def answers(status: int, model: type[BaseModel] | None = None) -> dict[int | str, dict[str, Any]]:
    """Every response of an operation, by status: the one that is wanted, and every error.

    Args:
        status: the status of the wanted answer.
        model: the body of that answer, where it has one that is known.
    """
    wanted: dict[str, Any] = {"description": "The answer.", "headers": _headers(status)}
    return {
        status: {**wanted, "model": model} if model else wanted,
        **{
            error: {"description": text, "headers": _headers(error), "model": Error}
            for error, text in _ERRORS.items()
        },
    }


def parameters(path: str, query: Iterable[Parameter] = ()) -> list[dict[str, Any]]:
    """The parameters in a path, and those of a query."""
    return [
        *(
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in _PARAMETER.findall(path)
        ),
        *(
            {"name": name, "in": "query", "description": description, "schema": schema}
            for name, description, schema in query
        ),
    ]


def _limits_of(rule: Rule) -> dict[str, list[dict[str, Any]]]:
    """Return the extension ``x-rate-limits`` of an operation; empty: no named limit."""
    return {"x-rate-limits": [_limit(limit) for limit in rule.limits]} if rule.limits else {}


def _limit(limit: Limit) -> dict[str, Any]:
    """Return a named limit as an extension of an operation has it."""
    windows: list[dict[str, Any]] = []
    quotas = limit.quotas or (None,) * len(limit.windows)
    for window, quota in zip(limit.windows, quotas, strict=True):
        shown: dict[str, Any] = {"type": window.name, "limit": window.limit}
        if quota is None:
            shown["seconds"] = window.span // SECOND
        else:
            shown.update(limit=quota.limit, soft=quota.soft, timeZone=quota.zone)
        windows.append(shown)
    return {"name": limit.name, "by": limit.subject, "windows": windows}


def add_access(
    document: dict[str, Any], book: RuleBook, gate: Gate, *, replaces_invalid: bool
) -> None:
    """Add to an OpenAPI document what each operation requires, and how it is refused.

    Named limits are under ``x-rate-limits``, an extension of lockgate's. Operations with a
    ``security`` or a response of their own keep them.

    Args:
        document: as the framework describes the application; it is changed.
        book: the rules that hold.
        gate: takes the keys.
        replaces_invalid: whether FastAPI's 422 becomes 400, the status of
            :class:`~lockgate.errors.InvalidRequest`.
    """
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for path, operations in document.get("paths", {}).items():
        for method, operation in operations.items():
            if method.upper() not in _METHODS:
                continue
            rule = book.for_route(method.upper(), path).own
            if rule.own:
                continue
            responses: dict[str, Any] = operation.setdefault("responses", {})
            if replaces_invalid and _FASTAPI_INVALID in str(responses.get("422")):
                del responses["422"]
            statuses = _PUBLIC_REFUSALS if rule.public else _KEY_REFUSALS
            for status in statuses:
                response = _response(_ERRORS[status], _headers(status), Error)
                responses.setdefault(str(status), response)
            for name, limits in _limits_of(rule).items():
                operation.setdefault(name, limits)
            if not rule.public:
                scopes = [rule.requires.scope] if rule.requires else []
                offered = schemes_of(rule.accepts, gate)
                operation.setdefault("security", [{name: scopes} for name in offered])
                schemes = document["components"].setdefault("securitySchemes", {})
                for name, scheme in offered.items():
                    schemes.setdefault(name, scheme)
    if "HTTPValidationError" in schemas and _FASTAPI_INVALID not in str(document["paths"]):
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
    _, own = models_json_schema([(Error, "serialization")], ref_template=_REF)
    for name, schema in own["$defs"].items():
        schemas.setdefault(name, schema)
    _offer_key_header(document, gate)


def schemes_of(credentials: Iterable[Credential], gate: Gate) -> dict[str, dict[str, str]]:
    """Return the security schemes by which a request can present one of some credentials."""
    offered: dict[str, dict[str, str]] = {}
    access = gate.session_access
    for credential in credentials:
        if credential == "key":
            offered["key"] = {"type": "http", "scheme": "bearer", "description": "An API key."}
            continue
        if access.cookie is not None:
            offered["session"] = {"type": "apiKey", "in": "cookie", "name": access.cookie}
        if access.bearer is not None:
            offered["sessionToken"] = {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
    return offered


def _offer_key_header(document: dict[str, Any], gate: Gate) -> None:
    """Describe ``WebOptions(key_header=)`` beside ``Authorization``, wherever a key is taken."""
    if gate.key_header is None:
        return
    name = gate.key_header.decode().title()
    schemes = document["components"].setdefault("securitySchemes", {})
    schemes[_KEY_HEADER] = {"type": "apiKey", "in": "header", "name": name}
    for operations in document.get("paths", {}).values():
        for method, operation in operations.items():
            if method.upper() not in _METHODS:
                continue
            security = cast(list[dict[str, Any]], operation.get("security", []))
            if not any(_KEY_HEADER in needed for needed in security):
                security += [{_KEY_HEADER: needed["key"]} for needed in security if "key" in needed]


def describe(gate: Gate, title: str, others: Iterable[Described] = ()) -> dict[str, Any]:
    """Describe a gate's operations, and others behind it, as an OpenAPI 3.1 document.

    Named limits are under ``x-rate-limits``, as in :func:`add_access`.
    """
    own = endpoints_of(gate)
    models = {e.response for e in own} | {e.request for e in own if e.request} | {Error}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, schemas = models_json_schema(
        [(model, "serialization") for model in ordered], ref_template=_REF
    )
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in own:
        operation = _operation(
            gate,
            endpoint.path,
            endpoint.rule,
            summary=endpoint.summary,
            status=endpoint.status,
            model=endpoint.response,
        )
        scopes = [endpoint.rule.requires.scope] if endpoint.rule.requires else []
        operation["security"] = [{name: scopes} for name in schemes_of(endpoint.credentials, gate)]
        operation["parameters"] = parameters(endpoint.path, endpoint.query)
        if endpoint.request is not None:
            content = _content(endpoint.request.__name__)
            operation["requestBody"] = {"required": True, "content": content}
        paths.setdefault(gate.prefix + endpoint.path, {})[endpoint.method.lower()] = operation
    for method, path, rule, summary in others:
        operation = _operation(gate, path, rule, summary, 200, None)
        operation["responses"]["2XX"] = operation["responses"].pop("200")
        plain = _PARAMETER.sub(r"{\1}", path)
        paths.setdefault(plain, {})[method.lower()] = operation
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version("lockgate")},
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {
                **schemes_of(("session",), gate),
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": f"{gate.format.brand}_{gate.format.environment}_...",
                },
            },
        },
    }
    _offer_key_header(document, gate)
    return document


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a body, its definitions written out where they are used."""
    schema = model.model_json_schema()
    definitions: dict[str, Any] = schema.pop("$defs", {})

    def inlined(node: Any) -> Any:
        if isinstance(node, list):
            return [inlined(item) for item in node]  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(node, dict):
            return node
        found = cast(dict[str, Any], node)
        if "$ref" in found:
            return inlined(definitions[found["$ref"].rpartition("/")[2]])
        return {name: inlined(value) for name, value in found.items()}

    return cast(dict[str, Any], inlined(schema))


def _operation(
    gate: Gate, path: str, rule: Rule, summary: str, status: int, model: type[BaseModel] | None
) -> dict[str, Any]:
    scopes = [rule.requires.scope] if rule.requires else []
    offered = () if rule.public else schemes_of(rule.accepts, gate)
    return {
        "summary": summary,
        "parameters": parameters(path),
        "security": [{name: scopes} for name in offered],
        "responses": {str(s): _response(**reply) for s, reply in answers(status, model).items()},
        **_limits_of(rule),
    }


def _response(
    description: str, headers: dict[str, Any], model: type[BaseModel] | None = None
) -> dict[str, Any]:
    response = {"description": description, "headers": headers}
    return {**response, "content": _content(model.__name__)} if model else response


def _content(model: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(model=model)}}}


def _headers(status: int) -> dict[str, Any]:
    headers = {name: ("integer", text) for name, text in _RATE_HEADERS.items()}
    if status in _OTHER_HEADERS:
        name, kind, text = _OTHER_HEADERS[status]
        headers[name] = (kind, text)
    return {
        name: {"description": text, "schema": {"type": kind}}
        for name, (kind, text) in headers.items()
    }
