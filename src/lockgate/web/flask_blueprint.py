"""lockgate's own operations as a Flask blueprint."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIEnvironment

from flask import Blueprint, current_app, request
from flask.blueprints import BlueprintSetupState
from werkzeug.exceptions import HTTPException

from ..errors import ConfigurationError, PayloadTooLarge, Refusal
from ..gate import Gate
from ..sync import run
from ..wsgi import GateMiddleware
from .operations.operation import Endpoint, ReadBody
from .operations.table import answer, endpoints, refused
from .wsgi_request import WsgiCaller, body_reader, principal_of, respond, unreadable

_NAME: Final = "lockgate"


def lockgate_blueprint(gate: Gate) -> Blueprint:
    """lockgate's own operations, under the gate's prefix, for ``app.register_blueprint(...)``.

    They are guarded even where no extension is in front, so they cannot be mounted open.

    Raises:
        ConfigurationError: the gate has no session verifier, so nobody could create a key; or,
            when the blueprint is registered, it is given a prefix other than the gate's.
    """
    blueprint = Blueprint(_NAME, __name__)
    for path, operations in endpoints(gate).items():
        blueprint.record(_mount(gate, path, operations))
    return blueprint


def _mount(
    gate: Gate, path: str, operations: Mapping[str, Endpoint]
) -> Callable[[BlueprintSetupState], None]:
    def operate(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            caller, principal = WsgiCaller(environ), principal_of(environ)
            params = request.view_args or {}
            flow = answer(gate, operations, caller, principal, params, _reader(environ))
            reply = run(flow)
        except Refusal as refusal:
            reply = refused(refusal)
        return respond(reply, environ, start_response)

    guarded = GateMiddleware(operate, gate)

    def view(**_: str) -> Any:
        return current_app.response_class.from_app(guarded, request.environ)

    def mount(state: BlueprintSetupState) -> None:
        if state.url_prefix:
            raise ConfigurationError(
                f"Register the blueprint without url_prefix={state.url_prefix!r}: "
                "lockgate's operations move with the gate's prefix."
            )
        name = f"{_NAME}.{next(iter(operations.values())).handler.__name__}"
        state.app.view_functions[name] = view
        # A rule without methods takes them all: the operations answer 405 themselves.
        rule = re.sub(r"\{(\w+)\}", r"<\1>", path)
        state.app.url_map.add(state.app.url_rule_class(rule, endpoint=name))

    return mount


def _reader(environ: WSGIEnvironment) -> ReadBody:
    """Read the body, also where something before the view has read it: Flask keeps it then."""

    async def read(limit: int) -> bytes:
        if "stream" not in request.__dict__:  # Made when somebody asks for any of the body.
            return await body_reader(environ)(limit)
        if (request.content_length or 0) > limit:
            raise PayloadTooLarge(limit)
        try:
            body = request.get_data()
        except HTTPException:  # The application's own limit.
            raise
        except Exception as failure:  # OSError, or a parse error of the server's own.
            raise unreadable() from failure
        if len(body) > limit:
            raise PayloadTooLarge(limit)
        return body

    return read
