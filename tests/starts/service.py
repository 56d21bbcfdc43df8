"""The service of the workers, for ASGI and WSGI servers.

A worker imports the framework of its own application, as in production.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lockgate import Gate
from lockgate.options import StoreOptions

if TYPE_CHECKING:
    from fastapi import FastAPI
    from flask import Flask

gate = Gate(
    os.environ["LOCKGATE_STORE"],
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
    store_options=StoreOptions(fleet=4),
)


def asgi() -> FastAPI:
    from fastapi import FastAPI

    from lockgate import fastapi

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/who", dependencies=[fastapi.requires()])
    async def who() -> dict[str, int]:
        return {"process": os.getpid()}

    fastapi.protect(app, gate)
    return app


def wsgi() -> Flask:
    from flask import Flask

    from lockgate import flask

    app = Flask(__name__, static_folder=None)

    @app.get("/who")
    @flask.requires()
    def who() -> dict[str, int]:
        return {"process": os.getpid()}

    return flask.protect(app, gate)
