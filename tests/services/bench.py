"""A gate over memory, with a clock moved by hand and calls of its store that a test replaces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from lockgate import Event, Gate, Principal, run
from lockgate.services.keys.new_keys import CreatedKey
from tests.by_verbs import MemoryByVerbs
from tests.gates import flat_gate
from tests.stores.making import HandClock

Call = Callable[..., Awaitable[Any]]


class Hooked(MemoryByVerbs):
    """A memory store whose methods a test replaces."""

    mended = False
    """Whether the methods that were to fail no longer do."""

    def on(self, verb: str, instead: Call) -> Hooked:
        """Call a function instead of a method; its first argument is that method."""
        asked: Call = getattr(self, verb)

        async def call(*arguments: Any, **options: Any) -> Any:
            return await instead(asked, *arguments, **options)

        setattr(self, verb, call)
        return self

    def failing(self, *verbs: str, after: bool = False) -> Hooked:
        """Let methods fail, before or after their effect, like a dead server or a lost reply."""

        async def fail(asked: Call, *arguments: Any, **options: Any) -> Any:
            if after or self.mended:
                answer = await asked(*arguments, **options)
                if self.mended:
                    return answer
            raise OSError(f"password=hunter2 {arguments}")

        for verb in verbs:
            self.on(verb, fail)
        return self

    def counting(self, *verbs: str) -> list[str]:
        """Return a list to which each call of these methods adds its name."""
        asked: list[str] = []

        async def count(verb: str, call: Call, *arguments: Any, **options: Any) -> Any:
            asked.append(verb)
            return await call(*arguments, **options)

        for verb in verbs:
            self.on(verb, partial(count, verb))
        return asked


class Bench:
    """A gate, and the events that it emitted."""

    def __init__(self, store: Any = None, **options: Any) -> None:
        """Take a hand clock unless ``clock`` is given; None: that of the machine."""
        self.clock: HandClock = options.setdefault("clock", HandClock())
        self.told: list[Event] = []
        self.store: Any = Hooked() if store is None else store
        self.gate: Gate = flat_gate(
            self.store,
            **{"brand": "acme", "observer": self.told.append, **options},
        )

    @property
    def names(self) -> list[str]:
        """The names of the events."""
        return [event.name for event in self.told]

    def create(self, organization: str = "org_1", name: str = "ci", **fields: Any) -> CreatedKey:
        return run(self.gate.keys.create(organization, name, **fields))

    def admit(self, text: str, **request: Any) -> Principal:
        return run(self.gate.authenticate(text, **request))

    def refuses(self, refusal: type[Exception], text: str, **request: Any) -> Exception:
        """Return the exception with which a key is refused."""
        with pytest.raises(refusal) as caught:
            run(self.gate.authenticate(text, **request))
        return caught.value
