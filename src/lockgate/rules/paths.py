"""Paths that other software may read differently than they are written (D31)."""

import re
from urllib.parse import unquote

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SLASHES = re.compile(r"//+")


def odd(path: str) -> bool:
    """Whether other software may read a path differently than it is written.

    So it may where segments are empty, ``.`` or ``..``, and where there are control characters: a
    router that ends its expressions with ``$`` takes ``/images`` and a line feed for ``/images``.
    One trailing slash is no empty segment.
    """
    if not path.startswith("/") or _CONTROL.search(path):
        return True
    if "//" not in path and "/." not in path:
        return False
    return any(segment in {"", ".", ".."} for segment in path[1:].removesuffix("/").split("/"))


def folded(path: str) -> str:
    """The path that software which folds such things would make of it."""
    kept: list[str] = []
    for segment in _CONTROL.sub("", path).split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in {"", "."}:
            kept.append(segment)
    return "/" + "/".join(kept)


def readings(path: str, raw: bytes) -> list[str]:
    """Every path that some software may take a request's path for.

    Args:
        path: decoded, as the application will see it.
        raw: as it came on the wire, where the server tells.
    """
    wire = unquote(raw.partition(b"?")[0].decode("latin-1"))
    return [
        reading
        for text in (path, wire)
        if text
        for reading in (text, _SLASHES.sub("/", f"/{text}"), folded(text))
    ]
