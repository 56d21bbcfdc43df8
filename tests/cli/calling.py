"""Call the command as a shell does, and the service whose store it shares."""

from __future__ import annotations

import importlib
import io
import json
import os
import shlex
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

import pytest

from lockgate import Gate
from lockgate.cli import main
from lockgate.options import StoreOptions

Said = pytest.CaptureFixture[str]
PEPPER = "a-pepper-of-these-tests-8f2c41d0"


class Told(NamedTuple):
    """What a command wrote."""

    out: str
    err: str


class Shell:
    """A shell of an operator, as in ``shell("keys list org_1")``."""

    def __init__(self, capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, words: str, *more: str, code: int = 0, given: str | None = None) -> Told:
        """Run a command that ends with an exit code.

        Args:
            words: the command's words.
            more: words after them, as they are.
            code: the exit code.
            given: a line on standard input.
        """
        if given is not None:
            self._monkeypatch.setattr("sys.stdin", io.StringIO(f"{given}\n"))
        self._capsys.readouterr()
        found = main([*shlex.split(words), *more])
        said = self._capsys.readouterr()
        told = Told(said.out, said.err)
        assert found == code, (words, found, told)
        assert "Traceback" not in told.err
        return told

    def json(self, words: str, *more: str, code: int = 0, given: str | None = None) -> Any:
        """Run a command for its JSON document."""
        return json.loads(self(words, *more, "--json", code=code, given=given).out)


class Service:
    """A folder with the modules of a service."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(str(folder))

    def write(self, text: str) -> str:
        """Write a module; return its name, which is new: Python loads a module of a name once."""
        name = f"service_{token_hex(4)}"
        (self.folder / f"{name}.py").write_text(text)
        return name

    def load(self, text: str) -> Any:
        """Write a module and import it."""
        return importlib.import_module(self.write(text))


def serving(**options: Any) -> Gate:
    """A gate of a service on the store of the environment."""
    return Gate(
        os.environ["LOCKGATE_STORE"],
        brand="acme",
        peppers=[PEPPER.encode()],
        store_options=StoreOptions(deadline=30),
        **options,
    )
