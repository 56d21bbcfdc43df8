"""``lockgate keys`` and ``lockgate audit``: an operator's day, without a line of Python."""

from __future__ import annotations

import io
import json

import pytest

from lockgate import Actor, acting, run
from lockgate.cli.output import print_fields
from lockgate.core.key_format import KeyFormat
from lockgate.services.keys import keys as keys_of_gate

from .calling import Said, Service, Shell, serving

NOTHING: dict[str, object] = {"changes": [], "next_cursor": None}


@pytest.mark.usefixtures("url")
def test_a_key_is_created_listed_shown_verified_and_revoked(shell: Shell) -> None:
    created = shell.json("keys create org_1 ci --scope jobs:* --scope models:read --days 30")
    text, id = created["api_key"], created["id"]
    assert text.startswith("acme_live_")
    assert sorted(created["scopes"]) == ["jobs:*", "models:read"]
    assert created["expires_at"] is not None
    (listed,) = shell.json("keys list org_1")["keys"]
    assert listed["id"] == id and "api_key" not in listed
    assert shell.json("keys show org_1", id)["name"] == "ci"
    assert shell.json("keys verify", given=text)["organization_id"] == "org_1"
    assert shell.json("keys revoke org_1 --yes", id)["revoked_at"] is not None
    shell("keys verify --json", given=text, code=1)


@pytest.mark.usefixtures("url")
def test_a_key_is_updated_rotated_and_revoked_with_its_successor(shell: Shell) -> None:
    id = shell.json("keys create org_1 ci --days 30")["id"]
    updated = shell.json("keys update org_1 --name deploy --scope jobs:read --never-expires", id)
    assert (updated["name"], updated["scopes"]) == ("deploy", ["jobs:read"])
    assert (updated["expires_at"], updated["successor_id"]) == (None, None)
    rotated = shell.json("keys rotate org_1 --overlap-days 1", id)
    assert rotated["name"] == "deploy"
    old = rotated["replaces"]
    assert (old["id"], old["successor_id"], old["state"]) == (id, rotated["id"], "active")
    assert old["rotated_at"] is not None and old["expires_at"] is not None
    found = shell.json("keys show org_1", id)
    assert found.pop("creation")["action"] == "key_created"
    assert found == old
    assert rotated["id"] in shell("keys rotate org_1", id, code=1).err
    creation = shell.json("keys show", rotated["id"])["creation"]
    assert (creation["action"], creation["actor"]["kind"]) == ("key_rotated", "operator")
    last = shell.json("keys rotate org_1 --overlap-days 0 --yes", rotated["id"])
    assert last["replaces"]["state"] == "revoked"
    shell("keys revoke org_1 --successors --yes", id)
    listed = shell.json("keys list org_1")["keys"]
    assert [key["state"] for key in listed] == ["revoked"] * 3
    shell("keys verify", given=last["api_key"], code=1)


@pytest.mark.usefixtures("sqlite")
def test_the_text_of_a_new_key_is_all_that_a_script_reads(shell: Shell) -> None:
    text = shell("keys create org_1 ci").out
    assert text.count("\n") == 1 and text.startswith("acme_live_")
    out = shell("keys list org_1").out
    title, row = out.strip().split("\n")
    assert title.split()[:3] == ["id", "prefix", "state"]
    id = row.split()[0]
    assert "active" in row and text.strip() not in out
    assert "End 'ci'" in shell("keys rotate org_1 --overlap-days 0", id, given="n", code=1).err
    out, err = shell("keys rotate org_1", id)
    assert out.startswith("acme_live_") and out.count("\n") == 1
    assert "works until" in err


@pytest.mark.usefixtures("sqlite")
def test_a_revocation_asks_first_and_changes_nothing_without_a_yes(shell: Shell) -> None:
    id = shell.json("keys create org_1 ci")["id"]
    for answer in ("n", ""):
        err = shell("keys revoke org_1", id, given=answer, code=1).err
        assert "never used" in err and "nothing was changed" in err
    assert shell.json("keys show org_1", id)["revoked_at"] is None


MISTAKES = [
    ("keys show org_1 no-such-key", 1, "lockgate keys show: "),
    ("keys create org_1 ' '", 1, "name: Use 1 to 100 characters."),
    ("keys create org_1 ci --scope nope", 1, "There is no scope 'nope'."),
    ("keys create org_1 ci --days 0", 1, "greater than 0"),
    ("keys update org_1 no-such-key --name b", 1, "keys update: "),
    ("keys update org_1 no-such-key", 2, "something to change"),
    ("keys update org_1 x --days 1 --never-expires", 2, "not both"),
    ("keys update org_1 x --limit a=1/day --no-limits", 2, "--"),
    ("keys update org_1 x --label team=a --no-labels", 2, "--"),
    ("keys update org_1 x --address ::1 --any-address", 2, "--"),
    ("keys create org_1 ci --limit 3/hour", 2, "--"),
    ("keys create org_1 ci --label team", 2, "--"),
    ("keys create org_1 ci --label team=a --label team=b", 2, "--"),
    ("keys rotate org_1 x --overlap-days 91", 1, "from 0 to 90"),
    ("keys list org_1 --limit 0", 1, "Use 1 to 1000."),
    ("keys list org_1 --cursor x", 1, "cursor"),
    ("keys list org_1 --gate json:dumps", 2, "is a function"),
    ("keys list org_1 --gate nowhere:gate", 2, "nowhere"),
    ("keys list org_1 --gate json", 2, "module:name"),
    ("keys list org_1 --store redis://127.0.0.1:1", 3, "lockgate keys list: "),
    ("keys find acme_live_1 --user u", 2, "not both"),
    ("keys find --user u --cursor abcd", 1, "cursor"),
    ("orgs place org_1 nope", 2, "nope"),
    ("orgs place org_1 free --rpm -1", 2, "rpm"),
    ("orgs create", 2, "ORGANIZATION"),
    ("orgs create org_1 --email a@example.com", 2, "--agent"),
    ("orgs create --email a@example.com --agent b", 2, "Registration("),
    ("orgs create org_9 --plan nope", 2, "nope"),
    ("orgs claim org_1 user_1", 2, "Registration("),
    ("orgs list --limit 0", 1, "Use 1 to 1000."),
    ("orgs list --cursor *", 1, "cursor"),
    ("orgs limits org_1 --clear nope", 2, "nope"),
    ("orgs limits org_1 --rpd 5 --clear rpd", 2, "not both"),
    ("orgs limits org_1 --rpd 5 --clear all", 2, "not both"),
    ("orgs limits org_1 --rpm 5 --until 2020-01-01", 2, "past"),
    ("orgs limits org_1 --rpm 5 --until soon", 2, "2h or tonight"),
    ("orgs limits org_1 --until 2h", 2, "--rpd +500"),
    ("orgs limits org_1 --clear rpm --until 2h", 2, "--rpd +500"),
    ("orgs limits org_1 --end --clear all", 2, "--end"),
    ("audit", 2, "--since"),
    ("audit --since 24h --cursor x", 2, "--since alone"),
    ("audit org_1 --limit 0", 1, "Use 1 to"),
    ("audit org_1 --since yesterday", 2, "write 2026-11-23"),
    ("audit org_1 --since=-1h", 2, "write 2026-11-23"),
]
"""Each with its exit code and a part of what is said."""


@pytest.mark.usefixtures("sqlite")
def test_a_mistake_is_named_with_its_exit_code(shell: Shell) -> None:
    shell("keys create org_1 ci")
    for command, code, said in MISTAKES:
        out, err = shell(command, code=code)
        assert (out, said in err) == ("", True), (command, err)
    assert shell.json("orgs limits org_1")["own_limits"] == {}
    assert shell.json("orgs limits org_1")["temporary_limits"] == {}


def test_the_gate_of_the_service_brings_its_plans(
    shell: Shell, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = service.write(
        "from lockgate import Gate, Plan, PlanBook\n"
        "gate = Gate('sqlite:///keys.db?mode=rwc', brand='acme',\n"
        "            plans=PlanBook([Plan('gold', 77, None, None, 1)], default='gold'))\n"
    )
    monkeypatch.setenv("LOCKGATE_GATE", f"{name}:gate")
    assert shell.json("orgs show org_1")["limits"]["rpm"] == 77


def test_no_control_character_reaches_a_terminal(capsys: Said) -> None:
    print_fields([("name", "a\x1b[2Jb")])
    assert "\x1b" not in capsys.readouterr().out


def test_init_writes_a_gate_that_the_commands_use(
    shell: Shell, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in shell("init started.py --brand tiny").out.splitlines():
        name, _, value = line.removeprefix("export ").partition("=")
        monkeypatch.setenv(name, value)
    shell("db upgrade")
    assert shell.json("keys create org_1 first")["api_key"].startswith("tiny_live_")
    assert "exists already" in shell("init started.py", code=2).err


def test_the_pattern_for_secret_scanners_is_printed_without_a_store(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STORE", "PEPPER"):
        monkeypatch.delenv(f"LOCKGATE_{name}")
    monkeypatch.setenv("LOCKGATE_ENVIRONMENT", "test")
    pattern = KeyFormat("acme", "test").scanner
    assert shell("keys pattern").out == f"{pattern}\n"
    found = {"brand": "acme", "environment": "test", "pattern": pattern}
    assert shell.json("keys pattern") == found


# --- finding ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("sqlite")
def test_find_and_show_name_the_key_of_a_prefix_an_id_or_a_pasted_text(shell: Shell) -> None:
    with acting(Actor("user", "auth0|65f2", "192.0.2.7")):
        gate = serving()
        text = run(gate.keys.create("org_1", "ci")).text
        run(gate.close())
    shell("keys create org_2 other")
    (created,) = shell.json("keys list org_1")["keys"]
    id, shown = created["id"], f"{created['prefix']}..."
    detail = shell.json("keys show org_1", id)
    assert detail["creation"] == {
        "at": created["created_at"],
        "action": "key_created",
        "actor": {"kind": "user", "id": "auth0|65f2", "address": "192.0.2.7"},
    }
    for wanted, matched in ((shown, "prefix"), (shown[:13], "prefix"), (id, "id")):
        found = shell.json("keys find", wanted)
        assert (found["keys"], found["matched"], found["next_cursor"]) == ([created], matched, None)
    for wanted in (id, shown):
        assert shell.json("keys show", wanted) == detail
    for around in ("Bearer {}", "KEY={}", "see log: {}", "<{}>, ok?", '"{}",'):
        pasted = around.format(text)
        for command in ("keys find", "keys find -"):
            assert [one["id"] for one in shell.json(command, given=pasted)["keys"]] == [id]
    for quoted in (f"'{text}'", f'"{text}",', f"  `{text}`  ", f"\u201c{text}\u201d"):
        assert shell.json("keys verify", given=quoted)["id"] == id
        assert [one["id"] for one in shell.json("explain", given=quoted)["keys"]] == [id]
    out, err = shell("keys show", given=f"Authorization: Bearer {text}")
    rows = [row.split() for row in out.splitlines()]
    assert ["made_by", "user", "auth0|65f2"] in rows and ["made_from", "192.0.2.7"] in rows
    assert "This is the whole text of the key." in err and text not in out + err
    out, err = shell("keys find", given=text[:-1])
    title, row = out.strip().split("\n")
    assert title.split()[:3] == ["organization", "id", "prefix"]
    assert row.split()[:2] == ["org_1", id]
    assert "not verified" in err and text[18:30] not in out + err
    out, err = shell("keys find acme_live_00000 --json", code=1)
    assert json.loads(out) == {"keys": [], "matched": "prefix", "next_cursor": None}
    assert "No key was found." in err
    for start in ("acme_live_", "acme_live_...", "acme"):
        told = "Keys begin with acme_live_: give at least one character more.\n"
        assert shell("keys find", start, code=1).err == told
    for arguments, code, said in (
        (["acme_live_" + "z" * 8], 1, "No key was found"),
        (["org_1"], 1, "No key was found"),
        (["org_2", id], 1, "keys find ID"),
    ):
        assert said in shell("keys show", *arguments, code=code).err


@pytest.mark.usefixtures("sqlite")
def test_a_key_text_as_an_argument_is_refused_without_repeating_it_K11(shell: Shell) -> None:
    text = shell.json("keys create org_1 ci")["api_key"]
    for wrong in (text, text[:-1], f"Bearer {text}", text[:22]):
        out, err = shell("keys find", wrong, code=2)
        assert text[18:22] not in out + err
        assert "standard input" in err and "history" in err and "rotate" in err
    for command in ("keys show", "explain"):
        out, err = shell(command, text, code=2)
        assert "history" in err and text not in out + err


@pytest.mark.usefixtures("sqlite")
def test_an_unknown_key_is_told_in_words_for_a_shell(
    shell: Shell, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = KeyFormat("acme").generate().text
    unknown, lists = "No key in this store has this text", "lockgate keys list ORGANIZATION"
    for command, given, words in (
        ("keys verify", other, unknown),
        ("keys verify", "hello", "not the whole text of a key"),
        ("explain", other, unknown),
        ("explain", "org_1", "not the whole text of a key"),
        ("keys show org_1 x", "", lists),
        ("explain org_1 x", "", lists),
        ("keys revoke org_1 x --yes", "", lists),
        ("orgs usage org_1 --key x", "", lists),
    ):
        out, err = shell(command, given=given, code=1)
        assert (out, words in err) == ("", True), err
        assert "path" not in err and "Authorization" not in err and other not in err
    for command in ("keys verify", "keys find", "keys show", "explain"):
        for sent in (b"", b"  '' \n", b"\xff\xfe\n"):
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(sent), "utf-8"))
            out, err = shell(command, code=2)
            assert (out, "Standard input holds no text" in err) == ("", True), err


# --- what a key has -----------------------------------------------------------------------------


@pytest.mark.usefixtures("sqlite")
def test_a_key_has_labels_addresses_limits_and_a_creator(shell: Shell) -> None:
    created = shell.json(
        "keys create org_1 ci --label team=ci --label env=prod --address 192.0.2.0/24 "
        "--limit export=3/hour --limit 'all=9/minute;99/day'"
    )
    id = created["id"]
    assert created["labels"] == {"env": "prod", "team": "ci"}
    assert (created["addresses"], created["created_by"]) == (["192.0.2.0/24"], "shell")
    assert created["limits"] == {"all": "9/minute;99/day", "export": "3/hour"}
    shell("keys create org_1 web --label team=web --created-by ada")
    listed = shell.json("keys list org_1 --label team=ci --label env=prod")
    assert [key["name"] for key in listed["keys"]] == ["ci"]
    listed = shell.json("keys list org_1 --label team=web")
    assert [key["created_by"] for key in listed["keys"]] == ["ada"]
    changed = shell.json(
        "keys update org_1 --label team=all --any-address --limit export=4/hour", id
    )
    assert (changed["labels"], changed["addresses"]) == ({"team": "all"}, [])
    assert changed["limits"] == {"export": "4/hour"}
    err = shell("keys update org_1 --limit export=4/century", id, code=1).err
    assert "limits: The limit 'export' has the rate" in err
    assert "limits           export=4/hour" in shell("keys show org_1", id).out
    rotated = shell.json("keys rotate org_1 --created-by bob", id)
    assert (rotated["created_by"], rotated["replaces"]["created_by"]) == ("bob", "shell")
    assert rotated["labels"] == {"team": "all"}
    shell("keys update org_1 --no-labels --address ::1 --no-limits", rotated["id"])
    cleared = shell.json("keys show org_1", rotated["id"])
    assert (cleared["labels"], cleared["addresses"], cleared["limits"]) == ({}, ["::1"], {})


@pytest.mark.usefixtures("sqlite")
def test_keys_that_end_soon_are_told_by_the_list_and_by_doctor(shell: Shell) -> None:
    for days in ("13", "20"):
        shell("keys create org_1 ci --days", days)
    out, err = shell("keys list org_1")
    assert "1 of these end within 14 days" in err and "ends" in out
    listed = shell.json("keys list org_1")
    assert [key["ends_soon"] for key in listed["keys"]] == [False, True]
    findings = {one["check"]: one for one in shell.json("doctor")["findings"]}
    assert findings["expiry"]["level"] == "note"
    assert findings["expiry"]["text"].startswith("1 live keys end within 14 days: acme_live_")


@pytest.mark.usefixtures("sqlite")
def test_a_list_follows_its_cursor_past_the_keys_that_one_page_reads_G10(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_of_gate, "_STEPS_AT_MOST", 1)
    monkeypatch.setattr(keys_of_gate, "READ_AT_ONCE", 2)
    for label in ("ci", "web", "ci", "web", "web", "web"):
        shell("keys create org_1 a --label", f"team={label}")
    listed = shell.json("keys list org_1 --label team=ci")
    assert (len(listed["keys"]), listed["next_cursor"]) == (2, None)
    first = shell.json("keys list org_1 --label team=ci --limit 1")
    rest = shell.json("keys list org_1 --label team=ci --cursor", first["next_cursor"])
    assert first["keys"] + rest["keys"] == listed["keys"]


# --- the audit log ------------------------------------------------------------------------------


@pytest.mark.usefixtures("url")
def test_the_changes_of_an_operator_are_shown_newest_first(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "grace \x1b[31m")
    key = shell.json("keys create org_1 ci --days 30")
    shell("keys update org_1 --name build --never-expires", key["id"])
    shell("orgs place org_1 creator --rpm 7")
    shell("keys revoke org_1 --yes", key["id"])
    found = shell.json("audit org_1 --limit 3")
    revoked, placed, updated = found["changes"]
    actions = [change["action"] for change in found["changes"]]
    assert actions == ["key_revoked", "plan_assigned", "key_updated"]
    operator = {"kind": "operator", "id": "grace \x1b[31m", "address": None}
    assert revoked["actor"] == placed["actor"] == updated["actor"] == operator
    assert (placed["from"], placed["to"]) == ({"plan": None}, {"plan": "creator", "rpm": 7})
    assert updated["from"] == {"name": "ci", "expires_at": key["expires_at"]}
    assert updated["to"] == {"name": "build", "expires_at": None}
    older = shell.json("audit org_1 --cursor", found["next_cursor"])
    (created,) = older["changes"]
    assert (created["action"], older["next_cursor"]) == ("key_created", None)
    of_key = shell.json("audit org_1 --key", key["id"])
    assert len(of_key["changes"]) == 3
    assert key["api_key"] not in json.dumps([found, older, of_key])
    assert shell.json("audit org_2") == NOTHING
    out, err = shell("audit org_1 --limit 2")
    assert "operator grace \N{REPLACEMENT CHARACTER}[31m" in out
    assert "plan: - -> creator, rpm: 7" in out and "--cursor" in err
    for since in ("24h", "1d", "2020-01-01", created["at"], "2020-01-01T00:00+02:00"):
        latest = shell.json("audit org_1 --limit 1 --since", since)
        assert (latest["changes"], latest["next_cursor"] is None) == ([revoked], False)
    assert shell.json("audit org_1 --since 2099-01-01") == NOTHING
