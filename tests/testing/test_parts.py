"""A store of one part of the contract gets only the checks of that part."""

from __future__ import annotations

from typing import Any

import pytest

from lockgate import ConfigurationError, MemoryStore, run
from lockgate.stores import AccountStore, KeyStore, SlotStore, WindowStore
from lockgate.stores.base import PartStore
from lockgate.testing import certify
from lockgate.testing.checks import Part
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
        (only(KeyStore), ["keys"]),
        (only(KeyStore, AccountStore), ["keys", "accounts"]),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_part_is_certified_alone(kind: type[PartStore], parts: list[Part]) -> None:
    run(certify(kind, parts=parts))


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
