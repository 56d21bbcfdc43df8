"""A window store of one's own on LMDB in at most 50 lines, certified by the kit."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lockgate.stores.base import PartStore
from lockgate.testing import WINDOW_PARTS
from lockgate.testing.processes import Reopen
from lockgate.testing.suite import SharedStoreSuite

SOURCE = Path(__file__).parents[2] / "examples" / "lmdb_windows.py"


def reopened(path: str) -> PartStore:
    spec = spec_from_file_location("lmdb_windows", SOURCE)
    assert spec is not None and spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    store: PartStore = module.LmdbWindows(path)
    return store


@pytest.fixture(scope="class", autouse=True)
def folder(request: pytest.FixtureRequest) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        if request.cls is not None:
            request.cls.folder = name
        yield name


class TestLmdbWindows(SharedStoreSuite):
    folder: str
    parts = WINDOW_PARTS
    one_walk_in = 4
    numbers = count()

    def make_store(self) -> PartStore:
        return reopened(f"{self.folder}/{next(self.numbers)}")

    def reopen(self, store: Any) -> Reopen:
        return partial(reopened, store.path)


def test_the_window_store_has_at_most_50_lines() -> None:
    assert len(SOURCE.read_text().splitlines()) <= 50


def test_the_window_store_keeps_its_counts_over_a_restart(tmp_path: Path) -> None:
    for found in ("1", "2"):
        made = subprocess.run(
            [sys.executable, SOURCE], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert made.stdout == f"used: {found}\n"
