"""All applications that are attacked: one for each framework and each way to set it up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

from lockgate import Gate, Rule

from .asgi_applications import (
    FASTAPI,
    LITESTAR,
    QUART,
    STARLETTE,
    cors_outside,
    fastapi,
    litestar,
    ordered,
    quart,
    starlette,
)
from .guarding import guard_asgi, guard_django, guard_flask, guard_litestar, guard_quart, guard_wsgi
from .handlers import Handler, rules, table
from .mcp_applications import PARTS, guarded_server
from .raw_applications import RAW, Ran, raw_asgi, raw_wsgi
from .wsgi_applications import DJANGO, FLASK, REST, django, flask


class Application(NamedTuple):
    """One application that is attacked."""

    name: str
    interface: Literal["asgi", "wsgi"]
    handlers: tuple[Handler, ...]
    public: bool
    """Whether a public rule names the catch-all."""
    make: Callable[[Ran], Any]
    guard: Callable[[Any, Gate, Mapping[str, Rule | str]], Any]
    around: Callable[[Any], Any] | None = None
    """What stands outside the gate."""

    @property
    def rules(self) -> dict[str, Rule | str]:
        """The rules of the gate."""
        return rules(self.handlers, public=self.public)

    def guarded(self, gate: Gate, ran: Ran) -> Any:
        """The application behind a gate, as a server serves it."""
        app = self.guard(self.make(ran), gate, self.rules)
        return self.around(app) if self.around else app

    def bare(self, ran: Ran) -> Any:
        """The application without a gate."""
        return self.make(ran)


def _all() -> Iterable[Application]:
    for public, kind in ((True, ""), (False, "-closed")):

        def one(
            name: str,
            interface: Literal["asgi", "wsgi"],
            handlers: Iterable[str],
            make: Callable[[Ran], Any],
            guard: Callable[..., Any],
            around: Callable[[Any], Any] | None = None,
            public: bool = public,
            kind: str = kind,
        ) -> Application:
            chosen = table(handlers, public=public)
            return Application(name + kind, interface, chosen, public, make, guard, around)

        yield one("asgi", "asgi", RAW, raw_asgi, guard_asgi)
        yield one("asgi-folding", "asgi", RAW, partial(raw_asgi, folding=True), guard_asgi)
        yield one("wsgi", "wsgi", RAW, raw_wsgi, guard_wsgi)
        yield one("wsgi-folding", "wsgi", RAW, partial(raw_wsgi, folding=True), guard_wsgi)
        yield one("starlette", "asgi", STARLETTE, starlette, guard_asgi)
        no_redirect = partial(starlette, redirect=False)
        yield one("starlette-no-redirect", "asgi", STARLETTE, no_redirect, guard_asgi)
        inside = partial(starlette, cors=True)
        yield one("starlette-cors", "asgi", STARLETTE, inside, guard_asgi)
        outside = cors_outside
        yield one("starlette-below-cors", "asgi", STARLETTE, starlette, guard_asgi, outside)
        rewriting = partial(starlette, rewriting=True)
        yield one("starlette-rewriting", "asgi", STARLETTE, rewriting, guard_asgi)
        order = ("health", "item", "newest", "page")
        yield one("starlette-ordered", "asgi", order, ordered, guard_asgi)
        yield one("fastapi", "asgi", FASTAPI, fastapi, guard_asgi)
        no_redirect = partial(fastapi, redirect=False)
        yield one("fastapi-no-redirect", "asgi", FASTAPI, no_redirect, guard_asgi)
        rooted = partial(fastapi, root="/shop")
        yield one("fastapi-rooted", "asgi", FASTAPI, rooted, guard_asgi)
        yield one("litestar", "asgi", LITESTAR, litestar, guard_litestar)
        yield one("quart", "asgi", QUART, quart, guard_quart)
        yield one("quart-loose", "asgi", QUART, partial(quart, strict=False), guard_quart)
        yield one("flask", "wsgi", FLASK, flask, guard_flask)
        yield one("flask-loose", "wsgi", FLASK, partial(flask, strict=False), guard_flask)
        rewriting = partial(flask, rewriting=True)
        yield one("flask-rewriting", "wsgi", FLASK, rewriting, guard_flask)
        interfaces: tuple[Literal["asgi", "wsgi"], ...] = ("wsgi", "asgi")
        for interface in interfaces:
            plain = partial(django, interface=interface)
            yield one(f"django-{interface}", interface, DJANGO, plain, guard_django)
            slashes = partial(django, interface=interface, append_slash=True)
            yield one(f"django-{interface}-slashes", interface, DJANGO, slashes, guard_django)
            forced = partial(django, interface=interface, prefix="/shop")
            yield one(f"django-{interface}-forced", interface, DJANGO, forced, guard_django)
            if find_spec("rest_framework"):
                rest = partial(django, interface=interface, rest=True)
                yield one(f"rest-{interface}", interface, REST, rest, guard_django)


class McpApplication(NamedTuple):
    """One MCP server that is attacked, as an :class:`Application`."""

    name: str
    kind: str
    interface: Literal["asgi", "wsgi"] = "asgi"
    handlers: tuple[Handler, ...] = PARTS
    around: None = None

    def guarded(self, gate: Gate, ran: Ran) -> Any:
        """The server behind a gate."""
        return guarded_server(self.kind, gate, ran)

    def bare(self, ran: Ran) -> Any:
        """Nothing: the server is not attacked without its gate."""
        return None


APPLICATIONS: Mapping[str, Application | McpApplication] = {
    **{application.name: application for application in _all()},
    **{f"mcp-{kind}": McpApplication(f"mcp-{kind}", kind) for kind in ("sdk", "fastmcp")},
}
