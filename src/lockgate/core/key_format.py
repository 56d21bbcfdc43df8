"""The key format: generate, parse, redact, and compare keys.

A full key is ``<brand>_<environment>_<handle>_<random>`` (D1): a handle of 8 and a random part of
43 characters of base62, the last 6 of which are the CRC-32 of everything before them, so that a
typing error is found without a store call.
"""

import re
import secrets
import zlib
from collections.abc import Callable, Sequence
from hmac import compare_digest
from typing import Final, NamedTuple, Protocol

from ..errors import ConfigurationError, InvalidFormat, MissingAuth
from .accounts import Account
from .api_keys import ApiKey
from .credentials import holds_credential, without_credentials
from .digests import PLAIN_SCHEME, Digest, Peppers, plain
from .row_seals import Rejected, judge_seal, rejected_by_digest, rejected_by_seal, sealed_fields

BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
HANDLE_LENGTH: Final = 8
RANDOM_LENGTH: Final = 43
CHECKSUM_LENGTH: Final = 6
PREFIX_LENGTH: Final = 15
DASHBOARD: Final = "dashboard"
"""The second word of dashboard tokens, which otherwise have the format of keys."""
HEADER_LENGTH: Final = 256
"""The longest ``Authorization`` value that may hold a key (D18)."""

_PAIRS: Final = [(a + b).encode() for a in BASE62 for b in BASE62]
_PAIR: Final = len(_PAIRS)


def checksum(text: bytes) -> bytes:
    """Return the CRC-32 of ``text`` as six base62 digits, most significant first (D1)."""
    crc = zlib.crc32(text)
    high = crc // _PAIR
    return _PAIRS[high // _PAIR] + _PAIRS[high % _PAIR] + _PAIRS[crc % _PAIR]


def _draw(length: int) -> str:
    return "".join(secrets.choice(BASE62) for _ in range(length))


def check_handle(handle: str | None) -> list[str]:
    """Return the problems of a handle that a caller chose."""
    if handle is None or re.fullmatch(f"[0-9A-Za-z]{{{HANDLE_LENGTH}}}", handle):
        return []
    return [f"Use {HANDLE_LENGTH} letters and digits."]


def handle_from(secret: bytes) -> str:
    """Return the handle that 32 or more uniformly distributed bytes determine."""
    number = int.from_bytes(secret)
    digits: list[str] = []
    for _ in range(HANDLE_LENGTH):
        number, digit = divmod(number, len(BASE62))
        digits.append(BASE62[digit])
    return "".join(digits)


class Token:
    """A well-formed key as presented. Its ``repr`` does not show the key (K2).

    A token :meth:`without_secret` has only the digest that the key matched before.
    """

    __slots__ = ("_peppers", "_secret", "handle", "matched", "rejected", "sealed")

    def __init__(
        self,
        handle: str,
        secret: bytes | None,
        peppers: Peppers,
        matched: ApiKey | None = None,
    ) -> None:
        self.handle: Final = handle
        self._secret = secret
        self._peppers = peppers
        self.matched: Final = None if matched is None else matched.kept
        """The digest that the key is known to match."""
        self.sealed: Final = None if matched is None else sealed_fields(matched)
        """The sealed fields of the row that was accepted with it."""
        self.rejected: Rejected | None = None
        """The row that has this handle but was rejected, and why; None if no row was rejected."""

    def matches(self, scheme: str, digest: bytes) -> bool:
        """Return whether the key has this digest, by one comparison in constant time."""
        if self._secret is None:
            return self.matched is not None and (scheme, digest) == self.matched[:2]
        digester = self._peppers.digesters.get(scheme)
        return digester is not None and compare_digest(digester(self._secret), digest)

    def accepts(self, key: ApiKey) -> bool:
        """Return whether a row belongs to this key: its digest matches and its seal is valid.

        A store calls this for every row that it reads. A row that this process has verified before
        costs no MAC (see :mod:`lockgate.core.row_seals`). For a row that is not accepted although
        it may be the right one, :attr:`rejected` has the reason.
        """
        if not self.matches(key.scheme, key.digest):
            self._judge_scheme(key)
            return False
        peppers, sealed = self._peppers, sealed_fields(key)
        if not peppers.seals:
            return key.handle == self.handle
        if peppers.has_verified(self.handle, sealed):
            return True
        if not self.seal_is_valid(key):
            return False
        peppers.remember(self.handle, sealed)
        return True

    def accepts_account(self, account: Account) -> bool:
        """Return whether an account's row belongs to this dashboard token."""
        if not self.matches(account.scheme, account.digest):
            self._judge_scheme(account)
            return False
        return self.seal_is_valid(account)

    def seal_is_valid(self, row: ApiKey | Account) -> bool:
        """Return whether a row has this handle and a valid seal, with any digest."""
        if row.handle != self.handle:
            return False  # An index of the store points to another row.
        why = judge_seal(row, self._peppers)
        if why is not None:
            self.rejected = rejected_by_seal(row, why)
        return why is None

    def _judge_scheme(self, row: ApiKey | Account) -> None:
        """Note a row of a scheme that is not accepted, in the time of one digest (K10)."""
        secret = self._secret
        if secret is None or self.knows_scheme(row.scheme):
            return
        if row.scheme == PLAIN_SCHEME:
            if compare_digest(plain(secret), row.digest):
                self.rejected = rejected_by_digest(row)
        else:
            self.compare_with_dummy()
            self.rejected = rejected_by_digest(row)

    def knows_scheme(self, scheme: str) -> bool:
        """Return whether this process can compare the key with a digest of a scheme."""
        return scheme in self._peppers.digesters

    def compare_with_dummy(self) -> bool:
        """Spend the time of a comparison, so that timing does not show a missing key (K10)."""
        scheme, digest, _ = self._peppers.dummy
        return self.matches(scheme, digest)

    def without_secret(self, key: ApiKey) -> "Token":
        """Return a token without the key's text that matches the row by which it was accepted."""
        return Token(self.handle, None, self._peppers, key)

    def fresh_digest(self) -> Digest | None:
        """Return the key's digest under the newest pepper; None for a token without the secret."""
        if self._secret is None:
            return None
        return self._peppers.digest(self._secret)

    def __repr__(self) -> str:
        return "<Token>"

    def __reduce__(self) -> str:
        raise TypeError("A token is not to be written down.")


class NewKey(NamedTuple):
    """A newly generated key, the only object that shows its text."""

    text: str
    handle: str

    @property
    def prefix(self) -> str:
        """The first 15 characters, stored for display (D2)."""
        return self.text[:PREFIX_LENGTH]

    def __repr__(self) -> str:
        return "<NewKey>"


class OtherFormat(Protocol):
    """The format of another system's keys."""

    def looks_like(self, text: str) -> bool:
        """Return whether a text has this format."""
        ...

    def read(self, text: str, peppers: Peppers) -> Token | None:
        """Return the token for such a key; None for another format."""
        ...


_WORDS: Final = tuple(re.compile(rf"[^\s'\"{more}]{{8,}}") for more in ("", "/", "/?&=:;,"))
"""Candidates for keys of other systems in a text, longest first: such a key may contain characters
that separate others from the rest of a path. At least 8 characters."""
_BEARER: Final = re.compile(rb"[ \t]*(?i:bearer) +([!-~]+)[ \t]*")


class KeyFormat:
    """The format of this service's keys (D1).

    Args:
        brand: the first word of all keys of the service: 2 to 20 of ``a-z0-9``.
        environment: ``live``, or another word of the same kind such as ``test``.
        peppers: the peppers that digest the keys.
        others: formats of other systems' keys that are accepted too.
        draw: returns the given number of random base62 characters.

    Attributes:
        scanner: a regular expression for secret scanners that finds such keys in a text. It has
            no look-around, for engines without it. A key's last 6 characters are its checksum.
    """

    def __init__(
        self,
        brand: str,
        environment: str = "live",
        peppers: Peppers | None = None,
        others: Sequence[OtherFormat] = (),
        draw: Callable[[int], str] = _draw,
    ) -> None:
        for what, word in (("brand", brand), ("environment", environment)):
            if not re.fullmatch(r"[a-z][a-z0-9]{1,19}", word):
                raise ConfigurationError(
                    f"The {what} {without_credentials(word)!r} cannot be part of a key: use 2 to "
                    "20 lower-case letters and digits, starting with a letter."
                )
        self.brand: Final = brand
        self.environment: Final = environment
        self.peppers: Final = peppers or Peppers()
        self._others = others
        self._draw = draw
        start, any_of = f"{brand}_{environment}_", "[0-9A-Za-z]"
        self.scanner: Final = rf"\b{start}{any_of}{{8}}_{any_of}{{43}}\b"
        handle, body, end = f"{any_of}{{8}}", f"{any_of}{{37}}", f"{any_of}{{6}}"
        key = rf"(({start}({handle})_{body})({end}))"
        # White space around a value does not belong to it (RFC 9110, 5.5).
        self._bearer = re.compile(rf"[ \t]*(?i:bearer) +{key}[ \t]*".encode())

    def redact(self, text: str) -> str:
        """Return a text without keys, dashboard tokens, other systems' keys (K2), sessions and the
        passwords of URLs (K11).

        A key is cut from its brand and environment to its end, even if the rest is not valid.
        """
        start = f"{self.brand}_(?:{self.environment}|{DASHBOARD})_"
        text = without_credentials(re.sub(rf"({start})\w*", r"\1<redacted>", text))
        for word in _WORDS if self._others else ():
            text = word.sub(self._redact_other, text)
        return text

    def holds_credential(self, text: str) -> bool:
        """Return whether a text holds a key of this or another system, a token or a session.

        Unlike :meth:`redact`, it passes over the prefix of a key, which lists show.
        """
        others = _WORDS if self._others else ()
        return holds_credential(text) or any(
            w.sub(self._redact_other, text) != text for w in others
        )

    def _redact_other(self, word: re.Match[str]) -> str:
        short = len(word[0]) <= HEADER_LENGTH
        found = short and any(other.looks_like(word[0]) for other in self._others)
        return "<redacted>" if found else word[0]

    def generate(self, handle: str | None = None) -> NewKey:
        """Generate a key: a handle, 220 random bits and a checksum.

        Args:
            handle: 8 characters of base62; None: a random handle.
        """
        handle = self._draw(HANDLE_LENGTH) if handle is None else handle
        random = self._draw(RANDOM_LENGTH - CHECKSUM_LENGTH)
        body = f"{self.brand}_{self.environment}_{handle}_{random}"
        return NewKey(body + checksum(body.encode()).decode(), handle)

    def digest(self, key: NewKey) -> Digest:
        """Return the digest to store for a new key."""
        return self.peppers.digest(key.text.encode())

    def read(self, authorizations: Sequence[bytes]) -> Token:
        """Parse the key in the ``Authorization`` values of a request.

        Raises:
            MissingAuth: no value.
            InvalidFormat: any value but one ``Bearer`` and a well-formed key with the right
                checksum (D18).
        """
        if len(authorizations) != 1:
            raise InvalidFormat if authorizations else MissingAuth
        value = authorizations[0]
        found = self._bearer.fullmatch(value) if len(value) <= HEADER_LENGTH else None
        if found is None:
            return self._read_other(value)
        key, body, handle, end = found.groups()
        if checksum(body) != end:
            raise InvalidFormat
        return Token(handle.decode(), key, self.peppers)

    def parse(self, text: str) -> Token:
        """Parse a key without ``Bearer``, such as a dashboard token in a body.

        Raises:
            InvalidFormat: it is not one well-formed key with the right checksum.
        """
        return self.read([b"Bearer " + text.encode("utf-8", "replace")])

    def _read_other(self, value: bytes) -> Token:
        found = _BEARER.fullmatch(value) if len(value) <= HEADER_LENGTH else None
        if found is not None:
            for other in self._others:
                token = other.read(found[1].decode(), self.peppers)
                if token is not None:
                    return token
        raise InvalidFormat
