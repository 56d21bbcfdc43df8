"""Telling a cross-site write from one of the service's own pages (D11)."""

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from ..errors import ConfigurationError

_OWN = frozenset({b"same-origin", b"none"})
"""``Sec-Fetch-Site`` of a page of this very origin, and of no page: the address bar, a bookmark."""


def origin_of(url: str) -> bytes:
    """The origin of a URL as browsers write it: ``https://console.example.com``.

    Raises:
        ConfigurationError: the URL has no scheme or host.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not host or not host.isascii():
        raise ConfigurationError(
            f"{url!r} is no web address: write 'https://host' or 'http://host'."
        )
    host = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{host}{'' if port in {None, default} else f':{port}'}".encode()


def cross_site(
    fetch_sites: Sequence[bytes], origins: Sequence[bytes], allowed: Iterable[bytes]
) -> bool:
    """Return whether a write with a session comes from a page that may not make it.

    ``Origin`` alone decides where the request has one: browsers set it on every write, and a page
    cannot choose it. It is never compared with ``Host``, which the caller chooses. Without
    ``Origin``, ``Sec-Fetch-Site`` decides; without either, no browser's page is calling.

    Args:
        fetch_sites: every ``Sec-Fetch-Site`` value of the request.
        origins: every ``Origin`` value; two are refused.
        allowed: the origins whose pages may write.
    """
    if origins:
        return len(origins) > 1 or origins[0] not in allowed
    if not fetch_sites:
        return False
    return len(fetch_sites) > 1 or fetch_sites[0].strip().lower() not in _OWN
