"""The principal: who is calling, as the application sees it."""

from typing import TYPE_CHECKING, NamedTuple, NoReturn

from .core.api_keys import ApiKey
from .core.plans import Plan
from .core.scopes import Grants, Requirement, grants, requirement
from .core.sliding_window import Reading
from .errors import ConfigurationError, InsufficientScope
from .sessions import Session

EVERYTHING = grants(("*",))


class Principal(NamedTuple):
    """Who is calling: an admitted key, or a session, with its organization.

    Also serves as Starlette's ``request.user`` and ``request.auth``, so that its ``@requires``
    understands the wildcards of scopes.
    """

    organization: str
    """The organization's id."""
    key: ApiKey | None
    """The key, its usage with this request counted; None for a session."""
    session: Session | None
    """The session; None for a key."""
    plan: Plan
    """The plan that holds for the organization."""
    reading: Reading
    """What the organization's windows say, this request counted."""

    @property
    def is_authenticated(self) -> bool:
        """Always: nobody else is let in."""
        return True

    @property
    def scopes(self) -> Grants:
        """What the caller may do; everything, for a session."""
        return EVERYTHING if self.key is None else grants(self.key.scopes)

    def may(self, scope: str) -> bool:
        """Whether the scopes cover an exact scope such as ``jobs:read``."""
        return self.scopes.cover(requirement(scope))

    def need(self, scope: str | Requirement) -> None:
        """Go on only if the scopes cover this one.

        Raises:
            InsufficientScope: they do not; the message and the challenge name it.
        """
        needed = requirement(scope) if isinstance(scope, str) else scope
        lacking = needed.lacking(self.scopes)
        if lacking is not None:
            raise InsufficientScope(lacking)

    @property
    def display_name(self) -> str:
        """The key's name, or the session's user; for a signed-in agent, its organization."""
        return self.key.name if self.key is not None else self._user

    @property
    def identity(self) -> str:
        """The key's id, or the session's user; for a signed-in agent, its organization."""
        return self.key.id if self.key is not None else self._user

    @property
    def _user(self) -> str:
        user = self.session.user if self.session else None
        return user or self.organization

    def __repr__(self) -> str:
        return f"<Principal {self.identity} of {self.organization}>"

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> NoReturn:
        """Refuse to be made of a request, as FastAPI makes other tuples, or to be an answer."""
        raise ConfigurationError(
            "A Principal is neither read from a request nor sent: take it as a parameter "
            "'caller: Caller = requires(...)', and answer with what a caller may see."
        )


class Caller(Principal):
    """A principal that came with a key, as every endpoint with ``requires`` takes it."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def key(self) -> ApiKey:  # pyright: ignore[reportIncompatibleVariableOverride] - narrower
            """The key, its usage with this request counted."""
            ...
