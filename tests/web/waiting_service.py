"""Applications whose handlers hold units while they wait for a model that never answers.

The first segment of a path selects the framework. The output names the key of each.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpResponse
from django.urls import path
from fastapi import FastAPI
from litestar import Litestar, get, post
from litestar import Request as LitestarRequest
from quart import Quart
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lockgate import (
    Gate,
    Limit,
    Plan,
    PlanBook,
    asgi,
    django,
    fastapi,
    litestar,
    quart,
    run,
    starlette,
)
from lockgate.web.disconnects import HasScope

TOKENS = Limit("tokens", "1000000/minute")
PLANS = PlanBook([Plan("free", rpm=None, rph=None, rpd=None, concurrent=None)])
gate = Gate("memory://", brand="acme", plans=PLANS)
waiting: Counter[str] = Counter()
"""The handlers that wait for the model, by framework."""


async def answer(caller: str) -> None:
    """Hold units, and wait for the model until the task is cancelled."""
    async with gate.hold(caller, {TOKENS: 90}) as hold:
        hold.used(1)
        waiting[caller] += 1
        try:
            await asyncio.Event().wait()
        finally:
            waiting[caller] -= 1


async def answer_watched(request: HasScope | Scope, caller: str) -> None:
    """Wait until the client disconnects."""
    async with asgi.cancel_on_disconnect(request):
        await answer(caller)


async def by_asgi(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await answer_watched(scope, "asgi")


@starlette.requires("models:read")
async def by_starlette(request: Request) -> Response:
    await request.body()
    await answer_watched(request, "starlette")
    return Response()


@starlette.requires("models:read")
async def unread_by_starlette(request: Request) -> Response:
    await answer_watched(request, "starlette")
    return Response()


fastapi_app = FastAPI()


@fastapi_app.post("/complete")
async def by_fastapi(
    request: Request, body: dict[str, int], _: fastapi.Caller = fastapi.requires("models:read")
) -> None:
    await answer_watched(request, next(iter(body)))


@post("/complete", guards=[litestar.requires("models:read")])
async def by_litestar(request: LitestarRequest[Any, Any, Any], data: dict[str, int]) -> None:
    await answer_watched(request, next(iter(data)))


@get("/complete", guards=[litestar.requires("models:read")])
async def unread_by_litestar(request: LitestarRequest[Any, Any, Any]) -> None:
    await answer_watched(request, "litestar")


quart_app = Quart("service")


@quart_app.post("/complete")
@quart.requires("models:read")
async def by_quart() -> str:
    await answer("quart")
    return ""


@django.requires("models:read")
async def by_django(_: Any) -> HttpResponse:
    await answer("django")
    return HttpResponse()


urlpatterns = [path("complete", by_django)]
settings.configure(
    ROOT_URLCONF=__name__,
    SECRET_KEY="of this service alone",
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["lockgate.django.RouteMiddleware"],
)
routes = [
    Route("/complete", by_starlette, methods=["POST"]),
    Route("/complete", unread_by_starlette, methods=["GET"]),
]
checks: Any = litestar.RouteMiddleware
APPLICATIONS: dict[str, Any] = {
    "asgi": asgi.protect(by_asgi, gate),
    "starlette": starlette.protect(Starlette(routes=routes), gate),
    "fastapi": fastapi.protect(fastapi_app, gate),
    "litestar": litestar.protect(
        Litestar([by_litestar, unread_by_litestar], openapi_config=None, middleware=[checks]), gate
    ),
    "quart": quart.protect(quart_app, gate),
    "django": django.protect(ASGIHandler(), gate),
}


async def usage(scope: Scope, receive: Receive, send: Send) -> None:
    """Tell the units that the organization of a framework has used and holds, and its handlers."""
    name = scope["path"].rpartition("/")[2]
    told = {"used": 0, "held": 0, "waiting": waiting[name]}
    for row in await gate.holds.usage(name):
        told.update(used=row.used - row.held, held=row.held)
    await JSONResponse(told)(scope, receive, send)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return await lifespan(receive, send)
    _, first, rest = scope["path"].split("/", 2) if scope["path"].count("/") > 1 else ("", "", "")
    service: ASGIApp = APPLICATIONS.get(first, usage)
    if service is not usage:
        scope = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}
    return await service(scope, receive, send)


async def lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


for name in APPLICATIONS:
    print(f"{name}: {run(gate.keys.create(name, name=name, scopes=['*'])).text}")
