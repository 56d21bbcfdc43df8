"""Applications of Flask, and of Django for both interfaces."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from .asgi_applications import add_werkzeug, cleaned
from .raw_applications import Ran, metrics_wsgi

FLASK = (
    *("health", "models", "image", "jobs", "start", "job", "cancel", "run", "admin", "reports"),
    *(
        "upload",
        "metrics",
        "inner",
        "shown",
        "changed",
        "item",
        "decorated",
        "page",
        "issue",
        "sheet",
    ),
)


def flask(ran: Ran, *, strict: bool = True, rewriting: bool = False) -> Any:
    from flask import Flask
    from flask.views import MethodView
    from werkzeug.middleware.dispatcher import DispatcherMiddleware

    from lockgate.flask import requires

    app = Flask("attacked")
    app.url_map.strict_slashes = strict

    def add(name: str, path: str, *methods: str) -> None:
        def endpoint(**_: object) -> str:
            ran(name)
            return name

        app.add_url_rule(path, f"{name} {path}", endpoint, methods=list(methods or ["GET"]))

    add_werkzeug(add)

    class View(MethodView):
        def get(self) -> str:
            ran("shown")
            return "shown"

        def post(self) -> str:
            ran("changed")
            return "changed"

    app.add_url_rule("/view", view_func=View.as_view("view"))

    @app.post("/decorated")
    @requires("jobs:write", cost=16)
    def decorated() -> str:
        ran("decorated")
        return "decorated"

    inner = Flask("inner")
    inner.url_map.strict_slashes = strict

    @inner.get("/inner")
    def said_inner() -> str:
        ran("inner")
        return "inner"

    mounts: Any = {"/metrics": metrics_wsgi(ran), "/sub": inner}
    app.wsgi_app = DispatcherMiddleware(app.wsgi_app, mounts)  # type: ignore[method-assign]
    if rewriting:
        app.wsgi_app = _wsgi_rewriting(app.wsgi_app)  # type: ignore[method-assign]
    return app


def _wsgi_rewriting(app: Any) -> Any:
    """Cleans paths and overrides methods, inside the gate, as recipes for Flask do."""

    def rewritten(environ: Any, start_response: Any) -> Any:
        environ["PATH_INFO"] = cleaned(environ["PATH_INFO"])
        override = environ.get("HTTP_X_HTTP_METHOD_OVERRIDE")
        environ["REQUEST_METHOD"] = override or environ["REQUEST_METHOD"]
        return app(environ, start_response)

    return rewritten


# --- Django -------------------------------------------------------------------------------

DJANGO = (
    *("health", "models", "image", "jobs", "start", "job", "cancel", "run", "admin", "reports"),
    *("upload", "metrics", "inner", "shown", "changed", "secret", "loose", "item", "region"),
    "page",
)
REST = ("health", "models", "image", "jobs", "start", "page")


@cache
def _django(append_slash: bool, prefix: str | None) -> Any:
    """Configure Django, once in a process."""
    settings: Any = import_module("django.conf").settings
    settings.configure(
        ROOT_URLCONF="tests.attack.django_urls",
        SECRET_KEY="for attacks only",
        ALLOWED_HOSTS=["*"],
        APPEND_SLASH=append_slash,
        FORCE_SCRIPT_NAME=prefix,
        USE_I18N=True,
        LANGUAGE_CODE="en",
        LANGUAGES=[("en", "English"), ("de", "German")],
        MIDDLEWARE=[
            "django.middleware.locale.LocaleMiddleware",
            "django.middleware.common.CommonMiddleware",
            "lockgate.django.RouteMiddleware",
        ],
        LOGGING_CONFIG=None,
        REST_FRAMEWORK={
            "DEFAULT_AUTHENTICATION_CLASSES": [],
            "DEFAULT_PERMISSION_CLASSES": [],
            "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
            "UNAUTHENTICATED_USER": None,
        },
    )
    return settings


def django(
    ran: Ran,
    interface: str,
    *,
    append_slash: bool = False,
    rest: bool = False,
    prefix: str | None = None,
) -> Any:
    _django(append_slash, prefix)
    urls: Any = import_module("tests.attack.django_urls")
    urls.urlpatterns[:] = urls.rest_patterns(ran) if rest else urls.patterns(ran)
    handler: Any = import_module(f"django.core.{interface}")
    return getattr(handler, f"get_{interface}_application")()
