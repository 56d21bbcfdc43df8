"""Sessions of an identity provider: JSON Web Tokens, verified by its published keys (D12).

The rules are those of RFC 8725: the algorithms are configured, the key decides between them, issuer
and audience are checked, and no URL in a token is fetched.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final

try:
    from jwt import InvalidTokenError, PyJWT, get_unverified_header
    from jwt.exceptions import PyJWTError
except ImportError as missing:  # The package that is called jwt is another one.
    raise ImportError("JSON Web Tokens need PyJWT: pip install 'lockgate[jwt]'.") from missing

from ..errors import ConfigurationError
from ..events import Events, Observer
from ..stores.base import IoMode
from .claim_map import ClaimMap, Claims
from .jwks import FetchedKeys, GivenKeys, SigningKeys
from .session import LONGEST_COOKIE, Session

ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
"""The algorithms that are accepted: none of them takes a shared secret."""

_TYPES: Final = frozenset({"jwt", "at+jwt"})
"""The accepted ``typ`` values: not, say, a ``logout+jwt`` (RFC 8725, 3.11)."""

LiveCheck = Callable[[Claims], bool | Awaitable[bool]]
"""Says whether a session has not been signed out, by the token's claims (``sid``, ``jti``).

A plain function or an ``async`` one. A plain one is called where the request is handled, so under
ASGI it must answer from memory, and is taken to do so everywhere; an ``async`` one needs an event
loop, and may ask a store.
"""


class JwtSessions:
    """Verifies sessions that are JSON Web Tokens of one issuer.

    Args:
        keys: where the issuer's keys are: the URL of its JWKS, or a JWKS itself.
        issuer: what ``iss`` must be, exactly.
        audience: what ``aud`` must contain: one of these. A token that has an ``aud`` is refused
            where none is configured.
        authorized_parties: what ``azp`` must be: one of these, such as the origins of your pages.
        unaddressed: accept tokens without an audience. Only where the issuer serves
            no other application than this one.
        algorithms: the accepted ones of RS256, ES256 and EdDSA.
        claims: which claims name organization, user and e-mail.
        leeway: seconds by which the issuer's clock may differ.
        session_is_live: asked for every token that is good otherwise: False refuses it. So
            a session ends when its user signs out, and not only when the token expires.
        max_age: seconds for which fetched keys are used before they are fetched again.
        stale_for: seconds after that for which they still serve while the issuer cannot be reached.
        cool_down: the least seconds between two fetches, however many tokens name unknown keys.
        timeout: seconds that a request waits for a fetch.
        observer: receives ``signing_keys_fetched`` and ``signing_keys_failed``.

    Raises:
        ConfigurationError: something does not fit together; the message says what to change.
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
        """The session that a token stands for; None if it is not accepted.

        Raises:
            NoSigningKeys: the issuer's keys are not available, so the token cannot be judged.
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
        """Return whether the token's key is in memory and no ``async`` check is to be asked."""
        meant = self._key_of(cookie)
        return self.io != "async" and meant is not None and self._keys.at_hand(*meant)

    def _key_of(self, token: str) -> tuple[str | None, str] | None:
        """Return the ``kid`` and algorithm that a token names; None if it cannot be accepted."""
        if len(token) > LONGEST_COOKIE:
            return None
        try:
            header = get_unverified_header(token)
        except InvalidTokenError:
            return None
        algorithm, kind = header.get("alg"), header.get("typ", "JWT")
        if algorithm not in self._allowed or not isinstance(kind, str):
            return None
        if kind.lower().removeprefix("application/") not in _TYPES:
            return None
        return header.get("kid"), algorithm

    async def _verified(self, token: str) -> Claims | None:
        """The claims of a token, once everything about it has been checked."""
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
        except PyJWTError:
            return None
        party: object = claims.get("azp")
        if self._parties and not (isinstance(party, str) and party in self._parties):
            return None
        return claims

    def __repr__(self) -> str:
        return f"<JwtSessions of {self._issuer}>"
