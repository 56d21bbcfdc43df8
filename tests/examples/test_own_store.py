"""A store of one's own in under a hundred lines, certified by the kit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from lockgate import Store, run
from lockgate.core.ledger import Hit, Peek
from lockgate.stores.key_value import RecordStore
from lockgate.testing.processes import Reopen
from tests.stores.making import BOOK, NOW

from .kit import ExampleSuite, lines_of, module_of


def example() -> Any:
    return module_of("own_store")


def reopened(path: str) -> Store:
    store = example().store(path)
    assert isinstance(store, Store)
    return store


class TestOwnStore(ExampleSuite):
    def make_store(self) -> Store:
        return reopened(self.path())

    def reopen(self, store: Store) -> Reopen:
        assert isinstance(store, RecordStore)
        records: Any = store.records
        return partial(reopened, records._path)

    def leftovers(self, store: Store, now: int) -> int:
        assert isinstance(store, RecordStore)
        records: Any = store.records
        run(records.forget(run(store.now()) + now - NOW))
        return len(run(store.records.names("org:")))


def test_the_store_of_the_guide_is_short_and_keeps_its_counts_over_a_restart(
    tmp_path: Path,
) -> None:
    assert lines_of("own_store") < 100
    path = str(tmp_path / "own.db")
    first = reopened(path)
    run(first.charge("org_1", Hit(BOOK.default.windows, 3), NOW))
    run(first.close())
    second = reopened(path)
    assert run(second.charge("org_1", Peek(BOOK.default.windows), NOW)).used == (3, 3, 3)
    run(second.close())
