"""Network addresses of clients, by which anonymous budgets are counted (D24)."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final

from ..errors import ConfigurationError

UNIX_SOCKET: Final = "unix"
"""The name, among the trusted proxies, of a peer on a Unix socket, which has no address."""

_SUBNET_BITS: Final = 64
_SITE_BITS: Final = 48
_HOPS_AT_MOST: Final = 20
LONGEST_PEER: Final = 64
"""Characters of an address with its zone (RFC 4007, 11.2), or of a peer's name; longer ones are
cut to bound memory."""


def on_unix_socket(peer: str | None) -> bool:
    """Return whether a peer is on a Unix socket; waitress calls such a peer ``localhost``."""
    return not peer or peer == "localhost"


def budget_of(client: str) -> str:
    """Return the key by which a client is counted, as :meth:`ClientAddresses.find` does.

    Args:
        client: its address as text, or a name for a client without one.
    """
    return _bucket(client, read_address(client))


@lru_cache(maxsize=4096)
def network_of(address: str) -> str | None:
    """Return the IPv6 /48 of a result of :meth:`ClientAddresses.find`; None for IPv4.

    A site commonly gets a /48, so its owner has 65,536 of the /64 that addresses are counted by.
    """
    try:
        network = IPv6Network(address, strict=False)
    except ValueError:
        return None
    return str(network.supernet(new_prefix=_SITE_BITS)) if network.prefixlen >= _SITE_BITS else None


class ClientAddresses:
    """Finds the address of a client, believing ``X-Forwarded-For`` only from trusted proxies.

    The header is read from the right, past every trusted hop; entries further left are written by
    the client. An IPv6 client is counted by its /64, the smallest network that providers assign.

    Args:
        trusted: addresses or networks (``10.0.0.0/8``) of the proxies in front, and ``unix`` for
            a proxy that connects through a Unix socket.
    """

    def __init__(self, trusted: Iterable[str] = ()) -> None:
        networks: list[IPv4Network | IPv6Network] = []
        self._trusts_unix = False
        for network in trusted:
            if network == UNIX_SOCKET:
                self._trusts_unix = True
                continue
            try:
                networks.append(ip_network(network))
            except ValueError as problem:
                raise ConfigurationError(f"Trusted proxy {network!r}: {problem}.") from None
        self._networks = tuple(networks)
        self.trusts_any: Final = bool(networks) or self._trusts_unix

    def find(self, peer: str | None, forwarded: Sequence[bytes]) -> str:
        """Return the key by which a client is counted: its address, or its IPv6 /64.

        Args:
            peer: the address of the connection's other end; None for a Unix socket.
            forwarded: every ``X-Forwarded-For`` value, in order.
        """
        if not self.trusts_any:
            return _bucket_of(peer)
        peer, address = _read(peer)
        if self._trusted(peer, address):
            peer, address = self._forwarded(peer, address, forwarded)
        return _bucket(peer, address)

    def client(self, peer: str | None, forwarded: Sequence[bytes]) -> str:
        """Return the whole address of a client, or a name for one without an address.

        The arguments are as for :meth:`find`.
        """
        peer, address = _read(peer)
        if self._trusted(peer, address):
            peer, address = self._forwarded(peer, address, forwarded)
        return str(address) if address else peer or UNIX_SOCKET

    def _forwarded(
        self,
        peer: str | None,
        address: IPv4Address | IPv6Address | None,
        forwarded: Sequence[bytes],
    ) -> tuple[str | None, IPv4Address | IPv6Address | None]:
        """Return the nearest hop that is not trusted, from a trusted peer on."""
        hops = b",".join(forwarded).decode("latin-1").rsplit(",", _HOPS_AT_MOST)
        for hop in reversed(hops[-_HOPS_AT_MOST:]):
            if not hop.strip():  # An empty element is ignored (RFC 9110, 5.6.1.2).
                continue
            claimed = read_address(_host(hop.strip())[:LONGEST_PEER])
            if claimed is None:
                break
            peer, address = str(claimed), claimed
            if not self._trusted(peer, address):
                break
        return peer, address

    def trusts(self, peer: str | None) -> bool:
        """Return whether a peer is a configured proxy; None is one on a Unix socket."""
        return self.trusts_any and self._trusted(*_read(peer))

    def _trusted(self, peer: str | None, address: IPv4Address | IPv6Address | None) -> bool:
        if address is None:
            return self._trusts_unix and not peer
        return any(address in network for network in self._networks)


def _read(peer: str | None) -> tuple[str | None, IPv4Address | IPv6Address | None]:
    if peer is None or on_unix_socket(peer):
        return None, None
    peer = peer[:LONGEST_PEER]
    return peer, read_address(peer)


def _host(hop: str) -> str:
    """Remove a port: some proxies write ``192.0.2.1:4711`` or ``[2001:db8::1]:4711``."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


@lru_cache(maxsize=4096)
def read_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address, IPv4 if it is IPv4 written as IPv6; None for any other text."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@lru_cache(maxsize=4096)
def _bucket_of(peer: str | None) -> str:
    return _bucket(*_read(peer))


def _bucket(peer: str | None, address: IPv4Address | IPv6Address | None) -> str:
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address) >> _SUBNET_BITS << _SUBNET_BITS, _SUBNET_BITS)))
    return str(address) if address else peer or UNIX_SOCKET
