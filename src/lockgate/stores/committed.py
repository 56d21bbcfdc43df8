"""A change that is committed is reported as committed, with its result, whatever fails after (D52).

Steps follow some changes: a pair deletes the copies in its cache, and a change of a key is answered
once the quota leases that were granted before have ended. The store makes such a step by
:func:`after_commit`. If the step fails, the operation goes on with the result of the change, and
:func:`committing` raises :class:`~lockgate.errors.ChangeCommitted` with the result of the operation
at its end. Callers that report a result otherwise, such as the command line, read the failures from
:func:`collecting`.

A reply that is lost loses no result either: :func:`made_or_raised` looks for what was made.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from ..errors import ChangeCommitted
from .resilience.failures import is_outage

P = ParamSpec("P")
T = TypeVar("T")


class Pending:
    """The steps that failed after committed changes, and have not succeeded since."""

    def __init__(self) -> None:
        self._failed: Final[dict[tuple[str, str], Exception]] = {}
        self._unreported: Final[list[Exception]] = []

    def __bool__(self) -> bool:
        return bool(self._failed)

    @property
    def remains(self) -> list[str]:
        """What remains to happen: a sentence for each kind of step."""
        return list(dict.fromkeys(sentence for _, sentence in self._failed))

    def unreported(self) -> list[Exception]:
        """Return the failures that no event has reported yet, and count them as reported."""
        failures = [*self._unreported]
        self._unreported.clear()
        return failures

    def failed(self, organization: str, remains: str, failure: Exception) -> None:
        """Note the failure of a step."""
        self._failed[organization, remains] = failure
        self._unreported.append(failure)

    def succeeded(self, organization: str, remains: str) -> None:
        """Forget earlier failures of a step that has succeeded now."""
        self._failed.pop((organization, remains), None)

    def error(self, result: object) -> ChangeCommitted:
        """Return the error to raise with the result of an operation."""
        error = ChangeCommitted(result, self.remains)
        error.__cause__ = next(iter(self._failed.values()))
        return error


_UNREAD: Final = "The present state could not be read after the change."
_PENDING: Final[ContextVar[Pending | None]] = ContextVar("lockgate_pending", default=None)


@contextmanager
def collecting() -> Generator[Pending]:
    """Return a context whose committed changes return their results although later steps fail.

    It yields what failed. An outer context, if there is one, is that of the inner ones, too.
    """
    outer = _PENDING.get()
    if outer is not None:
        yield outer
        return
    pending = Pending()
    token = _PENDING.set(pending)
    try:
        yield pending
    finally:
        _PENDING.reset(token)


def unreported() -> list[Exception]:
    """Return the failures in the present :func:`collecting` that no event has reported yet."""
    pending = _PENDING.get()
    return [] if pending is None else pending.unreported()


async def after_commit(result: T, organization: str, remains: str, step: Awaitable[object]) -> T:
    """Await a step that follows a committed change, and return the result of the change.

    Args:
        result: of the change.
        organization: the organization that changed.
        remains: what remains to happen if the step fails: a sentence for operators.
        step: the step.

    Raises:
        ChangeCommitted: the step failed, outside of :func:`collecting`.
    """
    pending = _PENDING.get()
    try:
        await step
    except Exception as failure:
        if pending is None:
            raise ChangeCommitted(result, [remains]) from failure
        pending.failed(organization, remains, failure)
    else:
        if pending is not None:
            pending.succeeded(organization, remains)
    return result


async def read_after_commit(organization: str, reading: Awaitable[T], otherwise: T) -> T:
    """Return what a report of a committed change shows besides the change.

    Args:
        organization: the organization that changed.
        reading: the read.
        otherwise: the answer if the read fails.

    Raises:
        ChangeCommitted: the read failed, outside of :func:`collecting`.
    """
    found = otherwise

    async def read() -> None:
        nonlocal found
        found = await reading

    await after_commit(None, organization, _UNREAD, read())
    return found


async def made_or_raised(
    change: Awaitable[T], find: Callable[[], Awaitable[T | None]], remains: str | None = None
) -> T:
    """Return the result of a change, also if its reply was lost and a look finds that it was made.

    Args:
        change: the change.
        find: looks for what the change makes, by an id that no other change has; None: it is not
            there, though it may come later.
        remains: what then remains to happen, as for :func:`after_commit`; None: nothing does, since
            the change makes nothing void.

    Raises:
        Exception: as the change, if it failed and is not found.
        ChangeCommitted: it was found, and something remains, outside of :func:`collecting`.
    """
    try:
        return await change
    except Exception as failure:
        if not is_outage(failure):
            raise
        found: T | None = None
        with suppress(Exception):  # The failure of the change is what the caller needs to know.
            found = await find()
        if found is None:
            raise
        lost = failure
    if remains is None:
        return found
    return await after_commit(found, "", remains, _raised(lost))


async def _raised(failure: Exception) -> None:
    raise failure


def committing(
    operation: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate an operation that makes changes: it raises its result if a later step fails.

    Raises:
        ChangeCommitted: with the result, outside of :func:`collecting`.
    """

    @wraps(operation)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if _PENDING.get() is not None:
            return await operation(*args, **kwargs)
        with collecting() as pending:
            result = await operation(*args, **kwargs)
        if pending:
            raise pending.error(result)
        return result

    return call
