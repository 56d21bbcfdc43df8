"""A window store of one's own on LMDB in at most 50 lines, certified by the kit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from lockgate.stores.base import PartStore
from lockgate.testing import WINDOW_PARTS
from lockgate.testing.processes import Reopen

from .kit import ExampleSuite, lines_of, module_of, said_twice


def reopened(path: str) -> PartStore:
    store: PartStore = module_of("lmdb_windows").LmdbWindows(path)
    return store


class TestLmdbWindows(ExampleSuite):
    parts = WINDOW_PARTS

    def make_store(self) -> PartStore:
        return reopened(self.path())

    def reopen(self, store: Any) -> Reopen:
        return partial(reopened, store.path)


def test_the_window_store_is_short_and_keeps_its_counts_over_a_restart(tmp_path: Path) -> None:
    assert lines_of("lmdb_windows") <= 50
    assert said_twice("lmdb_windows", tmp_path) == ["used: 1\n", "used: 2\n"]
