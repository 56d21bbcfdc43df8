"""The JSON document of every command, on each store, has exactly the fields that the page lists."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import pytest

from lockgate import UsageHistory, run
from lockgate.cli.main import lockgate
from lockgate.errors import InsufficientScope

from .calling import PEPPER, Service, Shell, serving
from .test_routes import GATE, STARLETTE

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
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

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.fields: dict[str, set[str]] = {}

    def __call__(self, name: str, *arguments: str, given: str = "", code: int = 0) -> Any:
        document = self.shell.json(name, *arguments, given=given, code=code)
        self.fields[name] = self.fields.get(name, set()) | set(document)
        return document


@pytest.fixture
def operator(url: str, shell: Shell, service: Service, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.setenv("LOCKGATE_GATE", f"{service.write(SERVICE)}:gate")
    return Operator(shell)


def test_every_document_has_the_fields_that_the_page_lists(
    operator: Operator, service: Service
) -> None:
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
    operator("shadow", code=1)
    operator("explain", "org_1")
    findings = operator("doctor", code=doctor_code())["findings"]
    assert set(findings[0]) == documented()["a finding of doctor"]
    operator("routes", f"{service.write(GATE + STARLETTE)}:app")
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


def test_every_reading_command_prints_something_for_people(operator: Operator) -> None:
    key = operator("keys create", "org_1", "ci")
    used(key["api_key"])
    for command in (
        *("keys list org_1", f"keys show org_1 {key['id']}", f"keys find {key['id']}"),
        *("keys verify", "keys pattern", "orgs list", "orgs show org_1", "orgs limits org_1"),
        *("orgs usage org_1", "orgs usage org_1 --keys", "audit org_1", "explain org_1"),
    ):
        out, err = operator.shell(command, given=key["api_key"])
        assert out.strip() or "Nothing was recorded" in err, command
        assert key["api_key"] not in out + err


def refused(operator: Operator) -> Any:
    """The row of a key that was refused."""
    text = operator("keys create", "org_r", "ci", "--scope", "jobs:read")["api_key"]
    gate = serving(features=[UsageHistory()])
    with pytest.raises(InsufficientScope):
        run(gate.authenticate(text, requires="jobs:write"))
    run(gate.close())
    return operator("keys refused")["keys"][0]


def used(text: str) -> None:
    gate = serving()
    run(gate.authenticate(text))
    run(gate.close())


def imported(operator: Operator) -> Any:
    row = {"handle": "00000001", "digest": sha256(OLD.encode()).hexdigest(), "scopes": ["jobs:*"]}
    Path("old.jsonl").write_text(json.dumps({"organization": "org_2", **row}) + "\n")
    return operator("keys import", "old.jsonl")


def doctor_code() -> int:
    """The Redis of the tests has no persistence, which is a problem."""
    return int(os.environ["LOCKGATE_STORE"].startswith("redis"))
