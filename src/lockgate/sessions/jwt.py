"""Sessions of an identity provider: JSON Web Tokens, verified by its published keys (D12).

The rules follow RFC 8725: the algorithms are configured, the key decides between them, issuer and
audience are checked, and no URL in a token is fetched.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final

try:
    from jwt import PyJWT, get_unverified_header
    from jwt.algorithms import has_crypto
    from jwt.exceptions import PyJWTError
except ImportError as missing:  # Another package is named jwt too.
    raise ImportError("JSON Web Tokens need PyJWT: pip install 'lockgate[jwt]'.") from missing

from ..core.arguments import checks_arguments
from ..errors import ConfigurationError
from ..events import Events, Observer
from ..stores.base import IoMode
from .claim_map import ClaimMap, Claims
from .jwks import FetchedKeys, GivenKeys, SigningKeys
from .session import LONGEST_COOKIE, Session

if not has_crypto:  # PyJWT then verifies none of the algorithms below.
    raise ImportError("JSON Web Tokens need cryptography: pip install 'lockgate[jwt]'.")

ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
"""The supported algorithms, all asymmetric."""

_TYPES: Final = frozenset({"jwt", "at+jwt"})
"""The accepted ``typ`` values, unlike ``logout+jwt`` (RFC 8725, 3.11)."""

_MALFORMED: Final = (PyJWTError, TypeError, RecursionError)
"""What PyJWT raises for a token; before 2.15 it leaves claims of another type, and JSON that is
nested too deeply, to Python."""

LiveCheck = Callable[[Claims], bool | Awaitable[bool]]
"""Return by a token's claims (``sid``, ``jti``) whether its session is not signed out.

A plain function runs in the thread of the request, so under ASGI it must answer from memory. An
``async`` one needs an event loop, and may call a store.
"""


@checks_arguments
class JwtSessions:
    """Verifies sessions that are JSON Web Tokens of one issuer.

    Args:
        keys: the URL of the issuer's JWKS, or a JWKS.
        issuer: the exact ``iss``.
        audience: ``aud`` must contain one of these. Without it, a token with an ``aud`` is
            refused.
        authorized_parties: ``azp`` must be one of these, such as the origins of your pages.
        unaddressed: accept tokens without an audience, for an issuer that serves only this
            application.
        algorithms: the accepted ones of RS256, ES256 and EdDSA.
        claims: the claims of organization, user and e-mail.
        leeway: seconds by which the issuer's clock may differ.
        session_is_live: called for every otherwise valid token; False refuses it, for users who
            signed out before the token expires.
        max_age: seconds for which fetched keys are used before they are fetched again.
        stale_for: seconds after ``max_age`` for which they are used while the issuer fails.
        cool_down: the minimum seconds between fetches, for any number of unknown ``kid``.
        timeout: seconds that a request waits for a fetch.
        observer: receives ``signing_keys_fetched`` and ``signing_keys_failed``.

    Raises:
        ConfigurationError: the arguments are not consistent; the message says what to change.
    """

    def __init__(
        self,
        keys: str | Mapping[str, Any],
        *,
        issuer: str,
        audience: str | Sequence[str] = (),
        authorized_parties: Collection[str] = (),
        unaddressed: bool = False,
        algorithms: Collection[str] = ALGORITHMS,
        claims: ClaimMap = ClaimMap(),  # noqa: B008 - an immutable value
        leeway: float = 10,
        session_is_live: LiveCheck | None = None,
        max_age: float = 600,
        stale_for: float = 24 * 3600,
        cool_down: float = 30,
        timeout: float = 3,
        observer: Observer | None = None,
    ) -> None:
        allowed = [algorithm for algorithm in ALGORITHMS if algorithm in algorithms]
        if not allowed or len(allowed) != len(set(algorithms)):
            raise ConfigurationError(f"The algorithms are some of {', '.join(ALGORITHMS)}.")
        audiences = [audience] if isinstance(audience, str) else [*audience]
        if isinstance(authorized_parties, str) or not all([issuer, *audiences]):
            raise ConfigurationError(
                "The issuer and the audiences are texts that are not empty, "
                "and the authorized parties a list of them."
            )
        if not (audiences or authorized_parties or unaddressed):
            raise ConfigurationError(
                "A token is made for somebody: give the audience (aud) or the authorized_parties "
                "(azp) that this service is. Without them a token that the issuer made for another "
                "application is good here; unaddressed=True says that there is none."
            )
        if not 0 <= leeway <= 300 or min(max_age, stale_for, cool_down) < 0 or timeout <= 0:
            raise ConfigurationError(
                "A leeway is 0 to 300 seconds, a timeout more than 0, the others not below 0."
            )
        self._keys: SigningKeys = (
            FetchedKeys(
                keys,
                allowed,
                max_age=max_age,
                stale_for=stale_for,
                cool_down=cool_down,
                timeout=timeout,
                events=Events(observer),
            )
            if isinstance(keys, str)
            else GivenKeys(keys, allowed)
        )
        self._issuer = issuer
        self._audiences = audiences or None
        self._parties = frozenset(authorized_parties)
        self._allowed = allowed
        self._claims = claims
        self._leeway = leeway
        self._is_live = session_is_live
        self._jwt = PyJWT({"require": ["exp", "iss"], "enforce_minimum_key_length": True})
        self.io: IoMode = "async" if iscoroutinefunction(session_is_live) else self._keys.io

    async def verify(self, cookie: str) -> Session | None:
        """Return the session of a token; None if it is not accepted.

        Raises:
            NoSigningKeys: the issuer's keys are not available, so the token cannot be verified.
        """
        claims = await self._verified(cookie)
        session = None if claims is None else self._claims.session(claims)
        if claims is None or session is None:
            return None
        if self._is_live is not None:
            live = self._is_live(claims)
            if not (await live if isawaitable(live) else live):
                return None
        return session

    def verifies_offline(self, cookie: str) -> bool:
        """Return whether the token's key is in memory and there is no ``async`` check."""
        meant = self._key_of(cookie)
        return self.io != "async" and meant is not None and self._keys.at_hand(*meant)

    def _key_of(self, token: str) -> tuple[str | None, str] | None:
        """Return the ``kid`` and algorithm that a token names; None if it cannot be accepted."""
        if len(token) > LONGEST_COOKIE:
            return None
        try:
            header = get_unverified_header(token)
        except _MALFORMED:
            return None
        algorithm, kind = header.get("alg"), header.get("typ", "JWT")
        if algorithm not in self._allowed or not isinstance(kind, str):
            return None
        if kind.lower().removeprefix("application/") not in _TYPES:
            return None
        return header.get("kid"), algorithm

    async def _verified(self, token: str) -> Claims | None:
        """Return the claims of a valid token, or None."""
        meant = self._key_of(token)
        if meant is None:
            return None
        key = await self._keys.find(*meant)
        if key is None:
            return None
        try:
            claims = self._jwt.decode(
                token,
                key,
                algorithms=self._allowed,
                issuer=self._issuer,
                audience=self._audiences,
                leeway=self._leeway,
            )
        except _MALFORMED:
            return None
        party: object = claims.get("azp")
        if self._parties and not (isinstance(party, str) and party in self._parties):
            return None
        return claims

    def __repr__(self) -> str:
        return f"<JwtSessions of {self._issuer}>"
