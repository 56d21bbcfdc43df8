"""An HTTP/2 client that sends invalid requests, too."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, Event, ResponseReceived, StreamEnded, StreamReset

from .demo import Demo, next_address


def status_of(
    demo: Demo,
    method: str,
    path: str,
    headers: Sequence[tuple[bytes, bytes]] = (),
    body: bytes = b"",
) -> int | None:
    """Return the status of the response; None: the server reset the stream as malformed."""
    connection = H2Connection(
        H2Configuration(
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
    )
    pseudo = {b":method": method, b":scheme": "http", b":authority": "x", b":path": path}
    given = [(name, value.encode()) for name, value in pseudo.items()]
    connection.initiate_connection()
    connection.send_headers(1, [*given, *headers], end_stream=not body)
    if body:
        connection.send_data(1, body, end_stream=True)
    status = None
    address = (demo.host, demo.port)
    with (
        socket.create_connection(address, 60, source_address=(next_address(), 0)) as sock,
        suppress(ConnectionError),  # cut off rather than answered
    ):
        sock.sendall(connection.data_to_send())
        while heard := sock.recv(65_536):
            for event in connection.receive_data(heard):
                if isinstance(event, ResponseReceived):
                    status = int(dict(event.headers)[b":status"])
                if _ends(event):
                    return status
            sock.sendall(connection.data_to_send())
    return status


def _ends(event: Event) -> bool:
    return isinstance(event, (StreamEnded, StreamReset, ConnectionTerminated))
