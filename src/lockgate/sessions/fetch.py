"""Fetching a small document from one pinned address, within a time and a size."""

import re
import socket
import ssl
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPSConnection
from ipaddress import ip_address
from threading import Timer
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ..errors import ConfigurationError

_LARGEST: Final = 256 * 1024
_OK: Final = 200


class NotFetched(Exception):
    """The address gave no document: says why."""


class Address(NamedTuple):
    """Where a document lives."""

    secure: bool
    host: str
    port: int | None
    target: str


def read_address(url: str) -> Address:
    """Read a URL that is to be trusted: ``https``, or ``http`` on this very machine.

    Raises:
        ConfigurationError: it is none of these, or names a user.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    secure = parts.scheme == "https"
    known = secure or (parts.scheme == "http" and _is_this_machine(host))
    target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    if not host or not known or "@" in parts.netloc or not re.fullmatch(r"[!-~]+", host + target):
        raise ConfigurationError(
            f"Signing keys cannot be fetched from {url!r}: use an https:// address, "
            "without a user; http:// only for this machine."
        )
    return Address(secure, host, port, target)


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def fetch(address: Address, timeout: float) -> bytes:
    """The document at an address. Nothing is followed to anywhere else.

    Args:
        address: from :func:`read_address`.
        timeout: seconds to connect, and as many again for the whole answer: a server that sends
            a byte now and then is hung up on.

    Raises:
        NotFetched: the answer is not 200, or too large.
        OSError, http.client.HTTPException: no answer, or none that can be read.
    """
    connection = _connection(address, timeout)
    with closing(connection):
        connection.connect()
        hang_up = Timer(timeout, _hang_up, [connection.sock])
        hang_up.daemon = True
        hang_up.start()
        try:
            headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
            connection.request("GET", address.target, headers=headers)
            with closing(connection.getresponse()) as response:
                if response.status != _OK:
                    raise NotFetched(f"the answer was {response.status}")
                document = response.read(_LARGEST + 1)
        finally:
            hang_up.cancel()
    if len(document) > _LARGEST:
        raise NotFetched(f"the answer is over {_LARGEST} bytes")
    return document


def _connection(address: Address, timeout: float) -> HTTPConnection:
    if address.secure:
        context = ssl.create_default_context()
        return HTTPSConnection(address.host, address.port, timeout=timeout, context=context)
    return HTTPConnection(address.host, address.port, timeout=timeout)


def _hang_up(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
