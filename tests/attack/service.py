"""A served application: behind its gate, with a recorder around the gate."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast
from wsgiref.types import StartResponse, WSGIEnvironment

from starlette.types import Message, Receive, Scope, Send

from lockgate import Gate, MemoryStore, Plan, PlanBook, run
from lockgate.core.key_format import Token
from lockgate.core.ledger import Action, Hit
from lockgate.options import WebOptions
from lockgate.stores.answers import Admission, Verdict

from .applications import APPLICATIONS
from .mutants import mutate
from .record import ID, RunLog

APPLICATION = "LOCKGATE_ATTACK_APPLICATION"
FOLDER = "LOCKGATE_ATTACK_FOLDER"

A = TypeVar("A")

BARE = "x-attack-bare"
"""A request with this header goes to the same application without a gate."""

HUGE = 10**12
SCOPES = {"weak": "upload:read", "models": "models:read", "jobs": "jobs:read", "full": "*"}


class CountingStore(MemoryStore):
    """Records the charges of each organization, by the request that caused them."""

    def __init__(self, log: RunLog) -> None:
        super().__init__()
        self._log = log

    async def admit(self, token: Token, cost: int, *more: Any, **named: Any) -> Admission:
        admission = await super().admit(token, cost, *more, **named)
        if admission.verdict is Verdict.ADMITTED and admission.key is not None:
            self._log.charged(admission.key.organization, cost)
        return admission

    async def charge(self, owner: str, action: Action[A], now: int | None = None) -> A:
        answer: Any = await super().charge(owner, action, now)
        called: object = action
        if isinstance(called, Hit) and answer.allowed:
            self._log.charged(owner, called.cost)
        return cast(A, answer)


class Recorder:
    """Records the effects of a request, from outside the gate.

    Args:
        guarded: the application behind its gate.
        bare: the same without a gate.
        log: where to write.
    """

    def __init__(self, guarded: Any, bare: Any, log: RunLog) -> None:
        self.guarded = guarded
        self.bare = bare
        self.log = log


_ANSWERS = ("http.response.start", "websocket.http.response.start")


class AsgiRecorder(Recorder):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.guarded(scope, receive, send)
            return
        headers = dict(reversed(scope["headers"]))  # The first of each name.
        id: bytes = headers.get(ID.encode(), b"")
        broken: list[Exception] = []

        async def answer(message: Message) -> None:
            if message["type"] in _ANSWERS:
                marked = [*message.get("headers", ()), (ID.encode(), id)]
                message = {**message, "headers": marked}
            try:
                await send(message)
            except Exception as failure:  # h11 takes no body after a CONNECT was answered.
                broken.append(failure)
                raise

        app = self.bare if BARE.encode() in headers else self.guarded
        with self.log.request(id.decode("latin-1"), broken):
            await app(scope, receive, answer)


class WsgiRecorder(Recorder):
    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        id = str(environ.get("HTTP_X_ATTACK_ID", ""))

        def start(status: str, headers: Any, exc_info: Any = None, /) -> Any:
            return start_response(status, [*headers, (ID, id)], exc_info)

        app = self.bare if "HTTP_X_ATTACK_BARE" in environ else self.guarded
        with self.log.request(id):
            body = app(environ, start)
            try:
                return list(body)
            finally:
                close: Callable[[], object] | None = getattr(body, "close", None)
                if close is not None:
                    close()


def load() -> Any:
    """The chosen application, its keys written to the folder."""
    mutate()
    folder = Path(os.environ[FOLDER])
    log = RunLog(folder / "log-of-runs")
    application = APPLICATIONS[os.environ[APPLICATION]]
    plan = Plan("huge", HUGE, HUGE, HUGE, 1000)
    gate = Gate(
        CountingStore(log),
        brand="acme",
        plans=PlanBook([plan], default="huge"),
        web_options=WebOptions(anonymous=Plan("anonymous", HUGE, HUGE, HUGE, 0)),
    )
    keys = {
        organization: run(gate.keys.create(organization, name="key", scopes=[scope])).text
        for organization, scope in SCOPES.items()
    }
    guarded = application.guarded(gate, log.ran)
    bare = application.bare(log.ran)
    kind = AsgiRecorder if application.interface == "asgi" else WsgiRecorder
    (folder / "keys.json").write_text(json.dumps(keys))
    log.loaded(os.getpid())
    return kind(guarded, bare, log)
