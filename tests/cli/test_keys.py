"""``lockgate keys`` and ``lockgate orgs``: an operator's day, without a line of Python."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from lockgate.cli import main
from lockgate.cli.output import print_fields
from tests.servers import RedisServer, redis_server, shared

Said = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def settings(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment as an operator has it: a store, a brand and a pepper."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/keys.db?mode=rwc"
    elif request.param == "postgresql":
        url = shared("postgresql").create(f"cli_{token_hex(4)}")
    else:
        server = request.getfixturevalue("redis")
        url = server.url()
        server.client().flushall()
    monkeypatch.setenv("LOCKGATE_STORE", url)
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", "a-pepper-of-these-tests-8f2c41d0")
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)
    if request.param == "postgresql":
        assert main(["db", "upgrade"]) == 0


def done(capsys: Said, *arguments: str) -> Any:
    """The JSON that a command prints."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("settings")
def test_a_key_is_created_listed_shown_verified_and_revoked(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = "--scope", "jobs:*", "--scope", "models:read", "--days", "30"
    created = done(capsys, "keys", "create", "org_1", "ci", *options)
    text, id = created["api_key"], created["id"]
    assert text.startswith("acme_live_")
    assert sorted(created["scopes"]) == ["jobs:*", "models:read"]
    assert created["expires_at"] is not None
    listed = done(capsys, "keys", "list", "org_1")
    assert [key["id"] for key in listed["keys"]] == [id]
    assert "api_key" not in listed["keys"][0]
    assert done(capsys, "keys", "show", "org_1", id)["name"] == "ci"
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n"))
    assert done(capsys, "keys", "verify")["organization_id"] == "org_1"
    revoked = done(capsys, "keys", "revoke", "org_1", id, "--yes")
    assert revoked["revoked_at"] is not None
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n"))
    assert main(["keys", "verify", "--json"]) == 1


@pytest.mark.usefixtures("settings")
def test_a_key_is_updated_rotated_and_revoked_with_its_successor(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = done(capsys, "keys", "create", "org_1", "ci", "--days", "30")["id"]
    options = "--name", "deploy", "--scope", "jobs:read", "--never-expires"
    updated = done(capsys, "keys", "update", "org_1", id, *options)
    assert (updated["name"], updated["scopes"]) == ("deploy", ["jobs:read"])
    assert (updated["expires_at"], updated["successor_id"]) == (None, None)
    rotated = done(capsys, "keys", "rotate", "org_1", id, "--overlap-days", "1")
    assert rotated["name"] == "deploy"
    old = rotated["replaces"]
    assert (old["id"], old["successor_id"], old["state"]) == (id, rotated["id"], "active")
    assert old["rotated_at"] is not None and old["expires_at"] is not None
    assert done(capsys, "keys", "show", "org_1", id) == old
    assert main(["keys", "rotate", "org_1", id]) == 1
    assert rotated["id"] in capsys.readouterr().err
    last = done(capsys, "keys", "rotate", "org_1", rotated["id"], "--overlap-days", "0", "--yes")
    assert last["replaces"]["state"] == "revoked"
    done(capsys, "keys", "revoke", "org_1", id, "--successors", "--yes")
    listed = done(capsys, "keys", "list", "org_1")["keys"]
    assert [key["state"] for key in listed] == ["revoked"] * 3
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{last['api_key']}\n"))
    assert main(["keys", "verify", "--json"]) == 1


@pytest.mark.usefixtures("settings")
def test_a_plan_and_limits_of_its_own_hold_for_an_organization(capsys: Said) -> None:
    assert done(capsys, "orgs", "show", "org_1")["plan"] == "free"
    placed = done(capsys, "orgs", "place", "org_1", "creator", "--rpm", "1234")
    assert (placed["plan"], placed["limits"]["rpm"]) == ("creator", 1234)
    assert done(capsys, "orgs", "show", "org_1")["limits"]["rpm"] == 1234


@pytest.mark.usefixtures("settings")
def test_pages_follow_by_their_cursor(capsys: Said) -> None:
    ids = {done(capsys, "keys", "create", "org_1", f"key {n}")["id"] for n in range(5)}
    first = done(capsys, "keys", "list", "org_1", "--limit", "3")
    cursor = first["next_cursor"]
    second = done(capsys, "keys", "list", "org_1", "--limit", "3", "--cursor", cursor)
    assert second["next_cursor"] is None
    assert {key["id"] for key in first["keys"] + second["keys"]} == ids


@pytest.fixture
def sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKGATE_STORE", f"sqlite:///{tmp_path}/keys.db?mode=rwc")
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", "a-pepper-of-these-tests-8f2c41d0")
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)


@pytest.mark.usefixtures("sqlite")
def test_a_table_for_people_shows_what_the_document_holds(capsys: Said) -> None:
    created = done(capsys, "keys", "create", "org_1", "ci")
    assert main(["keys", "list", "org_1"]) == 0
    out = capsys.readouterr().out
    title, row = out.strip().split("\n")
    assert title.split()[:3] == ["id", "prefix", "state"]
    assert created["id"] in row
    assert "active" in row
    assert created["api_key"] not in out


@pytest.mark.usefixtures("sqlite")
def test_the_text_of_a_new_key_is_all_that_a_script_reads(capsys: Said) -> None:
    assert main(["keys", "create", "org_1", "ci"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert out.startswith("acme_live_")


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_a_revocation_asks_first_and_changes_nothing_without_a_yes(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    id = done(capsys, "keys", "create", "org_1", "ci")["id"]
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert main(["keys", "revoke", "org_1", id]) == 1
    err = capsys.readouterr().err
    assert "never used" in err
    assert "nothing was changed" in err
    assert done(capsys, "keys", "show", "org_1", id)["revoked_at"] is None


@pytest.mark.usefixtures("sqlite")
def test_the_text_of_the_successor_is_all_that_a_script_reads(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = done(capsys, "keys", "create", "org_1", "ci")["id"]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert main(["keys", "rotate", "org_1", id, "--overlap-days", "0"]) == 1
    assert "End 'ci'" in capsys.readouterr().err
    assert main(["keys", "rotate", "org_1", id]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("acme_live_") and out.count("\n") == 1
    assert "works until" in err


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["keys", "show", "org_1", "no-such-key"], 1, "lockgate keys show: "),
        (["keys", "create", "org_1", " "], 1, "name: Use 1 to 100 characters."),
        (["keys", "create", "org_1", "ci", "--scope", "nope"], 1, "There is no scope 'nope'."),
        (["keys", "create", "org_1", "ci", "--days", "0"], 1, "greater than 0"),
        (["keys", "update", "org_1", "no-such-key", "--name", "b"], 1, "keys update: "),
        (["keys", "update", "org_1", "no-such-key"], 2, "something to change"),
        (["keys", "update", "org_1", "x", "--days", "1", "--never-expires"], 2, "not both"),
        (["keys", "rotate", "org_1", "x", "--overlap-days", "91"], 1, "from 0 to 90"),
        (["keys", "list", "org_1", "--limit", "0"], 1, "Use 1 to 1000."),
        (["keys", "list", "org_1", "--cursor", "x"], 1, "cursor"),
        (["orgs", "place", "org_1", "nope"], 2, "nope"),
        (["orgs", "place", "org_1", "free", "--rpm", "-1"], 2, "rpm"),
        (["keys", "list", "org_1", "--gate", "json:dumps"], 2, "is a function"),
        (["keys", "list", "org_1", "--gate", "nowhere:gate"], 2, "nowhere"),
        (["keys", "list", "org_1", "--gate", "json"], 2, "module:name"),
    ],
)
def test_a_mistake_is_named_with_its_exit_code(
    capsys: Said, arguments: list[str], code: int, said: str
) -> None:
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert (out, said in err) == ("", True), err
    assert "Traceback" not in err


def test_without_settings_the_message_names_them(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOCKGATE_GATE", "LOCKGATE_BRAND", "LOCKGATE_STORE"):
        monkeypatch.delenv(name, raising=False)
    assert main(["keys", "list", "org_1"]) == 2
    assert "LOCKGATE_GATE" in capsys.readouterr().err


def test_a_store_that_does_not_answer_is_exit_code_3(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKGATE_STORE", "redis://127.0.0.1:1")
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)
    assert main(["keys", "list", "org_1"]) == 3
    assert "lockgate keys list: " in capsys.readouterr().err


def test_the_gate_of_the_service_brings_its_plans(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "service_of_this_test.py").write_text(
        "from lockgate import Gate, Plan, PlanBook\n"
        f"gate = Gate('sqlite:///{tmp_path}/keys.db?mode=rwc', brand='acme',\n"
        "            plans=PlanBook([Plan('gold', 77, None, None, 1)], default='gold'))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKGATE_GATE", "service_of_this_test:gate")
    assert done(capsys, "orgs", "show", "org_1")["limits"]["rpm"] == 77


def test_no_control_character_reaches_a_terminal(capsys: Said) -> None:
    print_fields([("name", "a\x1b[2Jb")])
    assert "\x1b" not in capsys.readouterr().out


def test_init_writes_a_gate_that_the_commands_use(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "started.py", "--brand", "tiny"]) == 0
    for line in capsys.readouterr().out.splitlines():
        name, _, value = line.removeprefix("export ").partition("=")
        monkeypatch.setenv(name, value)
    assert main(["db", "upgrade"]) == 0
    assert done(capsys, "keys", "create", "org_1", "first")["api_key"].startswith("tiny_live_")
    assert main(["init", "started.py"]) == 2
    assert "exists already" in capsys.readouterr().err
