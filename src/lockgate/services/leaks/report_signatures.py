"""Signatures of reports of leaked keys: ECDSA over P-256 and SHA-256, as GitHub signs them.

See "Secret scanning partner program" in GitHub's documentation. Needs the extra ``leaks``.
"""

import binascii
import logging
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Final, cast

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from ...errors import LeakReportsUnavailable, ReportNotAccepted
from ...events import Events, logger
from ...stores.runtime.shared_fetch import NothingFetched, SharedFetch, Withdrawn
from ..host_calls import SignerKeys, result_of

MAX_AGE: Final = 3600.0
"""Seconds after which the keys of the signers are read again."""
STALE_FOR: Final = 86_400.0
"""Seconds after that for which they are used while they cannot be read."""
COOL_DOWN: Final = 60.0
"""Seconds from one reading to the next, for unknown signers."""
_SIGNERS_AT_MOST: Final = 100
_LONGEST_SIGNATURE: Final = 128
"""Characters: a DER signature of P-256 has up to 72 bytes, so 96 of base64."""


class ReportSignatures:
    """Verifies the signatures of reports.

    Args:
        keys: returns the signers' keys; called in a thread, at most once a minute.
        timeout: seconds that a request waits for it.
        events: receives ``leak_signers_failed``.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        keys: SignerKeys,
        timeout: float,
        events: Events,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._function = keys
        self._events = events
        self._signers = SharedFetch(
            self._fetch,
            thread="lockgate-leak-signers",
            max_age=MAX_AGE,
            stale_for=STALE_FOR,
            cool_down=COOL_DOWN,
            timeout=timeout,
            clock=clock,
        )

    async def verify(self, signer: bytes, signature: bytes, body: bytes) -> None:
        """Return if a signer signed these bytes.

        Args:
            signer: the identifier of the signer's key.
            signature: in DER and base64.
            body: as it came.

        Raises:
            ReportNotAccepted: the signer is unknown, or the signature is not of these bytes.
            LeakReportsUnavailable: the keys of the signers could not be read.
        """
        try:
            identifier = signer.decode("ascii")
            if len(signature) > _LONGEST_SIGNATURE:
                raise ReportNotAccepted
            der = b64decode(signature, validate=True)
        except (UnicodeDecodeError, binascii.Error):
            raise ReportNotAccepted from None
        try:
            key = await self._signers.find(lambda keys: keys.get(identifier))
        except NothingFetched:
            raise LeakReportsUnavailable from None
        if key is None:
            raise ReportNotAccepted
        try:
            key.verify(der, body, ECDSA(SHA256()))
        except InvalidSignature:
            raise ReportNotAccepted from None

    def _fetch(self) -> Mapping[str, EllipticCurvePublicKey]:
        try:
            return read_signers(result_of(self._function))
        except BaseException as failure:  # Such as SystemExit: it fails this call only.
            logger.exception("LeakReports(keys=...) failed")
            error = type(failure).__qualname__
            self._events.emit("leak_signers_failed", logging.WARNING, error=error)
            raise


def read_signers(document: object) -> Mapping[str, EllipticCurvePublicKey]:
    """Return the P-256 keys of a document by their identifiers; other keys are ignored.

    Raises:
        Withdrawn: there are keys, none of which is usable.
        ValueError: it is no such document.
    """
    entries: object = None
    if isinstance(document, Mapping):
        entries = cast(Mapping[str, object], document).get("public_keys")
    if not isinstance(entries, list) or not entries:
        raise ValueError("This is no list of keys: return {'public_keys': [...]}.")
    found: dict[str, EllipticCurvePublicKey] = {}
    for entry in cast(list[Mapping[str, str]], entries[:_SIGNERS_AT_MOST]):
        try:
            identifier = str(entry["key_identifier"])
            key = load_pem_public_key(entry["key"].encode())
        except Exception:  # noqa: S112 - a faulty key does not affect the others
            continue
        if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
            found[identifier] = key
    if not found:
        raise Withdrawn("There is no public key for ECDSA over P-256 among the signers' keys.")
    return found
