"""Which failures of a call say that its store is away, and how they are told."""

from ..errors import LockgateError, StoreUnavailable


class PartAway(Exception):
    """A part of a store cannot be used just now, such as one slot of a Redis Cluster.

    Its organizations are refused; the circuit breaker takes no notice, as the rest answers.
    """


def is_away(failure: Exception) -> bool:
    """Whether a failure says that the store is away: not an answer, nor the caller's mistake."""
    if isinstance(failure, LockgateError):
        return isinstance(failure, StoreUnavailable)
    return not isinstance(failure, ValueError | TypeError)


def named(failure: BaseException) -> str:
    """What kind of failure it is, and which of the system's it came from: drivers wrap those.

    Kinds alone: drivers print what they were sent.
    """
    kind = type(failure)
    seen: BaseException | None = failure
    while seen is not None:
        if isinstance(seen, OSError) and type(seen) is not kind:
            return f"{kind.__qualname__} from {type(seen).__qualname__}"
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return kind.__qualname__
