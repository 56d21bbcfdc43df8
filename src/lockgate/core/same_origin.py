"""Detect cross-site writes (CSRF) by ``Origin`` and ``Sec-Fetch-Site`` (D11)."""

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import urlsplit

from ..errors import ConfigurationError
from .credentials import without_credentials

_NAME: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?")
"""A host in an origin: a name is in ASCII, and has no wildcard."""
_NUMERIC: Final = re.compile(r"(.*\.)?(\d+|0x[0-9a-f]*)\.?")
"""A host that browsers read as an IPv4 address, by its last label."""
_OWN = frozenset({b"same-origin", b"none"})
"""``Sec-Fetch-Site`` of a page of the same origin, and of the address bar or a bookmark."""


def origin_of(url: str) -> bytes:
    """Return the origin of a URL as browsers write it: ``https://console.example.com``.

    Raises:
        ConfigurationError: the URL has no scheme, or no host that a browser sends.
    """
    try:
        parts = urlsplit(url)
        host, port = _host(parts.hostname or ""), parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not host:
        raise ConfigurationError(
            f"{without_credentials(url)!r} is no web address: write 'https://host' or "
            "'http://host', each host by its own name in ASCII, without wildcards."
        )
    default = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{host}{'' if port in {None, default} else f':{port}'}".encode()


def _host(host: str) -> str | None:
    """Return a host as browsers write it; None: no browser does.

    Raises:
        ValueError: an address is malformed.
    """
    if ":" in host and "%" not in host:  # A zone is of this machine alone.
        return f"[{IPv6Address(host).compressed}]"
    if _NUMERIC.fullmatch(host):
        return str(IPv4Address(host))
    return host if _NAME.fullmatch(host) else None


def cross_site(
    fetch_sites: Sequence[bytes], origins: Sequence[bytes], allowed: Iterable[bytes]
) -> bool:
    """Return whether a write with a session comes from a page that is not allowed to make it.

    If the request has an ``Origin``, it decides alone: browsers set it on every write, and a page
    cannot change it. It is never compared with ``Host``, which the caller chooses. Otherwise
    ``Sec-Fetch-Site`` decides; a request with neither does not come from a page.

    Args:
        fetch_sites: every ``Sec-Fetch-Site`` value of the request.
        origins: every ``Origin`` value; more than one is cross-site.
        allowed: the origins whose pages may write.
    """
    if origins:
        return len(origins) > 1 or origins[0] not in allowed
    if not fetch_sites:
        return False
    return len(fetch_sites) > 1 or fetch_sites[0].strip().lower() not in _OWN
