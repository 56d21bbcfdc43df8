"""The service of the workers, for ASGI and WSGI servers."""

from __future__ import annotations

import os

from fastapi import FastAPI
from flask import Flask

from lockgate import Gate, fastapi, flask

gate = Gate(
    os.environ["LOCKGATE_STORE"],
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
    fleet=4,
)


def asgi() -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/who", dependencies=[fastapi.requires()])
    async def who() -> dict[str, int]:
        return {"process": os.getpid()}

    fastapi.protect(app, gate)
    return app


def wsgi() -> Flask:
    app = Flask(__name__, static_folder=None)

    @app.get("/who")
    @flask.requires()
    def who() -> dict[str, int]:
        return {"process": os.getpid()}

    return flask.protect(app, gate)
