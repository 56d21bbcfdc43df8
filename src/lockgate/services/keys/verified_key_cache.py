"""Recently admitted keys: recognise them by one digest, without parsing them again."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from ...core.api_keys import ApiKey
from ...core.bounded_dict import BoundedDict
from ...core.key_format import HEADER_LENGTH, Token

_AT_MOST: Final = 131_072
"""As many as key hints (:data:`lockgate.stores.redis.key_hints.AT_MOST`), at 0.8 KB each."""


class VerifiedKeyCache:
    """Maps the BLAKE2b of an admitted ``Authorization`` value to its parsed token.

    A hit saves parsing, checksum and keyed digest, but admits no request: the store verifies the
    key on each use. The cache holds digests only, no keys.
    """

    def __init__(self) -> None:
        self._tokens = BoundedDict[bytes, Token](_AT_MOST)

    def find(self, authorizations: Sequence[bytes]) -> Token | None:
        """Return the token of these ``Authorization`` values; None: parse them."""
        if len(authorizations) != 1 or len(authorizations[0]) > HEADER_LENGTH:
            return None
        fingerprint = blake2b(authorizations[0]).digest()
        token = self._tokens.get(fingerprint)
        if token is not None:
            self._tokens.touch(fingerprint)
        return token

    def remember(self, authorization: bytes, token: Token, key: ApiKey) -> None:
        """Remember the token with which this key was admitted."""
        self._tokens[blake2b(authorization).digest()] = token.without_secret(key)

    def forget(self, authorization: bytes) -> None:
        """Forget a token that is no longer admitted."""
        self._tokens.pop(blake2b(authorization).digest(), None)
