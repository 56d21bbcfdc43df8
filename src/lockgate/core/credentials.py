"""Credentials in texts that people paste in a wrong place, which no message repeats (K11).

They are found by their shape, since the command reads its arguments before it knows a gate, and the
key that is pasted may be of another service.
"""

import re
from typing import Final

HIDDEN: Final = "<redacted>"
"""Stands for a credential in a message."""
_TOKEN: Final = re.compile(
    # A key or a dashboard token of any brand, with more of its secret than a slip of the hand.
    r"(?<![0-9A-Za-z])[a-z][a-z0-9]{1,19}_[a-z][a-z0-9]{1,19}_[0-9A-Za-z]{8}_[0-9A-Za-z]{16,}"
    # A JSON Web Token, or a session that is signed in the same manner.
    r"|(?<![\w-])[\w-]{4,}\.[\w-]{6,}\.(?=[\w-]*[A-Z])[\w-]{27,}",
    re.ASCII,
)
# Repeats are bounded, so that the time is linear in the length of a path that a client chose.
_PASSWORD: Final = re.compile(
    r"(?<=://)(?P<user>[^\s/?#@:]{0,64}:)[^\s@]{1,256}(?=@)"
    r"|(?P<name>[?&;][^=&;\s]{0,30}(?:pass|pwd|secret|token)[^=&;\s]{0,30}=)[^&;\s]+",
    re.IGNORECASE,
)


def holds_token(text: str) -> bool:
    """Return whether a text holds a key, a dashboard token or a session, of any service."""
    return _TOKEN.search(text) is not None


def without_credentials(text: str) -> str:
    """Return a text without keys, tokens, sessions, and the passwords of URLs."""
    text = _TOKEN.sub(HIDDEN, text)
    return _PASSWORD.sub(lambda found: f"{found['user'] or found['name']}{HIDDEN}", text)


def holds_credential(text: str) -> bool:
    """Return whether a text holds a credential of any service."""
    return without_credentials(text) != text
