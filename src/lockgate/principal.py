"""The principal: the authenticated caller, as the application sees it."""

from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from .core.api_keys import ApiKey
from .core.changes import Actor
from .core.plans import Plan
from .core.scopes import Grants, Requirement, grants, requirement
from .core.sliding_window import Reading
from .errors import ConfigurationError, InsufficientScope
from .sessions import Session

EVERYTHING = grants(("*",))


class Principal(NamedTuple):
    """The authenticated caller: an admitted key or session, with its organization.

    Also serves as Starlette's ``request.user`` and ``request.auth``, so that its ``@requires``
    understands the wildcards of scopes.
    """

    organization: str
    """The organization's id."""
    key: ApiKey | None
    """The API key record, its usage including this request; None for a session."""
    session: Session | None
    """The session; None for a key."""
    plan: Plan
    """The organization's plan."""
    reading: Reading
    """The reading of the plan's windows, including this request. ``remaining`` and ``reset`` are
    those of the tightest of all windows that it was charged for, named limits included."""

    @property
    def is_authenticated(self) -> bool:
        """Return True: a principal is always an admitted caller (Starlette's interface)."""
        return True

    @property
    def scopes(self) -> Grants:
        """Return the scopes of the key, or of the session's role."""
        if self.key is not None:
            return grants(self.key.scopes)
        return EVERYTHING if self.session is None else grants(self.session.scopes)

    def may(self, scope: str) -> bool:
        """Return whether the scopes cover an exact scope such as ``jobs:read``."""
        return self.scopes.cover(requirement(scope))

    def need(self, scope: str | Requirement) -> None:
        """Check that the scopes cover a scope.

        Raises:
            InsufficientScope: they do not; the message and the challenge name the scope.
        """
        needed = requirement(scope) if isinstance(scope, str) else scope
        lacking = needed.lacking(self.scopes)
        if lacking is not None:
            raise InsufficientScope(lacking, of_session=self.key is None)

    def actor(self, address: str | None = None) -> Actor:
        """Return the caller as an actor of the change log, for :func:`lockgate.acting`.

        Args:
            address: the client's address; None: it is not recorded.
        """
        if self.key is not None:
            return Actor("key", self.key.id, address)
        if self.session is not None and self.session.agent:
            return Actor("agent", None, address)
        return Actor("user", self.session.user if self.session else None, address)

    @property
    def display_name(self) -> str:
        """Return the key's name, or the session's user; for an agent's session its organization."""
        return self.key.name if self.key is not None else self._user

    @property
    def identity(self) -> str:
        """Return the key's id, or the session's user; for an agent's session its organization."""
        return self.key.id if self.key is not None else self._user

    @property
    def _user(self) -> str:
        user = self.session.user if self.session else None
        return user or self.organization

    def __repr__(self) -> str:
        return f"<Principal {self.identity} of {self.organization}>"

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> NoReturn:
        """Refuse to be parsed from a request, as FastAPI parses other tuples, or to be returned."""
        raise ConfigurationError(
            "A Principal is neither read from a request nor sent: take it as a parameter "
            "'caller: Caller = requires(...)', and answer with what a caller may see."
        )


class Caller(Principal):
    """A principal with an API key: the parameter of endpoints that use ``requires``."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def key(self) -> ApiKey:  # pyright: ignore[reportIncompatibleVariableOverride] - narrower
            """The API key record, its usage including this request."""
            ...


class AnonymousCaller:
    """``request.user`` and ``request.auth`` of a request without a principal (Starlette's
    interface)."""

    is_authenticated: Final = False
    display_name: Final = ""
    identity: Final = ""
    scopes: Final[tuple[str, ...]] = ()


ANONYMOUS_CALLER: Final = AnonymousCaller()
