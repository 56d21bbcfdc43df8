"""What a Flask application answers to errors: bodies like lockgate's, whoever raised them."""

from flask import Flask, Response
from werkzeug.exceptions import MethodNotAllowed as WrongMethod
from werkzeug.exceptions import NotFound as NoRoute

from ..errors import MethodNotAllowed, NotFound, Refusal
from .operations.table import refused
from .wsgi_request import text


def handle_errors(app: Flask) -> None:
    """Answer what views refuse, and what the router does not know."""
    app.register_error_handler(Refusal, response_to)
    app.register_error_handler(NoRoute, lambda _: response_to(NotFound()))
    app.register_error_handler(
        WrongMethod, lambda wrong: response_to(MethodNotAllowed(wrong.valid_methods or ()))
    )


def response_to(refusal: Refusal) -> Response:
    """A refusal as a response."""
    reply = refused(refusal)
    return Response(reply.body, reply.status, text(reply.headers))
