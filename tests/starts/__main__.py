"""The command: ``python -m tests.starts --help``.

Starts four workers over and over, and sends each fleet a burst as soon as it listens.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from time import monotonic, sleep
from typing import NamedTuple

from lockgate import Gate, run
from lockgate.options import StoreOptions
from tests.campaigns import PATHS, ROOT, STORES
from tests.servers import reserved_port

CALLERS = 32
LISTENS_AT_MOST = 60.0
"""Seconds until a server listens."""
ANSWERS_AT_MOST = 180.0
"""Seconds that a request may take."""

PYTHON = sys.executable
GUNICORN = PYTHON, "-m", "gunicorn", "--bind=127.0.0.1:{port}", "--workers=4", "--log-level=error"
ASGI, WSGI = "tests.starts.service:asgi()", "tests.starts.service:wsgi()"
UVICORN = "-m", "uvicorn", "--port={port}", "--factory", "--log-level=error"
GRANIAN = "-m", "granian", "--port={port}", "--factory", "--workers=4", "--no-log"
WORKERS: dict[str, tuple[str, ...]] = {
    "gunicorn, threads": (*GUNICORN, "--threads=8", WSGI),
    "gunicorn, sync": (*GUNICORN, WSGI),
    "gunicorn, preloaded": (*GUNICORN, "--threads=8", "--preload", WSGI),
    "uvicorn": (PYTHON, *UVICORN, "--workers=4", "tests.starts.service:asgi"),
    "granian, ASGI": (PYTHON, *GRANIAN, "--interface=asgi", "tests.starts.service:asgi"),
    "granian, WSGI": (PYTHON, *GRANIAN, "--interface=wsgi", "tests.starts.service:wsgi"),
}
RECYCLED: dict[str, tuple[str, ...]] = {
    "gunicorn, recycled": (*GUNICORN, "--threads=8", "--max-requests=60", WSGI),
}


class Store(NamedTuple):
    """A store of the fleet, with a key in it."""

    url: str
    pepper: str
    key: str


KINDS = "SQLite", "PostgreSQL", "MariaDB", "Redis", "PostgreSQL and Redis"


@contextmanager
def made(name: str) -> Iterator[Store]:
    """Make a store with its tables and a key that no limit stops."""
    with ExitStack() as stack:
        (_, url), pepper = STORES[name](stack), secrets.token_urlsafe()
        options = StoreOptions(deadline=10)
        gate = Gate(url, brand="acme", peppers=[pepper.encode()], store_options=options)
        text = run(gate.keys.create("org_1", "a key")).text
        run(gate.organizations.place("org_1", "enterprise", **NO_LIMITS))
        run(gate.close())
        yield Store(url, pepper, text)


NO_LIMITS: dict[str, int | None] = {"rpm": None, "rph": None, "rpd": None, "concurrent": None}


@contextmanager
def serving(command: tuple[str, ...], store: Store) -> Iterator[int]:
    """Serve by a command, and give the port once a connection is accepted."""
    with reserved_port() as port:
        yield from _serving(command, store, port)


def _serving(command: tuple[str, ...], store: Store, port: int) -> Iterator[int]:
    secret = {"LOCKGATE_STORE": store.url, "LOCKGATE_PEPPER": store.pepper}
    process = subprocess.Popen(
        [word.format(port=port) for word in command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PATHS, **secret},
        start_new_session=True,
    )
    try:
        until = monotonic() + LISTENS_AT_MOST
        while not _listens(port):
            if process.poll() is not None or monotonic() > until:
                raise RuntimeError(f"{command} does not listen.")
            sleep(0.005)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def ask(port: int, key: str) -> tuple[int | str, int]:
    """Ask over a new connection; return the status or the connection's error, and the pid."""
    connection = HTTPConnection("127.0.0.1", port, timeout=ANSWERS_AT_MOST)
    try:
        connection.request("GET", "/who", headers={"Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        body = answer.read()
        process = json.loads(body)["process"] if answer.status == 200 else 0
        return answer.status, process
    except OSError as failure:
        return type(failure).__name__, 0
    finally:
        connection.close()


def burst(port: int, key: str, requests: int) -> tuple[Counter[int | str], set[int]]:
    """Let callers ask concurrently until a number of requests are answered."""
    with ThreadPoolExecutor(CALLERS) as callers:
        answers = list(callers.map(lambda _: ask(port, key), range(requests)))
    return Counter(status for status, _ in answers), {process for _, process in answers} - {0}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.starts", description=__doc__)
    parser.add_argument("--starts", type=int, default=4, help="of each store and kind of worker")
    parser.add_argument("--requests", type=int, default=128, help="of each burst")
    parser.add_argument("--only", default="", help="lines that contain this text")
    options = parser.parse_args()
    total: Counter[int | str] = Counter()
    starts = 0
    for name in KINDS:
        kinds = {**WORKERS, **RECYCLED}
        wanted = {kind: kinds[kind] for kind in kinds if options.only in f"{name}: {kind}"}
        if not wanted:
            continue
        with made(name) as store:
            for kind, command in wanted.items():
                statuses: Counter[int | str] = Counter()
                processes = 0
                rounds = 1 if kind in RECYCLED else options.starts
                for _ in range(rounds):
                    requests = 400 if kind in RECYCLED else options.requests
                    with serving(command, store) as port:
                        found, pids = burst(port, store.key, requests)
                    statuses += found
                    processes += len(pids)
                starts += rounds
                total += statuses
                line = f"{name}: {kind}: {rounds} starts, {processes} processes answered"
                print(f"{line}, {dict(statuses)}", flush=True)
    refused = sum(number for status, number in total.items() if status != 200)
    print(f"{starts} starts, {total.total()} first requests, {refused} not answered with 200")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
