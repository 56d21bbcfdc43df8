"""Reporting forwarded headers that are ignored: a sign of a proxy that is not configured (D24)."""

from collections.abc import Iterable
from typing import Final

from ..core.client_address import LONGEST_PEER, UNIX_SOCKET, on_unix_socket
from ..events import Events, logger
from ..stores.runtime.process_hooks import own_lock

FORWARDED_HEADERS: Final = frozenset({b"x-forwarded-for", b"forwarded", b"x-real-ip"})
"""Headers by which proxies name the client, in lower case."""


class ForwardedHeaders:
    """Report the first forwarded header from a peer other than a configured proxy.

    Behind a proxy that is not configured, all clients share the proxy's address and its budgets.
    Any client can send such a header as well, so there is one report for each process.

    Args:
        events: receives ``forwarded_header_ignored``.
    """

    def __init__(self, events: Events) -> None:
        self.unreported = True
        """Whether the next such header is to be reported."""
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
            "Gate(trusted_proxies=[%r]); if it is a client, it made the header up.",
            proxy,
            proxy,
        )
