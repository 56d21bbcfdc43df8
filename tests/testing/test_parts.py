"""A store of one part of the contract gets only the checks of that part, a key store its own."""

from __future__ import annotations

from typing import Any

import pytest

from lockgate import ConfigurationError, MemoryStore, run
from lockgate.stores import KeyStore, SlotStore, WindowStore
from lockgate.stores.base import PartStore
from lockgate.stores.rows import Commit, Outcome
from lockgate.testing import KEY_PARTS, Broken, certify
from lockgate.testing.checks import Part
from lockgate.testing.processes import Reopen
from lockgate.testing.suite import SharedStoreSuite, StoreSuite


def only(*kinds: type[PartStore], io: str | None = "none") -> type[PartStore]:
    """A store with the verbs of these kinds, and no others."""

    def delegate(verb: str) -> Any:
        async def call(self: Any, *arguments: Any, **options: Any) -> Any:
            return await getattr(self.inner, verb)(*arguments, **options)

        return call

    def begin(self: Any) -> None:
        self.inner = MemoryStore()

    verbs = {verb: delegate(verb) for kind in kinds for verb in kind.__abstractmethods__}
    name = "".join(kind.__name__ for kind in kinds)
    says = {"io": io} if io else {}
    return type(f"Only{name}", kinds, {"__init__": begin, **says, **verbs})


Windows, ConcurrencySlots = only(WindowStore), only(SlotStore)


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (Windows, ["windows"]),
        (ConcurrencySlots, ["slots"]),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_part_is_certified_alone(kind: type[PartStore], parts: list[Part]) -> None:
    run(certify(kind, parts=parts))


Keys: Any = only(KeyStore)


def keys() -> PartStore:
    store: PartStore = Keys()
    return store


def test_a_key_store_is_certified_alone_by_what_it_is() -> None:
    run(certify(keys))


class WritesToEndedKeys(Keys):  # type: ignore[misc]
    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        writes = tuple(write._replace(live=False) for write in commit.writes)
        outcome: Outcome = await super().commit(commit._replace(writes=writes), now)
        return outcome


def test_a_mistake_of_a_key_store_is_detected_alone() -> None:
    with pytest.raises(Broken) as found:
        run(certify(WritesToEndedKeys))
    assert found.value.sentence in {"D43", "K3"}


class TestKeys(StoreSuite):
    parts = KEY_PARTS

    def make_store(self) -> PartStore:
        return keys()


def test_a_suite_skips_checks_of_parts_that_a_key_store_does_not_have() -> None:
    class Whole(StoreSuite):
        def make_store(self) -> PartStore:
            return keys()

    for name in ("W1-exactly_the_limit_is_admitted", "K7-usage_from_many_callers_adds_up"):
        with pytest.raises(pytest.skip.Exception, match="OnlyKeyStore does not have the part"):
            Whole().test_contract(name)


class OfOneProcess(SharedStoreSuite):
    parts = KEY_PARTS

    def make_store(self) -> PartStore:
        return keys()

    def reopen(self, store: PartStore) -> Reopen:
        return keys


def test_a_key_store_of_one_process_is_detected() -> None:
    with pytest.raises(Broken) as found:
        OfOneProcess().test_processes()
    assert found.value.sentence == "K8"


class TestWindows(StoreSuite):
    parts = ("windows",)

    def make_store(self) -> PartStore:
        return Windows()


class Apart(SharedStoreSuite):
    parts = ("windows",)


def test_shared_processes_need_a_whole_store() -> None:
    with pytest.raises(pytest.skip.Exception, match="whole store"):
        Apart().test_processes()


class TestSlots(StoreSuite):
    parts = ("slots",)

    def make_store(self) -> PartStore:
        return ConcurrencySlots()


def test_a_store_without_an_io_mode_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="OnlyWindowStore does not say whether it waits"):
        run(certify(only(WindowStore, io=None), parts=["windows"]))
