"""Applications of Flask, and of Django for both interfaces, whose URLs are here, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from .asgi_applications import add_werkzeug, cleaned
from .handlers import BY_NAME, COMMON, routes
from .raw_applications import Ran, metrics_wsgi

FLASK = (*COMMON, "metrics", "inner", "shown", "changed", "decorated", "issue", "sheet")


def flask(ran: Ran, *, strict: bool = True, rewriting: bool = False) -> Any:
    from flask import Flask
    from flask.views import MethodView
    from werkzeug.middleware.dispatcher import DispatcherMiddleware

    from lockgate.flask import requires

    def said(name: str) -> Any:
        def endpoint(*_: object, **__: object) -> str:
            ran(name)
            return name

        return endpoint

    app, inner = Flask("attacked"), Flask("inner")
    add_werkzeug(app, MethodView, said, strict=strict)
    decorated = requires("jobs:write", cost=16)(said("decorated"))
    app.add_url_rule("/decorated", "decorated", decorated, methods=["POST"])
    inner.url_map.strict_slashes = strict
    inner.add_url_rule("/inner", "inner", said("inner"))
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

DJANGO = (*(*COMMON, "metrics", "inner", "shown", "changed", "secret", "loose", "region"),)
REST = ("health", "models", "image", "jobs", "start", "page")

urlpatterns: list[Any] = []


@cache
def _django(append_slash: bool, prefix: str | None) -> Any:
    """Configure Django, once in a process."""
    settings: Any = import_module("django.conf").settings
    settings.configure(
        ROOT_URLCONF="tests.attack.wsgi_applications",
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
    urlpatterns[:] = _rest_patterns(ran) if rest else _patterns(ran)
    handler: Any = import_module(f"django.core.{interface}")
    return getattr(handler, f"get_{interface}_application")()


def _said(ran: Ran) -> Callable[[str], Any]:
    """Make a view that looks at no method, as Django's do by default."""
    http: Any = import_module("django.http")

    def said(name: str) -> Callable[..., Any]:
        def view(*_: object, **__: object) -> Any:
            ran(name)
            return http.HttpResponse(name)

        return view

    return said


def _patterns(ran: Ran) -> list[Any]:
    """Plain views, one for each path."""
    http: Any = import_module("django.http")
    urls: Any = import_module("django.urls")
    i18n: Any = import_module("django.conf.urls.i18n")
    generic: Any = import_module("django.views.generic")
    path, re_path, said = urls.path, urls.re_path, _said(ran)

    def by_method(names: dict[str, str]) -> Callable[..., Any]:
        def view(request: Any, **_: object) -> Any:
            method = "GET" if request.method == "HEAD" else request.method
            if method not in names:
                return http.HttpResponseNotAllowed(list(names))
            return said(names[method])()

        return view

    of_paths: dict[str, dict[str, str]] = {}
    plain = [name for name in COMMON if name != "page"]
    styles = {"number": "<int:%s>", "text": "<str:%s>", "tail": "<path:%s>"}
    for name, written, (method, *_) in routes(plain, **styles):
        of_paths.setdefault(written[1:], {})[method] = name
    held = {"image", "jobs", "start", "job", "cancel"}
    view: Any = type("View", (generic.View,), {"get": said("shown"), "post": said("changed")})
    return [
        *(
            path(written, by_method(names) if held & {*names.values()} else said(*names.values()))
            for written, names in of_paths.items()
        ),
        re_path(r"^metrics(?:/.*)?$", said("metrics")),
        path("sub/", urls.include([path("inner", said("inner"))])),
        path("view", view.as_view()),
        re_path(r"(?i)^api/secret$", said("secret")),
        re_path(r"^api/loose", said("loose")),
        *i18n.i18n_patterns(path("region", said("region")), prefix_default_language=False),
        re_path(r"", said("page")),
    ]


def _rest_patterns(ran: Ran) -> list[Any]:
    """Views of Django REST framework, with format suffixes as its routers make them."""
    urls: Any = import_module("django.urls")
    views: Any = import_module("rest_framework.views")
    response: Any = import_module("rest_framework.response")
    suffixes: Any = import_module("rest_framework.urlpatterns")
    said = _said(ran)

    def answer(self: Any, request: Any, **_: object) -> Any:
        name = self.names["GET" if request.method == "HEAD" else request.method]
        ran(name)
        return response.Response({"name": name})

    def options(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Metadata, of the handlers that there are."""
        ran(min(self.names.values()))
        return views.APIView.options(self, request, *args, **kwargs)

    def rest(*names: str) -> Any:
        methods = {BY_NAME[name].methods[0]: name for name in names}
        own = {
            "names": methods,
            "options": options,
            **dict.fromkeys(map(str.lower, methods), answer),
        }
        view: Any = type("View", (views.APIView,), own)
        return urls.path(BY_NAME[names[0]].paths[0][1:], view.as_view())

    return [
        urls.path("health", said("health")),
        *suffixes.format_suffix_patterns([rest("models"), rest("image"), rest("jobs", "start")]),
        urls.re_path(r"", said("page")),
    ]
