"""A store of one's own in under a hundred lines, certified by the kit."""

from __future__ import annotations

import importlib.util
import inspect
import tempfile
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lockgate import Store, run
from lockgate.core.ledger import Hit, Peek
from lockgate.stores.key_value import RecordStore
from lockgate.testing.processes import Reopen
from lockgate.testing.suite import SharedStoreSuite
from tests.stores.making import BOOK, NOW

SOURCE = Path(__file__).parents[2] / "examples" / "own_store.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("own_store", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reopened(path: str) -> Store:
    store = example().store(path)
    assert isinstance(store, Store)
    return store


@pytest.fixture(scope="class", autouse=True)
def folder(request: pytest.FixtureRequest) -> Any:
    with tempfile.TemporaryDirectory() as name:
        if request.cls is not None:
            request.cls.folder = name
        yield name


class TestOwnStore(SharedStoreSuite):
    folder: str
    one_walk_in = 4
    numbers = count()

    def make_store(self) -> Store:
        return reopened(f"{self.folder}/{next(self.numbers)}.db")

    def reopen(self, store: Store) -> Reopen:
        assert isinstance(store, RecordStore)
        records: Any = store.records
        return partial(reopened, records._path)

    def leftovers(self, store: Store, now: int) -> int:
        assert isinstance(store, RecordStore)
        records: Any = store.records
        run(records.forget(run(store.now()) + now - NOW))
        return len(run(store.records.names("org:")))


def test_the_store_of_the_guide_has_under_100_lines() -> None:
    assert len(inspect.getsource(example()).splitlines()) < 100


def test_the_store_of_the_guide_keeps_its_counts_over_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "own.db")
    first = reopened(path)
    run(first.charge("org_1", Hit(BOOK.default.windows, 3), NOW))
    run(first.close())
    second = reopened(path)
    assert run(second.charge("org_1", Peek(BOOK.default.windows), NOW)).used == (3, 3, 3)
    run(second.close())
