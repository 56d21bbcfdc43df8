"""The handlers that every attacked application serves, and the rule of each one.

Costs differ, so that a charge tells which rule was applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lockgate import PUBLIC, Rule

ANY = ("*",)


class Handler(NamedTuple):
    """One handler of an application and its rule."""

    name: str
    methods: tuple[str, ...]
    """The methods that its rule names; ``("*",)``: every method."""
    paths: tuple[str, ...]
    """The paths that its rule names; none: no rule names the handler."""
    sample: str
    """A path that reaches the handler."""
    scope: str | None = None
    cost: int = 1
    public: bool = False
    host: str | None = None
    """The host that the handler is bound to."""
    websocket: bool = False

    @property
    def rule(self) -> Rule:
        return PUBLIC if self.public else Rule(self.scope, cost=self.cost)

    def allows(self, method: str) -> bool:
        """Whether the handler's rule names the method; HEAD follows GET."""
        if self.methods == ANY:
            return True
        method = method.upper()
        return method in self.methods or (method == "HEAD" and "GET" in self.methods)


GET = ("GET",)
POST = ("POST",)

ALL = (
    Handler("health", GET, ("/health",), "/health", public=True),
    Handler("models", GET, ("/api/models",), "/api/models", "models:read", 1),
    Handler("image", POST, ("/api/images",), "/api/images", "models:write", 3),
    # Two handlers on one path.
    Handler("jobs", GET, ("/api/jobs",), "/api/jobs", "jobs:read", 2),
    Handler("start", POST, ("/api/jobs",), "/api/jobs", "jobs:write", 5),
    # Converters: <int:id>, {id:int}.
    Handler("job", GET, ("/api/jobs/{id}",), "/api/jobs/17", "jobs:read", 4),
    Handler("cancel", ("DELETE",), ("/api/jobs/{id}",), "/api/jobs/17", "jobs:write", 6),
    # A handler that the framework calls for every method, as Django does.
    Handler("run", POST, ("/runs",), "/runs", "jobs:write", 17),
    Handler("admin", GET, ("/api/admin",), "/api/admin", "account:write", 7),
    Handler("reports", GET, ("/api/reports/",), "/api/reports/", "account:read", 8),
    Handler("upload", GET, ("/files/{name:path}",), "/files/a/b", "upload:write", 9),
    # A mounted application that answers every method on every path, as Prometheus's does.
    Handler("metrics", ANY, ("/metrics", "/metrics/{rest:path}"), "/metrics/", "account:read", 10),
    Handler("inner", GET, ("/sub/inner",), "/sub/inner", "account:read", 15),
    # One path, a handler for each host.
    Handler("panel", GET, ("/panel",), "/panel", "account:write", 18, host="admin.test"),
    Handler("counter", GET, ("/panel",), "/panel", "models:read", 21, host="shop.test"),
    # Any key opens it; under a host that its rule does not name, the catch-all has the path.
    Handler("desk", GET, ("/desk",), "/desk", None, 22, host="admin.test"),
    Handler("feed", GET, ("/feed",), "/feed", "jobs:read", 11, websocket=True),
    # Class-based: MethodView, HTTPEndpoint.
    Handler("shown", GET, ("/view",), "/view", "models:read", 12),
    Handler("changed", POST, ("/view",), "/view", "models:write", 13),
    # A route that folds letter case, and one that is not anchored at its end.
    Handler("secret", GET, ("/api/secret",), "/api/secret", "account:write", 14),
    Handler("loose", GET, ("/api/loose",), "/api/loose", "account:write", 19),
    # The route of the first one is registered first and takes the paths of both.
    Handler("item", GET, ("/items/{id}",), "/items/7", "account:read", 20),
    Handler("newest", GET, ("/items/newest",), "/items/newest", public=True),
    # A path that is public under one host, and guarded under every other one.
    Handler("front", GET, ("/front",), "/front", public=True, host="admin.test"),
    Handler("lobby", GET, ("/front",), "/front", "account:read", 24),
    # Two segments that a converter may refuse, and then the route of all paths below takes them.
    Handler("issue", GET, ("/pages/{year}/{month}",), "/pages/2026/11", public=True),
    Handler("sheet", GET, ("/pages/{name:path}",), "/pages/a/b/c", "account:write", 25),
    # A rule for one method beside a public one for all others.
    Handler("legacy", ANY, ("/legacy/{name:path}",), "/legacy/x", public=True),
    Handler("erase", ("DELETE",), ("/legacy/{name:path}",), "/legacy/x", "jobs:write", 26),
    # A path for each language: the prefix of the default one may be left out.
    Handler("region", GET, ("/region", "/de/region"), "/de/region", "account:read", 23),
    # Its rule comes from a decorator at the view.
    Handler("decorated", POST, (), "/decorated", "jobs:write", 16),
    # No rule names it, unless the catch-all is public.
    Handler("page", ANY, (), "/about"),
)

NAMES = tuple(handler.name for handler in ALL)
BY_NAME = {handler.name: handler for handler in ALL}

CATCH_ALL = "GET /{p:path}"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

COMMON = (
    *("health", "models", "image", "jobs", "start", "job", "cancel", "run", "admin", "reports"),
    *("upload", "item", "page"),
)
"""What every framework serves."""
_NUMBERED = frozenset({"job", "cancel", "issue"})


def routes(
    names: Iterable[str], *, number: str, text: str = "{%s}", tail: str = "{%s:path}"
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Give handlers, each with its path as a framework writes it and the methods of its route.

    Args:
        names: of the handlers, all of whose routes are written alike.
        number: how the framework writes a parameter that is a number.
        text: one that is a segment.
        tail: one that is the rest of the path.
    """
    for name in names:
        handler = BY_NAME[name]
        path = (*handler.paths, "/{p:path}")[0]
        segment = number if name in _NUMBERED else text
        for parameter in re.findall(r"\{(\w+(?::path)?)\}", path):
            plain, _, kind = parameter.partition(":")
            path = path.replace(f"{{{parameter}}}", (tail if kind else segment) % plain)
        yield name, path, METHODS if name in ("run", "page") else handler.methods


def table(names: Iterable[str], *, public: bool) -> tuple[Handler, ...]:
    """The handlers of an application.

    Args:
        names: of the handlers that it has.
        public: whether a public rule names the catch-all, and so every path that no other names.
    """
    page = BY_NAME["page"]._replace(methods=GET, public=True) if public else BY_NAME["page"]
    return tuple(page if name == "page" else BY_NAME[name] for name in names)


def rules(handlers: Iterable[Handler], *, public: bool) -> dict[str, Rule | str]:
    """The rules that name the handlers.

    Args:
        handlers: of one application.
        public: whether a public catch-all stands below them.
    """
    named: dict[str, Rule | str] = {
        f"{method} {handler.host or ''}{path}": handler.rule
        for handler in handlers
        for method in handler.methods
        for path in handler.paths
    }
    if public:
        named[CATCH_ALL] = PUBLIC
    return named
