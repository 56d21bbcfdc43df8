"""Password hashes of other systems, named as in passlib."""

import re
from collections.abc import Collection
from typing import Any, Final

from ..errors import ConfigurationError

_BCRYPT: Final = re.compile(r"\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}")
_PLAIN_BCRYPT: Final = {"bcrypt", "django_bcrypt"}
"""The schemes that give the key itself to bcrypt."""
_BCRYPT_BYTES: Final = 72
"""All that bcrypt reads: its library before version 5 accepts every key that begins with them."""


class PasswordHashes:
    """Identifies and verifies password hashes of some schemes.

    ``bcrypt`` uses its own library, which accepts any bytes; passlib refuses a NUL.

    Args:
        schemes: names from :data:`lockgate.core.imported_keys.SLOW`.

    Raises:
        ConfigurationError: the library of a scheme is not installed.
    """

    def __init__(self, schemes: Collection[str]) -> None:
        try:
            import bcrypt
            from passlib.context import CryptContext  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs] - libpass has none
        except ModuleNotFoundError as missing:
            raise ConfigurationError(
                f"Legacy keys with a slow hash need {missing.name}: pip install 'lockgate[legacy]'."
            ) from missing
        self._bcrypt = bcrypt if "bcrypt" in schemes else None
        others = sorted(set(schemes) - {"bcrypt"})
        self._context: Any = CryptContext(schemes=others) if others else None

    def identify(self, digest: str) -> str | None:
        """Return the scheme of a digest; None if it is of no known scheme or malformed."""
        if self._bcrypt is not None and _BCRYPT.fullmatch(digest):
            return "bcrypt"
        if self._context is None:
            return None
        try:
            scheme: str | None = self._context.identify(digest)
            if scheme is not None:
                self._context.needs_update(digest)  # Parses the whole digest.
        except ValueError:
            return None
        return scheme

    def verify(self, scheme: str, hashed: bytes, digest: str) -> bool:
        """Return whether a digest is the hash of these bytes."""
        try:
            if scheme in _PLAIN_BCRYPT and len(hashed) > _BCRYPT_BYTES:
                return False
            if scheme != "bcrypt":
                return bool(self._context.verify(hashed, digest))
            assert self._bcrypt is not None, "the scheme was declared"
            return bool(self._bcrypt.checkpw(hashed, digest.encode()))
        except ValueError:  # The digest is malformed, or the hash cannot take the key.
            return False
