"""The URLs of the Django applications that are attacked."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

Ran = Callable[[str], None]

urlpatterns: list[Any] = []


def patterns(ran: Ran) -> list[Any]:
    """Plain views, one for each path."""
    http: Any = import_module("django.http")
    urls: Any = import_module("django.urls")
    i18n: Any = import_module("django.conf.urls.i18n")
    generic: Any = import_module("django.views.generic")
    path, re_path = urls.path, urls.re_path

    def said(name: str) -> Callable[..., Any]:
        """A view that looks at no method, as Django's do by default."""

        def view(_: Any, **__: object) -> Any:
            ran(name)
            return http.HttpResponse(name)

        return view

    def by_method(**names: str) -> Callable[..., Any]:
        def view(request: Any, **_: object) -> Any:
            method = "GET" if request.method == "HEAD" else request.method
            if method not in names:
                return http.HttpResponseNotAllowed(list(names))
            ran(names[method])
            return http.HttpResponse(names[method])

        return view

    class View(generic.View):  # type: ignore[misc]
        def get(self, _: Any) -> Any:
            ran("shown")
            return http.HttpResponse("shown")

        def post(self, _: Any) -> Any:
            ran("changed")
            return http.HttpResponse("changed")

    return [
        path("health", said("health")),
        path("api/models", said("models")),
        path("api/images", by_method(POST="image")),
        path("api/jobs", by_method(GET="jobs", POST="start")),
        path("api/jobs/<int:id>", by_method(GET="job", DELETE="cancel")),
        path("runs", said("run")),
        path("api/admin", said("admin")),
        path("api/reports/", said("reports")),
        path("files/<path:name>", said("upload")),
        re_path(r"^metrics(?:/.*)?$", said("metrics")),
        path("sub/", urls.include([path("inner", said("inner"))])),
        path("view", View.as_view()),
        re_path(r"(?i)^api/secret$", said("secret")),
        re_path(r"^api/loose", said("loose")),
        path("items/<str:id>", said("item")),
        *i18n.i18n_patterns(path("region", said("region")), prefix_default_language=False),
        re_path(r"", said("page")),
    ]


def rest_patterns(ran: Ran) -> list[Any]:
    """Views of Django REST framework, with format suffixes as its routers make them."""
    http: Any = import_module("django.http")
    urls: Any = import_module("django.urls")
    views: Any = import_module("rest_framework.views")
    response: Any = import_module("rest_framework.response")
    suffixes: Any = import_module("rest_framework.urlpatterns")

    class Base(views.APIView):  # type: ignore[misc]
        names: dict[str, str] = {}  # noqa: RUF012 - replaced as a whole

        def answer(self, request: Any, **_: object) -> Any:
            name = self.names["GET" if request.method == "HEAD" else request.method]
            ran(name)
            return response.Response({"name": name})

        def options(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            """Metadata, of the handlers that there are."""
            ran(min(self.names.values()))
            return super().options(request, *args, **kwargs)

    class Models(Base):
        names = {"GET": "models"}  # noqa: RUF012
        get = Base.answer

    class Images(Base):
        names = {"POST": "image"}  # noqa: RUF012
        post = Base.answer

    class Jobs(Base):
        names = {"GET": "jobs", "POST": "start"}  # noqa: RUF012
        get = post = Base.answer

    def plain(name: str) -> Callable[..., Any]:
        def view(_: Any, **__: object) -> Any:
            ran(name)
            return http.HttpResponse(name)

        return view

    rest = [
        urls.path("api/models", Models.as_view()),
        urls.path("api/images", Images.as_view()),
        urls.path("api/jobs", Jobs.as_view()),
    ]
    return [
        urls.path("health", plain("health")),
        *suffixes.format_suffix_patterns(rest),
        urls.re_path(r"", plain("page")),
    ]
