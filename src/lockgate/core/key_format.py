"""Credentials: the key format, and reading one from an Authorization header.

A full key is ``<brand>_<environment>_<handle>_<random>`` (D1): a handle of 8 and a random part of
43 characters of base62, the last 6 of which are the CRC-32 of everything before them, so that a
typing error is seen without asking any store.
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
from .digests import PEPPER_SCHEME, PLAIN_SCHEME, Digest, Peppers, plain
from .row_seals import Rejected, judge_seal, rejected_by_digest, rejected_by_seal, sealed_fields

BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
HANDLE_LENGTH: Final = 8
RANDOM_LENGTH: Final = 43
CHECKSUM_LENGTH: Final = 6
PREFIX_LENGTH: Final = 15
DASHBOARD: Final = "dashboard"
"""The second word of dashboard tokens, which look like keys otherwise and are none."""
HEADER_LENGTH: Final = 256
"""An Authorization value longer than this holds no key (D18)."""

_PAIRS: Final = [(a + b).encode() for a in BASE62 for b in BASE62]
_PAIR: Final = len(_PAIRS)


def checksum(text: bytes) -> bytes:
    """CRC-32 of ``text`` in base62, six digits, the most significant first (D1)."""
    crc = zlib.crc32(text)
    high = crc // _PAIR
    return _PAIRS[high // _PAIR] + _PAIRS[high % _PAIR] + _PAIRS[crc % _PAIR]


def _draw(length: int) -> str:
    return "".join(secrets.choice(BASE62) for _ in range(length))


class Token:
    """A well-formed key as presented. It never shows itself (R7).

    A token :meth:`without_secret` knows only the digest that it matched before.
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
        """The digest that it is known to match, once compared in constant time."""
        self.sealed: Final = None if matched is None else sealed_fields(matched)
        """The sealed fields of the row that was accepted with it."""
        self.rejected: Rejected | None = None
        """The row that would have been this key's, if its digest or seal were accepted."""

    def matches(self, scheme: str, digest: bytes) -> bool:
        """Whether this is the key with that digest: one comparison in constant time."""
        if self._secret is None:
            return self.matched is not None and (scheme, digest) == self.matched[:2]
        digester = self._peppers.digesters.get(scheme)
        return digester is not None and compare_digest(digester(self._secret), digest)

    def accepts(self, key: ApiKey) -> bool:
        """Whether a row is this key's and may be believed: its digest matches, its seal verifies.

        A store asks this of every row that it reads. A row that was verified before in this process
        costs no MAC (see :mod:`lockgate.core.row_seals`). Why a row was not believed is in
        :attr:`rejected` then.
        """
        if not self.matches(key.scheme, key.digest):
            self._judge_scheme(key)
            return False
        peppers, sealed = self._peppers, sealed_fields(key)
        if not peppers.seals:
            return key.handle == self.handle
        if peppers.has_verified(self.handle, sealed):
            return True
        if not self.believes(key):
            return False
        peppers.remember(self.handle, sealed)
        return True

    def accepts_account(self, account: Account) -> bool:
        """The same of a dashboard token and the row of its account."""
        if not self.matches(account.scheme, account.digest):
            self._judge_scheme(account)
            return False
        return self.believes(account)

    def believes(self, row: ApiKey | Account) -> bool:
        """Whether a row has this handle and a good seal, whatever its digest."""
        if row.handle != self.handle:
            return False  # An index of the store leads to another row.
        why = judge_seal(row, self._peppers)
        if why is not None:
            self.rejected = rejected_by_seal(row, why)
        return why is None

    def _judge_scheme(self, row: ApiKey | Account) -> None:
        """Note a row of a scheme that is not accepted, in the time of one digest (K10)."""
        scheme, secret = row.scheme, self._secret
        if secret is None or scheme in self._peppers.digesters:
            return
        if scheme == PLAIN_SCHEME:
            if compare_digest(plain(secret), row.digest):
                self.rejected = rejected_by_digest(row)
        elif scheme.startswith(PEPPER_SCHEME):
            self.matches_nobody()
            self.rejected = rejected_by_digest(row)

    def matches_nobody(self) -> bool:
        """Do the work of a comparison without a key, so that the time reveals no match (K10)."""
        scheme, digest, _ = self._peppers.nobody
        return self.matches(scheme, digest)

    def without_secret(self, key: ApiKey) -> "Token":
        """A token that matches this row, which this one was accepted by, and holds no key."""
        return Token(self.handle, None, self._peppers, key)

    def fresh_digest(self) -> Digest | None:
        """The digest that this key would be stored under today, if it lies under another now."""
        if self._secret is None:
            return None
        return self._peppers.current(self._secret)

    def __repr__(self) -> str:
        return "<Token>"

    def __reduce__(self) -> str:
        raise TypeError("A token is not to be written down.")


class NewKey(NamedTuple):
    """A key just drawn: the only place where its text is to be seen."""

    text: str
    handle: str

    @property
    def prefix(self) -> str:
        """The first 15 characters, kept to recognise the key by (D2)."""
        return self.text[:PREFIX_LENGTH]

    def __repr__(self) -> str:
        return "<NewKey>"


class OtherFormat(Protocol):
    """How the keys of another system look."""

    def looks_like(self, text: str) -> bool:
        """Whether a text is such a key."""
        ...

    def read(self, text: str, peppers: Peppers) -> Token | None:
        """The token for such a key; None: it looks different."""
        ...


_WORDS: Final = tuple(re.compile(rf"[^\s'\"{more}]{{8,}}") for more in ("", "/", "/?&=:;,"))
"""What may be a key of another system in a text: as much as possible comes first, for such a key
may hold some of what parts others from the rest of a path. None is shorter than 8 characters."""
_BEARER: Final = re.compile(rb"[ \t]*(?i:bearer) +([!-~]+)[ \t]*")


class KeyFormat:
    """How this service's keys look (D1).

    Args:
        brand: the word that all keys of the service start with: 2 to 20 of ``a-z0-9``.
        environment: ``live``, or another word of the same kind such as ``test``.
        peppers: how the keys are digested.
        others: how the keys of other systems look that are good here as well.
        draw: returns that number of random characters of base62.

    Attributes:
        scanner: a regular expression for secret scanners: finds such keys in any text.
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
                    f"The {what} {word!r} cannot be part of a key: use 2 to 20 lower-case letters "
                    "and digits, starting with a letter."
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
        """The text with whatever begins like a key or a dashboard token blotted out, to its end
        (R7), and so are keys of other systems.
        """
        start = f"{self.brand}_(?:{self.environment}|{DASHBOARD})_"
        text = re.sub(rf"({start})\w*", r"\1<redacted>", text)
        for word in _WORDS if self._others else ():
            text = word.sub(self._redact_other, text)
        return text

    def _redact_other(self, word: re.Match[str]) -> str:
        short = len(word[0]) <= HEADER_LENGTH
        found = short and any(other.looks_like(word[0]) for other in self._others)
        return "<redacted>" if found else word[0]

    def generate(self) -> NewKey:
        """Draw a new key: 220 random bits, a handle and the checksum."""
        handle = self._draw(HANDLE_LENGTH)
        random = self._draw(RANDOM_LENGTH - CHECKSUM_LENGTH)
        body = f"{self.brand}_{self.environment}_{handle}_{random}"
        return NewKey(body + checksum(body.encode()).decode(), handle)

    def digest(self, key: NewKey) -> Digest:
        """What to keep of a new key."""
        return self.peppers.current(key.text.encode())

    def read(self, authorizations: Sequence[bytes]) -> Token:
        """Read the key from all ``Authorization`` values of a request, however many there are.

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
        """Read a key that stands by itself, as a dashboard token does in a body.

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
