"""A key store of one's own on LMDB in at most 90 lines, certified by the kit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from lockgate.stores.base import PartStore
from lockgate.testing import KEY_PARTS
from lockgate.testing.processes import Reopen

from .kit import ExampleSuite, lines_of, module_of, said_twice


def reopened(path: str) -> PartStore:
    store: PartStore = module_of("lmdb_keys").key_store(path)
    return store


class TestLmdbKeys(ExampleSuite):
    parts = KEY_PARTS

    def make_store(self) -> PartStore:
        return reopened(self.path())

    def reopen(self, store: Any) -> Reopen:
        return partial(reopened, store.records.path)


def test_the_key_store_is_short_and_keeps_its_rows_over_a_restart(tmp_path: Path) -> None:
    assert lines_of("lmdb_keys") <= 90
    assert said_twice("lmdb_keys", tmp_path) == ["new: True\n", "new: False\n"]
