"""A store around another: every verb of the contract goes through one method."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, cast

from ..base import Store
from ..key_store import Verb, is_urgent


def passed(verb: Verb) -> Verb:
    """Return a verb that a :class:`Wrapper` passes on."""
    name, waits = verb.__name__, is_urgent(verb)

    def call(self: "Wrapper", *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        return self.pass_on(name, waits, *args, **kwargs)

    return cast(Verb, call)


class Wrapper(Store):
    """Passes every verb on to another store; operations on rows are composed before it.

    Args:
        inner: the wrapped store.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.io = inner.io
        self.enforces_deadline = inner.enforces_deadline
        self.keeps_history = inner.keeps_history
        self.grants_leases = inner.grants_leases
        self.system = inner.system

    @property
    def innermost(self) -> Store:
        return self.inner.innermost

    @property
    def is_failing(self) -> bool:
        return self.inner.is_failing

    def pass_on(
        self, verb: str, urgent: bool, /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        """Pass a verb on, by its name.

        Args:
            verb: the name.
            urgent: whether requests wait for it.
            args: those of the call.
            kwargs: those of the call.
        """
        call: Callable[..., Coroutine[Any, Any, Any]] = getattr(self.inner, verb)
        return call(*args, **kwargs)

    now = passed(Store.now)
    admit = passed(Store.admit)
    freshness = passed(Store.freshness)
    warnings = passed(Store.warnings)
    read = passed(Store.read)
    commit = passed(Store.commit)
    walk = passed(Store.walk)
    charge = passed(Store.charge)
    add_usage = passed(Store.add_usage)
    add_history = passed(Store.add_history)
    history = passed(Store.history)

    def recalls(self) -> AsyncGenerator[str | None]:
        return self.inner.recalls()

    def cancel_waits(self) -> None:
        self.inner.cancel_waits()

    async def ready(self) -> None:
        await self.inner.ready()

    async def flush(self) -> None:
        await self.inner.flush()

    def reset_connections(self) -> None:
        self.inner.reset_connections()

    async def close(self) -> None:
        await self.inner.close()
