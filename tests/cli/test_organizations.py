"""``lockgate orgs``: list, create, limits, reset and claim, as an operator does."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from unittest.mock import ANY

import pytest

from lockgate import run
from lockgate.core.quota_leases import LeaseRequest
from tests.patience import SECONDS

from .calling import PEPPER, Service, Shell, serving

REGISTERING = f"""
import os
from lockgate import Gate, Registration
from lockgate.options import StoreOptions, WebOptions
from lockgate.sessions import SignedCookie
secret = 'fedcba9876543210' * 2
gate = Gate(os.environ['LOCKGATE_STORE'], brand='acme', sessions=SignedCookie([secret]),
            peppers=[b'{PEPPER}'],
            web_options=WebOptions(public_url='https://console.example.com'),
            store_options=StoreOptions(deadline=30),
            features=[Registration(session_secrets=[secret[::-1]])])
"""
LIMITED = """
import os
from lockgate import Gate, Limit, Plan, PlanBook
from lockgate.options import StoreOptions

EXPORT, TOKENS = Limit("export", "3/hour"), Limit("tokens", "100/minute")
plan = Plan("busy", rpm=900, rph=None, rpd=None, concurrent=None)
gate = Gate(os.environ['LOCKGATE_STORE'], brand="acme", plans=PlanBook([plan], default="busy"),
            store_options=StoreOptions(deadline=30, hold_limits=[TOKENS]))
gate.know_limits([EXPORT])
"""


def used(text: str, times: int = 1) -> None:
    """Make requests with a key on the store of the environment."""
    gate = serving()
    for _ in range(times):
        run(gate.authenticate(text))
    run(gate.close())


@pytest.mark.usefixtures("url")
def test_organizations_are_listed_page_by_page_with_plan_live_keys_and_last_use(
    shell: Shell,
) -> None:
    text = shell.json("keys create org_1 ci")["api_key"]
    shell("keys create org_1 other")
    shell("orgs place org_2 creator --rpm 1234")
    found = shell.json("orgs list")
    assert set(found) == {"organizations", "next_cursor"}
    of_each = {one.pop("organization_id"): one for one in found["organizations"]}
    free = {"plan": "free", "assigned_plan": None, "live_keys": 2, "last_used_at": None}
    creator = {"plan": "creator", "assigned_plan": "creator", "live_keys": 0, "last_used_at": None}
    assert of_each == {"org_1": free, "org_2": creator}
    used(text)
    (one,) = shell.json("orgs list --plan free")["organizations"]
    assert one["organization_id"] == "org_1" and one["last_used_at"] is not None
    title, *rows = shell("orgs list").out.strip().split("\n")
    assert title.split() == ["plan", "live", "keys", "last", "used", "organization"]
    assert {row.split()[-1] for row in rows} == {"org_1", "org_2"}
    for number in range(3, 9):
        shell("orgs create", f"org_{number}")
    ids: set[str] = set()
    cursor: list[str] = []
    while cursor != ["--cursor", None]:
        page = shell.json("orgs list --limit 5", *cursor)
        ids |= {one["organization_id"] for one in page["organizations"]}
        cursor = ["--cursor", page["next_cursor"]]
    assert ids == {f"org_{number}" for number in range(1, 9)}


@pytest.mark.usefixtures("sqlite")
def test_a_new_organization_is_put_on_a_plan_once(shell: Shell) -> None:
    made = shell.json("orgs create org_1 --plan starter --rpm 77")
    assert (made["plan"], made["limits"]["rpm"]) == ("starter", 77)
    assert "already" in shell("orgs create org_1", code=1).err
    shell("keys create org_2 ci")
    shell("orgs create org_2", code=1)
    for organization, new in (("org_3", True), ("org_3", False), ("org_2", False)):
        err = shell("orgs place --rpm 7", organization, "creator").err
        assert ("new organization" in err) is new
    assert shell.json("orgs show org_3")["limits"]["rpm"] == 7
    all_four = "--rpm=1 --rph=2 --rpd=3 --concurrent=4"
    shell(f"orgs create org_4 --plan enterprise {all_four}")
    shell("orgs limits org_4 --clear rpm", code=2)
    assert shell.json("orgs limits org_4")["own_limits"]["rpm"] == 1


@pytest.mark.usefixtures("sqlite")
def test_limits_are_added_to_set_and_cleared(shell: Shell) -> None:
    shell("keys create org_1 ci")
    shown = shell.json("orgs limits org_1")
    assert (shown["assigned_plan"], shown["own_limits"]) == (None, {})
    more = shell.json("orgs limits org_1 --rpd +500 --concurrent none")
    assert more["own_limits"] == {"rpd": 1000, "concurrent": None}
    assert (more["plan"], more["assigned_plan"], more["limits"]["rpm"]) == ("free", "free", 10)
    again = shell.json("orgs limits org_1 --rpm 7 --clear concurrent")
    assert again["own_limits"] == {"rpd": 1000, "rpm": 7}
    for wrong in ("x", "-1", "+", "1.5", "++1", "9" * 17, "+0"):
        assert "number" in shell("orgs limits org_1", f"--rpm={wrong}", code=2).err
    assert shell.json("orgs limits org_1") == again
    shell("orgs limits org_1 --rpm none --clear rpd")
    change = shell.json("audit org_1 --limit 1")["changes"][0]
    assert change["from"] == {"plan": "free", "rpd": 1000, "rpm": 7}
    assert change["to"] == {"plan": "free", "rpm": None}
    out = shell("audit org_1").out
    assert "rpd: 1000 -> the plan's" in out and "rpm: 7 -> no limit" in out
    assert shell.json("orgs limits org_1 --clear all")["own_limits"] == {}
    assert shell.json("orgs show org_1")["limits"]["rpd"] == 500
    lines = shell("orgs limits org_1").out.splitlines()
    assert lines[-1].split() == ["concurrent", "2", "plan"]


@pytest.mark.usefixtures("sqlite")
def test_a_limit_ends_by_itself_or_by_a_command(shell: Shell) -> None:
    shell("keys create org_1 ci")
    shell("orgs limits org_1 --rpd 700 --rph 90")
    found = shell.json(
        "orgs limits org_1 --rpd +500 --rpm none --clear rph --until 2999-12-31T09:30"
    )
    end = "2999-12-31T09:30:00.000Z"
    assert (found["limits"]["rpd"], found["own_limits"]) == (1200, {"rpd": 700})
    assert found["temporary_limits"] == {
        "rpd": {"limit": 1200, "until": end},
        "rpm": {"limit": None, "until": end},
    }
    assert shell.json("audit org_1")["changes"][0]["to"] == {
        "plan": "free",
        "rpd": 700,
        "temporary_rpd": 1200,
        "temporary_rpd_ends_at": end,
        "temporary_rpm": None,
        "temporary_rpm_ends_at": end,
        "change_id": ANY,
    }
    out = shell("audit org_1 --limit 1").out
    assert f"rpd until {end}: 1200" in out and f"rpm until {end}: no limit" in out
    rows = [line.split() for line in shell("orgs limits org_1").out.splitlines()]
    assert ["rpd", "1200", "own", "until", end] in rows and ["rph", "100", "plan"] in rows
    lasting = shell.json("orgs limits org_1 --rpd +1")
    assert lasting["limits"]["rpd"] == 701, "not more than the limit that ends"
    shell("orgs limits org_1 --rpm 50 --until 2999-12-31")
    ended = shell.json("orgs limits org_1 --end")
    assert (ended["own_limits"], ended["temporary_limits"]) == ({"rpd": 701}, {})
    _, latest, before, *_ = shell("audit org_1").out.splitlines()
    end = "2999-12-31T00:00:00.000Z"
    assert "temporary_limit_ended" in latest and "temporary_limit_set" in before
    assert f"rpm until {end}: 50 -> ended early" in " ".join(latest.split())
    assert f"rpm until {end}: no limit -> 50" in " ".join(before.split()) or "50" in before


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize("until", ["tonight", "2h", "1d"])
def test_an_end_is_told_by_day_or_by_span(shell: Shell, until: str) -> None:
    shell("keys create org_1 ci")
    begin = datetime.now().astimezone()
    found = shell.json("orgs limits org_1 --rpm +1 --until", until)
    end = datetime.fromisoformat(found["temporary_limits"]["rpm"]["until"]).astimezone()
    if until == "tonight":
        assert end.time() == time() and timedelta() < end - begin <= timedelta(hours=25)
    else:
        expected = begin + {"2h": timedelta(hours=2), "1d": timedelta(days=1)}[until]
        assert abs(end - expected) < timedelta(seconds=SECONDS)


@pytest.mark.usefixtures("sqlite")
def test_a_new_limit_is_printed_with_the_command_that_clears_it(shell: Shell) -> None:
    shell("orgs create 'org 1'")
    clearing = "lockgate orgs limits 'org 1' --clear rpd --clear rph"
    told = shell("orgs limits 'org 1' --rpd +500 --rph none").err
    assert told == f"This holds until it is cleared: {clearing}\n"
    shell(clearing.removeprefix("lockgate "))
    assert shell.json("orgs limits 'org 1'")["own_limits"] == {}
    shell("orgs place 'org 1' enterprise --rpm=1 --rph=2 --rpd=3 --concurrent=4")
    assert shell("orgs limits 'org 1' --rpm 9").err == ""


@pytest.mark.usefixtures("sqlite")
def test_a_reset_empties_the_windows_and_asks_first(shell: Shell) -> None:
    text = shell.json("keys create org_1 ci")["api_key"]
    used(text, 10)
    err = shell("orgs reset org_1", given="n", code=1).err
    assert "10 in the minute" in err and "nothing was changed" in err
    assert shell.json("orgs show org_1")["usage"]["day"]["used"] == 10
    reset = shell.json("orgs reset org_1 --yes")
    assert {window["used"] for window in reset["usage"].values()} == {0}
    change = shell.json("audit org_1")["changes"][0]
    assert (change["action"], change["actor"]["kind"]) == ("windows_reset", "operator")
    assert (change["key_id"], change["from"], change["to"]) == (None, {}, {})
    used(text, 10)
    assert shell.json("keys list org_1")["keys"][0]["request_count"] == 20


@pytest.mark.usefixtures("url")
def test_an_account_is_created_and_attached_to_its_owner(
    shell: Shell, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKGATE_GATE", f"{service.write(REGISTERING)}:gate")
    made = shell.json("orgs create --email Ada@example.com --agent bot --company 'Ada Ltd'")
    id, text = made["organization_id"], made["api_key"]
    assert (made["billing_email"], made["account_type"]) == ("ada@example.com", "company")
    assert made["company_name"] == "Ada Ltd"
    assert "ada@example.com" in shell("orgs claim", id, "user_1", given="n", code=1).err
    claimed = shell.json("orgs claim --yes", id, "user_1")
    assert (claimed["claimed_by"], claimed["agent_name"]) == ("user_1", "bot")
    assert claimed["token_revoked_at"] is not None
    assert [key["prefix"] for key in claimed["keys"]] == [text[:15]]
    actions = [(one["action"], one["actor"]["kind"]) for one in shell.json("audit", id)["changes"]]
    assert actions == [("account_claimed", "operator"), ("account_registered", "operator")]
    assert shell.json("orgs claim --yes", id, "user_1") == claimed
    shell("orgs claim --yes", id, "user_2", code=1)
    shell("keys create", id, "another")
    one = shell.json("keys find --user user_1 --limit 1")
    other = shell.json("keys find --user user_1 --limit 1 --cursor", one["next_cursor"])
    keys = {key["id"] for page in (one, other) for key in page["keys"]}
    assert keys == {key["id"] for key in shell.json("keys list", id)["keys"]}
    assert one["matched"] == "user" and len(keys) == 2
    shell("keys find --user user_2", code=1)


@pytest.mark.usefixtures("sqlite")
def test_an_unknown_organization_is_named_and_not_changed(shell: Shell) -> None:
    for command in ("orgs limits ID", "orgs limits ID --rpd +500", "orgs reset ID --yes"):
        out, err = shell(command.replace("ID", "org_typo"), code=1)
        assert out == ""
        assert "'org_typo' has no key" in err and "orgs create" in err and "orgs place" in err
    assert shell.json("orgs list")["organizations"] == []
    shell("orgs create org_1")
    for command in ("audit", "keys list", "explain", "orgs show"):
        for organization, unknown in (("org_typo", True), ("org_1", False)):
            code = int(unknown and command == "explain")
            assert ("has no key" in shell(command, organization, code=code).err) is unknown


@pytest.mark.usefixtures("sqlite")
def test_a_text_that_is_no_id_is_wrong_usage(shell: Shell) -> None:
    text = shell.json("keys create org_1 ci")["api_key"]
    for command in (
        *("orgs show ID", "orgs place ID creator", "orgs limits ID", "orgs reset ID --yes"),
        *("orgs usage ID", "orgs create ID", "orgs claim ID user_1", "audit ID", "explain ID"),
        *("keys list ID", "keys create ID ci", "keys show ID id", "keys update ID id --name a"),
        *("keys rotate ID id", "keys revoke ID id --yes"),
    ):
        for id in ("''", "x" * 129):
            assert "1 to 128 characters" in shell(command.replace("ID", id), code=2).err
    for command in ("audit", "keys list", "orgs limits"):
        err = shell(command, text, code=2).err
        assert "rotate the key" in err and text[20:] not in err, "K11"


@pytest.mark.usefixtures("sqlite")
def test_named_limits_holds_and_leases_are_shown(
    shell: Shell, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = service.load(LIMITED)
    gate = limited.gate
    run(gate.keys.create("org_2", "ci"))
    key = run(gate.keys.create("org_1", "ci")).text
    run(gate.authenticate(key, limits=[limited.EXPORT]))
    run(gate.holds.take("org_1", {limited.TOKENS: 60}))
    lease = LeaseRequest("0" * 16, 12, 60_000_000)
    run(gate.store.admit(gate.format.parse(key), 1, gate.plans, lease=lease))
    monkeypatch.setenv("LOCKGATE_GATE", f"{limited.__name__}:gate")
    shown = shell.json("orgs show org_1")
    assert shown["named"] == [
        {"name": "export", "type": "hour", "used": 1, "limit": 3, "held": 0},
        {"name": "tokens", "type": "minute", "used": 60, "limit": 100, "held": 60},
    ]
    assert shown["leased"]["units"] == 12
    other = shell.json("orgs show org_2")
    assert [one["used"] for one in other["named"]] == [0, 0]
    assert other["leased"] is None
    lines = shell("orgs show org_1").out.splitlines()
    fields = dict(re.split(r" {2,}", line, maxsplit=1) for line in lines)
    assert (fields["export hour"], fields["tokens minute"]) == ("1 of 3", "60 of 100, 60 held")
    assert fields["leased"].startswith("12 of the units left, until ")
    run(gate.close())
