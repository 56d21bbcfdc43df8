"""Allow-lists of client addresses, which a key may have: read, compare."""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

from .client_address import read_address
from .credentials import without_credentials
from .plans import is_list_of_texts

ADDRESSES_AT_MOST: Final = 32
_SHOWN: Final = 64
"""Characters of a wrong address that an error repeats."""
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
"""The IPv6 form of IPv4 addresses (RFC 4291, 2.5.5.2)."""


def read_addresses(values: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return addresses and networks in their canonical form, and the problems of the list.

    A single address has no prefix length; an IPv4 address that is written as IPv6 becomes IPv4.
    Repeated entries are dropped.
    """
    if isinstance(values, str):
        return (), [f"Use a list of addresses: [{without_credentials(values)[:_SHOWN]!a}]."]
    if not is_list_of_texts(values):
        return (), ["Use a list of addresses and networks, each a text."]
    if len(values) > ADDRESSES_AT_MOST:
        return (), [f"Give at most {ADDRESSES_AT_MOST} addresses and networks."]
    found: dict[str, None] = {}
    problems: list[str] = []
    for value in values:
        try:
            network = _network(value)
        except ValueError as problem:
            shown, why = without_credentials(value)[:_SHOWN], without_credentials(str(problem))
            problems.append(f"{shown!a} is no address or network: {why}.")
        else:
            alone = network.prefixlen == network.max_prefixlen
            found[str(network.network_address if alone else network)] = None
    return tuple(found), problems


def _network(value: str) -> IPv4Network | IPv6Network:
    if "%" in value:
        raise ValueError("a zone belongs to one host")
    try:
        network = ip_network(value)
    except ValueError as problem:
        if "host bits" in str(problem):
            raise ValueError(f"write {ip_network(value, strict=False)} for the network") from None
        raise ValueError("write it like 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32") from None
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        mapped = network.network_address.ipv4_mapped
        assert mapped is not None, "by the network"
        return IPv4Network((mapped, network.prefixlen - _MAPPED.prefixlen))
    return network


@lru_cache(maxsize=4096)
def contains(addresses: tuple[str, ...], client: str) -> bool:
    """Return whether an allow-list has the address of a client; no for a client without one.

    Args:
        addresses: the value of :func:`read_addresses`.
        client: the value of :meth:`~lockgate.core.client_address.ClientAddresses.client`.
    """
    address = read_address(client)
    return address is not None and any(address in network for network in _networks(addresses))


@lru_cache(maxsize=1024)
def _networks(addresses: tuple[str, ...]) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(map(ip_network, addresses))
