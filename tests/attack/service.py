"""An application as it is served: behind its gate, and a recorder outside of that."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from starlette.types import Message, Receive, Scope, Send

from lockgate import Gate, Plan, PlanBook, run

from .applications import APPLICATIONS
from .record import ORGANIZATIONS, Record

APPLICATION = "LOCKGATE_ATTACK_APPLICATION"
FOLDER = "LOCKGATE_ATTACK_FOLDER"

BARE = "x-attack-bare"
"""A request with this header goes to the same application without a gate."""

HUGE = 10**12
SCOPES = {"weak": "upload:read", "models": "models:read", "jobs": "jobs:read", "full": "*"}


class Recorder:
    """Stands outside the gate and records what a request did.

    Args:
        guarded: the application behind its gate.
        bare: the same without a gate.
        gate: its windows are read after each request.
        record: where to write.
    """

    def __init__(self, guarded: Any, bare: Any, gate: Gate, record: Record) -> None:
        self.guarded = guarded
        self.bare = bare
        self.gate = gate
        self.record = record

    def read_windows(self) -> None:
        plan = self.gate.plans.default
        self.record.use(
            tuple(
                run(self.gate.store.peek(organization, plan.windows)).used[-1]
                for organization in ORGANIZATIONS
            )
        )


_FIRST = ("http.response.start", "websocket.http.response.start", "websocket.accept")


class AsgiRecorder(Recorder):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.guarded(scope, receive, send)
            return
        record = self.record
        bare = any(name == BARE.encode() for name, _ in scope["headers"])
        app = self.bare if bare else self.guarded
        record.enter()

        async def answer(message: Message) -> None:
            if message["type"] in _FIRST:
                self.read_windows()
            match message["type"]:
                case "http.response.start" | "websocket.http.response.start":
                    record.answered(message["status"])
                case "websocket.accept":
                    record.answered(101)
                case "websocket.close":
                    record.answered(0)  # What the client sees is the server's.
                case _:
                    pass
            await send(message)

        try:
            await app(scope, receive, answer)
        except Exception:
            record.fault()
            raise
        finally:
            self.read_windows()
            record.leave()


class WsgiRecorder(Recorder):
    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        record = self.record
        app = self.bare if "HTTP_X_ATTACK_BARE" in environ else self.guarded
        record.enter()

        def start(status: str, headers: Any, exc_info: Any = None, /) -> Any:
            record.answered(int(status[:3]))
            return start_response(status, headers, exc_info)

        try:
            body = app(environ, start)
            try:
                return list(body)
            finally:
                close: Callable[[], object] | None = getattr(body, "close", None)
                if close is not None:
                    close()
        except Exception:
            record.fault()
            raise
        finally:
            self.read_windows()
            record.leave()


def load() -> Any:
    """The chosen application, its keys written to the folder."""
    folder = Path(os.environ[FOLDER])
    record = Record(folder / "record")
    application = APPLICATIONS[os.environ[APPLICATION]]
    plan = Plan("huge", HUGE, HUGE, HUGE, 1000)
    gate = Gate(
        "memory://",
        brand="acme",
        plans=PlanBook([plan], default="huge"),
        anonymous=Plan("anonymous", HUGE, HUGE, HUGE, 0),
    )
    keys = {
        organization: run(gate.keys.create(organization, name="key", scopes=[scope])).text
        for organization, scope in SCOPES.items()
    }
    guarded = application.guarded(gate, record.ran)
    bare = application.bare(record.ran)
    kind = AsgiRecorder if application.interface == "asgi" else WsgiRecorder
    (folder / "keys.json").write_text(json.dumps(keys))
    record.loaded(os.getpid())
    return kind(guarded, bare, gate, record)
