"""Limits of an organization that end by themselves, such as 500 more requests until tonight.

A temporary limit stands among the own limits of an organization under a name with its end, such as
``rpd@1763999999000000`` in microseconds. Until then it replaces the organization's own limit of
that name, or the plan's; from that instant on it is as if it did not exist, with no write. So an
admission finds its limits where it finds the plan, and the end is judged by the clock that judges
the windows.
"""

from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

Overrides = tuple[tuple[str, int | None], ...]
_SIGN: Final = "@"


class TemporaryLimit(NamedTuple):
    """A limit and its end."""

    limit: int | None
    """None: no limit."""
    until: int
    """The instant in microseconds from which on it does not hold."""


class LimitsInForce(NamedTuple):
    """The own limits of an organization at an instant, and how long they have been the same."""

    limits: dict[str, int | None]
    since: int
    """The latest end of a temporary limit; 0: none has ended."""
    until: float
    """The next end of a temporary limit; infinity without one."""
    ends: dict[str, int]
    """The end of each limit that is temporary, by name."""


def with_temporary(
    own: Mapping[str, int | None], temporary: Mapping[str, TemporaryLimit]
) -> Overrides:
    """Return own limits and temporary ones as an organization keeps them."""
    ending = [(f"{name}{_SIGN}{until}", limit) for name, (limit, until) in temporary.items()]
    return tuple(sorted((*own.items(), *ending), key=lambda pair: pair[0]))


def in_force(overrides: Overrides, now: int) -> LimitsInForce:
    """Return the limits that hold at an instant. Names of a later release have no effect."""
    limits, since, until, ends = dict[str, int | None](), 0, inf, dict[str, int]()
    own, temporary = told_apart(overrides)
    limits.update(own)
    for name, (limit, end) in temporary.items():
        if now < end:
            limits[name], ends[name], until = limit, end, min(until, end)
        else:
            since = max(since, end)
    return LimitsInForce(limits, since, until, ends)


def told_apart(
    overrides: Overrides,
) -> tuple[dict[str, int | None], dict[str, TemporaryLimit]]:
    """Return the own limits and the temporary ones, ended ones included, by name."""
    own: dict[str, int | None] = {}
    temporary: dict[str, TemporaryLimit] = {}
    for name, limit in overrides:
        base, sign, end = name.partition(_SIGN)
        if not sign:
            own[name] = limit
        elif end.isdecimal():
            temporary[base] = TemporaryLimit(limit, int(end))
    return own, temporary
