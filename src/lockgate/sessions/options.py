"""How a request presents a session: settings of a gate with a session verifier."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Final, NamedTuple, cast

from ..core.arguments import check_arguments
from ..errors import ConfigurationError
from .session import SESSION_COOKIE, Session, SessionVerifier

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A cookie's name: a token of RFC 9110, 5.6.2."""
_ACR: Final = re.compile(r"[!#-\[\]-~]+")
_PREFIXES: Final = ("__Host-", "__Secure-")
"""Prefixes by which browsers keep a cookie from being set without ``Secure``, and with ``__Host-``
by another host of the site (RFC 6265bis, 4.1.3)."""


RoleOf = Callable[[Session], str | Awaitable[str | None] | None]
"""Return the name of a session's role; None: it has none."""

ROLES: Final[Mapping[str, Sequence[str]]] = {"viewer": ("account:read",), "admin": ("*",)}
"""The scopes of the roles by default: a viewer lists and reads, an admin may do everything."""


class StepUpRequest(NamedTuple):
    """A key that a session is about to create: validated, not yet created."""

    session: Session
    """The session, with the organization that it acts for; an agent's too."""
    name: str
    scopes: tuple[str, ...]


@dataclass(frozen=True)
class StepUp:
    """A question to the host before a powerful key is created (RFC 9470).

    Args:
        check: returns for a :class:`StepUpRequest` whether its session is recent and strong enough.
            A plain function answers from memory under ASGI; an ``async`` one needs an event loop.
        scopes: it is asked about keys that cover all of one of these: ``*`` means every scope of
            the catalogue, however a key lists them.
        max_age: the greatest age of a sign-in, in seconds, for the challenge of a refusal.
        acr_values: the accepted classes of authentication, for the same.

    Raises:
        ConfigurationError: an argument is not valid.
    """

    check: Callable[[StepUpRequest], bool | Awaitable[bool]]
    scopes: Sequence[str] = ("*",)
    max_age: int | None = None
    acr_values: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse arguments that cannot be asked or told."""
        check_arguments(type(self), vars(self))
        _check_function("check", self.check)
        if not self.scopes:
            raise ConfigurationError(f"scopes is {self.scopes!r}: give a list such as ['*'].")
        if self.max_age is not None and self.max_age < 0:
            raise ConfigurationError(f"max_age is {self.max_age!r}: use whole seconds, or None.")
        if not all(map(_ACR.fullmatch, self.acr_values)):
            raise ConfigurationError(
                f"acr_values is {self.acr_values!r}: give a list of texts without spaces or quotes."
            )


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """Settings of sessions: ``Gate(sessions=..., session_options=SessionOptions(...))``.

    Args:
        cookie: the name of the session cookie. Browsers accept a name that starts with ``__Host-``
            only with ``Secure``, ``Path=/`` and without a domain, and ``__Secure-`` only with
            ``Secure``. None: no cookie is a session; it needs ``bearer``.
        bearer: accept JSON Web Tokens as ``Authorization: Bearer`` where sessions are accepted:
            True for the gate's session verifier, or a verifier of their own. Any other credential
            in the header stays an API key.
        free_reads: whether a session also reads its organization's limits, and reads keys and
            limits without being charged. By default it reads keys only, and is charged like a key
            (D9).
        roles: the scopes of each role. They hold for sessions whose verifier or ``role`` names a
            role; any other name has no scopes.
        role: returns the name of a session's role in the organization that it acts for; None or an
            empty text: no role, so no scopes. A plain function answers from memory under ASGI,
            since it runs in the event loop; an ``async`` one needs an event loop. Not called for
            agents, which have all scopes.
        step_up: asks the host before a session creates a powerful key; None: no question.

    Raises:
        ConfigurationError: an argument is not valid; the message says what to change.
    """

    cookie: str | None = SESSION_COOKIE
    bearer: bool | SessionVerifier = False
    free_reads: bool = False
    roles: Mapping[str, Sequence[str]] = field(default_factory=lambda: dict(ROLES))
    role: RoleOf | None = None
    step_up: StepUp | None = None

    def __post_init__(self) -> None:
        """Refuse a name that no browser sends, and options that accept no session."""
        check_arguments(type(self), vars(self))
        if self.cookie is not None:
            _check_cookie(self.cookie)
        elif self.bearer is False:
            raise ConfigurationError(
                "No request could present a session: give the cookie a name, or bearer=True."
            )
        _check_roles(self.roles)
        _check_function("role", self.role)

    @property
    def is_prefixed(self) -> bool:
        """Return whether browsers accept the cookie with ``Secure`` only."""
        return self.cookie is not None and self.cookie.startswith(_PREFIXES)


def _check_cookie(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"The name of the session cookie is {name!r}: use letters, digits and !#$%&'*+-.^_`|~."
        )
    for prefix in _PREFIXES:
        if name.lower().startswith(prefix.lower()) and (
            not name.startswith(prefix) or name == prefix
        ):
            raise ConfigurationError(
                f"The session cookie {name!r} has the prefix {prefix!r}: write it in this case, "
                f"with a name after it, such as '{prefix}session'."
            )


def _check_roles(roles: object) -> None:
    if not isinstance(roles, Mapping) or any(
        not isinstance(name, str)
        or not name
        or isinstance(scopes, str)
        or not isinstance(scopes, Sequence)
        for name, scopes in cast(Mapping[object, object], roles).items()
    ):
        raise ConfigurationError(
            "roles gives a list of scopes for each name of a role, such as "
            "{'viewer': ['account:read'], 'admin': ['*']}."
        )


def _check_function(name: str, function: object) -> None:
    """Refuse an argument that cannot be called with one argument."""
    if function is None:
        return
    try:
        if not callable(function):
            raise TypeError
        signature(function).bind(None)
    except ValueError:  # Some functions in C have no signature.
        return
    except TypeError:
        raise ConfigurationError(
            f"{name} is {function!r}: give a function that takes one argument."
        ) from None
