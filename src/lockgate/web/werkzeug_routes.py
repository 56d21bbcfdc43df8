"""The routes of a Flask or Quart application: what they serve, and what their views require."""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import lru_cache
from inspect import getclosurevars, isfunction, unwrap
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, RequestRedirect
from werkzeug.routing import Rule as UrlRule

from .audit import ServedRoute, arguments_of, view_of
from .entry import Entry
from .request import RequestView
from .requirements import check_decorators, declaration, required

_PARAMETER: Final = re.compile(r"<(?:(\w+)(?:\(.*?\))?:)?(\w+)>")


class MatchedRequest(Protocol):
    """What Flask's and Quart's requests have in common."""

    url_rule: UrlRule | None

    @property
    def method(self) -> str | None:
        """The HTTP method; a WebSocket handshake has none."""
        ...


class Application(Protocol):
    """What Flask and Quart applications have in common."""

    url_map: Map

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration, which holds ``SERVER_NAME``."""
        ...

    @property
    def view_functions(self) -> Mapping[str, Callable[..., Any]]:
        """The views by the name of their endpoint."""
        ...


def routes(app: Application) -> Iterator[ServedRoute]:
    """Every route that an application serves.

    Raises:
        ConfigurationError: a function is served without the decorator ``requires`` that it has
            elsewhere.
    """
    views = app.view_functions.items()
    check_decorators((f"The endpoint {name!r}", view) for name, view in views)
    for route in app.url_map.iter_rules():
        endpoint = app.view_functions.get(route.endpoint)
        view = None if route.redirect_to is not None else _view(endpoint)
        for method in _methods(route):
            asked = required(endpoint, method)
            gate = declaration(endpoint).operations_of
            yield ServedRoute(method, _path(route), host_of(app, route), asked, view, gate)


def url_rule(path: str) -> str:
    """Return the path of one of lockgate's operations as werkzeug writes it."""
    return re.sub(r"\{(\w+)\}", r"<\1>", path)


def host_of(app: Application, route: UrlRule) -> str | None:
    """Return the host that a route is bound to, parameters written ``{name}``; None: any.

    A subdomain is below ``SERVER_NAME``; without that, werkzeug matches no subdomain.
    """
    if app.url_map.host_matching:
        return _written(route.host) if route.host else None
    if not route.subdomain:
        return None
    server: str = app.config["SERVER_NAME"] or "{server}"
    return f"{_written(route.subdomain)}.{server.partition(':')[0].lower()}"


def only_redirects(app: Application, request: RequestView) -> bool:
    """Whether werkzeug serves no route at a path, and redirects to it with a slash behind it.

    False, so that the redirect is charged, for a map with routes for single hosts or for
    WebSockets, and for one with functions that compute a redirect.
    """
    url_map, path = app.url_map, request.path
    if url_map.host_matching or any(
        route.subdomain or route.websocket or callable(route.redirect_to)
        for route in url_map.iter_rules()
    ):
        return False
    try:
        url_map.bind("localhost").match(path, request.method)
    except RequestRedirect as redirect:
        return unquote(urlsplit(redirect.new_url).path) == f"{path}/"
    except HTTPException:
        pass
    return False


def verify(
    entry: Entry | None,
    request: MatchedRequest,
    app: Application,
    caller: Callable[[], RequestView],
) -> None:
    """Check that the rule charged for a request belongs to the URL rule that matched it.

    Args:
        entry: the record of the innermost gate that the request passed.
        request: the framework's.
        app: the application.
        caller: makes the request, to report a mismatch.

    Raises:
        NotFound: it is not (D31).
    """
    route = request.url_rule
    if entry is not None and route is not None:
        host = host_of(app, route)
        method = "GET" if request.method is None else request.method
        entry.guard.verify_route(entry.rule, method, _path(route), caller, host)


def _view(endpoint: Any) -> Hashable:
    """Identify a view; one made by ``as_view()``, by its class and the arguments given to that.

    Where the arguments cannot be seen, because the class is made once or a decorator hides them,
    all views of the class count as one.
    """
    kind = getattr(endpoint, "view_class", None)
    if kind is None:
        return view_of(endpoint)
    made = unwrap(endpoint)
    kept: Mapping[str, Any] = getclosurevars(made).nonlocals if isfunction(made) else {}
    given = arguments_of(kept.get("class_args", ()), kept.get("class_kwargs", {}))
    return view_of(kind, given)


def _methods(route: UrlRule) -> Iterable[str]:
    return sorted((route.methods or {"*"}) - {"HEAD", "OPTIONS"})


def _path(route: UrlRule) -> str:
    return _written(route.rule)


@lru_cache(maxsize=4096)
def _written(template: str) -> str:
    return _PARAMETER.sub(_parameter, template)


def _parameter(found: re.Match[str]) -> str:
    converter, name = found.groups()
    return f"{{{name}:path}}" if converter == "path" else f"{{{name}}}"
