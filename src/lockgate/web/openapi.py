"""The OpenAPI description of a gate's operations, for the document of the host application."""

import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from ..gate import Gate
from ..identity import SESSION_COOKIE
from ..rules.routes import Rule
from .api import ENDPOINTS
from .models import Error

_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
_REF: Final = "#/components/schemas/{model}"
_RATE_HEADERS: Final = {
    "X-RateLimit-Limit": "Maximum requests allowed per minute.",
    "X-RateLimit-Remaining": "Requests that would be admitted now.",
    "X-RateLimit-Reset": "Unix timestamp at which capacity comes back.",
}
_ERRORS: Final = {
    400: "The request is not valid.",
    401: "No credential, or one that is not accepted.",
    403: "The scopes, or the site that asks, do not allow this.",
    404: "There is nothing here.",
    409: "The organization has as many live keys as it may.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    429: "A rate limit is reached.",
    503: "Credentials cannot be checked at the moment.",
}

Described = tuple[str, str, Rule, str]
"""Another operation to describe: method, path, rule, summary."""


def describe(gate: Gate, title: str, others: Iterable[Described] = ()) -> dict[str, Any]:
    """Describe a gate's operations, and others behind it, as an OpenAPI 3.1 document."""
    models = {e.response for e in ENDPOINTS} | {e.request for e in ENDPOINTS if e.request} | {Error}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, schemas = models_json_schema(
        [(model, "serialization") for model in ordered], ref_template=_REF
    )
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        operation = _operation(gate, endpoint.path, endpoint.rule, endpoint.summary)
        reply = _reply("The answer.", endpoint.response.__name__)
        operation["responses"][str(endpoint.status)] = reply
        if endpoint.request is not None:
            content = _content(endpoint.request.__name__)
            operation["requestBody"] = {"required": True, "content": content}
        paths.setdefault(gate.prefix + endpoint.path, {})[endpoint.method.lower()] = operation
    for method, path, rule, summary in others:
        operation = _operation(gate, path, rule, summary)
        operation["responses"]["2XX"] = {"description": "Done.", "headers": _headers()}
        plain = _PARAMETER.sub(r"{\1}", path)
        paths.setdefault(plain, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version("lockgate")},
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": f"{gate.format.brand}_{gate.format.environment}_...",
                },
                "session": {"type": "apiKey", "in": "cookie", "name": SESSION_COOKIE},
            },
        },
    }


def _operation(gate: Gate, path: str, rule: Rule, summary: str) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(path)
    ]
    scopes = [rule.requires.scope] if rule.requires else []
    security = [{name: scopes} for name in rule.accepts] if not rule.public else []
    return {
        "summary": summary,
        "parameters": parameters,
        "security": security,
        "responses": {str(status): _reply(text, "Error") for status, text in _ERRORS.items()},
    }


def _reply(description: str, model: str) -> dict[str, Any]:
    return {"description": description, "headers": _headers(), "content": _content(model)}


def _content(model: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(model=model)}}}


def _headers() -> dict[str, Any]:
    return {
        name: {"description": text, "schema": {"type": "integer"}}
        for name, text in _RATE_HEADERS.items()
    }
