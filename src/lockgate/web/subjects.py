"""The subjects outside of any organization that a request counts for (D40)."""

from collections.abc import Iterator
from typing import NamedTuple

from ..core.limits import Limit
from ..gate import Gate
from ..sessions import Session
from .request import RequestView, address_of


class Counted(NamedTuple):
    """A subject, and the limits that a request charges for it."""

    kind: str
    """``address``, ``user``, or the name of a limit by a function."""
    subject: str
    limits: tuple[Limit, ...]


def subjects_of(gate: Gate, caller: RequestView, limits: tuple[Limit, ...]) -> Iterator[Counted]:
    """Return the address of a request, and what functions of the host return for it.

    Raises:
        TypeError: a function returned neither a text nor None.
    """
    of_address = tuple(limit for limit in limits if limit.by == "address")
    if of_address:
        yield Counted("address", address_of(gate, caller), of_address)
    for limit in limits:
        if callable(limit.by):
            subject: object = limit.by(caller)
            if isinstance(subject, str):
                yield Counted(f"function {limit.name}", subject, (limit,))
            elif subject is not None:
                raise TypeError(
                    f"The function of limit {limit.name!r} returned {type(subject).__name__}: "
                    "return a text to count for, or None."
                )


def user_of(session: Session, limits: tuple[Limit, ...]) -> Iterator[Counted]:
    """Return the user of a session, if it has one and there are limits by user."""
    of_user = tuple(limit for limit in limits if limit.by == "user")
    if of_user and session.user is not None:
        yield Counted("user", session.user, of_user)
