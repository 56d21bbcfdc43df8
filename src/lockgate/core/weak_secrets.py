"""Weak secrets: too short, of too few distinct bytes, or published by lockgate."""

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
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def refuse_weak(kind: str, secret: bytes | str, make: str) -> None:
    """Refuse a secret that can be guessed. The message never repeats it.

    Args:
        kind: the word for it in the message: ``pepper`` or ``session secret``.
        secret: the secret; text counts as UTF-8.
        make: an expression that makes a good one.

    Raises:
        ConfigurationError: shorter than 16 bytes, fewer than 5 distinct bytes, not UTF-8, or
            published.
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
        return
    raise ConfigurationError(f"{fault}: make one with {make}.")
