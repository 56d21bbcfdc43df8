"""Scopes: grants to keys, requirements of operations, and the catalogue of existing ones (D8).

A grant is an exact scope (``jobs:read``), everything below a prefix (``jobs:*`` covers
``jobs:read`` and ``jobs:render:start``, not ``jobs``), or everything (``*``). A requirement is
always exact.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from ..errors import ConfigurationError

_SEGMENT = r"[a-z][a-z0-9_-]*"
_EXACT = re.compile(rf"{_SEGMENT}(:{_SEGMENT})*")
_GRANT = re.compile(rf"\*|{_SEGMENT}(:{_SEGMENT})*(:\*)?")

DEFAULT_SCOPES: Final = (
    "*",
    "models:*",
    "models:read",
    "models:write",
    "jobs:*",
    "jobs:read",
    "jobs:write",
    "upload:*",
    "account:read",
)
"""The scopes that exist unless the service names its own."""


class Requirement:
    """The one scope that an operation needs, with every grant that covers it.

    Raises:
        ConfigurationError: the text is a wildcard, or not a scope.
    """

    __slots__ = ("also", "covering", "scope")

    def __init__(self, scope: str) -> None:
        if not _EXACT.fullmatch(scope):
            raise ConfigurationError(
                f"A requirement is one exact scope such as 'jobs:read', not {scope!r}."
            )
        self.scope: Final = scope
        segments = scope.split(":")
        above = (":".join(segments[:depth]) + ":*" for depth in range(1, len(segments)))
        self.covering: Final = frozenset({"*", scope, *above})
        self.also: Requirement | None = None
        """A second requirement that must be covered too; see :meth:`together`."""

    def together(self, other: "Requirement") -> "Requirement":
        """Return one requirement that needs both scopes."""
        both = Requirement(self.scope)
        both.also = other if self.also is None else self.also.together(other)
        return both

    def lacking(self, granted: Iterable[str]) -> str | None:
        """Return the first required scope that these grants do not cover, or None."""
        if self.covering.isdisjoint(granted):
            return self.scope
        return None if self.also is None else self.also.lacking(granted)

    def __repr__(self) -> str:
        also = f" and {self.also!r}" if self.also else ""
        return f"Requirement({self.scope!r}){also}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Requirement):
            return NotImplemented
        return (other.scope, other.also) == (self.scope, self.also)

    def __hash__(self) -> int:
        return hash((self.scope, self.also))


@lru_cache(maxsize=4096)
def requirement(scope: str) -> Requirement:
    """Return the :class:`Requirement` of a scope, from a cache."""
    return Requirement(scope)


def not_granted(granted: Iterable[str], wanted: Iterable[str]) -> str | None:
    """Return the first wanted scope or wildcard that some grants do not cover, or None."""
    held = frozenset(granted)
    for scope in wanted:
        segments = scope.removesuffix(":*").split(":")
        depth = len(segments) + scope.endswith(":*")
        above = (":".join(segments[:length]) + ":*" for length in range(1, depth))
        if held.isdisjoint({"*", scope, *above}):
            return scope
    return None


class Grants:
    """The scopes that a key holds. ``"jobs:read" in grants`` asks whether they cover it.

    Works as the list of scopes for Starlette's ``@requires``, including wildcards.
    """

    __slots__ = ("scopes",)

    def __init__(self, scopes: Iterable[str]) -> None:
        self.scopes: Final = tuple(scopes)

    def cover(self, needed: Requirement) -> bool:
        """Return whether the grants cover the requirement."""
        return needed.lacking(self.scopes) is None

    def __contains__(self, scope: object) -> bool:
        if not isinstance(scope, str) or not _EXACT.fullmatch(scope):
            return False
        return self.cover(requirement(scope))

    def __iter__(self) -> Iterator[str]:
        return iter(self.scopes)

    def __repr__(self) -> str:
        return f"Grants({list(self.scopes)})"


@lru_cache(maxsize=4096)
def grants(scopes: tuple[str, ...]) -> Grants:
    """Return the :class:`Grants` of a key's scopes; keys with equal scopes share one."""
    return Grants(scopes)


class Catalogue(NamedTuple):
    """Every scope that a key may be granted (D8)."""

    scopes: frozenset[str]

    @classmethod
    def of(cls, scopes: Iterable[str] = DEFAULT_SCOPES) -> "Catalogue":
        """Return ``*`` and the given scopes, and for each area also ``<area>:*``, ``:read`` and
        ``:write`` (D51).

        Raises:
            ConfigurationError: a string is not a scope.
        """
        known = {"*", *scopes}
        for scope in sorted(known):
            if not _GRANT.fullmatch(scope):
                raise ConfigurationError(
                    f"{scope!r} is no scope: write 'area:action', 'area:*' or '*', in lower case."
                )
            area = scope.split(":")[0]
            if area != "*":
                known |= {f"{area}:*", f"{area}:read", f"{area}:write"}
        return cls(frozenset(known))

    def reached_by(self, granted: tuple[str, ...]) -> frozenset[str]:
        """Return the exact scopes of the catalogue that some grants cover."""
        exact = (scope for scope in self.scopes if not scope.endswith("*"))
        return frozenset(scope for scope in exact if scope in grants(granted))

    def check_grants(self, scopes: Iterable[str], holder: str) -> None:
        """Refuse grants that are not in the catalogue, most likely a typing error.

        Raises:
            ConfigurationError: a scope does not exist; the message names it and its holder.
        """
        for scope in scopes:
            if scope not in self.scopes:
                raise ConfigurationError(
                    f"{holder} has the scope {scope!r}, which does not exist: add it to the "
                    f"catalogue, or use some of {', '.join(sorted(self.scopes))}."
                )

    def check_requirement(self, needed: Requirement) -> None:
        """Refuse a requirement that is not in the catalogue, most likely a typing error.

        Raises:
            ConfigurationError: the scope does not exist; the message names the existing ones.
        """
        if needed.scope in self.scopes:
            return
        raise ConfigurationError(
            f"No key can be granted {needed.scope!r}: add it to the catalogue, or use one of "
            f"{', '.join(sorted(s for s in self.scopes if not s.endswith('*')))}."
        )
