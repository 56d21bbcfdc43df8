"""Values for the settings of sessions: the roles, and a question before a powerful key."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Final, NamedTuple, cast

from ..core.arguments import checks_arguments
from ..errors import ConfigurationError
from .session import Session

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A cookie's name: a token of RFC 9110, 5.6.2."""
_ACR: Final = re.compile(r"[!#-\[\]-~]+")
COOKIE_PREFIXES: Final = ("__Host-", "__Secure-")
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


@checks_arguments
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
        check_function("check", self.check)
        if not self.scopes:
            raise ConfigurationError(f"scopes is {self.scopes!r}: give a list such as ['*'].")
        if self.max_age is not None and self.max_age < 0:
            raise ConfigurationError(f"max_age is {self.max_age!r}: use whole seconds, or None.")
        if not all(map(_ACR.fullmatch, self.acr_values)):
            raise ConfigurationError(
                f"acr_values is {self.acr_values!r}: give a list of texts without spaces or quotes."
            )


def check_cookie(name: str) -> None:
    """Refuse the name of a session cookie that no browser sends."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"The name of the session cookie is {name!r}: use letters, digits and !#$%&'*+-.^_`|~."
        )
    for prefix in COOKIE_PREFIXES:
        if name.lower().startswith(prefix.lower()) and (
            not name.startswith(prefix) or name == prefix
        ):
            raise ConfigurationError(
                f"The session cookie {name!r} has the prefix {prefix!r}: write it in this case, "
                f"with a name after it, such as '{prefix}session'."
            )


def check_roles(roles: object) -> None:
    """Refuse what gives no list of scopes for each name of a role."""
    if not isinstance(roles, Mapping) or any(
        not isinstance(name, str)
        or not name
        or isinstance(scopes, str)
        or not isinstance(scopes, Sequence)
        for name, scopes in cast(Mapping[object, object], roles).items()
    ):
        raise ConfigurationError(
            "session_roles gives a list of scopes for each name of a role, such as "
            "{'viewer': ['account:read'], 'admin': ['*']}."
        )


def check_function(name: str, function: object) -> None:
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
