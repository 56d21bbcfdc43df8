"""The demo's service as an application of each framework, behind the gate."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from wsgiref.types import WSGIApplication

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from ..dashboard import dashboard, wsgi_dashboard, wsgi_mount
from ..starlette import protect
from ..sync import run
from ..web import asgi_exchange, wsgi_exchange
from ..web.bodies import BODY_LIMIT
from ..web.entry import principal_of
from .mcp_tools import WithTools, is_offered
from .service import Operation, Service, Visit, sent
from .sign_in import PAGES


def starlette_application(service: Service) -> ASGIApp:
    """Return the service as a Starlette application."""
    routes = [Route(at, _endpoint(by), methods=[*by]) for at, by in service.by_path.items()]
    pages = Mount(PAGES, dashboard(service.gate, **service.sign_in.options))
    app = Starlette(routes=[*routes, pages])
    # A redirect to the path with its slash would be built from the caller's own Host header.
    app.router.redirect_slashes = False
    guarded = protect(app, service.gate, rules=service.rules, errors="lockgate")
    return _with_tools(guarded, service)


def fastapi_application(service: Service) -> ASGIApp:
    """Return the service as a FastAPI application."""
    from fastapi import FastAPI

    from ..fastapi import protect

    app = FastAPI(openapi_url=None, redirect_slashes=False)
    for path, by in service.by_path.items():
        # FastAPI, unlike the others, does not answer HEAD where it answers GET.
        methods = [*by, "HEAD"] if "GET" in by else [*by]
        app.add_api_route(path, _endpoint(by), methods=methods)
    app.mount(PAGES, dashboard(service.gate, **service.sign_in.options))
    guarded = protect(app, service.gate, rules=service.rules, errors="lockgate")
    return _with_tools(guarded, service)


def flask_application(service: Service) -> WSGIApplication:
    """Return the service as a Flask application."""
    from flask import Flask, request
    from flask import Response as FlaskResponse

    from ..flask import protect

    app = Flask(__name__, static_folder=None)
    # A redirect would be built from the caller's own Host header; OPTIONS is 405 as elsewhere.
    app.url_map.merge_slashes = False
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False

    class PlainResponse(FlaskResponse):
        """Adds no Content-Type, as the other frameworks add none."""

        default_mimetype = None

    def view_of(operations: Mapping[str, Operation]) -> Any:
        def view(**params: str) -> FlaskResponse:
            operation = operations["GET" if request.method == "HEAD" else request.method]
            environ = request.environ
            body = run(wsgi_exchange.body_reader(environ)(BODY_LIMIT))
            caller = wsgi_exchange.WsgiRequest(environ)
            visit = Visit(principal_of(environ), caller, params, body)
            status, value = run(operation.handler(visit))
            content, headers = sent(value)
            return PlainResponse(content, status, headers)

        return view

    for number, (path, by) in enumerate(service.by_path.items()):
        rule = path.replace("{", "<").replace("}", ">")
        app.add_url_rule(rule, str(number), view_of(by), methods=[*by])
    protect(app, service.gate, rules=service.rules, errors="lockgate")
    pages = wsgi_dashboard(service.gate, **service.sign_in.options)
    return wsgi_mount(app, PAGES, pages)


APPLICATIONS: Final[Mapping[str, Callable[[Service], Any]]] = {
    "starlette": starlette_application,
    "fastapi": fastapi_application,
    "flask": flask_application,
}
"""By framework."""


def _with_tools(app: ASGIApp, service: Service) -> ASGIApp:
    """Add the tools, where the extra for them is installed."""
    return WithTools(app, service) if is_offered() else app


def _endpoint(operations: Mapping[str, Operation]) -> Any:
    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        try:
            body = await asgi_exchange.body_reader(request.receive)(BODY_LIMIT)
        except asgi_exchange.ClientGone:
            return Response(status_code=400)
        caller = asgi_exchange.AsgiRequest(request.scope)
        visit = Visit(principal_of(request.scope), caller, request.path_params, body)
        status, value = await operations[method].handler(visit)
        content, headers = sent(value)
        return Response(content, status, headers)

    return endpoint
