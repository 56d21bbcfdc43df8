"""``lockgate orgs``: list, create, limits, reset and claim, as an operator does."""

from __future__ import annotations

import importlib
import io
import os
import re
from datetime import datetime, time, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any
from unittest.mock import ANY

import pytest

from lockgate import Gate, run
from lockgate.cli import main
from lockgate.core.quota_leases import LeaseRequest
from lockgate.options import StoreOptions
from tests.patience import SECONDS

from .calling import Said, done

PEPPER = "a-pepper-of-these-tests-8f2c41d0"


@pytest.mark.usefixtures("settings")
def test_organizations_are_listed_with_plan_live_keys_and_last_use(capsys: Said) -> None:
    text = done(capsys, "keys", "create", "org_1", "ci")["api_key"]
    done(capsys, "keys", "create", "org_1", "other")
    done(capsys, "orgs", "place", "org_2", "creator", "--rpm", "1234")
    found = done(capsys, "orgs", "list")
    assert set(found) == {"organizations", "next_cursor"}
    listed = {one.pop("organization_id"): one for one in found["organizations"]}
    assert listed == {
        "org_1": {"plan": "free", "assigned_plan": None, "live_keys": 2, "last_used_at": None},
        "org_2": {
            "plan": "creator",
            "assigned_plan": "creator",
            "live_keys": 0,
            "last_used_at": None,
        },
    }
    used(text)
    (one,) = done(capsys, "orgs", "list", "--plan", "free")["organizations"]
    assert one["organization_id"] == "org_1"
    assert one["last_used_at"] is not None
    assert main(["orgs", "list"]) == 0
    title, *rows = capsys.readouterr().out.strip().split("\n")
    assert title.split() == ["plan", "live", "keys", "last", "used", "organization"]
    assert {row.split()[-1] for row in rows} == {"org_1", "org_2"}


def used(text: str, times: int = 1) -> None:
    """Make requests with a key on the store of the environment."""
    gate = Gate(
        os.environ["LOCKGATE_STORE"],
        brand="acme",
        peppers=[PEPPER.encode()],
        store_options=StoreOptions(deadline=30),
    )
    for _ in range(times):
        run(gate.authenticate(text))
    run(gate.close())


@pytest.mark.usefixtures("settings")
def test_pages_of_organizations_miss_none(capsys: Said) -> None:
    for number in range(12):
        done(capsys, "orgs", "create", f"org_{number}")
    ids: set[str] = set()
    cursor: list[str] = []
    for _ in range(20):
        page = done(capsys, "orgs", "list", "--limit", "5", *cursor)
        ids |= {one["organization_id"] for one in page["organizations"]}
        if page["next_cursor"] is None:
            break
        cursor = ["--cursor", page["next_cursor"]]
    assert ids == {f"org_{number}" for number in range(12)}


@pytest.mark.usefixtures("settings")
def test_a_new_organization_is_put_on_a_plan_once(capsys: Said) -> None:
    made = done(capsys, "orgs", "create", "org_1", "--plan", "starter", "--rpm", "77")
    assert (made["plan"], made["limits"]["rpm"]) == ("starter", 77)
    assert main(["orgs", "create", "org_1"]) == 1
    assert "already" in capsys.readouterr().err
    done(capsys, "keys", "create", "org_2", "ci")
    assert main(["orgs", "create", "org_2"]) == 1


@pytest.mark.usefixtures("settings")
def test_limits_are_added_to_set_and_cleared(capsys: Said) -> None:
    done(capsys, "keys", "create", "org_1", "ci")
    shown = done(capsys, "orgs", "limits", "org_1")
    assert set(shown) == {
        *("organization_id", "plan", "assigned_plan", "limits", "own_limits", "temporary_limits")
    }
    assert (shown["assigned_plan"], shown["own_limits"]) == (None, {})
    more = done(capsys, "orgs", "limits", "org_1", "--rpd", "+500", "--concurrent", "none")
    assert more["own_limits"] == {"rpd": 1000, "concurrent": None}
    assert (more["plan"], more["assigned_plan"], more["limits"]["rpm"]) == ("free", "free", 10)
    again = done(capsys, "orgs", "limits", "org_1", "--rpm", "7", "--clear", "concurrent")
    assert again["own_limits"] == {"rpd": 1000, "rpm": 7}
    assert done(capsys, "orgs", "limits", "org_1", "--clear", "all")["own_limits"] == {}
    assert done(capsys, "orgs", "show", "org_1")["limits"]["rpd"] == 500
    assert main(["orgs", "limits", "org_1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["concurrent", "2", "plan"]


@pytest.mark.usefixtures("settings")
def test_a_limit_ends_by_itself(capsys: Said) -> None:
    key = done(capsys, "keys", "create", "org_1", "ci")
    done(capsys, "orgs", "limits", "org_1", "--rpd", "700", "--rph", "90")
    arguments = "--rpd", "+500", "--rpm", "none", "--clear", "rph", "--until", "2999-12-31T09:30"
    found = done(capsys, "orgs", "limits", "org_1", *arguments)
    end = "2999-12-31T09:30:00.000Z"
    assert (found["limits"]["rpd"], found["own_limits"]) == (1200, {"rpd": 700})
    assert found["temporary_limits"] == {
        "rpd": {"limit": 1200, "until": end},
        "rpm": {"limit": None, "until": end},
    }
    latest, _, created = done(capsys, "audit", "org_1")["changes"]
    assert created["key_id"] == key["id"]
    assert latest["to"] == {
        "plan": "free",
        "rpd": 700,
        "temporary_rpd": 1200,
        "temporary_rpd_ends_at": end,
        "temporary_rpm": None,
        "temporary_rpm_ends_at": end,
        "change_id": ANY,
    }
    assert main(["audit", "org_1", "--limit", "1"]) == 0
    out = capsys.readouterr().out
    assert f"rpd until {end}: 1200" in out and f"rpm until {end}: no limit" in out
    assert main(["orgs", "limits", "org_1"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["rpd", "1200", "own", "until", end] in rows
    assert ["rph", "100", "plan"] in rows
    lasting = done(capsys, "orgs", "limits", "org_1", "--rpd", "+1")
    assert lasting["limits"]["rpd"] == 701, "not more than the limit that ends"
    cleared = done(capsys, "orgs", "limits", "org_1", "--clear", "all")
    assert (cleared["own_limits"], cleared["temporary_limits"]) == ({}, {})


@pytest.mark.usefixtures("sqlite")
def test_the_audit_log_tells_what_a_change_of_limits_was(capsys: Said) -> None:
    done(capsys, "orgs", "create", "org_1")
    done(capsys, "orgs", "limits", "org_1", "--rpd", "700")
    done(capsys, "orgs", "limits", "org_1", "--rpm", "50", "--until", "2999-12-31")
    ended = done(capsys, "orgs", "limits", "org_1", "--end")
    assert (ended["own_limits"], ended["temporary_limits"]) == ({"rpd": 700}, {})
    done(capsys, "orgs", "place", "org_1", "creator")
    assert main(["audit", "org_1"]) == 0
    told = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    names = "plan_changed", "temporary_limit_ended", "temporary_limit_set", "limits_changed"
    for line, name in zip(told[1:], (*names, "plan_changed"), strict=False):
        assert name in line, told
    end = "2999-12-31T00:00:00.000Z"
    assert f"rpm until {end}: 50 -> ended early" in told[2] and "rpd" not in told[2]
    assert f"rpm until {end}: 50" in told[3] and "700" not in told[3]
    assert main(["orgs", "limits", "org_1", "--end", "--clear", "all"]) == 2
    capsys.readouterr()


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize("until", ["tonight", "2h", "1d"])
def test_an_end_is_told_by_day_or_by_span(capsys: Said, until: str) -> None:
    done(capsys, "keys", "create", "org_1", "ci")
    begin = datetime.now().astimezone()
    found = done(capsys, "orgs", "limits", "org_1", "--rpm", "+1", "--until", until)
    end = datetime.fromisoformat(found["temporary_limits"]["rpm"]["until"]).astimezone()
    if until == "tonight":
        assert end.time() == time() and timedelta() < end - begin <= timedelta(hours=25)
    else:
        expected = begin + {"2h": timedelta(hours=2), "1d": timedelta(days=1)}[until]
        assert abs(end - expected) < timedelta(seconds=SECONDS)


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--rpm", "5", "--until", "2020-01-01"], 2, "past"),
        (["--rpm", "5", "--until", "soon"], 2, "2h or tonight"),
        (["--until", "2h"], 2, "--rpd +500"),
        (["--clear", "rpm", "--until", "2h"], 2, "--rpd +500"),
    ],
)
def test_an_end_that_ends_nothing_is_refused(
    capsys: Said, arguments: list[str], code: int, said: str
) -> None:
    done(capsys, "keys", "create", "org_1", "ci")
    assert main(["orgs", "limits", "org_1", *arguments]) == code
    assert said in capsys.readouterr().err
    assert done(capsys, "orgs", "limits", "org_1")["temporary_limits"] == {}


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize("wrong", ["x", "-1", "+", "1.5", "++1", "9" * 17, "+0"])
def test_a_limit_that_is_no_number_is_refused(capsys: Said, wrong: str) -> None:
    done(capsys, "keys", "create", "org_1", "ci")
    assert main(["orgs", "limits", "org_1", f"--rpm={wrong}"]) == 2
    assert "number" in capsys.readouterr().err
    assert done(capsys, "orgs", "limits", "org_1")["own_limits"] == {}


@pytest.mark.usefixtures("settings")
def test_a_reset_empties_the_windows_and_asks_first(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = done(capsys, "keys", "create", "org_1", "ci")["api_key"]
    used(text, 10)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert main(["orgs", "reset", "org_1"]) == 1
    err = capsys.readouterr().err
    assert "10 in the minute" in err and "nothing was changed" in err
    assert done(capsys, "orgs", "show", "org_1")["usage"]["day"]["used"] == 10
    reset = done(capsys, "orgs", "reset", "org_1", "--yes")
    assert {window["used"] for window in reset["usage"].values()} == {0}
    change = done(capsys, "audit", "org_1")["changes"][0]
    assert (change["action"], change["actor"]["kind"]) == ("windows_reset", "operator")
    assert (change["key_id"], change["from"], change["to"]) == (None, {}, {})
    used(text, 10)
    assert done(capsys, "keys", "list", "org_1")["keys"][0]["request_count"] == 20


@pytest.fixture
def service(settings: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service's gate with registration, on the store of the environment."""
    module = f"service_{token_hex(4)}"  # Python loads a module of a name once.
    (tmp_path / f"{module}.py").write_text(
        "import os\n"
        "from lockgate import Gate, Registration\n"
        "from lockgate.options import StoreOptions, WebOptions\n"
        "from lockgate.sessions import SignedCookie\n"
        "secret = 'fedcba9876543210' * 2\n"
        "gate = Gate(os.environ['LOCKGATE_STORE'], brand='acme', sessions=SignedCookie([secret]),\n"
        f"            peppers=[b'{PEPPER}'],\n"
        "            web_options=WebOptions(public_url='https://console.example.com'),\n"
        "            store_options=StoreOptions(deadline=30),\n"
        "            features=[Registration(session_secrets=[secret[::-1]])])\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKGATE_GATE", f"{module}:gate")


@pytest.mark.usefixtures("service")
def test_an_account_is_created_and_attached_to_its_owner(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = "--email", "Ada@example.com", "--agent", "bot", "--company", "Ada Ltd"
    made = done(capsys, "orgs", "create", *arguments)
    id, text = made["organization_id"], made["api_key"]
    assert (made["billing_email"], made["account_type"]) == ("ada@example.com", "company")
    assert made["company_name"] == "Ada Ltd"
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert main(["orgs", "claim", id, "user_1"]) == 1
    assert "ada@example.com" in capsys.readouterr().err
    claimed = done(capsys, "orgs", "claim", id, "user_1", "--yes")
    assert (claimed["claimed_by"], claimed["agent_name"]) == ("user_1", "bot")
    assert claimed["token_revoked_at"] is not None
    assert [key["prefix"] for key in claimed["keys"]] == [text[:15]]
    changes = done(capsys, "audit", id)["changes"]
    actions = [(change["action"], change["actor"]["kind"]) for change in changes]
    assert actions == [("account_claimed", "operator"), ("account_registered", "operator")]
    assert done(capsys, "orgs", "claim", id, "user_1", "--yes") == claimed
    assert main(["orgs", "claim", id, "user_2", "--yes"]) == 1
    found = done(capsys, "keys", "find", "--user", "user_1")
    assert ([key["prefix"] for key in found["keys"]], found["matched"]) == ([text[:15]], "user")
    assert main(["keys", "find", "--user", "user_2"]) == 1


@pytest.mark.usefixtures("service")
def test_the_pages_of_a_users_keys_have_all_of_them(capsys: Said) -> None:
    ids: set[str] = set()
    for number in range(3):
        arguments = "--email", "ada@example.com", "--agent", f"bot {number}"
        organization = done(capsys, "orgs", "create", *arguments)["organization_id"]
        done(capsys, "keys", "create", organization, "another")
        ids |= {key["id"] for key in done(capsys, "keys", "list", organization)["keys"]}
        done(capsys, "orgs", "claim", organization, "user_1", "--yes")
    seen: list[str] = []
    cursor: list[str] = []
    for _ in range(10):
        page = done(capsys, "keys", "find", "--user", "user_1", "--limit", "2", *cursor)
        seen += [key["id"] for key in page["keys"]]
        if page["next_cursor"] is None or len(seen) == len(ids):
            break
        cursor = ["--cursor", page["next_cursor"]]
    assert sorted(seen) == sorted(ids)


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["orgs", "create"], 2, "ORGANIZATION"),
        (["orgs", "create", "org_1", "--email", "a@example.com"], 2, "--agent"),
        (["orgs", "create", "--email", "a@example.com", "--agent", "b"], 2, "Registration("),
        (["orgs", "create", "org_1", "--plan", "nope"], 2, "nope"),
        (["orgs", "claim", "org_1", "user_1"], 2, "Registration("),
        (["orgs", "list", "--limit", "0"], 1, "Use 1 to 1000."),
        (["orgs", "list", "--cursor", "*"], 1, "cursor"),
        (["orgs", "limits", "org_1", "--clear", "nope"], 2, "nope"),
        (["orgs", "limits", "org_1", "--rpd", "5", "--clear", "rpd"], 2, "not both"),
        (["orgs", "limits", "org_1", "--rpd", "5", "--clear", "all"], 2, "not both"),
        (["keys", "find", "acme_live_1", "--user", "u"], 2, "not both"),
        (["keys", "find", "--user", "u", "--cursor", "abcd"], 1, "cursor"),
    ],
)
def test_a_mistake_is_named_with_its_exit_code(
    capsys: Said, arguments: list[str], code: int, said: str
) -> None:
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert (out, said in err) == ("", True), err
    assert "Traceback" not in err


@pytest.mark.usefixtures("sqlite")
def test_the_limits_of_a_custom_plan_cannot_be_cleared(capsys: Said) -> None:
    all_four = "--rpm=1", "--rph=2", "--rpd=3", "--concurrent=4"
    done(capsys, "orgs", "create", "org_1", "--plan", "enterprise", *all_four)
    assert main(["orgs", "limits", "org_1", "--clear", "rpm"]) == 2
    assert done(capsys, "orgs", "limits", "org_1")["own_limits"]["rpm"] == 1


@pytest.mark.usefixtures("sqlite")
def test_a_cleared_limit_is_told_from_an_unlimited_one(capsys: Said) -> None:
    done(capsys, "orgs", "create", "org_1")
    done(capsys, "orgs", "limits", "org_1", "--rpd", "+500")
    done(capsys, "orgs", "limits", "org_1", "--rpm", "none", "--clear", "rpd")
    change, _ = done(capsys, "audit", "org_1", "--limit", "2")["changes"]
    assert (change["from"], change["to"]) == (
        {"plan": "free", "rpd": 1000},
        {"plan": "free", "rpm": None},
    )
    assert main(["audit", "org_1"]) == 0
    out = capsys.readouterr().out
    assert "rpd: 1000 -> the plan's" in out
    assert "rpm: no limit" in out


@pytest.mark.usefixtures("sqlite")
def test_a_new_limit_is_printed_with_the_command_that_clears_it(capsys: Said) -> None:
    done(capsys, "orgs", "create", "org 1")
    assert main(["orgs", "limits", "org 1", "--rpd", "+500", "--rph", "none"]) == 0
    said = capsys.readouterr().err
    clearing = "lockgate orgs limits 'org 1' --clear rpd --clear rph"
    assert said == f"This holds until it is cleared: {clearing}\n"
    assert main(["orgs", "limits", "org 1", "--clear", "rph", "--clear", "rpd"]) == 0
    assert done(capsys, "orgs", "limits", "org 1")["own_limits"] == {}
    custom = "--rpm=1", "--rph=2", "--rpd=3", "--concurrent=4"
    done(capsys, "orgs", "place", "org 1", "enterprise", *custom)
    capsys.readouterr()
    assert main(["orgs", "limits", "org 1", "--rpm", "9"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("settings")
def test_limits_and_resets_of_an_unknown_organization_change_nothing(capsys: Said) -> None:
    for command in (["limits"], ["limits", "--rpd", "+500"], ["reset", "--yes"]):
        assert main(["orgs", command[0], "org_typo", *command[1:]]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert "'org_typo' has no key" in err and "orgs create" in err and "orgs place" in err
    assert done(capsys, "orgs", "list")["organizations"] == []
    assert done(capsys, "audit", "org_typo")["changes"] == []


@pytest.mark.usefixtures("sqlite")
def test_only_a_first_assignment_names_a_new_organization(capsys: Said) -> None:
    for new in (True, False):
        assert main(["orgs", "place", "org_1", "creator"]) == 0
        assert ("new organization" in capsys.readouterr().err) is new
    done(capsys, "keys", "create", "org_2", "ci")
    assert main(["orgs", "place", "org_2", "creator"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize(
    "command", [["audit"], ["keys", "list"], ["explain"], ["orgs", "show"]], ids=" ".join
)
def test_a_reading_names_an_unknown_organization(capsys: Said, command: list[str]) -> None:
    done(capsys, "orgs", "create", "org_1")
    for organization, unknown in (("org_typo", True), ("org_1", False)):
        assert main([*command, organization]) == 0
        assert ("has no key" in capsys.readouterr().err) is unknown


@pytest.mark.usefixtures("sqlite")
def test_the_text_of_a_key_in_the_place_of_an_id_is_not_repeated(capsys: Said) -> None:
    text = done(capsys, "keys", "create", "org_1", "ci")["api_key"]
    for command in (["audit", text], ["keys", "list", text], ["orgs", "limits", text]):
        main(command)
        err = capsys.readouterr().err
        assert "rotate the key" in err and text[20:] not in err


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize("id", ["", "x" * 129], ids=["empty", "129"])
@pytest.mark.parametrize(
    "command",
    [
        *("orgs show", "orgs place ID creator", "orgs limits", "orgs reset ID --yes", "orgs usage"),
        *("orgs create", "orgs claim ID user_1", "audit", "explain", "keys list"),
        *("keys create ID ci", "keys show ID id", "keys update ID id --name a"),
        *("keys rotate ID id", "keys revoke ID id --yes"),
    ],
)
def test_a_text_that_is_no_id_is_wrong_usage(capsys: Said, command: str, id: str) -> None:
    words = command.split() if "ID" in command else [*command.split(), "ID"]
    assert main([id if word == "ID" else word for word in words]) == 2
    assert "1 to 128 characters" in capsys.readouterr().err


LIMITED = """
from lockgate import Gate, Limit, Plan, PlanBook
from lockgate.options import StoreOptions

EXPORT, TOKENS = Limit("export", "3/hour"), Limit("tokens", "100/minute")
plan = Plan("busy", rpm=900, rph=None, rpd=None, concurrent=None)
gate = Gate({store!r}, brand="acme", plans=PlanBook([plan], default="busy"),
            store_options=StoreOptions(deadline=30, hold_limits=[TOKENS]))
gate.know_limits([EXPORT])
"""


@pytest.mark.usefixtures("sqlite")
def test_named_limits_holds_and_leases_are_shown(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"service_{token_hex(4)}"
    (tmp_path / f"{module}.py").write_text(LIMITED.format(store=os.environ["LOCKGATE_STORE"]))
    service: Any = importlib.import_module(module)
    serving: Gate = service.gate
    run(serving.keys.create("org_2", "ci"))
    key = run(serving.keys.create("org_1", "ci")).text
    run(serving.authenticate(key, limits=[service.EXPORT]))
    run(serving.holds.take("org_1", {service.TOKENS: 60}))
    lease = LeaseRequest("0" * 16, 12, 60_000_000)
    run(serving.store.admit(serving.format.parse(key), 1, serving.plans, lease=lease))
    monkeypatch.setenv("LOCKGATE_GATE", f"{module}:gate")
    shown = done(capsys, "orgs", "show", "org_1")
    assert shown["named"] == [
        {"name": "export", "type": "hour", "used": 1, "limit": 3, "held": 0},
        {"name": "tokens", "type": "minute", "used": 60, "limit": 100, "held": 60},
    ]
    assert shown["leased"]["units"] == 12
    other = done(capsys, "orgs", "show", "org_2")
    assert [one["used"] for one in other["named"]] == [0, 0]
    assert other["leased"] is None
    assert main(["orgs", "show", "org_1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    fields = dict(re.split(r" {2,}", line, maxsplit=1) for line in lines)
    assert (fields["export hour"], fields["tokens minute"]) == ("1 of 3", "60 of 100, 60 held")
    assert fields["leased"].startswith("12 of the units left, until ")
    run(serving.close())
