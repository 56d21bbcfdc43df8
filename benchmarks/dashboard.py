"""CPU time of the dashboard's pages on the server: ``python -m benchmarks.dashboard [--markdown]``.

Each figure is of a request without a network: the session is verified, the store is read and the
page is rendered. The keys were created and used at a thousand different instants. "1,000 rows"
renders the list as if a page had them all; "read" is the part of it that the store takes.
Other processes slow these figures by the caches that they share, so the least is told, too.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final

from starlette.types import ASGIApp, Message, Scope

from lockgate import Gate, UsageHistory
from lockgate.core.timestamps import HOUR, SECOND
from lockgate.dashboard import dashboard, key_pages
from lockgate.migrations import upgrade
from lockgate.options import StoreOptions, WebOptions
from lockgate.sessions import Session, SignedCookie

from .measure import Spread, table
from .pages import Part, Run, Table, parser

ROUNDS = 50
KEYS = 1000
NOW = 1_800_000_000 * SECOND
SESSIONS = SignedCookie(["the session secret of a benchmark"])
SCOPES = ["models:read", "jobs:*", "account:read", "upload:write"]


PAGES: Final = {
    "list, 50 rows": ("/keys", 50),
    f"list, {KEYS:,} rows": ("/keys", KEYS),
    f"{KEYS:,} keys, read only": (None, KEYS),
    "new key": ("/keys/new", 50),
    "one key": ("/keys/{id}", 50),
    "usage": ("/usage", 50),
}
"""The path of each page and the rows on it; None: nothing is rendered."""
PARTS = (
    Part(
        "dashboard",
        "measured.md",
        (Table(("ms of CPU: least, median (quartiles)", "memory", "SQLite"), tuple(PAGES)),),
    ),
)


async def measure() -> dict[str, list[str]]:
    """Measure every page on both stores."""
    cells: dict[str, list[str]] = {name: [] for name in PAGES}
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'keys.db')}?mode=rwc"
        upgrade(url)
        for store in ("memory://", url):
            for name, cell in (await measured(store)).items():
                cells[name].append(cell)
    return cells


async def measured(store: str) -> dict[str, str]:
    """Measure every page on one store."""
    clock = Clock()
    gate = Gate(
        store,
        brand="acme",
        peppers=[bytes(range(32))],
        sessions=SESSIONS,
        web_options=WebOptions(public_url="http://localhost"),
        features=[UsageHistory()],
        store_options=StoreOptions(clock=clock, deadline=60.0),
    )
    id = await furnish(gate, clock)
    app = dashboard(gate)
    cells: dict[str, str] = {}
    for name, (path, rows) in PAGES.items():
        setattr(key_pages, "ON_A_PAGE", rows)  # noqa: B010 - it is final
        times: list[float] = []
        for _ in range(ROUNDS):
            began = process_time()
            if path is None:
                await gate.keys.list("org_1", limit=rows)
            else:
                await fetch(app, path.format(id=id))
            times.append((process_time() - began) * 1e3)
        cells[name] = f"{min(times):.1f}, {Spread.of(times):.1f}"
    await gate.close()
    return cells


def main() -> None:
    """Print the figures."""
    chosen = parser("benchmarks.dashboard", __doc__).parse_args()
    about = Run("benchmarks.dashboard", "starlette", "jinja2", "sqlalchemy")
    cells = asyncio.run(measure())
    [of_pages] = PARTS[0].tables
    table("The dashboard's pages", of_pages.columns, [[name, *row] for name, row in cells.items()])
    if chosen.markdown:
        PARTS[0].write(about.line(f"SQLite {sqlite3.sqlite_version}"), cells)


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
    main()
