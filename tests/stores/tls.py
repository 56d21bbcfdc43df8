"""Certificates for the tests, and a TLS server that presents any of them."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .proxy import Proxy


class Certificate(NamedTuple):
    """A self-signed certificate: trusting it means trusting this server alone."""

    file: Path
    """Certificate and private key, PEM."""

    def shown(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file)
        return context


def certificate(
    folder: Path, address: str = "127.0.0.1", *, days: int = 1, name: str = "lockgate's tests"
) -> Certificate:
    """A certificate for an address, valid for ``days`` from now; negative: already expired."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=10))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file = folder / f"{made.serial_number}.pem"
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return Certificate(file)


class SecureProxy(Proxy):
    """A proxy that is spoken to by TLS, and shows the certificate it has just then."""

    def __init__(self, port: int, shows: Certificate) -> None:
        self.shows = shows
        super().__init__(port)

    def welcome(self, client: socket.socket) -> socket.socket:
        client.settimeout(60)
        secured = self.shows.shown().wrap_socket(client, server_side=True)
        secured.settimeout(None)
        return secured
