"""Which failures of a call say that its store is away."""

from ..errors import LockgateError, StoreUnavailable


def is_away(failure: Exception) -> bool:
    """Whether a failure says that the store is away: not an answer, nor the caller's mistake."""
    if isinstance(failure, LockgateError):
        return isinstance(failure, StoreUnavailable)
    return not isinstance(failure, ValueError | TypeError)
