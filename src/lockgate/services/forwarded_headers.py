"""Reporting forwarded headers that are ignored, and missing ones: a sign of a proxy that is not
configured, here or by itself (D24)."""

from collections.abc import Iterable
from typing import Final

from ..core.client_address import LONGEST_PEER, UNIX_SOCKET, on_unix_socket
from ..events import Events, logger
from ..stores.runtime.process_hooks import own_lock

FORWARDED_HEADERS: Final = frozenset({b"x-forwarded-for", b"forwarded", b"x-real-ip"})
"""Headers by which proxies name the client, in lower case."""


class ForwardedHeaders:
    """Report the first forwarded header from a peer other than a configured proxy, and the first
    request from a configured proxy that names no client.

    In both cases all clients share the proxy's address and its budgets. Any client can send such a
    header as well, and health checks come without one, so there is one report for each process.

    Args:
        events: receives ``forwarded_header_ignored`` and ``forwarded_header_missing``.
        expected: whether proxies are configured.
    """

    def __init__(self, events: Events, *, expected: bool = False) -> None:
        self.unreported = True
        """Whether the next header that is ignored is to be reported."""
        self.unproven = expected
        """Whether no configured proxy has named a client yet, nor was one reported."""
        self._events = events
        self._lock = own_lock()

    def ignored(self, peer: str | None, values: Iterable[bytes]) -> None:
        """Report that a header was ignored, unless it names the peer itself.

        It does where the server has read the header and put the client in the proxy's place.

        Args:
            peer: the address of the connection's other end; None for a Unix socket.
            values: every value of such headers in the request.
        """
        if peer is None or on_unix_socket(peer):
            peer = UNIX_SOCKET
        elif any(peer.encode("utf-8", "replace") in value for value in values):
            return
        with self._lock:
            first, self.unreported = self.unreported, False
        if not first:
            return
        proxy = peer[:LONGEST_PEER]
        self._events.emit("forwarded_header_ignored", peer=proxy)
        logger.warning(
            "a forwarded header (X-Forwarded-For, Forwarded or X-Real-IP) from %r is ignored: if "
            "that is your proxy, all its clients share one budget until it is named, as "
            "WebOptions(trusted_proxies=[%r]); if it is a client, it made the header up.",
            proxy,
            proxy,
        )

    def from_proxy(self, peer: str | None, *, names_client: bool) -> None:
        """Take note of a request from a configured proxy; report the first, if it names no client.

        Once a proxy has named a client, requests without one come from elsewhere in its network.

        Args:
            peer: the address of the proxy; None for a Unix socket.
            names_client: whether ``X-Forwarded-For`` names an address other than the proxy's.
        """
        with self._lock:
            first, self.unproven = self.unproven, False
        if not first or names_client:
            return
        proxy = UNIX_SOCKET if peer is None or on_unix_socket(peer) else peer[:LONGEST_PEER]
        self._events.emit("forwarded_header_missing", peer=proxy)
        logger.warning(
            "a request from %r, one of the trusted_proxies, names no client in X-Forwarded-For: if "
            "that is your proxy, all its clients share one budget until it sends this header "
            "(Forwarded and X-Real-IP are not read); if it is a health check or a service that "
            "calls without the proxy, nothing is wrong.",
            proxy,
        )
