"""Classify the failures of a store: outages, unreadable states and bugs (G7)."""

from collections.abc import Iterator
from traceback import format_tb

from ...errors import StoreUnavailable
from ..answers import OutcomeUnknown, PartUnavailable, StoreError, UnreadableState
from .deadlines import TooManyCalls


def is_outage(failure: BaseException) -> bool:
    """Return whether a failure says that the store, or a part of it, is away.

    In an outage the local limits apply. Neither an answer nor a bug is an outage.
    """
    if isinstance(failure, UnreadableState):
        return False
    return isinstance(failure, StoreError | OSError | StoreUnavailable)


def counts_for_breaker(failure: BaseException) -> bool:
    """Return whether a failure counts for the circuit breaker: the whole store may be away."""
    if isinstance(failure, PartUnavailable | UnreadableState):
        return False
    return isinstance(failure, StoreError | OSError)


def may_have_counted(failure: BaseException) -> bool:
    """Return whether a failed call may have taken effect, or may still do so, without a reply."""
    if isinstance(failure, TooManyCalls):
        return False
    return isinstance(failure, OutcomeUnknown) or any(
        isinstance(each, TimeoutError) for each in _chain(failure)
    )


def kind_of(failure: BaseException) -> str:
    """Return the class of a failure, and the class of the operating system's error that caused it.

    Names classes only: drivers put parameters into messages. A plain :class:`StoreError` is named
    by the driver's exception that it translates.
    """
    own = OutcomeUnknown | PartUnavailable
    if isinstance(failure, StoreError) and not isinstance(failure, own):
        failure = failure.__cause__ or failure
    kind = type(failure)
    for each in _chain(failure):
        if isinstance(each, OSError) and type(each) is not kind:
            return f"{kind.__qualname__} from {type(each).__qualname__}"
    return kind.__qualname__


def traceback_of(failure: BaseException) -> str:
    """Return the traceback of a failure, with classes in place of messages (K2)."""
    kinds = " from ".join(type(each).__qualname__ for each in _chain(failure))
    frames = "".join(format_tb(failure.__traceback__))
    return f"Traceback (most recent call last):\n{frames}{kinds}"


def _chain(failure: BaseException) -> Iterator[BaseException]:
    """Yield a failure and its chain of causes."""
    seen: BaseException | None = failure
    while seen is not None:
        yield seen
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
