"""The JSON document of every command, on each store, has exactly the fields that the page lists."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any

import click
import pytest

from lockgate import Gate, UsageHistory, run
from lockgate.cli import main
from lockgate.cli.main import lockgate
from lockgate.errors import InsufficientScope
from lockgate.options import StoreOptions

from .calling import Said
from .test_routes import GATE, STARLETTE

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
PEPPER = "a-pepper-of-these-tests-8f2c41d0"
ELSEWHERE = {"demo"}
"""Commands with `--json` that have a page of their own for it."""
SERVICE = f"""
import os
from hashlib import sha256
from lockgate import Gate, ImportedKeyFormat, Registration
from lockgate.options import KeyOptions, StoreOptions, WebOptions
from lockgate.sessions import SignedCookie
secret = 'fedcba9876543210' * 2
OLD = ImportedKeyFormat('tokens', r'tok_(?P<handle>[a-z0-9]{{8}})_[a-z0-9]{{32}}',
                        schemes=['sha256'])
gate = Gate(os.environ['LOCKGATE_STORE'], brand='acme', sessions=SignedCookie([secret]),
            peppers=[b'{PEPPER}'],
            web_options=WebOptions(public_url='https://console.example.com'),
            store_options=StoreOptions(deadline=30),
            features=[Registration(session_secrets=[secret[::-1]])],
            key_options=KeyOptions(legacy=[OLD]))
"""
OLD = "tok_00000001_" + "a" * 32


@cache
def documented() -> dict[str, set[str]]:
    """The fields of each command's document, from the table of the page."""
    table = PAGE.read_text().partition("\n| document | fields |\n")[2].partition("\n\n")[0]
    found: dict[str, set[str]] = {}
    for line in table.splitlines()[1:]:
        names, fields = (cell.strip() for cell in line.strip("|").split(" | "))
        own = set(re.findall(r"`(\w+)`", fields))
        of_key = found.get("a key", set()) if "those of a key" in fields else set()
        for name in re.findall(r"`([\w ]+)`", names) or [names]:
            found[name] = own | of_key
    return found


def with_json(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The names of all commands that take `--json`."""
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            yield from with_json(part, (*path, name))
    elif any("--json" in parameter.opts for parameter in command.params):
        yield " ".join(path)


class Operator:
    """Calls commands, and notes the fields of their documents."""

    def __init__(self, capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.fields: dict[str, set[str]] = {}

    def __call__(self, name: str, *arguments: str, given: str = "", code: int = 0) -> Any:
        self._monkeypatch.setattr("sys.stdin", io.StringIO(f"{given}\n"))
        self._capsys.readouterr()
        assert main([*name.split(), *arguments, "--json"]) == code, self._capsys.readouterr().err
        document = json.loads(self._capsys.readouterr().out)
        self.fields[name] = self.fields.get(name, set()) | set(document)
        return document


@pytest.fixture
def operator(
    settings: None, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> Operator:
    module = f"service_{token_hex(4)}"  # Python loads a module of a name once.
    (tmp_path / f"{module}.py").write_text(SERVICE)
    (tmp_path / f"{module}_app.py").write_text(GATE + STARLETTE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKGATE_GATE", f"{module}:gate")
    return Operator(capsys, monkeypatch)


def test_every_document_has_the_fields_that_the_page_lists(operator: Operator) -> None:
    for_key = documented()["a key"]
    key = operator("keys create", "org_1", "ci", "--days", "30")
    text, id = key["api_key"], key["id"]
    used(text)
    assert set(operator("keys list", "org_1")["keys"][0]) == for_key
    operator("keys show", "org_1", id)
    assert set(operator("keys find", id)["keys"][0]) == for_key
    operator("keys verify", given=text)
    operator("keys update", "org_1", id, "--name", "build")
    assert set(operator("keys rotate", "org_1", id)["replaces"]) == for_key
    operator("keys revoke", "org_1", id, "--yes")
    assert set(refused(operator)) == documented()["a key of keys refused"]
    operator("keys pattern")
    assert imported(operator)["imported"] == 1
    listed = operator("orgs list")["organizations"]
    assert set(listed[0]) == documented()["an organization of orgs list"]
    operator("orgs show", "org_1")
    operator("orgs limits", "org_1", "--rpd", "+500")
    operator("orgs place", "org_1", "creator")
    operator("orgs usage", "org_1")
    operator("orgs reset", "org_1", "--yes")
    account = operator("orgs create", "--email", "ada@example.com", "--agent", "bot")
    operator("orgs claim", account["organization_id"], "user_1", "--yes")
    change = operator("audit", "org_1")["changes"][0]
    assert set(change) == documented()["a change of audit"]
    operator("keys seal")
    operator("shadow")
    operator("explain", "org_1")
    findings = operator("doctor", code=doctor_code())["findings"]
    assert set(findings[0]) == documented()["a finding of doctor"]
    operator("routes", f"{os.environ['LOCKGATE_GATE'].partition(':')[0]}_app:app")
    operator("simulate", "--rate", "20/minute", "--for", "5m")
    assert operator("init", "new_gates.py")["environment"]["LOCKGATE_GATE"] == "new_gates:gate"
    Path("tables.db").touch()
    checked = operator("db", "upgrade", "--store", "sqlite:///tables.db")
    assert checked == operator("db", "check", "--store", "sqlite:///tables.db")
    assert checked["works"] is True and checked["missing"] == []
    assert operator.fields == {
        name: fields for name, fields in documented().items() if name in set(with_json(lockgate))
    }
    assert set(operator.fields) == set(with_json(lockgate)) - ELSEWHERE


def test_every_reading_command_prints_something_for_people(
    operator: Operator, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = operator("keys create", "org_1", "ci")
    used(key["api_key"])
    for command in (
        *("keys list org_1", f"keys show org_1 {key['id']}", f"keys find {key['id']}"),
        *("keys verify", "keys pattern", "orgs list", "orgs show org_1", "orgs limits org_1"),
        *("orgs usage org_1", "orgs usage org_1 --keys", "audit org_1", "explain org_1"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(key["api_key"]))
        capsys.readouterr()
        assert main(command.split()) == 0, command
        out, err = capsys.readouterr()
        assert out.strip() or "Nothing was recorded" in err, command
        assert key["api_key"] not in out + err


def refused(operator: Operator) -> Any:
    """The row of a key that was refused."""
    text = operator("keys create", "org_r", "ci", "--scope", "jobs:read")["api_key"]
    gate = Gate(
        os.environ["LOCKGATE_STORE"],
        brand="acme",
        peppers=[PEPPER.encode()],
        store_options=StoreOptions(deadline=30),
        features=[UsageHistory()],
    )
    with pytest.raises(InsufficientScope):
        run(gate.authenticate(text, requires="jobs:write"))
    run(gate.close())
    return operator("keys refused")["keys"][0]


def used(text: str) -> None:
    gate = Gate(
        os.environ["LOCKGATE_STORE"],
        brand="acme",
        peppers=[PEPPER.encode()],
        store_options=StoreOptions(deadline=30),
    )
    run(gate.authenticate(text))
    run(gate.close())


def imported(operator: Operator) -> Any:
    row = {"handle": "00000001", "digest": sha256(OLD.encode()).hexdigest(), "scopes": ["jobs:*"]}
    Path("old.jsonl").write_text(json.dumps({"organization": "org_2", **row}) + "\n")
    return operator("keys import", "old.jsonl")


def doctor_code() -> int:
    """The Redis of the tests has no persistence, which is a problem."""
    return int(os.environ["LOCKGATE_STORE"].startswith("redis"))
