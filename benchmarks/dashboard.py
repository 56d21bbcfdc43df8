"""CPU time of the dashboard's pages on the server: ``python -m benchmarks.dashboard``.

Each figure is of a request without a network: the session is verified, the store is read and the
page is rendered. The keys were created and used at a thousand different instants. "1,000 rows"
renders the list as if a page had them all; "read" is the part of it that the store takes.
Other processes slow these figures by the caches that they share, so the least is told, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from time import process_time

from starlette.types import ASGIApp, Message, Scope

from lockgate import Gate
from lockgate.core.timestamps import HOUR, SECOND
from lockgate.dashboard import dashboard, key_pages
from lockgate.migrations import upgrade
from lockgate.options import StoreOptions
from lockgate.sessions import Session, SignedCookie

ROUNDS = 50
KEYS = 1000
NOW = 1_800_000_000 * SECOND
SESSIONS = SignedCookie(["the session secret of a benchmark"])
SCOPES = ["models:read", "jobs:*", "account:read", "upload:write"]


async def main() -> None:
    """Print the figures."""
    print(f"{'ms of CPU':26} {'least':>7} {'median':>7} {'9 of 10':>7}")
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'keys.db')}?mode=rwc"
        upgrade(url)
        for name, store in (("memory", "memory://"), ("SQLite", url)):
            await measure(name, store)


async def measure(name: str, store: str) -> None:
    """Print the figures of one store."""
    clock = Clock()
    gate = Gate(
        store,
        brand="acme",
        peppers=[bytes(range(32))],
        sessions=SESSIONS,
        public_url="http://localhost",
        usage_history=True,
        clock=clock,
        store_options=StoreOptions(deadline=60.0),
    )
    id = await furnish(gate, clock)
    app = dashboard(gate)

    def page(path: str) -> Callable[[], Awaitable[object]]:
        return lambda: fetch(app, path)

    for what, call, rows in (
        ("list, 50 rows", page("/keys"), 50),
        (f"list, {KEYS:,} rows", page("/keys"), KEYS),
        (f"read {KEYS:,} keys", lambda: gate.keys.list("org_1", limit=KEYS), KEYS),
        ("new key", page("/keys/new"), 50),
        ("one key", page(f"/keys/{id}"), 50),
        ("usage", page("/usage"), 50),
    ):
        setattr(key_pages, "ON_A_PAGE", rows)  # noqa: B010 - it is final
        times = []
        for _ in range(ROUNDS):
            began = process_time()
            await call()
            times.append((process_time() - began) * 1e3)
        tenths = quantiles(times, n=10)
        print(f"{name + ': ' + what:26} {min(times):7.2f} {tenths[4]:7.2f} {tenths[8]:7.2f}")
    await gate.close()


class Clock:
    """The time of a gate, moved by hand."""

    now = NOW

    def __call__(self) -> int:
        return self.now


async def furnish(gate: Gate, clock: Clock) -> str:
    """Create the keys, and use two of three; return the id of the newest."""
    id = ""
    for number in range(KEYS):
        clock.now = NOW - (KEYS - number) * 7 * HOUR - number * 97 * SECOND
        made = await gate.keys.create(
            "org_1",
            f"worker {number} of <shop>",
            SCOPES[: 1 + number % 4],
            365 if number % 2 else None,
            created_by=("user:ada", "user:grace", "agent")[number % 3],
            labels={"env": "production"} if number % 2 else {},
        )
        if number % 3:
            await gate.authenticate(made.text, "models:read")
        id = made.key.id
    clock.now = NOW
    await gate.flush()
    return id


async def fetch(app: ASGIApp, path: str) -> None:
    """Request a page."""
    cookie = f"__session={SESSIONS.issue(Session('org_1', 'ada'))}".encode()
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"cookie", cookie)],
        "client": None,
        "server": ("localhost", 80),
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    assert sent[0]["status"] == 200, sent


if __name__ == "__main__":
    asyncio.run(main())
