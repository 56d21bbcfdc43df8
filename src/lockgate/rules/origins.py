"""Telling a cross-site write from one of the service's own pages (D11)."""

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from ..errors import ConfigurationError

_OWN = frozenset({b"same-origin", b"none"})
"""A page of this very origin, and no page at all: the address bar, a bookmark."""


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
    """Whether a write with a session comes from a page that may not make it.

    Fetch metadata is judged first: what no browser says of a page of ours is foreign. Then
    ``Origin``, which is never compared with ``Host``: the caller chooses that. Without either no
    browser's page is calling, and no session is borrowed.

    Args:
        fetch_sites: every ``Sec-Fetch-Site`` value of the request.
        origins: every ``Origin`` value.
        allowed: the origins whose pages may write.
    """
    if len(fetch_sites) > 1 or len(origins) > 1:
        return True
    if fetch_sites and fetch_sites[0].strip().lower() not in _OWN:
        return True
    return bool(origins) and origins[0] not in allowed
