"""A wrapper forgets no verb, and composes operations before it."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Any

import pytest

from lockgate import MemoryStore, Store
from lockgate.stores.cached.store import CachedStore
from lockgate.stores.directory import Directory
from lockgate.stores.key_store import KeyStore
from lockgate.stores.leasing import LeasingStore
from lockgate.stores.resilience.store import ResilientStore
from lockgate.stores.resilience.wrapping import Wrapper
from lockgate.testing import FaultyStore


def verbs(kind: type) -> set[str]:
    named = {name for name in dir(kind) if not name.startswith("_")}
    return {name for name in named if iscoroutinefunction(getattr(kind, name))}


URGENT = {"admit", "freshness", "now"}
OPERATIONS = verbs(Directory) - verbs(KeyStore)
VERBS = verbs(Store) - OPERATIONS


class Noting(Wrapper):
    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.passed: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    async def pass_on(self, verb: str, urgent: bool, /, *args: Any, **kwargs: Any) -> Any:
        self.urgent = urgent
        self.passed.append((verb, args, kwargs))


@pytest.mark.parametrize("verb", sorted(VERBS - {"close", "flush", "ready"}))
async def test_every_verb_of_the_contract_is_passed_on(verb: str) -> None:
    wrapper = Noting(MemoryStore())
    await getattr(wrapper, verb)(1, two=2)
    assert wrapper.passed == [(verb, (1,), {"two": 2})]
    assert wrapper.urgent == (verb in URGENT)


@pytest.mark.parametrize(
    "wrapper", [Wrapper, ResilientStore, CachedStore, LeasingStore, FaultyStore]
)
def test_no_wrapper_has_an_operation_of_its_own(wrapper: type) -> None:
    assert "revoke_if_live" in OPERATIONS
    own = {name for kind in wrapper.mro() if issubclass(kind, Wrapper) for name in vars(kind)}
    assert own & OPERATIONS == set()


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
