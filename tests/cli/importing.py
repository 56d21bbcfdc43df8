"""A service's gate that ``lockgate keys import`` loads, and rows of keys to import."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lockgate import Gate, ImportedKeyFormat
from lockgate.cli import main
from lockgate.core.api_keys import ApiKey
from tests.gates import flat_gate

Said = pytest.CaptureFixture[str]
PEPPER = "a-pepper-of-these-tests-8f2c41d0"
TOKENS = ImportedKeyFormat(
    "tokens", r"tok_(?P<handle>[a-z0-9]{6})_[a-z0-9]{32}", schemes=["sha256"]
)


def token(number: int) -> str:
    return f"tok_{number:06}_" + hashlib.sha256(str(number).encode()).hexdigest()[:32]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Desk:
    """A service's gate that the command loads by its name, on a store of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: Said, url: str) -> None:
        self.url = url
        self.formats: list[ImportedKeyFormat] = [TOKENS]
        self.options: dict[str, Any] = {}
        self._capsys = capsys
        monkeypatch.setattr("lockgate.cli.imports.gate_of", lambda *_: self.gate())
        monkeypatch.setattr("lockgate.services.imports.key_import.BATCH", 4)

    def gate(self) -> Gate:
        return flat_gate(
            self.url,
            brand="acme",
            peppers=[PEPPER.encode()],
            legacy=self.formats,
            deadline=30,
            **self.options,
        )

    def run(self, *arguments: str, code: int = 0) -> Any:
        """Run the import and return its report."""
        self._capsys.readouterr()
        found = main(["keys", "import", *arguments, "--json"])
        out, err = self._capsys.readouterr()
        assert found == code, (found, out, err)
        return json.loads(out) if out else err

    def use(self, work: Callable[[Gate], Any]) -> Any:
        """Do some work with a gate, as the service does."""

        async def worked() -> Any:
            gate = self.gate()
            try:
                return await work(gate)
            finally:
                await gate.close()

        return asyncio.run(worked())

    def admit(self, text: str) -> ApiKey:
        async def work(gate: Gate) -> Any:
            return (await gate.authenticate(text)).key

        key = self.use(work)
        assert isinstance(key, ApiKey)
        return key

    def keys(self, organization: str = "org_1") -> dict[str, ApiKey]:
        """The keys of an organization by name."""

        async def work(gate: Gate) -> Any:
            return (await gate.keys.list(organization, limit=100)).keys

        return {key.name: key for key in self.use(work)}


def micros(text: str) -> int:
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )


HEADER = (
    "organization,name,handle,digest,scopes,created_at,expires_at,revoked_at,last_used_at,"
    "request_count"
)


def table(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "keys.csv"
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return str(path)


def line(number: int, *, name: str = "", more: str = ",,,,") -> str:
    text = token(number)
    return f"org_1,{name or f'key {number}'},{number:06},{digest(text)},jobs:read,{more}"
