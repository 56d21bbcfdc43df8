"""Password hashes of other systems, known by the names that passlib gives them."""

import re
from collections.abc import Collection
from typing import Any, Final

from ..errors import ConfigurationError

_BCRYPT: Final = re.compile(r"\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}")


class PasswordHashes:
    """Reads and verifies digests of some schemes.

    ``bcrypt`` goes to its own library, which takes any bytes, where passlib refuses a NUL.

    Args:
        schemes: of :data:`lockgate.core.imported_keys.SLOW`.

    Raises:
        ConfigurationError: what they need is not installed.
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
        """The scheme of a digest; None: it is of none, or malformed."""
        if self._bcrypt is not None and _BCRYPT.fullmatch(digest):
            return "bcrypt"
        if self._context is None:
            return None
        try:
            scheme: str | None = self._context.identify(digest)
            if scheme is not None:
                self._context.needs_update(digest)  # Reads all of it.
        except ValueError:
            return None
        return scheme

    def verify(self, scheme: str, hashed: bytes, digest: str) -> bool:
        """Whether this was hashed to that."""
        try:
            if scheme != "bcrypt":
                return bool(self._context.verify(hashed, digest))
            assert self._bcrypt is not None, "the scheme was declared"
            return bool(self._bcrypt.checkpw(hashed, digest.encode()))
        except ValueError:
            # A digest that is none any more, or a text that the hash cannot take: bcrypt reads 72
            # bytes, and to cut a longer key would make all that agree so far the same.
            return False
