"""A Django service behind a gate, over WSGI and over ASGI.

Serve it with ``waitress-serve django_service:wsgi`` or ``uvicorn django_service:asgi``, and paste
what it prints. In a project of its own, name the middleware last in the settings, and protect the
``application`` of ``wsgi.py`` and ``asgi.py``.
"""

import os

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from lockgate import Gate, run
from lockgate.django import principal, protect, requires

settings.configure(
    ROOT_URLCONF=__name__,
    # export DJANGO_SECRET_KEY=$(python -c "import secrets; print(secrets.token_urlsafe())")
    SECRET_KEY=os.environ["DJANGO_SECRET_KEY"],
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["lockgate.django.RouteMiddleware"],
)
gate = Gate(
    "memory://",
    brand="acme",
    # export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
)


def health(_: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


@requires("models:read")
def models(request: HttpRequest) -> JsonResponse:
    caller = principal(request)
    assert caller is not None, "the route is not public"
    return JsonResponse({"for": caller.organization, "data": ["m-1"]})


@requires("jobs:write", cost=5)
def start_job(_: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "started"}, status=202)


urlpatterns = [path("health", health), path("models", models), path("jobs", start_job)]
wsgi = protect(get_wsgi_application(), gate, public=["GET /health"], strict=True)
asgi = protect(get_asgi_application(), gate, public=["GET /health"], strict=True)

run(gate.organizations.place("org_1", "starter"))
print("key:    ", run(gate.keys.create("org_1", name="first key")).text)
