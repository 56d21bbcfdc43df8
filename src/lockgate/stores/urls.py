"""A store from its URL."""

from typing import Final

from ..errors import ConfigurationError
from .contract import Store
from .memory import MemoryStore

_SQL: Final = ("sqlite", "postgresql", "postgres", "mysql", "mariadb")


def open_store(url: str) -> Store:
    """Open the store that a URL names.

    ``memory://`` keeps everything in this process; ``sqlite:///file.db``,
    ``postgresql://user:password@host/database``, ``mysql://`` and ``mariadb://`` in a database
    (the extra ``lockgate[sql]``). Nothing is connected before the first call, which decides whether
    to await or to block: by whether an event loop runs where it is made.

    Raises:
        ConfigurationError: for a URL that names no store, or one whose driver is not installed; it
            never repeats the URL's password.
    """
    scheme, separator, _ = url.partition("://")
    kind = scheme.partition("+")[0] if separator else None
    if kind == "memory":
        return MemoryStore()
    if kind in _SQL:
        return _sql(url)
    # Without its "://" the text may be anything, a password included.
    named = f"{scheme}://" if separator else "a text without '://'"
    known = ", ".join(f"{name}://" for name in ("memory", *_SQL))
    raise ConfigurationError(f"No store is known for {named}: use {known}.")


def _sql(url: str) -> Store:
    try:
        from .sql import SqlStore
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"A store in SQL needs {missing.name}: pip install 'lockgate[sql]'."
        ) from missing
    return SqlStore(url)
