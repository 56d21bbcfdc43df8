"""Credentials among the arguments of a command: refused, and repeated by no message (K11)."""

import re
from collections.abc import Sequence
from typing import Final

from ..core.credentials import HIDDEN, holds_token, without_credentials
from ..errors import ConfigurationError
from .store_urls import VARIABLE, has_password

_SEEN: Final = (
    "and every user of this machine sees the arguments of a command, which the shell's history "
    "keeps: delete the line there ('history -d')"
)
_WORD: Final = re.compile(r"[\w-]{40,}", re.ASCII)
"""May be a secret of another kind, such as a pepper. Ids of keys have 36 characters."""
_DISTINCT: Final = 10
"""Random words of 40 characters have more distinct ones."""


def refuse_credentials(arguments: Sequence[str]) -> None:
    """Refuse arguments that hold a key, a token, a session, or a URL with a password.

    Raises:
        ConfigurationError: one does.
    """
    if any(map(holds_token, arguments)):
        raise ConfigurationError(
            f"An argument holds a key, a token or a session, {_SEEN}, and rotate the key if it is "
            "yours. Write the text of a key to standard input of 'lockgate keys verify', 'find' or "
            "'show', or of 'lockgate explain', without an argument."
        )
    if any("://" in one and has_password(one) for one in arguments):
        raise ConfigurationError(
            f"An argument holds a URL with a password, {_SEEN}. Set {VARIABLE} to the URL of a "
            "store, or write it to standard input of '--store -'; LOCKGATE_SOURCE has the URL of a "
            "source of keys."
        )


def hidden(message: str, arguments: Sequence[str]) -> str:
    """Return a message without credentials, and without long words of the arguments.

    Control characters, which could move a terminal's cursor, become U+FFFD.
    """
    message = without_credentials(message)
    for argument in arguments:
        for word in _WORD.findall(argument):
            if len({*word}) >= _DISTINCT:
                message = message.replace(word, HIDDEN)
    return "".join(
        char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}"
        for char in message
    )
