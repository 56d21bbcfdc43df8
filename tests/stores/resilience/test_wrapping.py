"""A wrapper forgets no verb."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Any

import pytest

from lockgate import MemoryStore, Store
from lockgate.stores.resilience.wrapping import Wrapper

VERBS = sorted(
    name
    for name in dir(Store)
    if not name.startswith("_") and iscoroutinefunction(getattr(Store, name))
)


class Noting(Wrapper):
    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.passed: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    async def pass_on(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        self.passed.append((verb, args, kwargs))


@pytest.mark.parametrize("verb", sorted({*VERBS} - {"close", "flush", "ready"}))
async def test_every_verb_of_the_contract_is_passed_on(verb: str) -> None:
    wrapper = Noting(MemoryStore())
    await getattr(wrapper, verb)(1, two=2)
    assert wrapper.passed == [(verb, (1,), {"two": 2})]


@pytest.mark.parametrize("verb", ["close", "flush", "ready"])
async def test_a_verb_that_no_deadline_bounds_reaches_the_inner_store(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = MemoryStore()
    ended: list[str] = []

    async def end() -> None:
        ended.append(verb)

    monkeypatch.setattr(inner, verb, end)
    await getattr(Noting(inner), verb)()
    assert ended == [verb]


def test_a_wrapped_store_has_the_io_mode_of_the_inner_store() -> None:
    assert Noting(MemoryStore()).io == "none"
