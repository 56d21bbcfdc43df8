"""A sender of leak reports: an ECDSA key, its published document, and signed requests."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

PATH = "/api/v1/leak-reports"
URL = "https://github.com/octocat/hello/blob/main/.env"


class Sender:
    """A secret scanner that signs its reports, as GitHub does."""

    def __init__(self, identifier: str = "first", curve: ec.EllipticCurve | None = None) -> None:
        self.identifier = identifier
        self.key = ec.generate_private_key(curve or ec.SECP256R1())

    @property
    def entry(self) -> dict[str, Any]:
        public = self.key.public_key()
        pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        return {"key_identifier": self.identifier, "key": pem, "is_current": True}

    def headers(self, body: bytes, identifier: str | None = None) -> list[tuple[str, str]]:
        signature = b64encode(self.key.sign(body, ec.ECDSA(SHA256()))).decode()
        return [
            ("content-type", "application/json"),
            ("github-public-key-identifier", identifier or self.identifier),
            ("github-public-key-signature", signature),
        ]


class Published:
    """The senders' public keys, as the host's function returns them."""

    def __init__(self, *senders: Sender) -> None:
        self.senders = list(senders)
        self.calls = 0

    def __call__(self) -> dict[str, Any]:
        self.calls += 1
        return {"public_keys": [sender.entry for sender in self.senders]}


def report(*tokens: str, **fields: object) -> bytes:
    """Return the body of a report."""
    more = {"type": "acme_api_key", "url": URL, "source": "content", **fields}
    return json.dumps([{"token": token, **more} for token in tokens]).encode()
