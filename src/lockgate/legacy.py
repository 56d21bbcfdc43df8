"""Key formats of known systems, for ``KeyOptions(legacy=[...])``.

Each function returns the format of the keys that a system issues, under the name that
``lockgate keys import --from`` expects.
"""

import hashlib
import hmac
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Final, Literal

from .core.imported_keys import ImportedKeyFormat

_HASHED: Final = "hashed"
"""The group of the part that was hashed."""


def drf_api_key(
    *, schemes: Sequence[str] = ("sha512",), prefix_length: int = 8, secret_length: int = 32
) -> ImportedKeyFormat:
    """Return the format of djangorestframework-api-key.

    Args:
        schemes: the schemes of the digests. Releases before 3.0 made ``django_pbkdf2_sha256``,
            which needs ``lockgate[legacy]``.
        prefix_length: ``prefix_length`` of its ``KeyGenerator``.
        secret_length: ``secret_key_length`` of its ``KeyGenerator``.
    """
    pattern = rf"(?P<handle>[A-Za-z0-9]{{{prefix_length}}})\.[A-Za-z0-9]{{{secret_length}}}"
    return ImportedKeyFormat("drf-api-key", pattern, schemes=schemes)


def keyshield(
    pepper: str,
    *,
    hasher: Literal["argon2", "bcrypt"] = "argon2",
    global_prefix: str = "ak_v1",
    separator: str = "-",
) -> ImportedKeyFormat:
    """Return the format of keyshield, formerly fastapi-api-key; needs ``lockgate[legacy]``.

    Args:
        pepper: the pepper of its hasher.
        hasher: the class that made the digests.
        global_prefix, separator: of its ``ApiKeyService``.
    """

    def prepare(secret: str) -> str | bytes:
        if hasher == "argon2":
            return secret + pepper
        return hmac.digest(pepper.encode(), secret.encode(), "sha256")

    between = re.escape(separator)
    handle, hashed = "(?P<handle>[0-9a-f]{16})", "(?P<hashed>[A-Za-z0-9]{64})"
    pattern = f"{re.escape(global_prefix)}{between}{handle}{between}{hashed}"
    return ImportedKeyFormat(
        "keyshield", pattern, schemes=[hasher], secret=_HASHED, prepare=prepare
    )


def safe_api_keys(
    prefix: str,
    pepper: bytes | None,
    *,
    version: str = "v1",
    key_id_length: int = 12,
    secret_length: int = 32,
) -> ImportedKeyFormat:
    """Return the format of safe-api-keys, with checksums.

    Args:
        prefix: the prefix of its ``KeyFormat``.
        pepper: the pepper of its digests; None: plain SHA-256, which is version ``v0``.
        version: the version of that pepper. Keys under other versions are skipped.
        key_id_length, secret_length: ``key_id_len`` and ``secret_len`` of its ``KeyFormat``.
    """
    id, secret = f"[0-9A-Za-z]{{{key_id_length}}}", f"[0-9A-Za-z]{{{secret_length}}}"
    body = f"(?P<hashed>{re.escape(prefix)}_(?P<handle>{id})_{secret})"
    name = f"safe-api-keys-{'v0' if pepper is None else version}"
    scheme = "sha256" if pepper is None else "hmac-sha256"
    return ImportedKeyFormat(
        name, f"{body}[0-9A-Za-z]{{6}}", schemes=[scheme], secret=_HASHED, hmac_key=pepper
    )


def unkey(prefix: str | None = None) -> ImportedKeyFormat:
    """Return the format of Unkey: base58 after a prefix, found by the SHA-256 in base64.

    Args:
        prefix: the prefix of the keys, without its ``_``; None: they have none.
    """
    before = "" if prefix is None else f"{re.escape(prefix)}_"
    return ImportedKeyFormat(
        "unkey",
        f"{before}[1-9A-HJ-NP-Za-km-z]{{11,200}}",
        schemes=["sha256"],
        handle=lambda found: b64encode(_sha256(found[0])).decode(),
    )


def better_auth(prefix: str = "", *, length: int = 64) -> ImportedKeyFormat:
    """Return the format of better-auth: letters after a prefix, found by the SHA-256 in base64url.

    Args:
        prefix: the prefix of the keys, as ``defaultPrefix`` of its plugin; nothing stands after it.
        length: ``defaultKeyLength`` of its plugin, or another fixed number of letters.
    """
    return ImportedKeyFormat(
        "better-auth",
        f"{re.escape(prefix)}[A-Za-z]{{{length}}}",
        schemes=["sha256"],
        handle=lambda found: urlsafe_b64encode(_sha256(found[0])).decode().rstrip("="),
    )


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
