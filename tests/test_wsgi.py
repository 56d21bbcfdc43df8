"""The WSGI middleware as a server meets it (PEP 3333), and what servers leave unclear."""

from __future__ import annotations

import io
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment
from wsgiref.validate import validator

import pytest
from gunicorn.config import Config  # type: ignore[import-untyped]
from gunicorn.http.parser import RequestParser  # type: ignore[import-untyped]
from waitress.server import create_server
from waitress.wasyncore import loop

from lockgate import PUBLIC, ConfigurationError, Event, Gate, MemoryStore, Refusal, Rule, run
from lockgate.asgi import GateMiddleware as AsgiMiddleware
from lockgate.errors import InvalidRequest, NotFound, PayloadTooLarge
from lockgate.options import WebOptions
from lockgate.sessions import SignedCookie
from lockgate.stores.base import IoMode
from lockgate.web.entry import principal_of
from lockgate.web.wsgi_exchange import WsgiRequest, body_reader
from lockgate.wsgi import GateMiddleware
from tests.gates import flat_gate

RATE = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")


class Sent(NamedTuple):
    """What reached the server."""

    status: str
    headers: dict[str, str]
    body: bytes
    starts: int


def environ(method: str = "GET", path: str = "/models", **more: Any) -> WSGIEnvironment:
    return {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": "testserver",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "192.0.2.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        **more,
    }


def ask(app: WSGIApplication, asked: WSGIEnvironment) -> Sent:
    """Call the application as a server does."""
    started: list[tuple[str, list[tuple[str, str]]]] = []
    written: list[bytes] = []

    def start_response(status: str, headers: Any, exc_info: Any = None, /) -> Callable[..., object]:
        assert not started or exc_info, "start_response was called twice"
        started.append((status, headers))
        return written.append

    body = app(asked, start_response)
    try:
        written.extend(body)
    finally:
        getattr(body, "close", lambda: None)()
    status, headers = started[-1]
    assert len(headers) == len({name.lower() for name, _ in headers}), headers
    by_name = {name.lower(): value for name, value in headers}
    return Sent(status, by_name, b"".join(written), len(started))


class Service:
    """An application that shows its caller, and counts its calls."""

    def __init__(self) -> None:
        self.reached = 0

    def __call__(self, asked: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        self.reached += 1
        caller = principal_of(asked)
        start_response("200 OK", [("Content-Type", "text/plain"), ("X-RateLimit-Limit", "7")])
        return [caller.organization.encode() if caller else b"nobody"]


@pytest.fixture
def gate() -> Gate:
    return Gate("memory://", brand="acme")


@pytest.fixture
def bearer(gate: Gate) -> dict[str, str]:
    key = run(gate.keys.create("org_1", "a key", ["models:read"]))
    return {"HTTP_AUTHORIZATION": f"Bearer {key.text}"}


RULES: dict[str, Rule | str] = {"GET /health": PUBLIC, "GET /models": "models:read"}


def test_a_request_with_a_valid_key_is_admitted(gate: Gate, bearer: dict[str, str]) -> None:
    sent = ask(validator(GateMiddleware(validator(Service()), gate, RULES)), environ(**bearer))
    assert (sent.status, sent.body) == ("200 OK", b"org_1")
    assert sent.headers["x-ratelimit-limit"] == "10"  # the gate's, not the application's
    assert sent.headers["x-ratelimit-remaining"] == "9"
    assert sent.headers["content-type"] == "text/plain"


def test_a_public_path_needs_no_credential_and_a_forwarded_header_is_reported_once_D24() -> None:
    told: list[Event] = []
    app = GateMiddleware(Service(), Gate("memory://", brand="acme", observer=told.append), RULES)
    for name in ("X_REAL_IP", "X_FORWARDED_FOR", "FORWARDED"):
        sent = ask(app, environ(path="/health", **{f"HTTP_{name}": "198.51.100.1"}))
        assert (sent.status, sent.body) == ("200 OK", b"nobody")
        assert sent.headers["x-ratelimit-limit"] == "1000"
    reported = [event for event in told if event.name == "forwarded_header_ignored"]
    assert [dict(event.fields) for event in reported] == [{"peer": "192.0.2.1"}]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_refusal_is_whole(gate: Gate, method: str) -> None:
    service = Service()
    sent = ask(validator(GateMiddleware(service, gate, RULES)), environ(method))
    assert sent.status == "401 Unauthorized"
    assert sent.headers["www-authenticate"] == "Bearer"
    assert sent.headers["cache-control"] == "no-store"
    assert all(sent.headers[name].isdigit() for name in RATE)
    assert int(sent.headers["content-length"]) > 0
    assert (b"MISSING_AUTH" in sent.body) is (method == "GET")
    assert service.reached == 0


def test_two_credentials_joined_by_the_server(gate: Gate, bearer: dict[str, str]) -> None:
    app = GateMiddleware(Service(), gate, RULES)
    one = bearer["HTTP_AUTHORIZATION"]
    for joined in (f"{one},{one}", f"{one}, Basic eA==", f", {one}", f"{one},", ""):
        sent = ask(app, environ(HTTP_AUTHORIZATION=joined))
        assert b"INVALID_FORMAT" in sent.body, joined


# --- how an application answers -----------------------------------------------------------


def test_an_iterable_is_passed_on_unchanged(gate: Gate, bearer: dict[str, str]) -> None:
    """Servers send a file by its wrapper, and know the length of a list of one."""
    body = [b"whole"]

    def app(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [])
        return body

    assert GateMiddleware(app, gate, RULES)(environ(**bearer), lambda *_: print) is body


def test_no_chunk_is_read_ahead_of_the_server(gate: Gate, bearer: dict[str, str]) -> None:
    made: list[int] = []

    def app(_: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", [])
        for number in range(3):
            made.append(number)
            yield b"%d" % number

    body = iter(GateMiddleware(app, gate, RULES)(environ(**bearer), lambda *_: print))
    assert made == []
    assert next(body) == b"0"
    assert made == [0]


class Closing:
    """A body that tells when it was closed."""

    closed = 0

    def __init__(self, asked: WSGIEnvironment, start_response: StartResponse, late: bool) -> None:
        self._start: Callable[[], object] = lambda: start_response("200 OK", [])
        if not late:
            self._start()
            self._start = lambda: None

    def __iter__(self) -> Iterator[bytes]:
        self._start()
        yield b"x"

    def close(self) -> None:
        Closing.closed += 1


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("read", [False, True])
def test_a_body_is_closed_read_or_not(
    gate: Gate, bearer: dict[str, str], late: bool, read: bool
) -> None:
    Closing.closed = 0
    app = GateMiddleware(lambda asked, start: Closing(asked, start, late), gate, RULES)
    body: Any = app(environ(**bearer), lambda *_: print)
    if read:
        assert list(body) == [b"x"]
    body.close()
    assert Closing.closed == 1


def test_bytes_of_the_write_callable_precede_the_returned_body(
    gate: Gate, bearer: dict[str, str]
) -> None:
    def app(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        write = start_response("200 OK", [])
        write(b"written, ")
        return [b"returned"]

    sent = ask(GateMiddleware(app, gate, RULES), environ(**bearer))
    assert (sent.body, sent.starts) == (b"written, returned", 1)


def test_an_error_page_replaces_the_started_response(gate: Gate, bearer: dict[str, str]) -> None:
    def app(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [])
        try:
            raise ArithmeticError
        except ArithmeticError:
            start_response("500 Internal Server Error", [("X-Rate", "x")], sys.exc_info())
        return [b"sorry"]

    sent = ask(GateMiddleware(app, gate, RULES), environ(**bearer))
    assert (sent.status, sent.starts) == ("500 Internal Server Error", 2)
    assert sent.headers["x-ratelimit-remaining"] == "9"


def refusing(*, starts: bool, late: bool) -> WSGIApplication:
    """Make an application that refuses when it is called, or while its body is read."""

    def parts(_: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
        if starts:
            start_response("200 OK", [])
            yield b"x"
        raise NotFound

    return parts if late else lambda *asked: list(parts(*asked))


@pytest.mark.parametrize("late", [False, True])
def test_an_application_may_refuse_until_it_has_started(
    gate: Gate, bearer: dict[str, str], late: bool
) -> None:
    sent = ask(GateMiddleware(refusing(starts=False, late=late), gate, RULES), environ(**bearer))
    assert (sent.status, sent.starts) == ("404 Not Found", 1)
    assert b"NOT_FOUND" in sent.body
    assert sent.headers["x-ratelimit-remaining"] == "9"
    with pytest.raises(Refusal):
        ask(GateMiddleware(refusing(starts=True, late=late), gate, RULES), environ(**bearer))


def test_the_applications_own_403_is_not_to_be_stored(gate: Gate, bearer: dict[str, str]) -> None:
    def app(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("403 Forbidden", [("Cache-Control", "max-age=60")])
        return [b""]

    sent = ask(GateMiddleware(app, gate, RULES), environ(**bearer))
    assert sent.headers["cache-control"] == "no-store"


def test_threads_share_a_gate(gate: Gate, bearer: dict[str, str]) -> None:
    app = GateMiddleware(Service(), gate, RULES)
    barrier = threading.Barrier(8)

    def work(_: int) -> list[str]:
        barrier.wait(60)
        return [ask(app, environ(**bearer)).status[:3] for _ in range(10)]

    with ThreadPoolExecutor(8) as pool:
        statuses = [status for some in pool.map(work, range(8)) for status in some]
    assert sorted(statuses) == ["200"] * 10 + ["429"] * 70


# --- the colour of the store and of the session verifier ----------------------------------


def coloured(part: str, io: IoMode) -> dict[str, Any]:
    if part == "sessions":

        class ColouredSessions(SignedCookie):
            pass

        ColouredSessions.io = io
        return {"sessions": ColouredSessions(["a secret of the tests, long enough"])}

    class ColouredStore(MemoryStore):
        pass

    ColouredStore.io = io
    return {"store": ColouredStore()}


@pytest.mark.parametrize("part", ["store", "sessions"])
@pytest.mark.parametrize(
    ("face", "good", "wrong", "remedy"),
    [
        (GateMiddleware, "sync", "async", "'none', 'sync' or 'both'"),
        (AsgiMiddleware, "async", "sync", "'none', 'async' or 'both'"),
    ],
    ids=["wsgi", "asgi"],
)
def test_a_store_or_verifier_of_the_other_io_mode_is_refused(
    face: Any, good: IoMode, wrong: IoMode, remedy: str, part: str
) -> None:
    for mode in (good, "both"):
        face(Service(), flat_gate(brand="acme", **coloured(part, mode)))
    with pytest.raises(ConfigurationError, match=rf"^Coloured\w+ .*{remedy}"):
        face(Service(), flat_gate(brand="acme", **coloured(part, wrong)))


# --- paths --------------------------------------------------------------------------------


CLOSED, OPEN, NONE = "401 Unauthorized", "200 OK", "400 Bad Request"


@pytest.mark.parametrize(
    ("path", "more", "status"),
    [
        ("//health", {}, CLOSED),
        ("/x/../health", {}, CLOSED),
        ("/health/", {}, CLOSED),
        ("/health\n", {}, CLOSED),
        ("", {"SCRIPT_NAME": "/health"}, CLOSED),
        # Requests that the server normalised before it passed them on.
        ("/health", {"REQUEST_URI": "//health"}, CLOSED),
        ("/health", {"REQUEST_URI": "http://host//health"}, CLOSED),
        ("/health/x", {"RAW_URI": "/health%2Fx?y"}, CLOSED),
        ("/a/b", {"REQUEST_URI": "/a%2fb"}, CLOSED),
        ("/health", {"REQUEST_URI": "/health?next=%2Fhome//"}, OPEN),
        ("/health", {"REQUEST_URI": "/%68ealth"}, OPEN),
        ("/health", {"REQUEST_URI": "http://host/health"}, OPEN),
        ("/health", {"RAW_URI": "HTTP://host"}, OPEN),
        ("/health", {"SCRIPT_NAME": "/mounted"}, OPEN),
        ("/caf\u00c3\u00a9", {}, OPEN),
        ("health", {}, NONE),
        ("http://host/health", {}, NONE),
        ("/health", {"REQUEST_URI": "x:/health"}, NONE),
        ("/health", {"REQUEST_URI": "*"}, NONE),
    ],
)
def test_d31_a_path_is_public_only_as_server_and_application_read_it(
    gate: Gate, path: str, more: dict[str, str], status: str
) -> None:
    paths = "/health", "/health/x", "/a/{rest:path}", "/caf\u00e9"
    rules = {f"GET {public}": PUBLIC for public in paths}
    assert ask(GateMiddleware(Service(), gate, rules), environ(path=path, **more)).status == status


def test_a_path_that_is_no_utf8_and_a_peer_that_is_a_unix_socket_are_shown() -> None:
    assert WsgiRequest(environ(path="/\u00ff")).path == "/\ufffd"
    assert WsgiRequest(environ(REMOTE_ADDR="")).peer is None
    assert WsgiRequest(environ()).peer == "192.0.2.1"


def test_a_proxy_on_a_unix_socket_of_waitress_is_trusted(tmp_path: Path) -> None:
    told: list[Event] = []
    gate = Gate(
        "memory://",
        brand="acme",
        web_options=WebOptions(trusted_proxies=["unix"]),
        observer=told.append,
    )
    app = GateMiddleware(Service(), gate, {"GET /health": PUBLIC})
    path = str(tmp_path / "socket")
    server: Any = create_server(app, unix_socket=path, clear_untrusted_proxy_headers=False)

    def exchange() -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(path)
            connection.sendall(
                b"GET /models HTTP/1.0\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n",
            )
            return b"".join(iter(partial(connection.recv, 65536), b""))

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(exchange)
        while not answer.done():
            loop(0.05, map=server._map, count=1)
    server.task_dispatcher.shutdown()
    server.close()
    assert answer.result().startswith(b"HTTP/1.0 401 ")
    assert [event.fields["address"] for event in told if event.name == "refused"] == ["203.0.113.9"]


# --- bodies -------------------------------------------------------------------------------


class Pieces(io.BytesIO):
    """A stream that gives one byte at a time, as sockets may."""

    def read(self, size: int | None = -1, /) -> bytes:
        assert size is not None and size > 0, "a read without a length may never end"
        return super().read(1)


TERMINATED: dict[str, Any] = {"wsgi.input_terminated": True}
CHUNKED: dict[str, Any] = {"HTTP_TRANSFER_ENCODING": "chunked"}


@pytest.mark.parametrize(
    ("there", "said", "read"),
    [
        (b"", {}, b""),
        (b"the next request", {}, b""),
        (b"12345", {"CONTENT_LENGTH": "5"}, b"12345"),
        (b"12345678", {"CONTENT_LENGTH": "5"}, b"12345"),
        (b"x", {"CONTENT_LENGTH": "0"}, b""),
        (b"12345", {"CONTENT_LENGTH": ""}, b""),
        (b"12345", TERMINATED, b"12345"),
        (b"12345", TERMINATED | CHUNKED, b"12345"),
        (b"12345", TERMINATED | CHUNKED | {"CONTENT_LENGTH": "2"}, b"12345"),
        (b"x" * 8, {"CONTENT_LENGTH": "8"}, b"x" * 8),
        (b"x" * 8, TERMINATED, b"x" * 8),
        (b"x" * 9, {"CONTENT_LENGTH": "9"}, PayloadTooLarge),
        (b"", {"CONTENT_LENGTH": "999999999999999999999"}, PayloadTooLarge),
        (b"x" * 9, TERMINATED, PayloadTooLarge),
        (b"x" * 9, TERMINATED | CHUNKED, PayloadTooLarge),
        (b"123", {"CONTENT_LENGTH": "5"}, InvalidRequest),
        (b"123", CHUNKED, InvalidRequest),
        (b"123", CHUNKED | {"CONTENT_LENGTH": "3"}, InvalidRequest),
        *(
            (b"123", {"CONTENT_LENGTH": odd}, InvalidRequest)
            for odd in ("-1", "+3", "3, 3", "1_0", "0x3", "three", " 3", "\u0663", "9" * 5_000)
        ),
    ],
)
def test_a_body_is_read_whole_or_refused(there: bytes, said: dict[str, Any], read: Any) -> None:
    for stream in (io.BytesIO(there), Pieces(there)):
        asked = environ("POST", **{**said, "wsgi.input": stream})
        if isinstance(read, bytes):
            assert run(_whole(asked)) == read
        else:
            with pytest.raises(read):
                run(_whole(asked))


MALFORMED = [
    b"ZZ\r\nxx\r\n0\r\n\r\n",
    b"-5\r\nhello\r\n0\r\n\r\n",
    b"2\r\n{}XX0\r\n\r\n",
    b"0\r\nX Y\r\n\r\n",
    b"",
]


@pytest.mark.parametrize("chunks", MALFORMED)
def test_malformed_chunks_under_gunicorn_are_refused(chunks: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    stream = next(RequestParser(Config(), iter([head + chunks]), ("192.0.2.1", 4711))).body
    asked = environ("POST", **{**TERMINATED, **CHUNKED, "wsgi.input": stream})
    with pytest.raises(InvalidRequest):
        run(_whole(asked))


async def _whole(asked: WSGIEnvironment) -> bytes:
    return await body_reader(asked)(8)
