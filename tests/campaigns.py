"""What campaigns share: processes of callers, and stores on servers of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from lockgate.migrations import upgrade
from lockgate.stores.sql.engines import blocking_engine

from . import servers

ROOT: Final = Path(__file__).parents[1]
ENDING: Final = 60
"""Seconds in which a process ends."""
PATHS: Final = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), *sys.path]))


def start(stack: ExitStack, module: str, orders: Mapping[str, Any]) -> subprocess.Popen[str]:
    """Start a process of callers, which reads its orders; the stack ends it."""
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PATHS},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.callback(end, process)
    tell(process, json.dumps(orders))
    return process


def tell(process: subprocess.Popen[str], line: str = "") -> None:
    """Write a line to a process."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    """Wait until a process has said that it is ready."""
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process, unless it has ended."""
    if process.poll() is None:
        process.kill()
    process.wait(ENDING)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):
            pipe.close()


def upgraded(url: str) -> str:
    """Make the tables of a database; return its URL."""
    engine = blocking_engine(url)
    upgrade(engine)
    engine.dispose()
    return url


Opened = tuple[servers.Server | None, str]
"""The one server of a store, if there is one, and the URL of the store."""


def _on(make: Callable[[], Any]) -> Callable[[ExitStack], Opened]:
    def opened(stack: ExitStack) -> Opened:
        server = stack.enter_context(make())
        is_one = isinstance(server, servers.Server)
        url = server.url() if "redis" in server.url() else upgraded(server.create("campaign"))
        return server if is_one else None, url

    return opened


def _sqlite(stack: ExitStack) -> Opened:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    return None, upgraded(f"sqlite:///{folder}/keys.db?mode=rwc")


def _pair(stack: ExitStack) -> Opened:
    return None, " ".join(STORES[name](stack)[1] for name in ("PostgreSQL", "Redis"))


STORES: Final[dict[str, Callable[[ExitStack], Opened]]] = {
    "Redis": _on(servers.redis_server),
    "Redis Cluster": _on(servers.RedisCluster),
    "PostgreSQL": _on(servers.postgres),
    "MariaDB": _on(servers.mariadb),
    "SQLite": _sqlite,
    "PostgreSQL and Redis": _pair,
}
"""Open a store, which the stack closes."""
