"""Servers and the applications that they serve: each pair runs in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple, TypeVar

from tests.servers import reserved_port
from tests.tracing import untraced

from .applications import APPLICATIONS, Application, McpApplication
from .mutants import MUTANT
from .record import Record
from .service import APPLICATION, FOLDER
from .wire import Connection, Http1, Http2, Request

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0

Protocol = Literal["http/1.1", "http/2"]
R = TypeVar("R")


class Server(NamedTuple):
    """How a server is started, and how it is spoken to."""

    name: str
    interface: Literal["asgi", "wsgi"]
    command: tuple[str, ...]
    protocol: Protocol = "http/1.1"
    any_method_opens: bool = False
    """Whether a WebSocket handshake by any method is one to the application, as to no other."""


_UVICORN = ("uvicorn", "tests.attack.entry:app", "--port={port}", "--no-access-log")
_HYPERCORN = ("hypercorn", "--bind=127.0.0.1:{port}", "--log-level=CRITICAL")
_GRANIAN = ("granian", "tests.attack.entry:app", "--port={port}", "--no-log")
_GUNICORN = (
    *("gunicorn", "tests.attack.entry:app", "--bind=127.0.0.1:{port}", "--log-level=critical"),
    "--no-control-socket",
)

_UVICORN_WORKER = "uvicorn.workers.UvicornWorker"

SERVERS = {
    server.name: server
    for server in (
        Server("uvicorn-h11", "asgi", (*_UVICORN, "--http=h11")),
        Server("uvicorn-httptools", "asgi", (*_UVICORN, "--http=httptools")),
        Server("uvicorn-below", "asgi", (*_UVICORN, "--http=h11", "--root-path=/shop")),
        Server("hypercorn", "asgi", (*_HYPERCORN, "tests.attack.entry:app")),
        Server("hypercorn-h2", "asgi", (*_HYPERCORN, "tests.attack.entry:app"), "http/2"),
        Server("hypercorn-wsgi", "wsgi", (*_HYPERCORN, "wsgi:tests.attack.entry:app")),
        Server("granian-asgi", "asgi", (*_GRANIAN, "--interface=asgi"), any_method_opens=True),
        Server("granian-h2", "asgi", (*_GRANIAN, "--interface=asgi", "--http=2"), "http/2", True),
        Server("granian-wsgi", "wsgi", (*_GRANIAN, "--interface=wsgi")),
        Server("gunicorn", "wsgi", (*_GUNICORN, "--threads=4")),
        Server("gunicorn-asgi", "asgi", (*_GUNICORN, "--worker-class=asgi")),
        Server("gunicorn-uvicorn", "asgi", (*_GUNICORN, f"--worker-class={_UVICORN_WORKER}")),
        Server("waitress", "wsgi", ("waitress", "--listen=127.0.0.1:{port}", "{wsgi}")),
        Server("werkzeug", "wsgi", ("tests.attack.development", "{port}")),
    )
}

_ASGI = (
    *("uvicorn-h11", "uvicorn-httptools", "hypercorn", "hypercorn-h2", "granian-asgi"),
    "gunicorn-asgi",
)
_WSGI = ("gunicorn", "waitress", "granian-wsgi", "werkzeug")

PAIRS: tuple[tuple[str, str], ...] = (
    *((server, "asgi-folding") for server in (*_ASGI, "granian-h2", "gunicorn-uvicorn")),
    *((server, "asgi-closed") for server in ("uvicorn-h11", "granian-asgi")),
    *((server, "starlette") for server in (*_ASGI, "granian-h2", "uvicorn-below")),
    *((server, "fastapi") for server in (*_ASGI, "uvicorn-below")),
    *((server, "litestar") for server in (*_ASGI, "uvicorn-below")),
    *((server, "quart") for server in (*_ASGI, "uvicorn-below", "granian-h2")),
    *((server, "django-asgi") for server in (*_ASGI, "uvicorn-below")),
    ("uvicorn-h11", "asgi"),
    ("uvicorn-h11", "starlette-no-redirect"),
    ("uvicorn-httptools", "starlette-closed"),
    ("uvicorn-httptools", "starlette-cors"),
    ("uvicorn-h11", "starlette-below-cors"),
    ("uvicorn-httptools", "starlette-ordered"),
    ("gunicorn-uvicorn", "fastapi-no-redirect"),
    ("uvicorn-httptools", "starlette-rewriting"),
    ("uvicorn-httptools", "fastapi-rooted"),
    ("uvicorn-h11", "fastapi-closed"),
    ("uvicorn-httptools", "litestar-closed"),
    ("uvicorn-h11", "quart-loose"),
    ("hypercorn", "quart-loose"),
    ("hypercorn", "quart-closed"),
    ("hypercorn", "django-asgi-slashes"),
    ("uvicorn-h11", "django-asgi-closed"),
    ("uvicorn-httptools", "django-asgi-forced"),
    *((server, "wsgi-folding") for server in (*_WSGI, "hypercorn-wsgi")),
    ("gunicorn", "wsgi"),
    ("waitress", "wsgi-closed"),
    *((server, "flask") for server in (*_WSGI, "hypercorn-wsgi")),
    *((server, "flask-loose") for server in _WSGI),
    ("gunicorn", "flask-rewriting"),
    ("gunicorn", "flask-closed"),
    *((server, "django-wsgi") for server in _WSGI),
    ("gunicorn", "django-wsgi-slashes"),
    ("waitress", "django-wsgi-closed"),
    # Where djangorestframework is installed.
    *((server, "rest-wsgi") for server in ("gunicorn", "waitress") if "rest-wsgi" in APPLICATIONS),
    *((server, "rest-asgi") for server in ("uvicorn-h11",) if "rest-asgi" in APPLICATIONS),
)


class Target(NamedTuple):
    """An application that is served, ready to be attacked."""

    server: Server
    application: Application | McpApplication
    port: int
    folder: Path
    record: Record
    process: subprocess.Popen[bytes]

    @property
    def name(self) -> str:
        return f"{self.server.name} {self.application.name}"

    @property
    def keys(self) -> Mapping[str, str]:
        """The text of each organization's key; of the process that serves now."""
        keys: dict[str, str] = json.loads((self.folder / "keys.json").read_text())
        return keys

    def connect(self, patience: float) -> Connection:
        """Make a connection, on which the server may take some seconds to answer."""
        protocol = Http1 if self.server.protocol == "http/1.1" else Http2
        return protocol(self.port, patience)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-4000:]


def side_by_side(
    attacked: Callable[[tuple[str, str]], R], pairs: Sequence[tuple[str, str]], processes: int
) -> Iterator[R]:
    """Attack pairs in several processes; gives the reports in the order of the pairs."""
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(attacked, pairs)


@contextmanager
def served(server_name: str, application_name: str, mutant: str | None = None) -> Iterator[Target]:
    """Serve an application on a free port until the block ends, maybe with a fault in its gate."""
    server, application = SERVERS[server_name], APPLICATIONS[application_name]
    assert server.interface == application.interface
    with reserved_port() as port, TemporaryDirectory(prefix="lockgate-attack-") as name:
        module, *options = (
            part.format(port=port, wsgi="tests.attack.entry:app") for part in server.command
        )
        folder = Path(name)
        (folder / "log-of-runs").touch()
        environment = {
            **untraced(os.environ),
            APPLICATION: application_name,
            FOLDER: name,
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            "PYTHONWARNINGS": "ignore",
            **({} if mutant is None else {MUTANT: mutant}),
        }
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *options],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        target = Target(server, application, port, folder, Record(folder / "log-of-runs"), process)
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _answers(target):
                assert process.poll() is None, target.log()
                assert time.monotonic() < deadline, target.log()
                time.sleep(0.02)
            yield target
        finally:
            target.record.close()
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(target: Target) -> bool:
    """Whether a request comes to the application: some servers listen before they load it."""
    id = target.record.new_id()
    connection = target.connect(10.0)
    try:
        connection.send(Request(b"GET", b"/health", alone=True).numbered(id), {})
    except OSError:
        return False
    finally:
        connection.close()
    return target.record.run(id).entered > 0
