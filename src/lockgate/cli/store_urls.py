"""Read the URL of a command's store without exposing a password in the arguments (``ps``)."""

import os
import re
import sys
from getpass import getpass
from typing import Final
from urllib.parse import unquote

from ..errors import ConfigurationError

VARIABLE: Final = "LOCKGATE_STORE"
HELP: Final = (
    f"URL of the store; - reads it from standard input, and {VARIABLE} gives it without the "
    "option: one of these where it has a password"
)

_BETWEEN_URLS: Final = re.compile(r"\s+(?=\S+://)")
_USER_AND_PASSWORD: Final = re.compile(r"[^:/?#]*:[^@]+@")
_IN_THE_QUERY: Final = re.compile(r"[?&;][^=&;]*(?:pass|pwd|secret|token)[^=&;]*=(?!\Z|[&;])")
_PATHS: Final = re.compile(r"[?&;]passfile=[^&;]*")


def store_url(given: str | None, default: str | None = None) -> str:
    """Return the URL of a command's store.

    Args:
        given: the option ``--store``; ``-`` reads one line of standard input.
        default: the URL without an option and without ``LOCKGATE_STORE``.

    Raises:
        ConfigurationError: the URL is missing, or the option holds a password.
    """
    if given == "-":
        return _read()
    if given is not None:
        if has_password(given):
            raise ConfigurationError(
                "The URL holds a password, and every user of this machine sees the arguments of a "
                f"command: set {VARIABLE} to the URL, or write it to standard input of '--store -'."
            )
        return given
    found = os.environ.get(VARIABLE) or default
    if found is None:
        raise ConfigurationError(
            f"No store is named: set {VARIABLE} to its URL, or give '--store URL'."
        )
    return found


def has_password(text: str) -> bool:
    """Return whether a store's URL, or one of several with blanks between them, has a password.

    A user's name and password are found as SQLAlchemy finds them, with ``/`` and ``?`` in a
    password. When in doubt the answer is yes.
    """
    for url in _BETWEEN_URLS.split(text):
        rest = url.partition("://")[2] or url
        query = unquote(rest).lower()
        if _USER_AND_PASSWORD.match(rest) or _IN_THE_QUERY.search(_PATHS.sub("", query)):
            return True
    return False


def _read() -> str:
    try:
        # A terminal would show the password, and keep it in its scrollback.
        line = getpass("URL of the store: ") if sys.stdin.isatty() else sys.stdin.readline()
    except EOFError:
        line = ""
    url = line.rstrip("\r\n")  # They end the line, and are no part of it.
    if not url.strip():
        raise ConfigurationError("Standard input holds no URL: write it there, in one line.")
    return url
