"""Keys that were admitted here lately: recognised by one digest, without reading them again."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from ..rules.credentials import HEADER_LENGTH, Token
from ..rules.keys import ApiKey

_AT_MOST: Final = 10_000


class KnownKeys:
    """Remembers how keys were presented when they were admitted, by the BLAKE2b of that.

    Nobody is let in by it: it stands for parsing, checksum and keyed digest, and the store judges
    the key anew on each request. A key is not kept here, only digests are.
    """

    def __init__(self) -> None:
        self._present: dict[bytes, Token] = {}
        self._past: dict[bytes, Token] = {}

    def find(self, authorizations: Sequence[bytes]) -> Token | None:
        """The token that these ``Authorization`` values stood for; None: look at them."""
        if len(authorizations) != 1 or len(authorizations[0]) > HEADER_LENGTH:
            return None
        fingerprint = blake2b(authorizations[0]).digest()
        token = self._present.get(fingerprint)
        if token is None and (token := self._past.pop(fingerprint, None)) is not None:
            self._keep(fingerprint, token)
        return token

    def remember(self, authorization: bytes, token: Token, key: ApiKey) -> None:
        """Remember a token that was just admitted by this key."""
        self._keep(blake2b(authorization).digest(), token.without_secret(key))

    def forget(self, authorization: bytes) -> None:
        """Forget a token that was not admitted any more."""
        fingerprint = blake2b(authorization).digest()
        self._present.pop(fingerprint, None)
        self._past.pop(fingerprint, None)

    def _keep(self, fingerprint: bytes, token: Token) -> None:
        if len(self._present) >= _AT_MOST:  # Those that are not used meanwhile go next time.
            self._past, self._present = self._present, {}
        self._present[fingerprint] = token
