"""Commands on a database with Redis before it, while Redis is away (D52)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockgate import run
from lockgate.cli import main
from lockgate.cli.main import COMMITTED
from lockgate.cli.settings import gate_of
from lockgate.errors import StoreError
from lockgate.stores.answers import OutcomeUnknown
from lockgate.stores.sql import SqlStore
from tests import migrated
from tests.servers import redis_server

from .calling import Said, done

UNTOLD = "The cache could not be told"


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> Iterator[str]:
    """The id of a key of org_1, whose plan has 600 requests a minute; then Redis is killed."""
    database = migrated.sqlite(tmp_path / "keys.db")
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", "a-pepper-of-these-tests-8f2c41d0")
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)
    with redis_server() as server:
        monkeypatch.setenv("LOCKGATE_STORE", f"{database} {server.url()}")
        id: str = done(capsys, "keys", "create", "org_1", "first")["id"]
        done(capsys, "orgs", "place", "org_1", "free", "--rpm", "600")
        server.stop()
        yield id


def committed(capsys: Said, *arguments: str) -> Any:
    """The JSON that a command prints for a change that is made while a later step failed."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == COMMITTED
    said = capsys.readouterr()
    assert "The change is made: do not repeat the command. What remains:" in said.err
    assert "cannot be used" not in said.err
    return json.loads(said.out)


def test_a_rotation_prints_the_key_that_is_live_D52(key: str, capsys: Said) -> None:
    made = committed(capsys, "keys", "rotate", "org_1", key)
    assert made["replaces"]["successor_id"] == made["id"]
    gate = gate_of(None, None)
    (found,) = run(gate.keys.find(made["api_key"])).keys
    assert found.id == made["id"]
    run(gate.close())
    assert main(["keys", "rotate", "org_1", made["id"]]) == COMMITTED
    said = capsys.readouterr()
    assert re.fullmatch(r"acme_live_\w{8}_\w{43}\n", said.out)
    assert UNTOLD in said.err


def test_a_revocation_is_told_as_done_each_time_D52(key: str, capsys: Said) -> None:
    first = committed(capsys, "keys", "revoke", "org_1", key, "--yes")
    assert first["state"] == "revoked"
    assert committed(capsys, "keys", "revoke", "org_1", key, "--yes") == first


def test_an_update_and_a_plan_are_told_as_done_D52(key: str, capsys: Said) -> None:
    assert committed(capsys, "keys", "update", "org_1", key, "--name", "other")["name"] == "other"
    placed = committed(capsys, "orgs", "place", "org_1", "starter")
    assert placed["plan"] == "starter"
    assert placed["usage"]["minute"] == {"used": None, "limit": 30}
    assert committed(capsys, "orgs", "create", "org_2", "--plan", "creator")["plan"] == "creator"


def test_a_limit_that_is_raised_is_told_as_raised_D52(key: str, capsys: Said) -> None:
    for limit in (700, 800):
        found = committed(capsys, "orgs", "limits", "org_1", "--rpm", "+100")
        assert found["own_limits"] == {"rpm": limit}
    assert committed(capsys, "orgs", "limits", "org_1", "--clear", "rpm")["own_limits"] == {}


def test_explain_tells_what_the_database_knows_D52(key: str, capsys: Said) -> None:
    found = done(capsys, "explain", "org_1")
    assert (found["plan"], found["refused"], found["windows"]) == ("free", None, [])
    assert "The store of the windows does not answer" in found["unread"]
    assert [one["id"] for one in found["keys"]] == [key]
    assert main(["explain", "org_1", key]) == 0
    said = capsys.readouterr()
    assert re.search(r"^next request +not known$", said.out, re.MULTILINE)
    assert re.search(r"^minute +not known +600", said.out, re.MULTILINE)
    assert "each process decides by limits of its own" in said.err
    committed(capsys, "keys", "revoke", "org_1", key, "--yes")
    assert done(capsys, "explain", "org_1", key)["refused"]["code"] == "KEY_REVOKED"


def test_orgs_show_tells_the_plan_D52(key: str, capsys: Said) -> None:
    assert main(["orgs", "show", "org_1", "--json"]) == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["usage"]["minute"] == {"used": None, "limit": 600}
    assert "What is counted is not known: ConnectionError" in said.err


def test_a_new_key_needs_no_cache_D52(key: str, capsys: Said) -> None:
    assert "api_key" in done(capsys, "keys", "create", "org_1", "second")


def test_windows_that_cannot_be_emptied_are_told_as_a_failure_D52(key: str, capsys: Said) -> None:
    assert main(["orgs", "reset", "org_1", "--yes"]) == 3
    assert "The store cannot be used" in capsys.readouterr().err


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> str:
    """The id of a key of org_1 in a database without a cache."""
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", "a-pepper-of-these-tests-8f2c41d0")
    monkeypatch.setenv("LOCKGATE_STORE", migrated.sqlite(tmp_path / "keys.db"))
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)
    id: str = done(capsys, "keys", "create", "org_1", "first")["id"]
    done(capsys, "orgs", "place", "org_1", "free", "--rpm", "600")
    return id


@pytest.fixture
def unanswered(alone: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The database takes the changes of plans, and its replies are lost."""
    commit = SqlStore.commit

    async def lost(*arguments: Any) -> None:
        await commit(*arguments)
        raise OutcomeUnknown

    with monkeypatch.context() as patched:
        patched.setattr(SqlStore, "commit", lost)
        yield patched


def test_a_raise_whose_reply_was_lost_is_made_once_D52_D33(
    unanswered: pytest.MonkeyPatch, capsys: Said
) -> None:
    raising = "orgs", "limits", "org_1", "--rpm", "+100"
    assert main([*raising]) == 3
    told = re.search(r"add --change-id (\w+): then it is made once", capsys.readouterr().err)
    assert told is not None
    for _ in range(2):  # The change was made: these are nothing but answers.
        found = done(capsys, *raising, "--change-id", told[1])
        assert found["own_limits"] == {"rpm": 700}
    unanswered.undo()
    assert done(capsys, *raising, "--change-id", "another")["own_limits"] == {"rpm": 800}
    assert done(capsys, *raising, "--change-id", "another")["own_limits"] == {"rpm": 800}
    assert done(capsys, *raising)["own_limits"] == {"rpm": 900}
    (latest, *_) = done(capsys, "audit", "org_1")["changes"]
    assert latest["to"]["rpm"] == 900 and latest["to"]["change_id"]


def test_a_raise_that_was_not_made_is_made_by_its_repetition_D52(
    alone: str, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreError

    raising = "orgs", "limits", "org_1", "--rpm", "+100", "--change-id", "ticket 7"
    with monkeypatch.context() as patched:
        patched.setattr(SqlStore, "commit", away)
        assert main([*raising]) == 3
    assert "add --change-id 'ticket 7': then" in capsys.readouterr().err
    assert done(capsys, *raising)["own_limits"] == {"rpm": 700}


def test_a_change_id_of_another_change_is_refused_D52(alone: str, capsys: Said) -> None:
    done(capsys, "orgs", "limits", "org_1", "--rpm", "+60", "--change-id", "ticket 8")
    assert main(["orgs", "limits", "org_1", "--rpd", "+500", "--change-id", "ticket 8"]) == 2
    assert "named a change of rpm" in capsys.readouterr().err


def test_a_change_id_that_is_no_name_is_refused_D52(alone: str, capsys: Said) -> None:
    for name in ("", "x" * 65, "a\nb"):
        assert main(["orgs", "limits", "org_1", "--rpm", "+1", "--change-id", name]) == 2
        assert "A change_id is a text of 1 to 64" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["keys", "rotate", "org_1", "KEY"], "api_key"),
        (["keys", "revoke", "org_1", "KEY", "--yes"], "revoked_at"),
        (["orgs", "place", "org_1", "starter"], "plan"),
    ],
)
def test_a_store_that_fails_after_the_change_loses_no_result_D52(
    command: list[str],
    shown: str,
    alone: str,
    capsys: Said,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The database goes away between the change and what is read after it."""
    changed: list[bool] = []

    def noting(name: str) -> None:
        change = getattr(SqlStore, name)

        async def noted(*arguments: Any, **named: Any) -> Any:
            answer = await change(*arguments, **named)
            changed.append(True)
            return answer

        monkeypatch.setattr(SqlStore, name, noted)

    def failing(name: str) -> None:
        read = getattr(SqlStore, name)

        async def failed(*arguments: Any, **named: Any) -> Any:
            if changed:
                raise OSError("no answer")
            return await read(*arguments, **named)

        monkeypatch.setattr(SqlStore, name, failed)

    for name in ("rotate_if", "revoke_if_live", "put_organization"):
        noting(name)
    for name in ("now", "organization", "charge", "get", "find", "list"):
        failing(name)
    code = main([*(alone if word == "KEY" else word for word in command), "--json"])
    assert code in {0, COMMITTED}
    assert json.loads(capsys.readouterr().out)[shown]
