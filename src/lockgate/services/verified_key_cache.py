"""Keys that were admitted here lately: recognised by one digest, without reading them again."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from ..core.api_keys import ApiKey
from ..core.bounded_dict import BoundedDict
from ..core.key_format import HEADER_LENGTH, Token

_AT_MOST: Final = 131_072
"""As many as there are key hints (:data:`lockgate.stores.redis.key_hints.AT_MOST`): 0.8 KB each."""


class VerifiedKeyCache:
    """Remembers how keys were presented when they were admitted, by the BLAKE2b of that.

    Nobody is let in by it: it stands for parsing, checksum and keyed digest, and the store judges
    the key anew on each request. A key is not kept here, only digests are.
    """

    def __init__(self) -> None:
        self._tokens = BoundedDict[bytes, Token](_AT_MOST)

    def find(self, authorizations: Sequence[bytes]) -> Token | None:
        """The token that these ``Authorization`` values stood for; None: look at them."""
        if len(authorizations) != 1 or len(authorizations[0]) > HEADER_LENGTH:
            return None
        fingerprint = blake2b(authorizations[0]).digest()
        token = self._tokens.get(fingerprint)
        if token is not None:
            self._tokens.touch(fingerprint)
        return token

    def remember(self, authorization: bytes, token: Token, key: ApiKey) -> None:
        """Remember a token that was just admitted by this key."""
        self._tokens[blake2b(authorization).digest()] = token.without_secret(key)

    def forget(self, authorization: bytes) -> None:
        """Forget a token that was not admitted any more."""
        self._tokens.pop(blake2b(authorization).digest(), None)
