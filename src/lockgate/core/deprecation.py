"""The headers of answers to a key that was rotated (D43)."""

from typing import Final

from ..errors import Header
from .api_keys import ApiKey
from .timestamps import SECOND

SUNSET_HEADERS: Final = frozenset({b"deprecation", b"sunset"})
"""The names of the headers. For a rotated key they replace the application's values: each has a
single value, and the end of the key takes precedence over the end of an endpoint."""


def sunset_headers(key: ApiKey) -> tuple[Header, ...]:
    """Return ``Deprecation`` (RFC 9745), when the key was rotated, and ``Sunset`` (RFC 8594), when
    it ends; no headers for a key that was not rotated."""
    rotated_at = None if key.details is None else key.details.rotated_at
    if rotated_at is None:
        return ()
    from email.utils import formatdate  # takes 33 million instructions

    ends = formatdate(key.ends_at // SECOND, usegmt=True).encode()
    return (b"deprecation", b"@%d" % (rotated_at // SECOND)), (b"sunset", ends)
