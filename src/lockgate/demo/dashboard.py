"""The demo's dashboard at ``dashboard_url``, where agents sign in and owners claim.

One self-contained page. Its security policy lists the digests of its scripts and styles.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Final, NamedTuple

PATH: Final = "/dashboard"

_INLINE: Final = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)


class Page(NamedTuple):
    """A page, with the headers that it needs."""

    body: bytes
    headers: Mapping[str, str]


def dashboard(api: str) -> Page:
    """Return the page, for operations below this prefix."""
    body = files("lockgate.demo").joinpath("dashboard.html").read_bytes()
    body = body.replace(b"{{api}}", escape(api).encode())
    parts = {kind.decode(): sha256(part).digest() for kind, part in _INLINE.findall(body)}
    allowed = (f"{kind}-src 'sha256-{b64encode(of).decode()}'" for kind, of in parts.items())
    closed = ("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'")
    return Page(
        body,
        {
            "content-type": "text/html; charset=utf-8",
            "content-security-policy": "; ".join(
                ("default-src 'none'", "connect-src 'self'", *allowed, *closed)
            ),
            "cache-control": "no-store",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
        },
    )
