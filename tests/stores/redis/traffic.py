"""Callers of a gate who go on while its servers change."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from time import monotonic, sleep
from typing import Any, NamedTuple, Self

import pytest

from lockgate import Event, Gate, Plan, PlanBook, run
from lockgate.errors import RateLimitExceeded, StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.stores.redis import RedisStore
from tests.patience import answered

BOOK = PlanBook([Plan("free", rpm=10**6, rph=10**6, rpd=10**6, concurrent=9)])
PATIENT = 30.0
"""Seconds that a request may take: here a busy machine is no failure."""
REST = 0.01
"""Seconds that a caller rests between two requests."""
both_modes = pytest.mark.parametrize("mode", ["sync", "awaiting"])


def drive(mode: str, flow: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in an event loop, or without one."""
    return asyncio.run(flow) if mode == "awaiting" else run(flow)


class Answer(NamedTuple):
    """The answer to a request."""

    organization: str
    started: float
    ended: float
    outcome: str
    """``admitted``, ``limited``, ``unavailable``, or the name of another exception."""


class Traffic:
    """Callers, each with a key of an organization, until the end of a ``with`` block.

    Args:
        store: is closed with the gate.
        mode: ``awaiting``, for tasks of an event loop, or ``sync``, for threads.
        callers: the organization of each caller.
        plans: the plans of the gate.
        deadline: seconds that a request may take.
        placed: the plans of organizations that do not have the default.

    Attributes:
        steps: what each caller does, over and over.
        tokens: the text of a key by its organization.
        answers: those to all requests.
        admitted: the number of admissions by organization.
        causes: the causes of all 503.
        told: the events of the gate, and when they came.
    """

    def __init__(
        self,
        store: RedisStore | str,
        mode: str,
        callers: Sequence[str],
        plans: PlanBook = BOOK,
        deadline: float = PATIENT,
        placed: Mapping[str, str] = {},
    ) -> None:
        self.answers: list[Answer] = []
        self.admitted: Counter[str] = Counter()
        self.causes: list[str] = []
        self.told: list[tuple[float, Event]] = []
        self.gate = Gate(
            store,
            brand="acme",
            plans=plans,
            store_options=StoreOptions(deadline=deadline),
            observer=lambda event: self.told.append((monotonic(), event)),
        )
        for organization, plan in placed.items():
            answered(partial(self._place, organization, plan))
        self.tokens = {id: self.make_key(id)[1] for id in dict.fromkeys(callers)}
        self.steps: list[Callable[[], Coroutine[Any, Any, None]]]
        self.steps = [partial(self.ask, id) for id in callers]
        self._mode = mode
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def _place(self, organization: str, plan: str) -> None:
        run(self.gate.organizations.place(organization, plan))

    def make_key(self, organization: str) -> tuple[str, str]:
        """Make a key; return its id and its text."""
        made = answered(lambda: run(self.gate.keys.create(organization, "a key")))
        return made.key.id, made.text

    async def ask(self, organization: str) -> None:
        """Make a request, and note the answer."""
        started = monotonic()
        try:
            await self.gate.authenticate(self.tokens[organization])
            outcome = "admitted"
            self.admitted[organization] += 1
        except RateLimitExceeded:
            outcome = "limited"
        except StoreUnavailable as failure:
            outcome = "unavailable"
            self.causes.append(repr(failure.__cause__))
        except Exception as failure:
            outcome = type(failure).__qualname__
        self.answers.append(Answer(organization, started, monotonic(), outcome))

    def _block(self, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while not self._over.is_set():
            run(step())
            sleep(REST)

    async def _await(self) -> None:
        async def go_on(step: Callable[[], Coroutine[Any, Any, None]]) -> None:
            while not self._over.is_set():
                await step()
                await asyncio.sleep(REST)

        await asyncio.gather(*map(go_on, self.steps))
        await self.gate.close()

    def __enter__(self) -> Self:
        work: list[Callable[[], object]] = [partial(self._block, step) for step in self.steps]
        if self._mode == "awaiting":
            work = [lambda: asyncio.run(self._await())]
        self._threads = [threading.Thread(target=each, daemon=True) for each in work]
        for thread in self._threads:
            thread.start()
        self.goes_on()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        self.finish()
        run(self.gate.close())

    def finish(self) -> None:
        """Look at the store once the callers have ended."""

    def goes_on(self, more: int = 20, organizations: Sequence[str] | None = None) -> None:
        """Wait until each organization has a number of further requests admitted."""
        target = {id: self.admitted[id] + more for id in organizations or self.tokens}
        until = monotonic() + 120
        while any(self.admitted[id] < least for id, least in target.items()):
            assert monotonic() < until, (self.admitted, self.causes[-3:])
            sleep(0.005)

    def of(self, outcome: str) -> list[Answer]:
        """Return the answers with an outcome."""
        return [answer for answer in tuple(self.answers) if answer.outcome == outcome]

    @property
    def events(self) -> set[str]:
        """The names of the events that came."""
        return {event.name for _, event in self.told}
