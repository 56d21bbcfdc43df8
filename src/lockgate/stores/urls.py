"""A store from its URL."""

from collections.abc import Callable
from typing import Final

from ..errors import ConfigurationError
from .contract import Store
from .memory import MemoryStore

_OPENERS: Final[dict[str, Callable[[], Store]]] = {"memory": MemoryStore}


def open_store(url: str) -> Store:
    """Open the store that a URL names.

    ``memory://`` keeps everything in this process.

    Raises:
        ConfigurationError: for a URL that names no store; it never repeats the URL's password.
    """
    scheme, separator, _ = url.partition("://")
    opener = _OPENERS.get(scheme) if separator else None
    if opener is None:
        # Without its "://" the text may be anything, a password included.
        named = f"{scheme}://" if separator else "a text without '://'"
        known = ", ".join(f"{name}://" for name in _OPENERS)
        raise ConfigurationError(f"No store is known for {named}: use {known}.")
    return opener()
