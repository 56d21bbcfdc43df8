"""A store from its URL."""

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

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
    scheme = urlsplit(url).scheme
    opener = _OPENERS.get(scheme)
    if opener is None:
        known = ", ".join(f"{name}://" for name in _OPENERS)
        raise ConfigurationError(f"No store is known for {scheme + '://'!r}: use {known}.")
    return opener()
