"""A store whose calls fail as those of a database over a network do."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from random import Random
from threading import Lock
from typing import Any, Final, Literal, NamedTuple, get_args

from ..core.ledger import called
from ..errors import ConfigurationError
from ..events import Events
from ..stores.answers import OutcomeUnknown
from ..stores.base import Store
from ..stores.resilience.wrapping import Wrapper

FaultKind = Literal["lost reply", "timeout", "stale read", "cancellation"]
FAULTS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)

_ACTIONS: Final = frozenset(
    {"hit", "hitleased", "peek", "leasesout", "reset", "take", "settle", "renew", "look"}
)
_READS: Final = frozenset({"read", "peek", "leasesout", "look", "history", "freshness"})
"""Verbs that can give a stale answer."""


class Injected(NamedTuple):
    """A fault that a call met."""

    verb: str
    fault: FaultKind


class FaultyStore(Wrapper):
    """Passes calls on to a store, and lets some of them fail.

    ======================  ===================================================================
    ``lost reply``          the call takes effect, and raises ``OutcomeUnknown``
    ``timeout``             the call does not reach the store, and raises ``TimeoutError``
    ``stale read``          a read returns the answer of the same call before; other verbs, and
                            reads that were not made before, are not affected
    ``cancellation``        the call takes effect, and raises ``asyncio.CancelledError``, as for
                            a caller that leaves in this moment
    ======================  ===================================================================

    Args:
        inner: the store.
        rate: the share of calls that fail at random, 0 to 1.
        faults: the kinds of these.
        seed: selects these calls.

    Attributes:
        injected: the faults so far, in order.
    """

    def __init__(
        self,
        inner: Store,
        *,
        rate: float = 0.0,
        faults: tuple[FaultKind, ...] = ("lost reply", "timeout"),
        seed: int = 0,
    ) -> None:
        super().__init__(inner)
        for fault in faults:
            _check(fault)
        self.injected: list[Injected] = []
        self._rate, self._faults = rate, faults
        self._random = Random(seed)  # noqa: S311 - faults are no secret
        self._planned: list[Injected] = []
        self._answers: dict[object, deque[Any]] = {}
        self._lock = Lock()

    @property
    def local_version(self) -> object:  # type: ignore[override]
        """The store's own."""
        return self.inner.local_version

    def fail(self, verb: str, fault: FaultKind, times: int = 1) -> None:
        """Let the next calls of a verb fail.

        Args:
            verb: its name, such as ``admit``. An operation on rows calls ``read``, ``commit`` and
                ``walk``; a charge has the name of its action, such as ``hit``.
            fault: how they fail.
            times: how many of them.

        Raises:
            ConfigurationError: no such verb or fault, or a stale read of a verb that is no read.
        """
        _check(fault)
        if verb not in vars(Wrapper) and verb not in _ACTIONS:
            raise ConfigurationError(f"No store is called by {verb!r}.")
        if fault == "stale read" and verb not in _READS:
            raise ConfigurationError(f"{verb}() is no read of {', '.join(sorted(_READS))}.")
        with self._lock:
            self._planned += [Injected(verb, fault)] * times

    async def pass_on(self, verb: str, urgent: bool, /, *args: Any, **kwargs: Any) -> Any:
        """Make a call, or let it fail."""
        call: Callable[..., Coroutine[Any, Any, Any]] = getattr(self.inner, verb)
        if verb == "charge":
            verb = called(args[1])
        fault = self._drawn(verb)
        if verb in _READS:
            return await self._read(fault, verb, call(*args, **kwargs), repr((args, kwargs)))
        if fault is None or fault == "stale read":
            return await call(*args, **kwargs)
        self.injected.append(Injected(verb, fault))
        if fault == "timeout":
            raise TimeoutError("injected: the store did not answer")
        await call(*args, **kwargs)
        raise _failure(fault)

    async def _read(
        self, fault: FaultKind | None, verb: str, call: Coroutine[Any, Any, Any], arguments: str
    ) -> Any:
        before = self._answers.setdefault((verb, arguments), deque(maxlen=1))
        if fault == "stale read" and before:
            call.close()
            self.injected.append(Injected(verb, fault))
            return before[0]
        if fault is None or fault == "stale read":
            answer = await call
            before.append(answer)
            return answer
        self.injected.append(Injected(verb, fault))
        call.close()
        raise _failure(fault)

    def _drawn(self, verb: str) -> FaultKind | None:
        with self._lock:
            for planned in self._planned:
                if planned.verb == verb:
                    self._planned.remove(planned)
                    return planned.fault
            if self._faults and self._random.random() < self._rate:
                return self._random.choice(self._faults)
        return None

    def watch(self, events: Events, deadline: float) -> bool:
        """Watch the store."""
        return self.inner.watch(events, deadline)


def _failure(fault: FaultKind) -> BaseException:
    if fault == "timeout":
        return TimeoutError("injected: the store did not answer")
    if fault == "cancellation":
        return asyncio.CancelledError("injected: the caller has left")
    return OutcomeUnknown("injected: the reply was lost")


def _check(fault: str) -> None:
    if fault not in FAULTS:
        raise ConfigurationError(f"A fault is one of {', '.join(FAULTS)}, not {fault!r}.")
