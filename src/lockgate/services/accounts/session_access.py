"""How sessions reach a gate: by a cookie, or as a JSON Web Token in ``Authorization``."""

import asyncio
import re
from collections.abc import Callable, Sequence
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from typing import Final, Literal, TypeVar, cast

from ...core.bounded_dict import BoundedDict
from ...core.imported_keys import ImportedKeyFormat
from ...core.key_format import HEADER_LENGTH
from ...core.scopes import Catalogue, not_granted
from ...errors import ConfigurationError, InsufficientScope, InvalidFormat, StepUpRequired
from ...events import logger
from ...options import WebOptions
from ...sessions import Session, SessionVerifier, SignedCookie, StepUpRequest
from ...sessions.options import COOKIE_PREFIXES, ROLES
from ...sync import loop_runs
from ..keys.new_keys import check_new_key
from ..store_errors import pair
from .settings import Registration

T = TypeVar("T")

_TOKEN: Final = re.compile(
    rb"[ \t]*(?i:bearer) +([A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*)[ \t]*"
)
"""A JSON Web Token in the compact form of a signed or unsigned one (RFC 7515, 7.1): three parts."""
_UNKNOWN_AT_MOST: Final = 256
_ROLE_SHOWN: Final = 100
"""Characters of an unknown role's name in the log."""
_HOST_SECONDS: Final = 5.0
"""Seconds for an ``async`` function of the host."""
_SAMPLES: Final = tuple(
    f"{header}.eyJzdWIiOiJ1c2VyXzEiLCJleHAiOjE3MDAwMDAwMDB9.{'s' * 86}"
    for header in ("eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ", "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9")
)
"""Tokens that a pattern for another system's keys must not match."""


class SessionAccess:
    """The settings by which a gate reads sessions from requests, as ``gate.session_access``.

    Args:
        options: the gate's, with those of sessions.
        people: verifies the sessions of people; None: the gate accepts no sessions.
        registration: the settings of agents, who sign in by a cookie; None: there are none.
        systems: the formats of other systems' keys, which stay keys.
        catalogue: the scopes that exist.

    Raises:
        ConfigurationError: the options do not fit the other settings.
    """

    def __init__(
        self,
        options: WebOptions,
        people: SessionVerifier | None,
        registration: Registration | None,
        systems: Sequence[ImportedKeyFormat] = (),
        catalogue: Catalogue | None = None,
    ) -> None:
        _check(options, people, registration)
        self.people: Final = people
        self.cookie: Final = options.session_cookie
        """The name of the session cookie; None: no cookie is a session."""
        self.is_prefixed: Final = _is_prefixed(options)
        """Whether the name keeps other hosts of the site from setting the cookie."""
        self.bearer: Final = _bearer(options, people, systems)
        """Verifies JSON Web Tokens in ``Authorization``; None: that header holds keys only."""
        self.free_reads: Final = options.session_free_reads
        self._systems = systems
        self._roles = {name: tuple(scopes) for name, scopes in options.session_roles.items()}
        self._role_of = options.session_role
        self._step_up = options.step_up
        self._catalogue = catalogue or Catalogue.of()
        self._unknown = BoundedDict[str, None](_UNKNOWN_AT_MOST)
        if people is not None and options.session_roles != ROLES:
            for name, scopes in self._roles.items():
                self._catalogue.check_grants(scopes, f"The role {name!r}")
        if options.step_up is not None:
            self._catalogue.check_grants(options.step_up.scopes, "StepUp(...)")

    async def with_role(self, session: Session) -> Session:
        """Return a session with the scopes of its role.

        A role that has no scopes permits nothing; it is logged once.

        Args:
            session: the verified session, with the organization that it acts for.

        Raises:
            TypeError: the host's function returned no text, or the verifier no scopes.
            Exception: any exception of the host's function.
        """
        if session.agent:
            return session
        role: object = session.role
        if self._role_of is not None:
            role = await host_answer(self._role_of, session)
            role = "" if role is None else role
        if role is None:
            return _checked_scopes(session)
        if not isinstance(role, str):
            raise TypeError(f"a role is the text of its name, not {type(role).__name__}")
        if role not in self._roles and role not in self._unknown:
            self._unknown[role] = None
            logger.warning(
                "A session has the role %r, which permits nothing: the roles are %s.",
                role[:_ROLE_SHOWN],
                ", ".join(map(repr, self._roles)),
            )
        return session._replace(role=role, scopes=self._roles.get(role, ()))

    async def check_new_key(
        self, session: Session, organization: str, name: str, scopes: Sequence[str]
    ) -> None:
        """Check that a session may create a key, before it is created.

        Call it before any key gets scopes or a new secret on behalf of a session.

        Args:
            session: the session, with the scopes of its role.
            organization: the organization that it acts for.
            name: the name of the key.
            scopes: the scopes of the key.

        Raises:
            InsufficientScope: the role does not cover a scope of the key.
            InvalidRequest: the name or the scopes are not valid, and the host would be asked.
            StepUpRequired: the host asks for a more recent or stronger sign-in.
            TypeError: the host's function returned neither True nor False.
            Exception: any exception of the host's function.
        """
        lacking = not_granted(session.scopes, scopes)
        if lacking is not None:
            raise InsufficientScope(lacking, of_session=True)
        step_up = self._step_up
        if step_up is None or not self._is_powerful(tuple(scopes), step_up.scopes):
            return
        name, scopes = check_new_key(organization, name, scopes, self._catalogue, {})
        session = session._replace(organization=organization)
        answer = await host_answer(step_up.check, StepUpRequest(session, name, tuple(scopes)))
        if not isinstance(answer, bool):
            raise TypeError(f"check returned {type(answer).__name__}: return True or False")
        if not answer:
            raise StepUpRequired(step_up.max_age, step_up.acr_values)

    def _is_powerful(self, scopes: tuple[str, ...], named: Sequence[str]) -> bool:
        """Return whether scopes cover all that one of the named scopes does."""
        reached = self._catalogue.reached_by(scopes)
        for one in named:
            meant = self._catalogue.reached_by((one,))
            if not_granted(scopes, [one]) is None or (meant and meant <= reached):
                return True
        return False

    def token_in(self, authorizations: Sequence[bytes]) -> str | None:
        """Return the JSON Web Token in the ``Authorization`` values; None: they hold none.

        Whatever has the shape of one is a session, and nothing else is (D18). A key of another
        system stays a key.

        Raises:
            InvalidFormat: there is another value beside the token.
        """
        if self.bearer is None:
            return None
        for value in authorizations:
            found = _TOKEN.fullmatch(value)
            if found is None or (len(value) <= HEADER_LENGTH and self._is_key(found[1].decode())):
                continue
            if len(authorizations) > 1:
                raise InvalidFormat
            return found[1].decode()
        return None

    def _is_key(self, text: str) -> bool:
        return any(system.looks_like(text) for system in self._systems)

    @property
    def uses_cookies(self) -> bool:
        """Return whether a page can write with a session that its browser adds (D11)."""
        return self.people is not None and self.cookie is not None

    def pair(self, face: Literal["async", "sync"]) -> None:
        """Check the I/O modes of the session verifiers against an adapter's.

        Raises:
            ConfigurationError: a verifier would block the event loop, or needs one.
        """
        for verifier in (self.people, self.bearer):
            if verifier is not None:
                pair(face, verifier, verifier.io)
        asked = {"session_role": self._role_of, "step_up": self._step_up and self._step_up.check}
        for name, function in asked.items():
            if face == "sync" and is_async(function):
                raise ConfigurationError(
                    f"WebOptions({name}=...) is async, and there is no event loop here: give a "
                    "plain function."
                )


def _checked_scopes(session: Session) -> Session:
    """Return a session whose scopes the verifier has set, or left as they are by default."""
    scopes = cast(object, session.scopes)
    if not isinstance(scopes, tuple) or not all(
        isinstance(scope, str) for scope in cast(tuple[object, ...], scopes)
    ):
        raise TypeError("the scopes of a session are a tuple of texts")
    return session


def is_async(function: object) -> bool:
    """Return whether a function is a coroutine function, or an object with an ``async`` call."""
    return iscoroutinefunction(function) or iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - asks for its kind
    )


async def host_answer(function: Callable[[T], object], argument: T) -> object:
    """Return the result of a host's function, awaited for 5 seconds if it is awaitable.

    Raises:
        TypeError: the result is awaitable, and no event loop runs.
        RuntimeError: awaiting it took too long.
        Exception: any exception of the function.
    """
    answer = function(argument)
    if not isawaitable(answer):
        return answer
    if not loop_runs():
        if iscoroutine(answer):
            answer.close()
        raise TypeError("the function returned an awaitable, and no event loop runs here")
    try:
        async with asyncio.timeout(_HOST_SECONDS):
            return await answer
    except TimeoutError as failure:
        raise RuntimeError(f"the function took over {_HOST_SECONDS:g} s") from failure


def _check(
    options: WebOptions, people: SessionVerifier | None, registration: Registration | None
) -> None:
    if people is None and (given := options.of_sessions):
        raise ConfigurationError(
            f"{given[0]} needs a session verifier, such as Gate(sessions=JwtSessions(...))."
        )
    for verifier in (people, options.session_bearer):
        if not isinstance(verifier, bool | None) and not hasattr(verifier, "io"):
            raise ConfigurationError(
                f"{type(verifier).__name__} does not say whether it waits: give the class "
                "io = 'none', 'sync', 'async' or 'both', as stores have."
            )
    if options.session_cookie is None and registration is not None:
        raise ConfigurationError(
            "Agents sign in by a cookie: give WebOptions(session_cookie=...) a name, or take out "
            "Registration(...)."
        )
    if _is_prefixed(options) and registration is not None and registration.development:
        raise ConfigurationError(
            f"Browsers drop the agents' cookie {options.session_cookie!r} without Secure: give it "
            "no prefix, or take out Registration(development=True)."
        )


def _is_prefixed(options: WebOptions) -> bool:
    """Return whether browsers accept the cookie with ``Secure`` only."""
    cookie = options.session_cookie
    return cookie is not None and cookie.startswith(COOKIE_PREFIXES)


def _bearer(
    options: WebOptions, people: SessionVerifier | None, systems: Sequence[ImportedKeyFormat]
) -> SessionVerifier | None:
    """Return the verifier of tokens in ``Authorization``.

    Raises:
        ConfigurationError: it verifies no tokens, or the keys of another system look like them.
    """
    if options.session_bearer is False:
        return None
    verifier = people if options.session_bearer is True else options.session_bearer
    if isinstance(verifier, SignedCookie):
        raise ConfigurationError(
            "session_bearer needs a verifier of JSON Web Tokens, and SignedCookie issues cookies: "
            "give WebOptions(session_bearer=JwtSessions(...))."
        )
    for system in systems:
        if any(map(system.looks_like, _SAMPLES)):
            raise ConfigurationError(
                f"The pattern of {system.name!r} also matches JSON Web Tokens: narrow it, or leave "
                "out session_bearer."
            )
    return verifier
