"""All applications that are attacked: one for each framework and each way to set it up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

from lockgate import Gate, Rule

from .asgi_applications import (
    FASTAPI,
    LITESTAR,
    ORDERED,
    QUART,
    STARLETTE,
    cors_outside,
    fastapi,
    litestar,
    ordered,
    quart,
    starlette,
)
from .handlers import Handler, rules, table
from .mcp_applications import PARTS, guarded_server
from .raw_applications import RAW, Ran, raw_asgi, raw_wsgi
from .wsgi_applications import DJANGO, FLASK, REST, django, flask

Interface = Literal["asgi", "wsgi"]


def _guarded(adapter: str) -> Callable[[Any, Gate, Mapping[str, Rule | str]], Any]:
    """Put an application behind a gate by an adapter, or without a framework.

    A server loads the framework of its own application: all of them take a second more.
    """

    def guard(app: Any, gate: Gate, rules: Mapping[str, Rule | str]) -> Any:
        module: Any = import_module(f"lockgate.{adapter}")
        if adapter in ("asgi", "wsgi"):
            return module.GateMiddleware(app, gate, rules)
        return module.protect(app, gate, rules=rules)

    return guard


class Application(NamedTuple):
    """One application that is attacked."""

    name: str
    interface: Interface
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


MADE: Mapping[str, tuple[Interface, str, Iterable[str], Callable[[Ran], Any]]] = {
    "asgi": ("asgi", "asgi", RAW, raw_asgi),
    "asgi-folding": ("asgi", "asgi", RAW, partial(raw_asgi, folding=True)),
    "wsgi": ("wsgi", "wsgi", RAW, raw_wsgi),
    "wsgi-folding": ("wsgi", "wsgi", RAW, partial(raw_wsgi, folding=True)),
    "starlette": ("asgi", "starlette", STARLETTE, starlette),
    "starlette-no-redirect": ("asgi", "starlette", STARLETTE, partial(starlette, redirect=False)),
    "starlette-cors": ("asgi", "starlette", STARLETTE, partial(starlette, cors=True)),
    "starlette-below-cors": ("asgi", "starlette", STARLETTE, starlette),
    "starlette-rewriting": ("asgi", "starlette", STARLETTE, partial(starlette, rewriting=True)),
    "starlette-ordered": ("asgi", "starlette", ORDERED, ordered),
    "fastapi": ("asgi", "starlette", FASTAPI, fastapi),
    "fastapi-no-redirect": ("asgi", "starlette", FASTAPI, partial(fastapi, redirect=False)),
    "fastapi-rooted": ("asgi", "starlette", FASTAPI, partial(fastapi, root="/shop")),
    "litestar": ("asgi", "litestar", LITESTAR, litestar),
    "quart": ("asgi", "quart", QUART, quart),
    "quart-loose": ("asgi", "quart", QUART, partial(quart, strict=False)),
    "flask": ("wsgi", "flask", FLASK, flask),
    "flask-loose": ("wsgi", "flask", FLASK, partial(flask, strict=False)),
    "flask-rewriting": ("wsgi", "flask", FLASK, partial(flask, rewriting=True)),
}
"""By name: the interface, the adapter, the handlers, and what makes it."""


def _django(interface: Interface) -> Iterator[Application]:
    made: dict[str, dict[str, Any]] = {"": {}, "-slashes": {"append_slash": True}}
    made |= {"-forced": {"prefix": "/shop"}}
    for kind, options in made.items():
        make = partial(django, interface=interface, **options)
        yield from _both(f"django-{interface}{kind}", interface, "django", DJANGO, make)
    if find_spec("rest_framework"):
        make = partial(django, interface=interface, rest=True)
        yield from _both(f"rest-{interface}", interface, "django", REST, make)


def _both(
    name: str, interface: Interface, adapter: str, handlers: Iterable[str], make: Callable[..., Any]
) -> Iterator[Application]:
    """Make an application with a public catch-all, and one without."""
    around = cors_outside if name == "starlette-below-cors" else None
    for public, kind in ((True, ""), (False, "-closed")):
        chosen, guard = table(handlers, public=public), _guarded(adapter)
        yield Application(name + kind, interface, chosen, public, make, guard, around)


def _all() -> Iterator[Application]:
    for name, made in MADE.items():
        yield from _both(name, *made)
    yield from _django("wsgi")
    yield from _django("asgi")


class McpApplication(NamedTuple):
    """One MCP server that is attacked, as an :class:`Application`."""

    name: str
    kind: str
    interface: Interface = "asgi"
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
