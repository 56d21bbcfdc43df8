"""Requests as bytes, and the connections that carry them: nothing is refused on the way out."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError

from .record import ID

Headers = tuple[tuple[bytes, bytes], ...]

SECONDS = 0.7
"""How long an answer is waited for, unless it is said."""

PLACE = b"<attack>"
"""In a body: where the id of the request goes."""

HOP_BY_HOP = frozenset(
    {b"connection", b"upgrade", b"transfer-encoding", b"host", b"http2-settings"}
)


class Request(NamedTuple):
    """A request, each part as it goes over the wire."""

    method: bytes
    target: bytes
    headers: Headers = ()
    body: bytes = b""
    credential: str = "none"
    version: bytes = b" HTTP/1.1"
    host: bytes | None = b"127.0.0.1"
    newline: bytes = b"\r\n"
    space: bytes = b" "
    before: bytes = b""
    """What stands before the request line."""
    length: bool = True
    """Whether a body comes with its Content-Length."""
    alone: bool = False
    """Whether it has a separate connection: it may hold several requests, or half a request."""
    id: bytes = b"0"

    def numbered(self, id: int) -> Request:
        """The same request with an id, in the request that its body may hide as well."""
        number = b"%d" % id
        # A hidden request may stand behind a length: it keeps its size.
        padded = number.zfill(len(PLACE))
        return self._replace(id=number, body=self.body.replace(PLACE, padded))

    def header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key.lower() == name), None)

    def fields(self, keys: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        """The headers, with the request's id and the credential's."""
        fields = [(ID.encode(), self.id), *self.headers]
        if self.credential == "twice":
            fields += [(b"Authorization", b"Bearer " + keys[n].encode()) for n in ("weak", "full")]
        elif self.credential == "garbage":
            fields.append((b"Authorization", b"Bearer acme_live_garbage"))
        elif self.credential != "none":
            fields.append((b"Authorization", b"Bearer " + keys[self.credential].encode()))
        if self.body and self.length:
            fields.append((b"Content-Length", b"%d" % len(self.body)))
        return fields

    def wire(self, keys: Mapping[str, str], extra: Headers = ()) -> bytes:
        """The request as HTTP/1.1."""
        line = self.method + self.space + self.target
        if self.version:
            line += self.version
        lines = [line]
        if self.host is not None:
            lines.append(b"Host: " + self.host)
        lines += [name + b": " + value for name, value in (*self.fields(keys), *extra)]
        if self.alone:
            lines.append(b"Connection: close")
        return self.before + self.newline.join([*lines, b"", b""]) + self.body


class Answer(NamedTuple):
    """An answer; without a status: the server cut the connection or kept silent."""

    status: int | None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name]


NOTHING = Answer(None)
SILENT = Answer(None)
"""The server neither answered nor cut the connection."""


class Connection:
    """Sends requests one after another, and connects again where a connection ended."""

    def __init__(self, port: int, seconds: float = SECONDS) -> None:
        self._port = port
        self._seconds = seconds
        self._socket: socket.socket | None = None

    def send(self, request: Request, keys: Mapping[str, str], extra: Headers = ()) -> Answer:
        if request.alone:
            self.close()
        while True:
            reused = self._socket is not None
            try:
                answer = self._exchange(request, keys, extra)
            except TimeoutError:
                self.close()
                return SILENT
            except (OSError, ProtocolError):
                answer = NOTHING
            if answer.status is not None:
                return answer
            self.close()
            # The server may have closed a kept connection before it saw this request.
            if not reused:
                return answer

    def _exchange(self, request: Request, keys: Mapping[str, str], extra: Headers) -> Answer:
        raise NotImplementedError

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _connect(self) -> socket.socket:
        self._socket = socket.create_connection(("127.0.0.1", self._port), self._seconds)
        return self._socket


class Http1(Connection):
    """HTTP/1.1 by hand, kept alive."""

    _buffer = b""

    def _exchange(self, request: Request, keys: Mapping[str, str], extra: Headers) -> Answer:
        sock = self._socket or self._connect()
        sock.sendall(request.wire(keys, extra))
        answer = self._read(request.method)
        if request.alone:
            self._drain()
        closing = any(b"close" in value.lower() for value in answer.all(b"connection"))
        if request.alone or closing or self._buffer:
            self.close()
        return answer

    def close(self) -> None:
        super().close()
        self._buffer = b""

    def _connect(self) -> socket.socket:
        super()._connect().setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert self._socket is not None
        return self._socket

    def _drain(self) -> None:
        """Read until the server sends no more bytes."""
        if self._socket is None:
            return
        self._socket.settimeout(0.1)
        with suppress(OSError):
            while self._socket.recv(65_536):
                pass

    def _more(self) -> bool:
        assert self._socket is not None
        chunk = self._socket.recv(65_536)
        self._buffer += chunk
        return bool(chunk)

    def _read(self, method: bytes) -> Answer:
        while True:
            while b"\r\n\r\n" not in self._buffer:
                if not self._more():
                    # An answer of HTTP/0.9 has no head.
                    return Answer(200, (), self._buffer) if self._buffer else NOTHING
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            first, *lines = head.split(b"\r\n")
            status = _number(first.split(b" ")[1] if b" " in first else b"")
            if status is None:
                self.close()
                return NOTHING
            if status >= 200 or status == 101:
                break
        pairs = (line.partition(b":") for line in lines)
        headers = tuple((name.lower(), value.strip()) for name, _, value in pairs)
        answer = Answer(status, headers)
        if status == 101:
            self.close()
            return answer
        if method.upper() == b"HEAD" or status in (204, 304):
            body = b""
        elif any(b"chunked" in value for value in answer.all(b"transfer-encoding")):
            body = self._chunks()
        elif lengths := answer.all(b"content-length"):
            length = int(lengths[0])
            while len(self._buffer) < length and self._more():
                pass
            body, self._buffer = self._buffer[:length], self._buffer[length:]
        else:
            while self._more():
                pass
            body = self._buffer
            self.close()
        return answer._replace(body=body)

    def _chunks(self) -> bytes:
        body = b""
        while True:
            while b"\r\n" not in self._buffer:
                if not self._more():
                    return body
            size, _, self._buffer = self._buffer.partition(b"\r\n")
            length = int(size.partition(b";")[0], 16)
            while len(self._buffer) < length + 2 and self._more():
                pass
            body, self._buffer = body + self._buffer[:length], self._buffer[length + 2 :]
            if not length:
                return body


class Http2(Connection):
    """HTTP/2 with prior knowledge: one stream after another on one connection."""

    def _connect(self) -> socket.socket:
        self._h2 = H2Connection(
            H2Configuration(
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self._h2.initiate_connection()
        return super()._connect()

    def _exchange(self, request: Request, keys: Mapping[str, str], extra: Headers) -> Answer:
        # A WebSocket handshake is a CONNECT with a protocol (RFC 8441), left open.
        opens = request.header(b"upgrade") == b"websocket"
        pseudo = [
            (b":method", b"CONNECT" if opens else request.method),
            *([(b":protocol", b"websocket")] if opens else []),
            (b":scheme", b"http"),
            (b":authority", request.host or b""),
            (b":path", request.target),
        ]
        fields = [(n.lower(), v) for n, v in (*request.fields(keys), *extra)]
        fields = [(n, v) for n, v in fields if n not in HOP_BY_HOP]
        sock, body = self._socket or self._connect(), request.body
        h2 = self._h2
        stream = h2.get_next_available_stream_id()
        h2.send_headers(stream, [*pseudo, *fields], end_stream=not (body or opens))
        if body:
            h2.send_data(stream, body, end_stream=True)
        sock.sendall(h2.data_to_send())
        answer = NOTHING
        while heard := sock.recv(65_536):
            ended = False
            for event in h2.receive_data(heard):
                if isinstance(event, ResponseReceived) and event.stream_id == stream:
                    headers = tuple((bytes(n), bytes(v)) for n, v in event.headers)
                    answer = Answer(int(dict(headers)[b":status"]), headers[1:])
                elif isinstance(event, DataReceived):
                    h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, StreamEnded | StreamReset) and event.stream_id == stream:
                    ended = True
                elif isinstance(event, ConnectionTerminated):
                    self.close()
                    return answer
            with suppress(OSError):
                sock.sendall(h2.data_to_send())
            if opens and answer.status is not None:
                self.close()
                return answer
            if ended:
                return answer
        self.close()
        return answer


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None
