"""Digests and seals: the stored forms of a key, and the peppers that key them.

A digest stands for the text of a key (D3). A seal is a MAC over the rest of the row, so that a
writer of the database can neither mint a key nor give one to another organization;
:mod:`lockgate.core.row_seals` names the sealed fields.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ..errors import ConfigurationError
from .bounded_dict import BoundedDict
from .weak_secrets import refuse_weak


class Digest(NamedTuple):
    """The digest of a key, the name of how it was made, and the seal of the row that keeps it."""

    scheme: str
    value: bytes
    seal: str | None = None
    """``<pepper id>:<MAC in hexadecimal>``; None: the row has no seal."""


Digester = Callable[[bytes], bytes]
PLAIN_SCHEME: Final = "sha256"
PEPPER_SCHEME: Final = "hmac-sha256:"
"""The start of a pepper's scheme; the pepper's id follows."""
_VERIFIED_AT_MOST: Final = 131_072
"""As many as there are key hints: :data:`lockgate.stores.redis.key_hints.AT_MOST`."""


class Peppers:
    """How keys are digested and rows are sealed: HMAC-SHA-256 under a pepper (D3).

    A digest is fast on purpose: keys are random, so a slow password hash would only be a way to
    keep the service busy. The scheme of a pepper is derived from the pepper itself, so every key
    names the pepper it was made with, and peppers rotate as a list. Without any pepper keys are
    digested by plain SHA-256, and rows have no seal.

    Args:
        peppers: at least 16 random bytes each, the newest first. New keys use the newest; keys of
            the others stay good and move to the newest when they are next used (K9).
        next_pepper: will be the newest: keys under it are good and stay under it, and no key moves
            to it yet. So a rolling rotation breaks no key.
        accept_plain: accept plain SHA-256 beside peppers.
        accept_unsealed: accept rows without a seal beside peppers.

    Raises:
        ConfigurationError: not a list of bytes, one of them can be guessed, or the next pepper is
            among those in use.
    """

    def __init__(
        self,
        peppers: Sequence[bytes] = (),
        *,
        next_pepper: bytes | None = None,
        accept_plain: bool = False,
        accept_unsealed: bool = False,
    ) -> None:
        given: object = peppers  # A single pepper is a sequence as well, of numbers or of letters.
        if isinstance(given, bytes | str) or any(isinstance(p, str) for p in list[object](peppers)):
            raise ConfigurationError("The peppers are a list of bytes: [b'...'].")
        if isinstance(next_pepper, str):
            raise ConfigurationError("The next pepper is bytes: b'...'.")
        if next_pepper in peppers:
            raise ConfigurationError(
                "next_pepper is one of the peppers: once it is in use, leave next_pepper out."
            )
        digesters: dict[str, Digester] = {}
        sealers: dict[str, Digester] = {}
        for pepper in [*peppers, *([] if next_pepper is None else [next_pepper])]:
            refuse_weak("pepper", pepper, "secrets.token_bytes(32)")
            id = _pepper_id(pepper)
            digesters[PEPPER_SCHEME + id] = keyed(pepper)
            sealers[id] = keyed(subkey(pepper, b"row seal"))
        if not peppers or accept_plain:
            digesters[PLAIN_SCHEME] = plain
        self.digesters: Final[Mapping[str, Digester]] = digesters
        """The digest function of each accepted scheme; no key matches by another scheme."""
        newest = _pepper_id(peppers[0]) if peppers else ""
        following = "" if next_pepper is None else _pepper_id(next_pepper)
        self.scheme: Final = PEPPER_SCHEME + newest if newest else PLAIN_SCHEME
        """The scheme of new keys."""
        self.current_schemes: Final = frozenset({self.scheme, PEPPER_SCHEME + following})
        """The schemes that keys stay on: the scheme of new keys, and the next one."""
        self.nobody: Final = Digest(self.scheme, bytes(hashlib.sha256().digest_size))
        """A digest that no key has."""
        self.accept_plain: Final = accept_plain
        self.accept_unsealed: Final = accept_unsealed
        self.seals: Final = bool(peppers)
        """Whether rows are sealed at all."""
        self.newest: Final = newest
        """The id of the pepper for new seals; empty without peppers."""
        self.current_seals: Final = frozenset({newest, following} - {""})
        """The ids of the peppers whose seals are not renewed: the newest, and the next one."""
        self._sealers = sealers
        self._oldest = peppers[-1] if peppers else b""
        self._verified = BoundedDict[str, tuple[object, ...]](_VERIFIED_AT_MOST)

    def current(self, secret: bytes) -> Digest:
        """Digest by the newest pepper."""
        return Digest(self.scheme, self.digesters[self.scheme](secret))

    def seal(self, message: bytes) -> str | None:
        """The seal of a row that is written as this message; None: there is no pepper."""
        if not self.seals:
            return None
        return f"{self.newest}:{self._sealers[self.newest](message).hex()}"

    def verify(self, seal: object, message: bytes) -> bool:
        """Whether this is the seal of the row that is written as this message.

        Args:
            seal: of any type, as read from a store.
            message: the row.
        """
        if not isinstance(seal, str):
            return False
        id, _, _ = seal.partition(":")
        sealer = self._sealers.get(id)
        if sealer is None:
            return False
        wanted = f"{id}:{sealer(message).hex()}".encode()
        return hmac.compare_digest(wanted, seal.encode("utf-8", "surrogatepass"))

    def seal_pepper_known(self, seal: object) -> bool:
        """Whether a seal names a pepper that is here."""
        return isinstance(seal, str) and seal.partition(":")[0] in self._sealers

    def has_verified(self, handle: str, sealed: tuple[object, ...]) -> bool:
        """Whether :meth:`remember` was told of exactly this row."""
        return self._verified.get(handle) == sealed

    def remember(self, handle: str, sealed: tuple[object, ...]) -> None:
        """Remember a row whose seal verified, so that this process verifies it once."""
        self._verified[handle] = sealed

    def pseudonym(self, purpose: str, text: str) -> str:
        """A keyed hash of a client address or an e-mail: 128 hexadecimal digits.

        It is keyed with the oldest pepper, so adding a pepper does not change it. Without a pepper
        it is SHA-512.
        """
        message = text.encode("utf-8", "surrogatepass")
        if not self._oldest:
            return hashlib.sha512(message).hexdigest()
        label = f"pseudonym: {purpose}".encode()
        return hmac.digest(subkey(self._oldest, label), message, "sha512").hex()

    def __repr__(self) -> str:
        return f"<Peppers {', '.join(self.digesters)}>"


def _pepper_id(pepper: bytes) -> str:
    return hmac.digest(pepper, b"lockgate: name of a pepper", "sha256")[:4].hex()


def subkey(pepper: bytes, label: bytes) -> bytes:
    """Derive a key for one purpose from a pepper; no other purpose accepts its MACs."""
    return hmac.digest(pepper, b"lockgate: " + label, "sha256")


def keyed(key: bytes) -> Digester:
    """HMAC-SHA-256 (RFC 2104) with the key's two pads hashed beforehand: 2.5 times as fast."""
    block = hashlib.sha256().block_size
    if len(key) > block:
        key = hashlib.sha256(key).digest()
    padded = key.ljust(block, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def digest(secret: bytes) -> bytes:
        first = inner.copy()
        first.update(secret)
        second = outer.copy()
        second.update(first.digest())
        return second.digest()

    return digest


def plain(secret: bytes) -> bytes:
    """SHA-256."""
    return hashlib.sha256(secret).digest()
