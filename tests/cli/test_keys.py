"""``lockgate keys`` and ``lockgate orgs``: an operator's day, without a line of Python."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from lockgate.cli import main
from lockgate.cli.output import print_fields
from lockgate.core.key_format import KeyFormat
from lockgate.services.keys import keys as keys_of_gate

from .calling import Said, done


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
    found = done(capsys, "keys", "show", "org_1", id)
    assert found.pop("creation")["action"] == "key_created"
    assert found == old
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
def test_an_organization_can_have_its_own_plan_and_limits(capsys: Said) -> None:
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


@pytest.mark.usefixtures("sqlite")
def test_the_table_shows_the_fields_of_the_json_document(capsys: Said) -> None:
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


def test_the_pattern_for_secret_scanners_is_printed_without_a_store(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOCKGATE_STORE", "LOCKGATE_GATE", "LOCKGATE_PEPPER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_ENVIRONMENT", "test")
    pattern = KeyFormat("acme", "test").scanner
    assert main(["keys", "pattern"]) == 0
    assert capsys.readouterr().out == f"{pattern}\n"
    assert done(capsys, "keys", "pattern") == {
        "brand": "acme",
        "environment": "test",
        "pattern": pattern,
    }


@pytest.mark.usefixtures("settings")
def test_find_names_the_organization_of_a_prefix_an_id_or_a_pasted_text(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = done(capsys, "keys", "create", "org_1", "ci")
    done(capsys, "keys", "create", "org_2", "other")
    text, id = created.pop("api_key"), created["id"]
    shown = f"{created['prefix']}..."
    for wanted, matched in ((shown, "prefix"), (shown[:13], "prefix"), (id, "id")):
        found = done(capsys, "keys", "find", wanted)
        assert set(found) == {"keys", "matched", "next_cursor"}
        assert (found["keys"], found["matched"], found["next_cursor"]) == ([created], matched, None)
    for arguments in ([], ["-"]):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n"))
        found = done(capsys, "keys", "find", *arguments)
        assert (found["keys"], found["matched"]) == ([created], "text")
    assert main(["keys", "find", "acme_live_00000", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {"keys": [], "matched": "prefix", "next_cursor": None}
    assert "No key was found." in err


@pytest.mark.usefixtures("settings")
def test_find_follows_pages_by_their_cursor(capsys: Said) -> None:
    ids = {done(capsys, "keys", "create", f"org_{n}", "ci")["id"] for n in range(70)}
    wanted = sorted(ids)[0]
    first = done(capsys, "keys", "find", wanted)
    assert first["keys"][0]["id"] == wanted
    assert main(["keys", "find", wanted, "--cursor", "*"]) == 1
    assert "cursor: " in capsys.readouterr().err


@pytest.mark.usefixtures("sqlite")
def test_find_refuses_a_key_text_as_an_argument_without_repeating_it(capsys: Said) -> None:
    text = done(capsys, "keys", "create", "org_1", "ci")["api_key"]
    for wrong in (text, text[:-1], f"Bearer {text}", text[:22]):
        assert main(["keys", "find", wrong]) == 2
        out, err = capsys.readouterr()
        assert text[18:22] not in out + err
        assert "standard input" in err and "history" in err and "rotate" in err


@pytest.mark.usefixtures("sqlite")
def test_find_prints_a_table_and_warns_of_unverified_text(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = done(capsys, "keys", "create", "org_1", "ci")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{created['api_key'][:-1]}\n"))
    assert main(["keys", "find"]) == 0
    out, err = capsys.readouterr()
    title, row = out.strip().split("\n")
    assert title.split()[:3] == ["organization", "id", "prefix"]
    assert row.split()[:2] == ["org_1", created["id"]]
    assert "not verified" in err
    assert created["api_key"][18:30] not in out + err


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize(
    "around",
    ["Bearer {}", "KEY={}", "see log: Authorization: Bearer {}", '{{"key": "{}"}}', "<{}>, ok?"],
)
def test_find_reads_a_key_in_the_text_around_it(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, around: str
) -> None:
    created = done(capsys, "keys", "create", "org_1", "ci")
    done(capsys, "keys", "create", "org_2", "other")
    monkeypatch.setattr("sys.stdin", io.StringIO(around.format(created["api_key"]) + "\n"))
    found = done(capsys, "keys", "find")
    assert ([key["id"] for key in found["keys"]], found["matched"]) == ([created["id"]], "text")


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize("start", ["acme_live_", "acme_live_...", "acme", "acme_live"])
def test_find_asks_for_more_than_the_beginning_of_all_keys(capsys: Said, start: str) -> None:
    done(capsys, "keys", "create", "org_1", "ci")
    assert main(["keys", "find", start]) == 1
    err = capsys.readouterr().err
    assert err == "Keys begin with acme_live_: give at least one character more.\n"


@pytest.mark.usefixtures("settings")
def test_the_changes_of_an_operator_are_shown_newest_first(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "grace \x1b[31m")
    key = done(capsys, "keys", "create", "org_1", "ci", "--days", "30")
    done(capsys, "keys", "update", "org_1", key["id"], "--name", "build", "--never-expires")
    done(capsys, "orgs", "place", "org_1", "creator", "--rpm", "7")
    done(capsys, "keys", "revoke", "org_1", key["id"], "--yes")
    found = done(capsys, "audit", "org_1", "--limit", "3")
    changes = found["changes"]
    actions = [change["action"] for change in changes]
    assert actions == ["key_revoked", "plan_assigned", "key_updated"]
    operator = {"kind": "operator", "id": "grace \x1b[31m", "address": None}
    assert all(change["actor"] == operator for change in changes)
    assert changes[1]["from"] == {"plan": None}
    assert changes[1]["to"] == {"plan": "creator", "rpm": 7}
    assert changes[2]["from"] == {"name": "ci", "expires_at": key["expires_at"]}
    assert changes[2]["to"] == {"name": "build", "expires_at": None}
    older = done(capsys, "audit", "org_1", "--cursor", found["next_cursor"])
    assert [change["action"] for change in older["changes"]] == ["key_created"]
    assert older["next_cursor"] is None
    of_key = done(capsys, "audit", "org_1", "--key", key["id"])
    assert len(of_key["changes"]) == 3
    assert key["api_key"] not in json.dumps([found, older, of_key])
    assert done(capsys, "audit", "org_2") == {"changes": [], "next_cursor": None}
    assert main(["audit", "org_1", "--limit", "2"]) == 0
    shown = capsys.readouterr()
    assert "operator grace \N{REPLACEMENT CHARACTER}[31m" in shown.out
    assert "plan: - -> creator, rpm: 7" in shown.out
    assert "--cursor" in shown.err
    assert main(["audit", "org_1", "--limit", "0"]) == 1


@pytest.mark.usefixtures("settings")
def test_a_key_has_labels_addresses_and_a_creator(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = "--label", "team=ci", "--label", "env=prod", "--address", "192.0.2.0/24"
    created = done(capsys, "keys", "create", "org_1", "ci", *options)
    id = created["id"]
    assert created["labels"] == {"env": "prod", "team": "ci"}
    assert created["addresses"] == ["192.0.2.0/24"]
    assert created["created_by"] == "shell"
    done(capsys, "keys", "create", "org_1", "web", "--label", "team=web", "--created-by", "ada")
    listed = done(capsys, "keys", "list", "org_1", "--label", "team=ci", "--label", "env=prod")
    assert [key["name"] for key in listed["keys"]] == ["ci"]
    listed = done(capsys, "keys", "list", "org_1", "--label", "team=web")
    assert [key["created_by"] for key in listed["keys"]] == ["ada"]
    changed = done(capsys, "keys", "update", "org_1", id, "--label", "team=all", "--any-address")
    assert (changed["labels"], changed["addresses"]) == ({"team": "all"}, [])
    rotated = done(capsys, "keys", "rotate", "org_1", id, "--created-by", "bob")
    assert (rotated["created_by"], rotated["replaces"]["created_by"]) == ("bob", "shell")
    assert rotated["labels"] == {"team": "all"}
    cleared = done(
        capsys, "keys", "update", "org_1", rotated["id"], "--no-labels", "--address", "::1"
    )
    assert (cleared["labels"], cleared["addresses"]) == ({}, ["::1"])
    assert main(["keys", "show", "org_1", rotated["id"]]) == 0
    assert "addresses        ::1" in capsys.readouterr().out


@pytest.mark.usefixtures("settings")
def test_limits_of_a_key_are_set_and_changed_by_the_shell(capsys: Said) -> None:
    options = "--limit", "export=3/hour", "--limit", "all=9/minute;99/day"
    created = done(capsys, "keys", "create", "org_1", "ci", *options)
    id = created["id"]
    assert created["limits"] == {"all": "9/minute;99/day", "export": "3/hour"}
    changed = done(capsys, "keys", "update", "org_1", id, "--limit", "export=4/hour")
    assert changed["limits"] == {"export": "4/hour"}
    assert main(["keys", "update", "org_1", id, "--limit", "export=4/century"]) == 1
    assert "limits: The limit 'export' has the rate" in capsys.readouterr().err
    assert main(["keys", "show", "org_1", id]) == 0
    assert "limits           export=4/hour" in capsys.readouterr().out
    cleared = done(capsys, "keys", "update", "org_1", id, "--no-limits")
    assert cleared["limits"] == {}


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    "wrong",
    [
        ("update", "org_1", "x", "--limit", "a=1/day", "--no-limits"),
        ("create", "org_1", "ci", "--limit", "3/hour"),
        ("create", "org_1", "ci", "--label", "team"),
        ("create", "org_1", "ci", "--label", "team=a", "--label", "team=b"),
        ("update", "org_1", "x", "--label", "team=a", "--no-labels"),
        ("update", "org_1", "x", "--address", "::1", "--any-address"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(
    capsys: Said, wrong: tuple[str, ...]
) -> None:
    assert main(["keys", *wrong]) == 2
    assert "--" in capsys.readouterr().err


@pytest.mark.usefixtures("settings")
def test_keys_that_end_soon_are_told_by_the_list_and_by_doctor(capsys: Said) -> None:
    done(capsys, "keys", "create", "org_1", "ci", "--days", "13")
    done(capsys, "keys", "create", "org_1", "web", "--days", "20")
    assert main(["keys", "list", "org_1"]) == 0
    said = capsys.readouterr()
    assert "1 of these end within 14 days" in said.err
    assert "ends" in said.out
    listed = done(capsys, "keys", "list", "org_1")
    assert [key["ends_soon"] for key in listed["keys"]] == [False, True]
    main(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    (keys,) = [found for found in findings if found["check"] == "expiry"]
    assert keys["level"] == "note"
    assert keys["text"].startswith("1 live keys end within 14 days: acme_live_")


@pytest.mark.usefixtures("settings")
def test_an_unknown_key_is_told_in_words_for_a_shell(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = KeyFormat("acme").generate().text
    for command, standard_input, words in (
        (["keys", "verify"], other, "No key in this store has this text"),
        (["keys", "verify"], "hello", "not the whole text of a key"),
        (["explain"], other, "No key in this store has this text"),
        (["explain"], "org_1", "not the whole text of a key"),
        (["keys", "show", "org_1", "x"], "", "lockgate keys list ORGANIZATION"),
        (["explain", "org_1", "x"], "", "lockgate keys list ORGANIZATION"),
        (["keys", "revoke", "org_1", "x", "--yes"], "", "lockgate keys list ORGANIZATION"),
        (["orgs", "usage", "org_1", "--key", "x"], "", "lockgate keys list ORGANIZATION"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{standard_input}\n"))
        assert main(command) == 1
        out, err = capsys.readouterr()
        assert (out, words in err) == ("", True), err
        assert "path" not in err and "Authorization" not in err
        assert other not in err


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize("command", [["keys", "verify"], ["keys", "find"], ["explain"]])
@pytest.mark.parametrize("given", [b"", b"\n", b"  '' \n", b"\xff\xfe\n"])
def test_standard_input_without_a_text_is_wrong_usage(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, command: list[str], given: bytes
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given), "utf-8"))
    assert main(command) == 2
    out, err = capsys.readouterr()
    assert (out, "Standard input holds no text" in err) == ("", True), err


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize("around", ["'{}'", '"{}",', "  `{}`  ", "\u201c{}\u201d"])
def test_a_pasted_key_is_found_in_quotes_and_white_space(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, around: str
) -> None:
    key = done(capsys, "keys", "create", "org_1", "ci")
    for command in (["keys", "verify"], ["keys", "find"], ["explain"]):
        monkeypatch.setattr("sys.stdin", io.StringIO(around.format(key["api_key"]) + "\n"))
        assert key["id"] in json.dumps(done(capsys, *command))
    found = done(capsys, "keys", "find", around.format(key["prefix"]))
    assert [one["id"] for one in found["keys"]] == [key["id"]]


@pytest.mark.usefixtures("settings")
def test_changes_since_an_instant_are_told_and_a_removed_limit_reads_no_limit(
    capsys: Said,
) -> None:
    done(capsys, "orgs", "create", "org_1")
    done(capsys, "orgs", "limits", "org_1", "--rpd", "none")
    done(capsys, "keys", "create", "org_1", "ci")
    created, limited, _ = done(capsys, "audit", "org_1")["changes"]
    assert set(created) == {
        "organization_id",
        "number",
        "at",
        "action",
        "key_id",
        "actor",
        "from",
        "to",
    }
    assert limited["to"] == {"plan": "free", "rpd": None}
    later = done(capsys, "audit", "org_1", "--since", created["at"])
    assert [change["number"] for change in later["changes"]][:1] == [created["number"]]
    for since in ("24h", "1d", "2020-01-01", limited["at"], "2020-01-01T00:00+02:00"):
        found = done(capsys, "audit", "org_1", "--since", since, "--limit", "1")
        assert (found["changes"], found["next_cursor"] is None) == ([created], False)
    nothing: Any = {"changes": [], "next_cursor": None}
    assert done(capsys, "audit", "org_1", "--since", "2099-01-01") == nothing
    assert main(["audit", "org_1"]) == 0
    assert "rpd: no limit" in capsys.readouterr().out
    for wrong in ("yesterday", "24", "-1h", "2026-13-01"):
        assert main(["audit", "org_1", f"--since={wrong}"]) == 2
        assert "write 2026-11-23" in capsys.readouterr().err


@pytest.mark.usefixtures("settings")
def test_a_list_by_label_goes_past_the_keys_that_one_page_reads_G10(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_of_gate, "_STEPS_AT_MOST", 1)
    monkeypatch.setattr(keys_of_gate, "READ_AT_ONCE", 2)
    for label in ("team=ci", "team=web", "team=ci", "team=web", "team=web", "team=web"):
        done(capsys, "keys", "create", "org_1", "a", "--label", label)
    listed = done(capsys, "keys", "list", "org_1", "--label", "team=ci")
    assert ([key["name"] for key in listed["keys"]], listed["next_cursor"]) == (["a", "a"], None)
    listed = done(capsys, "keys", "list", "org_1", "--label", "team=ci", "--limit", "1")
    cursor = listed["next_cursor"]
    assert len(listed["keys"]) == 1 and cursor is not None
    rest = done(capsys, "keys", "list", "org_1", "--label", "team=ci", "--cursor", cursor)
    assert len(rest["keys"]) == 1 and rest["keys"] != listed["keys"]
