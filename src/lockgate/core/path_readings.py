"""Every reading of a request path that routers and servers are known to disagree on (D31)."""

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from ..errors import InvalidRequest, Problem

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffd]")
"""U+FFFD stands for bytes that are no UTF-8: an application may see control characters there."""
_SLASHES: Final = re.compile(r"//+")
_PARAMETERS: Final = re.compile(r";[^/]*")
_TAIL: Final = re.compile(r"[?#].*", re.DOTALL)
_SUSPECT: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffd%;\\?#]|//|/\.")
_ENCODED_SLASH: Final = re.compile(r"%2f", re.IGNORECASE)
_NOT_A_SLASH: Final = "\ufffc"
"""Stands for an encoded slash in the reading that keeps it within its segment."""
_READINGS_SIZE: Final = 64 * 1024
"""The most characters that all readings of one path may have together."""
_MOST_READINGS: Final = 64
"""The most readings of one path: each is matched with all rules, before any key is looked at."""


def odd(path: str) -> bool:
    """Whether another router or server may read a path differently than it is written.

    True for control characters (a router whose expressions end with ``$`` takes ``/images`` and a
    line feed for ``/images``), empty, ``.`` and ``..`` segments, ``;`` parameters, backslashes, and
    ``%``, ``?`` or ``#`` that are left after decoding. One trailing slash is no empty segment.
    """
    if path[:1] != "/":
        return True
    found = _SUSPECT.search(path)
    if found is None:
        return False
    if found[0] not in {"//", "/."} or _CONTROL.search(path) or not set("%;\\?#").isdisjoint(path):
        return True
    return any(segment in {"", ".", ".."} for segment in path[1:].removesuffix("/").split("/"))


def folded(path: str) -> str:
    """The path without control characters, and with empty and dot segments resolved."""
    kept: list[str] = []
    for segment in _CONTROL.sub("", path).split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in {"", "."}:
            kept.append(segment)
    return "/" + "/".join(kept)


_STEPS: Final[tuple[Callable[[str], str], ...]] = (
    lambda path: _SLASHES.sub("/", f"/{path}"),
    folded,
    lambda path: _PARAMETERS.sub("", path),
    lambda path: path.replace("\\", "/"),
    unquote,
    lambda path: _TAIL.sub("", path),
)


def readings(path: str, raw: bytes = b"") -> list[str]:
    """Every path that some router or server may take a request's path for, itself first.

    Args:
        path: decoded, as the application will see it.
        raw: the target on the wire, where the server passes it on.

    Raises:
        InvalidRequest: the path has so many readings that they are not worth telling apart.
    """
    wire = raw.partition(b"?")[0].decode("latin-1")
    known = dict.fromkeys((path, unquote(wire), unquote(_ENCODED_SLASH.sub(_NOT_A_SLASH, wire))))
    if not wire:
        known = {path: None}
    waiting, size = list(known), sum(map(len, known))
    while waiting:
        text = waiting.pop()
        for step in _STEPS:
            read = step(text)
            if read not in known:
                size += len(read)
                if size > _READINGS_SIZE or len(known) == _MOST_READINGS:
                    raise InvalidRequest(
                        [Problem("", "The path can be read in too many ways: write it plainly.")]
                    )
                known[read] = None
                waiting.append(read)
    return list(known)
