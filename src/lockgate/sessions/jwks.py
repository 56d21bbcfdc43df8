"""The signing keys of an identity provider: given, or fetched from its JWKS (RFC 7517).

A token's ``kid`` and algorithm select a key of the configured set; ``jku``, ``x5u`` and ``jwk`` in
a token are ignored.
"""

import json
import logging
import re
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from functools import partial
from http.client import HTTPConnection, HTTPSConnection
from ipaddress import ip_address
from threading import Timer
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from jwt import PyJWK

from ..core.credentials import without_credentials
from ..errors import ConfigurationError
from ..events import Events
from ..stores.base import IoMode
from ..stores.runtime.shared_fetch import NothingFetched, SharedFetch, Withdrawn

_LARGEST: Final = 256 * 1024
"""The largest accepted JWKS, in bytes."""
_OK: Final = 200

Keys = tuple[PyJWK, ...]


class NoSigningKeys(OSError):
    """A token cannot be verified: the fetch of the provider's keys failed, and none are cached."""


def read_keys(document: Any, algorithms: Collection[str]) -> Keys:
    """Return the keys of a JWKS that may verify a signature of these algorithms.

    A key's type, curve, ``alg``, ``use`` and ``key_ops`` decide its purpose. Keys for other
    purposes are ignored, and so are private and symmetric ones (RFC 7517, 5).

    Raises:
        Withdrawn: there are keys, all of them for other algorithms.
        ValueError: there are no keys.
    """
    try:
        entries: list[Any] = list(document["keys"])
    except (TypeError, KeyError):
        entries = []
    public = [key for key in map(_read_key, entries) if key is not None and key.key_type != "oct"]
    found = tuple(key for key in public if key.algorithm_name in algorithms)
    if not found:
        problem = Withdrawn if public else ValueError
        raise problem("The set holds no public key for these algorithms.")
    return found


def _read_key(entry: Any) -> PyJWK | None:
    try:
        if "d" in entry or entry.get("use", "sig") != "sig":
            return None
        if "verify" not in entry.get("key_ops", ["verify"]):
            return None
        return PyJWK(entry)
    except Exception:  # A faulty key does not affect the others.
        return None


def pick(keys: Keys, kid: str | None, algorithm: str) -> PyJWK | None:
    """Return the key for a token; None if no key fits, or several do.

    A token without ``kid`` is verified by the key for its algorithm if there is exactly one.
    """
    fit = [
        key
        for key in keys
        if key.algorithm_name == algorithm and (kid is None or key.key_id == kid)
    ]
    return fit[0] if len(fit) == 1 else None


class SigningKeys(ABC):
    """A source of keys."""

    io: IoMode

    @abstractmethod
    async def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """Return the key for a token, or None.

        Raises:
            NoSigningKeys: no keys are available, so the token cannot be verified.
        """

    @abstractmethod
    def at_hand(self, kid: str | None, algorithm: str) -> bool:
        """Return whether the key for a token is in memory.

        :meth:`find` may still wait for a fetch that is due: at most once per cool-down, for any
        number of tokens.
        """


class GivenKeys(SigningKeys):
    """Keys given as a JWKS.

    Raises:
        ConfigurationError: the set has no public key for the algorithms.
    """

    io: IoMode = "none"

    def __init__(self, document: Mapping[str, Any], algorithms: Collection[str]) -> None:
        try:
            self._keys = read_keys(dict(document), algorithms)
        except ValueError as problem:
            raise ConfigurationError(
                f"The key set holds no public key for {', '.join(sorted(algorithms))}."
            ) from problem

    async def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        return pick(self._keys, kid, algorithm)

    def at_hand(self, kid: str | None, algorithm: str) -> bool:
        return True


class FetchedKeys(SigningKeys):
    """Keys fetched from the provider's JWKS URL, and cached.

    An unknown ``kid`` may belong to a new key, so it causes a fetch, at most one per cool-down.

    Args:
        url: ``https://...``; ``http://`` for this machine only.
        algorithms: the algorithms of accepted keys.
        max_age: seconds after which the keys are fetched again.
        stale_for: seconds after ``max_age`` for which they are used while the provider fails.
        cool_down: seconds from one fetch to the next.
        timeout: seconds that a caller waits for a fetch.
        events: receives ``signing_keys_fetched`` and ``signing_keys_failed``.
        clock: a monotonic clock, in seconds.
    """

    io: IoMode = "both"

    def __init__(
        self,
        url: str,
        algorithms: Collection[str],
        *,
        max_age: float,
        stale_for: float,
        cool_down: float,
        timeout: float,
        events: Events,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address: Address = read_address(url)
        self._algorithms = algorithms
        self._timeout = timeout
        self._events = events
        self._keys = SharedFetch(
            self._fetch,
            thread="lockgate-jwks",
            max_age=max_age,
            stale_for=stale_for,
            cool_down=cool_down,
            timeout=timeout,
            clock=clock,
        )

    async def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        part = partial(pick, kid=kid, algorithm=algorithm)
        try:
            return await self._keys.find(part, renews=kid is not None)
        except NothingFetched:
            raise NoSigningKeys from None

    def at_hand(self, kid: str | None, algorithm: str) -> bool:
        return self._keys.peek(partial(pick, kid=kid, algorithm=algorithm)) is not None

    def _fetch(self) -> Keys:
        try:
            keys = read_keys(json.loads(fetch(self._address, self._timeout)), self._algorithms)
        except Exception as failure:
            # Only the type: the message may contain the server's answer.
            error = type(failure).__qualname__
            self._events.emit("signing_keys_failed", logging.WARNING, error=error)
            raise
        self._events.emit("signing_keys_fetched", keys=len(keys))
        return keys


class NotFetched(Exception):
    """The URL returned no document; the message is the reason."""


class Address(NamedTuple):
    """The parts of a URL."""

    secure: bool
    host: str
    port: int | None
    target: str


def read_address(url: str) -> Address:
    """Parse a trustworthy URL: ``https``, or ``http`` on this machine.

    Raises:
        ConfigurationError: the URL has another form, or names a user.
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
            f"Signing keys cannot be fetched from {without_credentials(url)!r}: use an https:// "
            "address, without a user; http:// only for this machine."
        )
    return Address(secure, host, port, target)


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def fetch(address: Address, timeout: float) -> bytes:
    """Return the document at a URL. Redirects are not followed.

    Args:
        address: from :func:`read_address`.
        timeout: seconds to connect, and as many again for the whole answer, even if the server
            keeps sending single bytes.

    Raises:
        NotFetched: the answer is not 200, or too large.
        OSError, http.client.HTTPException: no valid answer.
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
