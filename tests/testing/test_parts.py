"""A store of one part of the contract gets only the checks of that part, a key store its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from lockgate import ConfigurationError, MemoryStore, run
from lockgate.core.holds import Take
from lockgate.stores import KeyStore, WindowStore
from lockgate.stores.base import PartStore
from lockgate.stores.rows import Commit, Outcome
from lockgate.testing import GUARANTEES, KEY_PARTS, WINDOW_PARTS, Broken, certify
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


Windows: Any = only(WindowStore)


def windows() -> PartStore:
    store: PartStore = Windows()
    return store


def test_a_window_store_is_certified_alone_by_what_it_is() -> None:
    run(certify(windows))


class ForgetsTheCost(Windows):  # type: ignore[misc]
    async def charge(self, owner: str, action: Any, now: int | None = None) -> Any:
        if isinstance(action, Take):
            action = action._replace(units=tuple(1 for _ in action.units))
        return await super().charge(owner, action, now)


def test_a_mistake_of_a_window_store_is_detected_alone() -> None:
    with pytest.raises(Broken) as found:
        run(certify(ForgetsTheCost))
    assert found.value.sentence in {"H1", "W8"}


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
    assert GUARANTEES[found.value.sentence] in str(found.value)


class TestKeys(StoreSuite):
    parts = ("usage", "changes")  # The checks of all parts are above.

    def make_store(self) -> PartStore:
        return keys()


def test_a_suite_skips_checks_of_parts_that_a_key_store_does_not_have() -> None:
    class Whole(StoreSuite):
        def make_store(self) -> PartStore:
            return keys()

    for name in ("W1-exactly_the_limit_is_admitted", "L1-slots_up_to_the_limit"):
        with pytest.raises(pytest.skip.Exception, match="OnlyKeyStore does not have the part"):
            Whole().test_contract(name)


class OfOneProcess(SharedStoreSuite):
    """Opens another store in each process."""

    parts = KEY_PARTS
    made: ClassVar[Mapping[str, Callable[[], PartStore]]] = {"make": keys}

    def make_store(self) -> PartStore:
        return self.made["make"]()

    def reopen(self, store: PartStore) -> Reopen:
        return self.made["make"]


class WindowsOfOneProcess(OfOneProcess):
    parts = WINDOW_PARTS
    made = {"make": windows}  # noqa: RUF012 - read only


@pytest.mark.parametrize(("suite", "sentence"), [(OfOneProcess, "K8"), (WindowsOfOneProcess, "L1")])
def test_a_store_of_one_process_is_detected(suite: type[OfOneProcess], sentence: str) -> None:
    with pytest.raises(Broken) as found:
        suite().test_processes()
    assert found.value.sentence == sentence


class Apart(SharedStoreSuite):
    parts = ("usage",)


def test_shared_processes_need_rows_or_windows() -> None:
    with pytest.raises(pytest.skip.Exception, match="the windows of a window store"):
        Apart().test_processes()


def test_a_store_without_an_io_mode_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="OnlyWindowStore does not say whether it waits"):
        run(certify(only(WindowStore, io=None)))
