"""Digests: what is kept in place of a key, and the peppers it is made with (D3)."""

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ..errors import ConfigurationError
from .weak_secrets import refuse_weak


class Digest(NamedTuple):
    """What is kept in place of a key, and the name of how it was made."""

    scheme: str
    value: bytes


Digester = Callable[[bytes], bytes]
PLAIN_SCHEME: Final = "sha256"


class Peppers:
    """How keys are digested: HMAC-SHA-256 under a pepper, or SHA-256 where there is none (D3).

    A digest is fast on purpose: keys are random, so a slow password hash adds nothing but a way to
    keep the service busy. The scheme of a pepper is derived from the pepper itself, so every key
    names the pepper it was made with, and peppers rotate as a list.

    Args:
        peppers: at least 16 random bytes each, the newest first. New keys use the newest; keys of
            the others stay good and move to the newest when they are next used (K9).

    Raises:
        ConfigurationError: not a list of bytes, or one of them can be guessed.
    """

    def __init__(self, peppers: Sequence[bytes] = ()) -> None:
        given: object = peppers  # A single pepper is a sequence as well, of numbers or of letters.
        if isinstance(given, bytes | str) or any(isinstance(p, str) for p in list[object](peppers)):
            raise ConfigurationError("The peppers are a list of bytes: [b'...'].")
        digesters: dict[str, Digester] = {}
        for pepper in peppers:
            refuse_weak("pepper", pepper, "secrets.token_bytes(32)")
            digesters[_scheme(pepper)] = _keyed(pepper)
        digesters[PLAIN_SCHEME] = _plain
        self.digesters: Final[Mapping[str, Digester]] = digesters
        """How to digest by each scheme that is known here; by another, nothing matches."""
        self.scheme: Final = next(iter(digesters))
        """The scheme of new keys."""
        self.nobody: Final = Digest(self.scheme, bytes(hashlib.sha256().digest_size))
        """A digest that no key has."""

    def current(self, secret: bytes) -> Digest:
        """Digest by the newest pepper."""
        return Digest(self.scheme, self.digesters[self.scheme](secret))

    def __repr__(self) -> str:
        return f"<Peppers {', '.join(self.digesters)}>"


def _scheme(pepper: bytes) -> str:
    name = hmac.digest(pepper, b"lockgate: name of a pepper", "sha256")
    return f"hmac-sha256:{name[:4].hex()}"


def _keyed(pepper: bytes) -> Digester:
    """HMAC-SHA-256 (RFC 2104) with the pepper's two pads hashed beforehand: 2.5 times as fast."""
    block = hashlib.sha256().block_size
    if len(pepper) > block:
        pepper = hashlib.sha256(pepper).digest()
    padded = pepper.ljust(block, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def digest(secret: bytes) -> bytes:
        first = inner.copy()
        first.update(secret)
        second = outer.copy()
        second.update(first.digest())
        return second.digest()

    return digest


def _plain(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
