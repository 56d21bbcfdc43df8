"""A store around another: every verb of the contract goes through one method."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar, cast

from ..base import Store

Verb = TypeVar("Verb", bound=Callable[..., Coroutine[Any, Any, Any]])


def passed(verb: Verb) -> Verb:
    """Return a verb that a :class:`Wrapper` passes on."""
    name = verb.__name__

    def call(self: "Wrapper", *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        return self.pass_on(name, *args, **kwargs)

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

    def pass_on(self, verb: str, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Pass a verb on, by its name."""
        call: Callable[..., Coroutine[Any, Any, Any]] = getattr(self.inner, verb)
        return call(*args, **kwargs)

    now = passed(Store.now)
    admit = passed(Store.admit)
    admit_leased = passed(Store.admit_leased)
    settle_leases = passed(Store.settle_leases)
    quota_leases = passed(Store.quota_leases)
    leases_in_use = passed(Store.leases_in_use)
    change_counter = passed(Store.change_counter)
    freshness = passed(Store.freshness)
    warnings = passed(Store.warnings)
    read = passed(Store.read)
    commit = passed(Store.commit)
    walk = passed(Store.walk)
    add_usage = passed(Store.add_usage)
    add_history = passed(Store.add_history)
    history = passed(Store.history)
    hit = passed(Store.hit)
    peek = passed(Store.peek)
    reset = passed(Store.reset)
    acquire = passed(Store.acquire)
    renew = passed(Store.renew)
    release = passed(Store.release)
    held = passed(Store.held)
    hold = passed(Store.hold)

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
