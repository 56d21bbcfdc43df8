"""Commands on a database with Redis before it, while Redis is away (D52)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from lockgate import run
from lockgate.cli.main import COMMITTED
from lockgate.cli.settings import gate_of
from lockgate.errors import StoreError
from lockgate.stores.answers import OutcomeUnknown
from lockgate.stores.sql import SqlStore
from tests.servers import redis_server

from .calling import Shell

RAISE = "orgs limits org_1 --rpm +100"


@pytest.fixture
def alone(sqlite: str, shell: Shell) -> str:
    """The id of a key of org_1, whose plan has 600 requests a minute."""
    id: str = shell.json("keys create org_1 first")["id"]
    shell("orgs place org_1 free --rpm 600")
    return id


@pytest.fixture
def key(alone: str, sqlite: str, monkeypatch: pytest.MonkeyPatch, shell: Shell) -> Iterator[str]:
    """The id of the key; Redis was before the database, and is killed."""
    with redis_server() as server:
        monkeypatch.setenv("LOCKGATE_STORE", f"{sqlite} {server.url()}")
        shell("keys list org_1")
        server.stop()
        yield alone


def committed(shell: Shell, words: str, *more: str) -> Any:
    """The JSON that a command prints for a change that is made while a later step failed."""
    out, err = shell(words, *more, "--json", code=COMMITTED)
    assert "The change is made: do not repeat the command. What remains:" in err
    assert "cannot be used" not in err
    return json.loads(out)


def test_a_rotation_prints_the_key_that_is_live_D52(key: str, shell: Shell) -> None:
    made = committed(shell, "keys rotate org_1", key)
    assert made["replaces"]["successor_id"] == made["id"]
    gate = gate_of(None, None)
    (found,) = run(gate.keys.find(made["api_key"])).keys
    assert found.id == made["id"]
    run(gate.close())
    out, err = shell("keys rotate org_1", made["id"], code=COMMITTED)
    assert re.fullmatch(r"acme_live_\w{8}_\w{43}\n", out)
    assert "The cache could not be told" in err


def test_changes_are_told_as_done_and_what_is_counted_as_unknown_D52(
    key: str, shell: Shell
) -> None:
    assert committed(shell, "keys update org_1 --name other", key)["name"] == "other"
    for limit in (700, 800):
        assert committed(shell, RAISE)["own_limits"] == {"rpm": limit}
    found = shell.json("explain org_1")
    assert (found["plan"], found["refused"], found["windows"]) == ("free", None, [])
    assert "The store of the windows does not answer" in found["unread"]
    assert [one["id"] for one in found["keys"]] == [key]
    out, err = shell("explain org_1", key)
    assert re.search(r"^next request +not known$", out, re.MULTILINE)
    assert re.search(r"^minute +not known +800", out, re.MULTILINE)
    assert "each process decides by limits of its own" in err
    out, err = shell("orgs show org_1 --json", code=3)
    assert json.loads(out)["usage"]["minute"] == {"used": None, "limit": 800}
    assert "What is counted is not known: ConnectionError" in err
    assert committed(shell, "orgs limits org_1 --clear rpm")["own_limits"] == {}
    placed = committed(shell, "orgs place org_1 starter")
    assert (placed["plan"], placed["usage"]["minute"]) == ("starter", {"used": None, "limit": 30})
    assert committed(shell, "orgs create org_2 --plan creator")["plan"] == "creator"
    assert "api_key" in shell.json("keys create org_1 second"), "a new key needs no cache"
    assert "The store cannot be used" in shell("orgs reset org_1 --yes", code=3).err
    first = committed(shell, "keys revoke org_1 --yes", key)
    assert first["state"] == "revoked"
    assert committed(shell, "keys revoke org_1 --yes", key) == first
    assert shell.json("explain org_1", key)["refused"]["code"] == "KEY_REVOKED"


@pytest.mark.usefixtures("alone")
def test_a_raise_whose_reply_was_lost_is_made_once_D52_D33(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = SqlStore.commit

    async def lost(*arguments: Any) -> None:
        await commit(*arguments)
        raise OutcomeUnknown

    with monkeypatch.context() as patched:
        patched.setattr(SqlStore, "commit", lost)
        told = re.search(r"add --change-id (\w+): then it is made once", shell(RAISE, code=3).err)
        assert told is not None
        for _ in range(2):  # The change was made: these are nothing but answers.
            found = shell.json(RAISE, "--change-id", told[1])
            assert found["own_limits"] == {"rpm": 700}
    for more, limit in ((["--change-id", "another"], 800), (["--change-id", "another"], 800)):
        assert shell.json(RAISE, *more)["own_limits"] == {"rpm": limit}
    assert shell.json(RAISE)["own_limits"] == {"rpm": 900}
    (latest, *_) = shell.json("audit org_1")["changes"]
    assert latest["to"]["rpm"] == 900 and latest["to"]["change_id"]


@pytest.mark.usefixtures("alone")
def test_a_raise_that_was_not_made_is_made_by_its_repetition_D52(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreError

    named = f"{RAISE} --change-id 'ticket 7'"
    with monkeypatch.context() as patched:
        patched.setattr(SqlStore, "commit", away)
        assert "add --change-id 'ticket 7': then" in shell(named, code=3).err
    assert shell.json(named)["own_limits"] == {"rpm": 700}
    other = "orgs limits org_1 --rpd +500 --change-id 'ticket 7'"
    assert "named a change of rpm" in shell(other, code=2).err
    for name in ("", "x" * 65, "a\nb"):
        err = shell(RAISE, "--change-id", name, code=2).err
        assert "A change_id is a text of 1 to 64" in err


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("keys rotate org_1 KEY", "api_key"),
        ("keys revoke org_1 KEY --yes", "revoked_at"),
        ("orgs place org_1 starter", "plan"),
    ],
)
def test_a_store_that_fails_after_the_change_loses_no_result_D52(
    command: str, shown: str, alone: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database goes away between the change and what is read after it."""
    changed: list[bool] = []

    def patch(name: str, *, changes: bool) -> None:
        real = getattr(SqlStore, name)

        async def patched(*arguments: Any, **named: Any) -> Any:
            if changed and not changes:
                raise OSError("no answer")
            answer = await real(*arguments, **named)
            if changes:
                changed.append(True)
            return answer

        monkeypatch.setattr(SqlStore, name, patched)

    patch("commit", changes=True)
    for name in ("now", "read", "walk", "charge"):
        patch(name, changes=False)
    code = COMMITTED if shown == "plan" else 0  # It shows what is counted after the change.
    assert shell.json(command.replace("KEY", alone), code=code)[shown]
    assert changed
