"""An identity provider: mints tokens by joserfc, serves its keys on loopback, and misbehaves."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import jwt as pyjwt
from joserfc import jwt
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

ISSUER = "https://idp.example"
AUDIENCE = "https://console.example.com"

# Making RSA keys takes most of a second.
RSA = RSAKey.generate_key(2048, parameters={"kid": "rsa", "use": "sig", "alg": "RS256"})
EC = ECKey.generate_key("P-256", parameters={"kid": "ec", "use": "sig", "alg": "ES256"})
# joserfc calls its own EdDSA deprecated (RFC 9864), which providers do not know of yet.
ED = OKPKey.generate_key("Ed25519", parameters={"kid": "ed", "use": "sig"})
KEYS: dict[str, Key] = {"RS256": RSA, "ES256": EC, "EdDSA": ED}


def jwks(*keys: Key) -> dict[str, Any]:
    """The public halves."""
    return dict(KeySet(list(keys)).as_dict(private=False))


def claims(**changes: Any) -> dict[str, Any]:
    """Good claims for the next minute, with changes; None takes one out."""
    now = int(time.time())
    good = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "azp": AUDIENCE,
        "sub": "user_ada",
        "org_id": "org_1",
        "email": "ada@example.com",
        "email_verified": True,
        "iat": now,
        "nbf": now,
        "exp": now + 60,
        **changes,
    }
    return {name: value for name, value in good.items() if value is not None}


def mint(
    key: Key = EC,
    algorithm: str = "ES256",
    header: dict[str, Any] | None = None,
    **changes: Any,
) -> str:
    fields = {"alg": algorithm, "kid": key.kid, **(header or {})}
    fields = {name: value for name, value in fields.items() if value is not None}
    registry = JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    return jwt.encode(fields, claims(**changes), key, registry=registry)


def sign(payload: bytes, key: Any = EC, algorithm: str = "ES256", **header: Any) -> str:
    """Sign any content validly, even content that joserfc refuses."""
    return pyjwt.PyJWS().encode(payload, key.private_key, algorithm, {"kid": key.kid, **header})


class Provider:
    """Serves a JWKS, counts how often it is asked, and misbehaves on request."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked = 0
        self.keys: list[Key] = [EC]
        self.answer: Callable[[BaseHTTPRequestHandler], None] = self.serve_keys
        self.let_go = Event()
        """Ends whatever hangs."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                try:
                    provider.answer(self)
                except OSError:
                    self.close_connection = True  # It was hung up on.

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = False
            block_on_close = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # A client that does not like the certificate.

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}/.well-known/jwks.json"
        self._thread = Thread(target=self._server.serve_forever, args=[0.01])
        self._thread.start()

    def serve_keys(self, request: BaseHTTPRequestHandler) -> None:
        self.send(request, json.dumps(jwks(*self.keys)).encode())

    @staticmethod
    def send(
        request: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str
    ) -> None:
        request.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(body)

    def answers(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.answer = lambda request: self.send(request, body, status, **headers)

    def hang(self, request: BaseHTTPRequestHandler) -> None:
        self.let_go.wait(30)

    def drip(self, request: BaseHTTPRequestHandler) -> None:
        """A byte now and then, for ever: no single read ever times out."""
        request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not self.let_go.wait(0.02):
            request.wfile.write(b"a")
            request.wfile.flush()

    def close(self) -> None:
        if self.let_go.is_set() and not self._thread.is_alive():
            return
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def provider(tls: ssl.SSLContext | None = None) -> Iterator[Provider]:
    found = Provider(tls)
    try:
        yield found
    finally:
        found.close()
