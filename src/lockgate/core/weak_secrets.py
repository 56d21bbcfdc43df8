"""Secrets that are refused at start: weak ones, and texts with white space around them."""

import re
from typing import Final

from ..errors import ConfigurationError

SHORTEST: Final = 16
"""Bytes."""
FEWEST_DISTINCT: Final = 5
"""Distinct bytes: 16 random digits have fewer once in 10,000 times."""
DEMO_PEPPER: Final = "lockgate demo pepper, for development only"
DEMO_SESSION_SECRET: Final = "lockgate demo session secret, for development only"  # noqa: S105 - its own words say so
PUBLISHED: Final = frozenset(
    {
        DEMO_PEPPER,
        DEMO_SESSION_SECRET,
        # Examples and pages of lockgate have shown these.
        "a pepper for development only",
        "a secret for development only",
        "a secret of at least sixteen characters",
        "another secret of your configuration",
        "32 random bytes from a safe place",
        "a session secret for tests only",
    }
)
_INVISIBLE: Final = "\ufeff\u200b"
"""The byte order mark, which editors of Windows put before a text, and the zero width space."""
_BREAK: Final = re.compile(r"[\t\r\n]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def refuse_weak(kind: str, secret: bytes | str, make: str) -> None:
    """Refuse a secret that can be guessed. The message never repeats it.

    Args:
        kind: the word for it in the message: ``pepper`` or ``session secret``.
        secret: the secret; text counts as UTF-8.
        make: an expression that makes a good one.

    Raises:
        ConfigurationError: shorter than 16 bytes, fewer than 5 distinct bytes, not UTF-8,
            published, or a text with white space around it (:func:`refuse_white_space`).
    """
    # Bytes of an environment variable that are not UTF-8 become surrogates.
    raw = secret.encode(errors="surrogatepass") if isinstance(secret, str) else secret
    if isinstance(secret, str) and _SURROGATE.search(secret):
        fault = f"A {kind} is UTF-8 text"
    elif len(raw) < SHORTEST:
        fault = f"A {kind} has at least {SHORTEST} random bytes"
    elif len(set(raw)) < FEWEST_DISTINCT:
        fault = f"A {kind} of fewer than {FEWEST_DISTINCT} distinct bytes can be guessed"
    elif raw.decode(errors="replace").strip() in PUBLISHED:
        fault = f"This {kind} is published with lockgate, so everyone knows it"
    else:
        refuse_white_space(f"A {kind}", secret)
        return
    raise ConfigurationError(f"{fault}: make one with {make}.")


def refuse_white_space(subject: str, secret: bytes | str) -> None:
    """Refuse a text that begins or ends with white space (D53). The message never repeats it.

    ``echo`` and files of mounted secrets add a line break, which one process keeps and another
    strips: then both have another secret. Random bytes are no text, and may end with any byte.

    Args:
        subject: the beginning of the message: ``A pepper`` or the name of a variable.
        secret: a secret, or a URL that may hold one; bytes that are UTF-8 are a text.

    Raises:
        ConfigurationError: the text begins or ends with white space.
    """
    text = secret if isinstance(secret, str) else secret.decode(errors="surrogateescape")
    is_text = isinstance(secret, str) or "".join(text.split()).strip(_INVISIBLE).isprintable()
    if is_text and text != text.strip().strip(_INVISIBLE):
        raise ConfigurationError(
            f"{subject} begins or ends with white space, such as the line break that 'echo' or a "
            "file adds: take it out. Secrets are used as they are given."
        )


def refuse_malformed_url(url: str) -> None:
    """Refuse a store's URL with white space around it, or a line break or tab in it (D53).

    A password from a file with a line break puts one into the URL, where ``urlsplit`` drops it.

    Raises:
        ConfigurationError: it has; the message never repeats it.
    """
    refuse_white_space("The store's URL", url)
    if _BREAK.search(url):
        raise ConfigurationError(
            "The store's URL has a line break or a tab in it, such as that of a password from a "
            "file: take it out. Secrets are used as they are given."
        )
