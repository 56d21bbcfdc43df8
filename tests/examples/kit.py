"""Certification of a store among the examples, each in a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from lockgate.testing.suite import SharedStoreSuite

EXAMPLES = Path(__file__).parents[2] / "examples"


@cache
def module_of(example: str) -> Any:
    """Return the module of an example."""
    spec = spec_from_file_location(example, EXAMPLES / f"{example}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines_of(example: str) -> int:
    return len((EXAMPLES / f"{example}.py").read_text().splitlines())


def said_twice(example: str, folder: Path) -> list[str]:
    """Return what an example prints when it runs in a folder, and when it runs there again."""
    command = [sys.executable, str(EXAMPLES / f"{example}.py")]
    return [subprocess.check_output(command, cwd=folder, text=True) for _ in range(2)]


class ExampleSuite(SharedStoreSuite):
    """Stores in files of one folder."""

    folder: ClassVar[str]
    one_walk_in = 4
    _numbers = count()

    @classmethod
    def setup_class(cls) -> None:
        cls.folder = tempfile.mkdtemp()

    @classmethod
    def teardown_class(cls) -> None:
        shutil.rmtree(cls.folder)

    def path(self) -> str:
        """Return a path that no store has yet."""
        return f"{self.folder}/{next(self._numbers)}"
