"""Which failures of a call say that its store is away, and how they are told."""

from collections.abc import Iterator

from ...errors import LockgateError, StoreUnavailable
from ..base import OutcomeUnknown


class PartAway(Exception):
    """A part of a store cannot be used just now, such as one slot of a Redis Cluster.

    Its organizations are refused; the circuit breaker takes no notice, as the rest answers.
    """


def is_away(failure: Exception) -> bool:
    """Whether a failure says that the store is away: not an answer, nor the caller's mistake."""
    if isinstance(failure, LockgateError):
        return isinstance(failure, StoreUnavailable)
    return not isinstance(failure, ValueError | TypeError)


def may_count(failure: Exception) -> bool:
    """Whether a call that failed so may take effect all the same: nobody waited for its answer."""
    return isinstance(failure, OutcomeUnknown) or any(
        isinstance(each, TimeoutError) for each in _chain(failure)
    )


def named(failure: BaseException) -> str:
    """What kind of failure it is, and which of the system's it came from: drivers wrap those.

    Kinds alone: drivers print what they were sent.
    """
    kind = type(failure)
    for each in _chain(failure):
        if isinstance(each, OSError) and type(each) is not kind:
            return f"{kind.__qualname__} from {type(each).__qualname__}"
    return kind.__qualname__


def _chain(failure: BaseException) -> Iterator[BaseException]:
    """A failure, and each that it came from."""
    seen: BaseException | None = failure
    while seen is not None:
        yield seen
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
