"""Formats of keys that another system issued: pattern, handle and digest schemes.

A key is found by its handle, as lockgate's keys are. The stored handle is a digest of the system's
name and the key's handle, so it never equals another handle. The stored digest is the other
system's. Fast digests are compared in the admission; slow ones are checked beforehand by
:mod:`lockgate.services.imports.imported_keys`.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from hmac import compare_digest
from typing import Final

from ..errors import ConfigurationError
from .arguments import checks_arguments
from .digests import Digest, Digester, Peppers
from .key_format import Token

FAST: Final[Mapping[str, str]] = {
    "sha256": "sha256",
    "sha512": "sha512",
    "hmac-sha256": "sha256",
    "hmac-sha512": "sha512",
}
"""Schemes of hashlib, with the hash of each."""

SLOW: Final = frozenset(
    {
        "argon2",
        "bcrypt",
        "bcrypt_sha256",
        "django_argon2",
        "django_bcrypt",
        "django_bcrypt_sha256",
        "django_pbkdf2_sha1",
        "django_pbkdf2_sha256",
        "pbkdf2_sha1",
        "pbkdf2_sha256",
        "pbkdf2_sha512",
        "scrypt",
    }
)
"""Password hashes, by their passlib names."""

_TOKENS: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?P<\w+>|\(\?:|\(\??|\)|(?P<some>[*+?]|\{\d*,\d*\})|(?P<many>\{\d+\})|.",
    re.DOTALL,
)
_SPANS_AT_MOST: Final = 2
_LONGEST_DIGEST: Final = 255


@checks_arguments
class ImportedKeyFormat:
    """The format of another system's keys, and its digest schemes.

    Args:
        name: lockgate's name of the system: 1 to 20 of ``a-z0-9-``, a letter first. It goes into
            the record of each key, so it must not change.
        pattern: a regular expression for a whole key, with a group ``handle``. Repeats
            apply to one character or class, and at most two have no fixed length, so that matching
            is fast for every text.
        schemes: the schemes of the digests, from :data:`FAST` and :data:`SLOW`.
        handle: the name of the handle's group, or a function from the match to the handle if the
            key does not contain one.
        secret: the name of the group that was hashed; None: the whole key.
        prepare: the system's transformation before hashing, such as adding a pepper.
        hmac_key: the key of ``hmac-sha256`` and ``hmac-sha512``.

    Raises:
        ConfigurationError: an argument is not valid; the message says what to change.
    """

    def __init__(
        self,
        name: str,
        pattern: str,
        *,
        schemes: Collection[str],
        handle: str | Callable[[re.Match[str]], str] = "handle",
        secret: str | None = None,
        prepare: Callable[[str], str | bytes] | None = None,
        hmac_key: bytes | None = None,
    ) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,19}", name):
            raise ConfigurationError(
                f"The name {name!r} of a legacy system: use 1 to 20 of a-z, 0-9 and '-', a letter "
                "first."
            )
        unknown = set(schemes) - FAST.keys() - SLOW
        if unknown or not schemes:
            known = ", ".join([*FAST, *sorted(SLOW)])
            raise ConfigurationError(f"The schemes of {name!r} are a list of some of: {known}.")
        fast = [scheme for scheme in FAST if scheme in schemes]
        if len({FAST[scheme] for scheme in fast}) < len(fast):
            raise ConfigurationError(
                f"Digests of {', '.join(fast)} look alike: make a Legacy(...) for each."
            )
        if (hmac_key is None) == any(scheme.startswith("hmac-") for scheme in fast):
            raise ConfigurationError(
                f"Give {name!r} an hmac_key with, and only with, a scheme hmac-."
            )
        self.name: Final = name
        self.schemes: Final = tuple(schemes)
        self._pattern = _compiled(name, pattern)
        for group in (handle, secret):
            if isinstance(group, str) and group not in self._pattern.groupindex:
                raise ConfigurationError(
                    f"The pattern of {name!r} has no group {group!r}: write (?P<{group}>...)."
                )
        self._handle = handle
        self._secret = secret
        self._prepare = prepare
        self.digesters: Final[Mapping[str, Digester]] = {
            self.kept_scheme(scheme): _digester(scheme, hmac_key) for scheme in fast
        }
        """The digest function of each fast scheme, by its stored name."""

    def looks_like(self, text: str) -> bool:
        """Return whether a text has the format of this system's keys."""
        return self._pattern.fullmatch(text) is not None

    def read(self, text: str, peppers: Peppers) -> "ImportedToken | None":
        """Return the token for a key of this system; None for another format."""
        found = self._pattern.fullmatch(text)
        if found is None:
            return None
        handle = found[self._handle] if isinstance(self._handle, str) else self._handle(found)
        hashed = found[0] if self._secret is None else found[self._secret]
        if not handle or not hashed:
            return None
        return ImportedToken(self.kept_handle(handle), text, hashed, self, peppers)

    def prepared(self, hashed: str) -> bytes:
        """Return the bytes that the other system hashed."""
        ready = hashed if self._prepare is None else self._prepare(hashed)
        return ready.encode() if isinstance(ready, str) else ready

    def kept_handle(self, handle: str) -> str:
        """Return the stored handle for a handle of this system: 44 characters."""
        found = hashlib.sha256(f"{self.name}\0{handle}".encode("utf-8", "surrogatepass")).digest()
        return "~" + base64.urlsafe_b64encode(found).decode().rstrip("=")

    def kept_scheme(self, scheme: str) -> str:
        """Return the stored scheme for a scheme of this system."""
        return f"legacy:{self.name}:{scheme}"

    def slow_scheme(self, kept: str) -> str | None:
        """Return the slow scheme behind a stored scheme; None for a scheme of another system."""
        scheme = kept.removeprefix(self.kept_scheme(""))
        return scheme if scheme in SLOW else None

    def read_fast(self, digest: str) -> Digest | None:
        """Read a fast digest, in hexadecimal or base64, with or without Django's ``sha512$$``."""
        named, found, bare = digest.rpartition("$$")
        for scheme in self.schemes:
            if scheme in FAST and (not found or named == FAST[scheme]):
                value = _decoded(bare, hashlib.new(FAST[scheme]).digest_size)
                if value is not None:
                    return Digest(self.kept_scheme(scheme), value)
        return None

    def keep_slow(self, scheme: str, digest: str) -> Digest | None:
        """Return the stored form of a slow digest; None for another scheme, or a longer text."""
        if scheme not in self.schemes or len(digest) > _LONGEST_DIGEST or not digest.isascii():
            return None
        return Digest(self.kept_scheme(scheme), digest.encode())

    def __repr__(self) -> str:
        return f"<Legacy {self.name}>"


class ImportedToken(Token):
    """A presented key of another system."""

    __slots__ = ("_hashed", "legacy")

    def __init__(
        self, handle: str, text: str, hashed: str, legacy: ImportedKeyFormat, peppers: Peppers
    ) -> None:
        super().__init__(handle, text.encode(), peppers)
        self._hashed = hashed
        self.legacy: Final = legacy

    def matches(self, scheme: str, digest: bytes) -> bool:
        """Return whether the key has this digest, under lockgate's scheme or the system's."""
        digester = self.legacy.digesters.get(scheme)
        if digester is None:
            return super().matches(scheme, digest)
        return compare_digest(digester(self.legacy.prepared(self._hashed)), digest)

    def knows_scheme(self, scheme: str) -> bool:
        own = scheme in self.legacy.digesters or self.legacy.slow_scheme(scheme) is not None
        return own or super().knows_scheme(scheme)

    def prepared(self) -> bytes:
        """Return the bytes that its system hashed, for a slow check."""
        return self.legacy.prepared(self._hashed)


def _compiled(name: str, pattern: str) -> re.Pattern[str]:
    """Compile a pattern, and refuse one for which matching a text could take long."""
    before, spans = "", 0
    for token in _TOKENS.finditer(pattern):
        text = token[0]
        if text == "(?" or re.fullmatch(r"\\[1-9]", text):
            raise ConfigurationError(
                f"The pattern of {name!r} looks around or back: use plain groups only."
            )
        if token.lastgroup is not None and before in {")", ""}:
            raise ConfigurationError(
                f"The pattern of {name!r} repeats a group: repeat single characters or classes."
            )
        spans += token.lastgroup == "some"
        before = text
    if spans > _SPANS_AT_MOST:
        raise ConfigurationError(
            f"The pattern of {name!r} has {spans} repeats of no fixed length: use at most "
            f"{_SPANS_AT_MOST}, and give the others a number, as in [0-9a-f]{{32}}."
        )
    try:
        return re.compile(pattern, re.ASCII)
    except re.error as problem:
        raise ConfigurationError(f"The pattern of {name!r}: {problem}.") from problem


def _digester(scheme: str, hmac_key: bytes | None) -> Digester:
    if hmac_key is not None and scheme.startswith("hmac-"):
        return partial(hmac.digest, hmac_key, digest=FAST[scheme])
    return partial(_plain, FAST[scheme])


def _plain(algorithm: str, hashed: bytes) -> bytes:
    return hashlib.new(algorithm, hashed).digest()


def _decoded(digest: str, size: int) -> bytes | None:
    """Decode a digest of ``size`` bytes from hexadecimal or base64; None if it is neither."""
    if len(digest) == 2 * size and re.fullmatch("[0-9A-Fa-f]+", digest):
        return bytes.fromhex(digest)
    bare = digest.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        value = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return value if len(value) == size else None
