"""Drive ASGI applications message by message, and build the gates that stand before them."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any
from wsgiref.util import setup_testing_defaults

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockgate import Event, Plan, PlanBook, run
from lockgate.core.ledger import Peek
from lockgate.sessions import Session, SignedCookie
from tests.gates import flat_gate
from tests.stores.making import HandClock

RATE = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
SECRET = "a session secret of the tests, long enough"
ORIGIN = "https://console.example.com"


class Answer:
    """What an application sent."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.kinds = [message["type"] for message in messages]

    @property
    def start(self) -> Message:
        starts = [m for m in self.messages if m["type"].endswith("http.response.start")]
        assert len(starts) == 1, self.kinds
        return starts[0]

    @property
    def status(self) -> int:
        status = self.start["status"]
        assert isinstance(status, int)
        return status

    @property
    def headers(self) -> list[tuple[str, str]]:
        return [(name.decode().lower(), value.decode()) for name, value in self.start["headers"]]

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def one(self, name: str) -> str:
        (value,) = self.all(name)
        return value

    @property
    def rate(self) -> tuple[int, ...]:
        """Limit, remaining and reset, each there exactly once."""
        return tuple(int(self.one(name)) for name in RATE)

    @property
    def shadow_rate(self) -> tuple[int, ...]:
        """The same, as a gate in shadow mode tells them."""
        return tuple(int(self.one(f"x-shadow-{name.removeprefix('x-')}")) for name in RATE)

    @property
    def chunks(self) -> list[bytes]:
        return [m.get("body", b"") for m in self.messages if m["type"].endswith("response.body")]

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json()["code"])


class Line:
    """A connection: the messages that a server would hand in, and the messages sent."""

    def __init__(self, incoming: Iterable[Message]) -> None:
        self.incoming = deque(incoming)
        self.sent: list[Message] = []
        self.received = 0

    async def receive(self) -> Message:
        if not self.incoming:
            raise AssertionError("the application waits for a message that never comes")
        self.received += 1
        return self.incoming.popleft()

    async def send(self, message: Message) -> None:
        self.sent.append(message)


def http_scope(
    method: str = "GET",
    path: str = "/",
    *,
    headers: Iterable[tuple[str, str]] = (),
    root_path: str = "",
    raw_path: bytes | None = None,
    query: str = "",
    client: tuple[str, int] | None = ("192.0.2.1", 4711),
) -> Scope:
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "query_string": query.encode("latin-1"),
        "root_path": root_path,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        "client": client,
        "server": ("testserver", 80),
    }
    if raw_path is not None:
        scope["raw_path"] = raw_path
    return scope


def body_messages(chunks: Iterable[bytes]) -> list[Message]:
    chunks = list(chunks) or [b""]
    return [
        {"type": "http.request", "body": chunk, "more_body": index < len(chunks) - 1}
        for index, chunk in enumerate(chunks)
    ]


async def ask(
    app: ASGIApp,
    method: str = "GET",
    path: str = "/",
    *,
    key: str | None = None,
    session: str | None = None,
    headers: Iterable[tuple[str, str]] = (),
    body: bytes | Iterable[bytes] = b"",
    json_body: object = None,
    **scoped: Any,
) -> Answer:
    """One HTTP request to an application, and everything it sent."""
    fields, sent = _fields(headers, key, session, body, json_body)
    line = Line(body_messages([sent] if isinstance(sent, bytes) else sent))
    await app(http_scope(method, path, headers=fields, **scoped), line.receive, line.send)
    return Answer(line.sent)


def _fields(
    headers: Iterable[tuple[str, str]], key: str | None, session: str | None, body: Any, of: object
) -> tuple[list[tuple[str, str]], Any]:
    fields = list(headers)
    if key is not None:
        fields.append(("authorization", f"Bearer {key}"))
    if session is not None:
        fields.append(("cookie", f"__session={session}"))
    if of is not None:
        return [*fields, ("content-type", "application/json")], json.dumps(of).encode()
    return fields, body


def ask_wsgi(
    app: Any,
    method: str = "GET",
    path: str = "/",
    *,
    key: str | None = None,
    session: str | None = None,
    headers: Iterable[tuple[str, str]] = (),
    body: bytes = b"",
) -> Answer:
    """The same of a WSGI application; headers that come twice are joined, as servers do."""
    fields, _ = _fields(headers, key, session, body, None)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "REMOTE_ADDR": "192.0.2.1",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": BytesIO(body),
    }
    for name, value in fields:
        variable = name.upper().replace("-", "_")
        variable = variable if variable == "CONTENT_TYPE" else f"HTTP_{variable}"
        before = environ.get(variable)
        environ[variable] = value if before is None else f"{before},{value}"
    setup_testing_defaults(environ)
    started: list[Message] = []

    def start(status: str, found: list[tuple[str, str]], *_: Any) -> None:
        encoded = [(one.lower().encode(), value.encode("latin-1")) for one, value in found]
        kind = "http.response.start"
        started[:] = [{"type": kind, "status": int(status[:3]), "headers": encoded}]

    parts = app(environ, start)
    whole = b"".join(parts)
    getattr(parts, "close", lambda: None)()
    return Answer([*started, {"type": "http.response.body", "body": whole}])


def ask_by(face: str, app: Any, *asked: str, **fields: Any) -> Answer:
    """Ask an application of ASGI or WSGI."""
    return (
        asyncio.run(ask(app, *asked, **fields))
        if face == "asgi"
        else ask_wsgi(app, *asked, **fields)
    )


async def say(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers every request."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"said"})


def websocket_scope(
    path: str = "/", *, key: str | None = None, denial: bool = True, **scoped: Any
) -> Scope:
    scope = http_scope(path=path, **scoped)
    del scope["method"]
    scope.update({"type": "websocket", "subprotocols": [], "scheme": "ws"})
    if denial:
        scope["extensions"] = {"websocket.http.response": {}}
    if key is not None:
        scope["headers"].append((b"authorization", f"Bearer {key}".encode()))
    return scope


class Bench:
    """A gate with a clock moved by hand, and keys and sessions to come with."""

    def __init__(self, *, rpm: int | None = 1000, anonymous: int | None = 1000, **fields: Any):
        self.clock = HandClock()
        self.told: list[Event] = []
        self.sessions = SignedCookie([SECRET])
        self.gate = flat_gate(
            **{
                "brand": "acme",
                "plans": PlanBook([Plan("free", rpm=rpm, rph=None, rpd=None, concurrent=1)]),
                "anonymous": Plan("anonymous", rpm=anonymous, rph=None, rpd=None, concurrent=0),
                "sessions": self.sessions,
                "public_url": ORIGIN,
                "clock": self.clock,
                "observer": self.told.append,
                **fields,
            }
        )

    def key(self, *scopes: str, organization: str = "org_1") -> str:
        created = run(self.gate.keys.create(organization, "a key", scopes or ("*",)))
        self.told.clear()
        return created.text

    def revoke(self, text: str) -> None:
        token = self.gate.format.read([f"Bearer {text}".encode()])
        key = run(self.gate.store.find(token.handle))
        assert key is not None
        run(self.gate.keys.revoke(key.organization, key.id))

    def session(self, organization: str = "org_1") -> str:
        return self.sessions.issue(Session(organization, "ada"))

    def used(self, organization: str = "org_1") -> int:
        """How many requests the organization has made."""
        windows = self.gate.plans.default.windows
        return run(self.gate.store.charge(organization, Peek(windows), self.clock.now)).used[0]

    def names(self, *, but: str = "threshold") -> list[str]:
        """The names of the events, but for those of a name that tests make by the way."""
        return [event.name for event in self.told if event.name != but]

    def fields(self, *, but: str = "threshold") -> list[Mapping[str, object]]:
        """The fields of the same events."""
        return [event.fields for event in self.told if event.name != but]
