"""``lockgate explain`` and ``lockgate doctor``: an operator's questions, on real servers."""

from __future__ import annotations

import json
import os
import re
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from secrets import token_hex
from typing import Any
from unittest.mock import ANY

import pytest
from sqlalchemy import make_url

from lockgate import Gate, migrations, run
from lockgate.core.quota_leases import LeaseRequest
from lockgate.errors import StoreUnavailable
from lockgate.stores.sql import opened_file
from lockgate.stores.sql.engines import blocking_engine
from tests.patience import until
from tests.servers import redis_server, shared

from .calling import PEPPER, Service, Shell, serving
from .test_json_documents import documented
from .test_routes import GATE, STARLETTE

NEW = "another-pepper-of-these-tests-6a"
OPTIONS = "import os\nfrom lockgate import Gate, Limit, Plan, PlanBook, Rule\n" + (
    "from lockgate.options import StoreOptions, WebOptions\n"
    "from lockgate.sessions import SignedCookie\nstore = os.environ['LOCKGATE_STORE']\n"
)
ROUTES = """
from lockgate.starlette import protect
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

TOKENS, MONTH = Limit("tokens", "100/minute"), Limit("month", "1000/month")
LOGIN = Limit("login", "2/minute", by="address")
TENANTS = Limit("tenants", "100/hour", by=lambda request: None)
gate = Gate(store, brand="acme", store_options=StoreOptions(hold_limits=[TOKENS, MONTH]))


async def answer(request):
    return Response()


paths = ("/models", "/logins", "/login", "/ping", "/uploads")
app = Starlette(routes=[Route(path, answer, methods=["POST"]) for path in paths])
protect(app, gate, rules={
    "POST /models": "models:read",
    "POST /logins": Rule("models:read", limits=[LOGIN]),
    "POST /login": Rule(public=True, limits=[LOGIN, TENANTS]),
    "POST /ping": Rule(public=True),
    "POST /uploads": Rule("jobs:write", limits=[TENANTS, LOGIN]),
})
"""
METERED = """
plan = Plan("metered", rpm=None, rph=None, rpd=None, concurrent=None,
            limits=[Limit("units", "5/month", soft=True)])
gate = Gate(store, brand="acme", plans=PlanBook([plan], custom=[], default="metered"))
"""
SLOW = """
from time import sleep
from lockgate.stores.sql import SqlStore


class Slow(SqlStore):
    async def charge(self, *asked):
        sleep(0.5)  # Twice the deadline of requests.
        return await super().charge(*asked)


slow = Slow(store)
slow.enforces_deadline = False
gate = Gate(slow, brand="acme", store_options=StoreOptions(deadline=0.25, on_failure="closed"))
"""
LEASED_AT = 1_800_000_000_000_000
LEASED = f"""
plan = Plan("busy", rpm=900, rph=None, rpd=None, concurrent=None)
gate = Gate(store, brand="acme", plans=PlanBook([plan], default="busy"),
            store_options=StoreOptions(clock=lambda: {LEASED_AT}))
"""


def used_up() -> tuple[str, str]:
    """Spend the minute of ``org_1``; return the id and the text of its key."""
    gate = serving()
    created = run(gate.keys.create("org_1", "ci"))
    for _ in range(10):
        run(gate.authenticate(created.text))
    run(gate.close())
    return created.key.id, created.text


# --- explain ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("url")
def test_explain_has_the_documented_shape(shell: Shell) -> None:
    id, text = used_up()
    found = shell.json("explain org_1")
    assert set(found) == documented()["explain"]
    assert (found["organization_id"], found["plan"]) == ("org_1", "free")
    assert found["assigned_plan"] is None
    minute, hour, day = found["windows"]
    values = [minute[name] for name in ("name", "limit", "used", "left")]
    assert values == ["minute", 10, 10, 0]
    assert (hour["name"], hour["left"], day["name"], day["left"]) == ("hour", 90, "day", 490)
    assert found["refused"]["code"] == "RATE_LIMIT_EXCEEDED"
    assert found["refused"]["until"] == minute["until"] > found["at"]
    assert found["refused"]["advice"]
    assert found["slots"] == {"limit": 2, "used": 0, "until": None}
    (key,) = found["keys"]
    assert (key["id"], key["name"], key["state"], key["refused"]) == (id, "ci", "active", None)
    assert (key["prefix"], found["more_keys"]) == (text[:15], False)
    assert shell.json("explain org_1", id)["keys"] == [key]
    assert shell.json("explain", given=text)["keys"] == [key]
    out = shell("explain org_1").out
    for words in ("refused: RATE_LIMIT_EXCEEDED", "until", "minute", id, "active"):
        assert words in out
    assert text not in out
    costly = shell.json("explain org_1 --cost 11 --scope jobs:write")
    assert (costly["cost"], costly["scopes"]) == (11, ["jobs:write"])
    assert "cost 11 never fits" in costly["refused"]["advice"]
    shown = shell("explain org_1 --cost 5", id).out
    assert ["cost", "5"] in [line.split() for line in shown.splitlines()]


@pytest.mark.usefixtures("sqlite")
def test_a_command_waits_longer_for_the_store_than_a_request(
    shell: Shell, service: Service
) -> None:
    shell("orgs create org_1")
    assert shell.json(f"explain org_1 --gate {service.write(OPTIONS + SLOW)}:gate")["windows"]
    gate = service.load(OPTIONS + SLOW).gate
    with pytest.raises(StoreUnavailable):  # The setting of the service is as it was.
        run(gate.explain("org_1"))
    run(gate.close())


@pytest.mark.usefixtures("sqlite")
def test_explain_shows_named_limits_and_holds(shell: Shell, service: Service) -> None:
    made = service.load(OPTIONS + ROUTES)
    run(made.gate.subjects.charge("address", "192.0.2.7", [made.LOGIN], 2))
    taken = run(made.gate.holds.take("org_1", {made.TOKENS: 60}))
    run(made.gate.holds.take("org_1", {made.TOKENS: 30}))
    run(made.gate.holds.settle(taken.id, 5))
    asked = f"explain org_1 --address 192.0.2.7 --app {made.__name__}:app --request"
    found = shell.json(asked, "POST /models")
    assert found["refused"] is None
    tokens, _, login = found["limits"]

    def limit(name: str, by: str, source: str, **window: Any) -> dict[str, Any]:
        named = {"name": name, "by": by, "source": source, "soft": False}
        return {**named, "windows": [{"name": "minute", **window}]}

    window: dict[str, Any] = {"limit": 100, "used": 35, "left": 65, "until": None, "held": 30}
    assert tokens == limit("tokens", "organization", "hold", **window)
    window = {"limit": 2, "used": 2, "left": 0, "until": ANY, "held": 0}
    assert login == limit("login", "address", "rule", **window)
    refused = shell.json(asked, "POST /logins")["refused"]
    assert refused["code"] == "RATE_LIMIT_EXCEEDED" and "'login' of the rule" in refused["advice"]
    assert refused["until"] == login["windows"][0]["until"]
    out = shell(asked, "POST /models").out
    assert re.search(r"^tokens +organization +hold +minute +35 +30 +100 +65 +-$", out, re.M)
    rules = f"rules with the limit 'login' are refused until {refused['until']}"
    assert re.search(rf"^next request +admitted; requests to {rules}$", out, re.M)
    run(made.gate.close())


@pytest.mark.usefixtures("sqlite")
def test_explain_says_at_once_that_a_full_limit_refuses_holds_and_charges(
    shell: Shell, service: Service
) -> None:
    made = service.load(OPTIONS + ROUTES)
    key = run(made.gate.keys.create("org_1", "ci")).text
    asked = f"explain org_1 --gate {made.__name__}:gate"
    run(made.gate.charge("org_1", {made.MONTH: 999}))
    assert re.search(r"^next request +admitted$", shell(asked).out, re.M)
    run(made.gate.charge("org_1", {made.MONTH: 1}))
    found = shell.json(asked)
    assert found["refused"] is None
    (month,) = (one for one in found["limits"] if one["name"] == "month")
    told = f"holds and charges of 'month' are refused until {month['windows'][0]['until']}"
    assert re.search(rf"^next request +admitted; {told}$", shell(asked).out, re.M)
    for _ in range(10):
        run(made.gate.authenticate(key))
    lines = r"^next request +refused: .*\nuntil +\S+\nbesides +"
    assert re.search(rf"{lines}{told}$", shell(asked).out, re.M)
    run(made.gate.close())


@pytest.mark.usefixtures("sqlite")
def test_a_request_to_an_open_route_is_explained_by_its_limits(
    shell: Shell, service: Service
) -> None:
    made = service.load(OPTIONS + ROUTES)
    app = f"--app {made.__name__}:app --request"
    by_address, by_function = {"name": "login", "by": "address"}, {"name": "tenants"}
    both = [by_address, {**by_function, "by": "function"}]
    shell("orgs create org_1")
    asked = f"explain --address 192.0.2.7 {app}"
    run(made.gate.subjects.charge("address", "192.0.2.7", [made.LOGIN], 1))
    found = shell.json(asked, "POST /login")
    assert set(found) == documented()["an open route of explain"]
    assert (found["request"], found["address"]) == ("POST /login", "192.0.2.7")
    assert (found["refused"], found["unjudged"]) == (None, both[1:])
    (login,) = found["limits"]
    assert (login["name"], login["windows"][0]["left"]) == ("login", 1)
    run(made.gate.subjects.charge("address", "192.0.2.7", [made.LOGIN], 1))
    refused = shell.json(asked, "POST /login")
    assert refused["refused"]["code"] == "RATE_LIMIT_EXCEEDED"
    assert refused["refused"]["until"] == refused["limits"][0]["windows"][0]["until"] > found["at"]
    other = shell.json(f"explain --address 192.0.2.8 {app}", "POST /login")
    assert other["refused"] is None
    out = shell(asked, "POST /login").out
    assert re.search(r"^next request +refused: RATE_LIMIT_EXCEEDED", out, re.M)
    assert re.search(r"^login +address +rule +minute +2 +- +2 +0 ", out, re.M)
    assert "The limit 'tenants' of the route is by a function of the request" in out
    # Limits whose subject is not given are named as unjudged.
    nobody = shell.json(f"explain {app}", "POST /login")
    assert (nobody["refused"], nobody["limits"], nobody["unjudged"]) == (None, [], both)
    assert shell.json(f"explain org_1 {app}", "POST /uploads")["unjudged"] == both[::-1]
    out = shell(f"explain org_1 {app}", "POST /uploads").out
    assert "The limit 'login' of the route is by address: give one" in out
    for command, request, said in (
        ("explain", "POST /ping", "its rule has no limit"),
        ("explain org_1", "POST /login", "Leave out ORGANIZATION"),
        ("explain --address here", "POST /login", "'here' is no IP address"),
    ):
        assert said in shell(f"{command} {app}", request, code=2).err
    run(made.gate.close())


@pytest.mark.usefixtures("sqlite")
def test_without_the_gate_of_the_service_explain_says_whose_numbers_it_judges_by(
    shell: Shell, service: Service
) -> None:
    used_up()
    assert shell.json("explain org_1")["built_in_plans"] is True
    plan = shell("explain org_1").out.splitlines()[1]
    assert plan.startswith("plan          free (with lockgate's numbers: ")
    assert "The limits are those of lockgate's plan 'free'" in shell("orgs show org_1").err
    shell("orgs limits org_1 --rpm 6000 --rph none --rpd none")
    assert shell.json("explain org_1")["built_in_plans"] is False
    assert "lockgate's numbers" not in shell("explain org_1").out
    assert shell("orgs show org_1").err == ""
    made = service.load(OPTIONS + METERED)
    run(made.gate.organizations.place("org_2", "metered"))
    out, err = shell("explain org_2", code=2)
    assert (out, "'metered', whose numbers only the service has" in err) == ("", True)
    assert shell.json(f"explain org_2 --gate {made.__name__}:gate")["built_in_plans"] is False
    run(made.gate.close())


@pytest.mark.usefixtures("sqlite")
def test_explain_tells_leases_and_marks_a_soft_quota(shell: Shell, service: Service) -> None:
    made = service.load(OPTIONS + LEASED)
    gate, asked = made.gate, f"explain org_1 --gate {made.__name__}:gate"
    token = gate.format.parse(run(gate.keys.create("org_1", "ci")).text)
    assert shell.json(asked)["leased"] is None
    assert "leased" not in shell(asked).out
    lease = LeaseRequest("0" * 16, 12, 1_000_000)
    run(gate.store.admit(token, 1, gate.plans, LEASED_AT, lease=lease))
    until = "2027-01-15T08:00:01.000Z"
    assert shell.json(asked)["leased"] == {"units": 12, "until": until}
    told = f"12 of the units left are leased to processes until {until}"
    assert told in shell(asked).out
    run(gate.close())
    made = service.load(OPTIONS + METERED)
    gate, asked = made.gate, f"explain org_2 --gate {made.__name__}:gate"
    run(gate.authenticate(run(gate.keys.create("org_2", "ci")).text, cost=7))
    found = shell.json(asked)
    assert found["refused"] is None
    (units,) = found["limits"]
    assert (units["soft"], units["windows"][0]["left"]) == (True, 0)
    assert re.search(
        r"^units +organization +plan +month +7 +- +5 \(soft\) +0 ", shell(asked).out, re.M
    )
    for answered, used in (("n", 7), ("y", 0)):
        reset = f"orgs reset org_2 --gate {made.__name__}:gate"
        err = shell(reset, given=answered, code=int(answered == "n")).err
        assert "calendar quotas included" in err
        assert shell.json(asked)["limits"][0]["windows"][0]["used"] == used
    run(gate.close())


@pytest.mark.usefixtures("sqlite")
def test_explain_tells_that_a_key_is_for_other_addresses(shell: Shell) -> None:
    created = shell.json("keys create org_1 office --address 192.0.2.0/24")
    text, id = created["api_key"], created["id"]
    (key,) = shell.json("explain org_1")["keys"]
    assert (key["addresses"], key["refused"]) == (["192.0.2.0/24"], None)
    within = shell.json("explain org_1 --address 192.0.2.7", id)
    assert within == {**shell.json("explain org_1", id), "at": ANY}
    refused = shell.json("explain --address 198.51.100.7", given=text)["refused"]
    assert refused["code"] == "INSUFFICIENT_SCOPE"
    assert "192.0.2.0/24 only, and the client is 198.51.100.7" in refused["advice"]
    assert shell("explain org_1").out.splitlines()[-1].endswith("192.0.2.0/24")


def test_a_request_is_explained_by_the_route_of_an_application(
    shell: Shell, service: Service
) -> None:
    app = f"--app {service.write(GATE + STARLETTE)}:app"
    found = shell.json(f"explain org_1 {app} --request", "POST /jobs/7?x=1", code=1)
    assert (found["cost"], found["scopes"], found["refused"]) == (5, ["jobs:write"], None)
    for words, request, told in (
        (app, "GET /health", "open"),
        (app, "PUT /jobs/7", "405"),
        (app, "/jobs/7", "write it as"),
        ("", "GET /x", "--app"),
        (f"{app} --cost 2", "GET /x", "The route has cost and scope"),
    ):
        assert told in shell(f"explain org_1 {words} --request", request, code=2).err
    shell(f"explain org_1 {app}", code=2)


# --- doctor -------------------------------------------------------------------------------------


def findings(shell: Shell, words: str = "doctor", code: int | None = 0) -> list[dict[str, Any]]:
    """What doctor finds; a code of None is 1 on Redis: that of the tests has no persistence."""
    if code is None:
        code = int(os.environ["LOCKGATE_STORE"].startswith("redis"))
    found: list[dict[str, Any]] = shell.json(words, code=code)["findings"]
    return found


def problems(found: list[dict[str, Any]]) -> dict[str, str]:
    """The text and the advice of each problem, by its check."""
    wrong = (one for one in found if one["level"] == "problem")
    return {one["check"]: f"{one['text']} {one['advice']}" for one in wrong}


@pytest.mark.usefixtures("url")
def test_doctor_finds_a_sound_store_and_leaves_nothing_that_lists_show(shell: Shell) -> None:
    (keys,) = [one for one in findings(shell, code=None) if one["check"] == "keys"]
    assert (keys["level"], keys["text"]) == ("note", "The store has no live key.")
    assert "URL" in keys["advice"]
    assert shell.json("orgs list")["organizations"] == []
    used_up()
    found = findings(shell, "doctor --organizations", code=None)
    assert set(problems(found)) <= {"persistence"}
    levels = {(finding["check"], finding["level"]) for finding in found}
    sound = {"store", "schema", "clock", "peppers", "writes", "windows"}
    assert {*((check, "ok") for check in sound), ("proxy", "note")} <= levels
    assert "keys" not in {finding["check"] for finding in found}
    for finding in found:
        assert set(finding) == documented()["a finding of doctor"]
        assert PEPPER not in str(finding)


@pytest.mark.usefixtures("url")
def test_doctor_names_the_pepper_that_a_process_lacks_or_has_wrong(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, text = used_up()
    scheme = Gate(brand="acme", peppers=[PEPPER.encode()]).format.peppers.scheme

    def level(code: int | None = None) -> Any:
        (one,) = {f["level"] for f in findings(shell, code=code) if f["check"] == "peppers"}
        return one

    monkeypatch.setenv("LOCKGATE_PEPPER", NEW)
    told = problems(findings(shell, code=1))["peppers"]
    assert f"1 live keys and tokens are under {scheme}. They are refused." in told
    assert "next_pepper" in told and "its pepper is probably wrong" in told
    out, err = shell("keys verify", given=text, code=1)
    assert out == "" and "LOCKGATE_PEPPER" in err and text[20:] not in err
    shell("keys verify", given=text[:-1] + ("a" if text[-1] != "a" else "b"), code=1)
    monkeypatch.setenv("LOCKGATE_NEXT_PEPPER", PEPPER)
    assert level() == "ok"
    monkeypatch.delenv("LOCKGATE_NEXT_PEPPER")
    monkeypatch.setenv("LOCKGATE_PEPPER", f"{NEW} {PEPPER}")
    assert level() == "note"
    shell("keys verify", given=text)


@pytest.mark.usefixtures("operator")
def test_doctor_warns_of_a_redis_that_evicts_is_full_or_cannot_save(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis_server() as server, server.client() as redis:
        monkeypatch.setenv("LOCKGATE_STORE", server.url())
        used_up()
        redis.config_set("maxmemory", "100mb")
        redis.config_set("maxmemory-policy", "volatile-lru")
        redis.config_set("appendonly", "no")
        redis.config_set("save", "")
        found = problems(findings(shell, code=1))
        assert set(found) == {"eviction", "persistence"}
        assert "noeviction" in found["eviction"] and "appendonly yes" in found["persistence"]
        redis.config_set("maxmemory-policy", "noeviction")
        redis.set("other", "x" * 2**20)
        redis.config_set("maxmemory", 2**20)
        assert "its memory is full" in problems(findings(shell, code=1))["writes"]
        redis.config_set("maxmemory", 0)
        # A folder is in the place of the file that is to be written.
        folder, name = (redis.config_get(one)[one] for one in ("dir", "dbfilename"))
        file = Path(str(folder), str(name))
        file.unlink(missing_ok=True)
        file.mkdir()
        redis.config_set("save", "3600 1")
        redis.bgsave()
        until(lambda: redis.info("persistence")["rdb_last_bgsave_status"] == "err")
        assert "cannot write to its disk" in problems(findings(shell, code=1))["writes"]


def test_doctor_finds_a_full_disk_under_sqlite(
    shell: Shell, sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk ends at the end of the write-ahead log, so reads succeed."""
    used_up()
    (file,) = tmp_path.rglob("*.db")
    with closing(sqlite3.connect(file)) as other:
        other.executescript(
            "PRAGMA wal_autocheckpoint = 0; CREATE TABLE other (content);"
            "INSERT INTO other VALUES (zeroblob(1000000));"
        )
        log = file.with_name(f"{file.name}-wal").stat().st_size
        done = subprocess.run(
            [sys.executable, "-m", "lockgate", "doctor", "--json"],
            capture_output=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (log, log)),
        )
    assert done.returncode == 1, done.stderr
    told = problems(json.loads(done.stdout)["findings"])["writes"]
    assert "takes no writes" in told and "see whether the disk is full" in told
    monkeypatch.setattr(opened_file, "_LITTLE", 2**60)
    assert "MB left" in problems(findings(shell, code=1))["disk"]


def test_doctor_finds_a_database_in_which_it_may_not_insert(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Admissions of organizations that have a row would go on, and new ones would fail."""
    owners = shared("postgresql").create(f"doctor_{token_hex(4)}")
    migrations.upgrade(owners)
    admin = blocking_engine(owners)
    role = f"reader_{token_hex(4)}"
    with admin.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN")
        connection.exec_driver_sql(
            f"GRANT SELECT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
        )
    admin.dispose()
    url = make_url(owners).set(username=role).render_as_string(hide_password=False)
    monkeypatch.setenv("LOCKGATE_STORE", url)
    assert "this user may not do that" in problems(findings(shell, code=1))["writes"]


def test_doctor_names_a_store_that_does_not_answer_or_is_in_memory(
    shell: Shell, sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for away in ("redis://127.0.0.1:1", "postgresql://nobody@127.0.0.1:1/none"):
        monkeypatch.setenv("LOCKGATE_STORE", away)
        assert "no server answers there" in problems(findings(shell, code=3))["store"]
    monkeypatch.setenv("LOCKGATE_STORE", f"sqlite:///{tmp_path}/none.db")
    findings(shell, code=3)
    assert not (tmp_path / "none.db").exists()
    monkeypatch.setenv("LOCKGATE_STORE", "memory://")
    (problem,) = problems(findings(shell, code=1)).items()
    assert problem[0] == "keys" and "memory://" in problem[1]
    monkeypatch.setenv("LOCKGATE_STORE", sqlite)
    used_up()
    monkeypatch.setenv("LOCKGATE_STORE", f"{sqlite} redis://127.0.0.1:1")
    found = findings(shell, code=3)
    store = {f["level"]: f["text"] for f in found if f["check"] == "store"}
    assert store["ok"].startswith("The database answers in")
    assert store["problem"].startswith("Redis does not answer: ConnectionError")
    assert {(f["check"], f["level"]) for f in found} >= {("schema", "ok"), ("peppers", "ok")}


def test_damaged_windows_and_missing_tables_end_with_the_remedy(
    shell: Shell, sqlite: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    id, _ = used_up()

    def execute(statement: str) -> None:
        with sqlite3.connect(tmp_path / "keys.db") as database:
            database.execute(statement)

    def damage(used: str) -> None:
        of_one = "WHERE id = CAST('org_1' AS BLOB)"
        execute(f"UPDATE lockgate_organizations SET windows = x'ff', used = {used} {of_one}")

    windows = findings(shell, "doctor --organizations")[-2]
    assert (windows["check"], windows["level"]) == ("windows", "ok")
    assert "of 1 organizations are sound" in windows["text"]
    damage("x'ff'")
    for command in ("explain", "orgs show", "keys list"):
        err = shell(command, "org_1", code=3).err
        assert "The store cannot be used: the lines above say why." in err
    assert "set its columns windows, used and made to NULL" in caplog.text
    damage("NULL")
    (problem,) = problems(findings(shell, "doctor --organizations", code=1)).items()
    assert problem[0] == "windows" and "org_1" in problem[1]
    assert "lockgate orgs reset" in problem[1]
    assert "its windows are damaged" in shell("orgs reset org_1", given="y").err
    damage("NULL")
    assert shell.json("orgs reset org_1 --yes")["usage"]["day"]["used"] == 0
    assert shell.json("explain org_1", id)["refused"] is None
    execute("ALTER TABLE lockgate_accounts RENAME TO gone")
    (problem,) = problems(findings(shell, code=3)).items()
    assert "lockgate db check" in problem[1]
    execute("UPDATE lockgate_organizations SET windows = x'ff', used = x'ff'")  # Doctor's own, too.
    told = problems(findings(shell, code=3))["writes"]
    assert "set its columns windows, used and made to NULL" in told


def test_doctor_names_tables_that_are_missing_and_settings_that_lack(
    shell: Shell, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = (
        "from lockgate.stores.sql import SqlStore\n"
        "from sqlalchemy import create_engine\n"
        "store = SqlStore(create_engine('sqlite:///none.db'))\n"
        "gate = Gate(store, brand='acme', sessions=SignedCookie(['fedcba9876543210' * 2]))\n"
    )
    monkeypatch.setenv("LOCKGATE_GATE", f"{service.write(OPTIONS + lacking)}:gate")
    found = problems(findings(shell, code=3))
    assert set(found) == {"schema", "origins"}
    assert "lockgate db upgrade" in found["schema"] and "public_url" in found["origins"]
    whole = (
        "gate = Gate('sqlite:///keys.db?mode=rwc', brand='acme', peppers=[b'fedcba9876543210'],\n"
        "            sessions=SignedCookie(['fedcba9876543210' * 2]),\n"
        "            web_options=WebOptions(public_url='https://console.example.com',\n"
        "                                   trusted_proxies=['10.0.0.0/8']))\n"
    )
    monkeypatch.setenv("LOCKGATE_GATE", f"{service.write(OPTIONS + whole)}:gate")
    of_each = {f["check"]: f for f in findings(shell)}
    assert (of_each["origins"]["level"], of_each["proxy"]["level"]) == ("ok", "ok")
    assert "console.example.com" in of_each["origins"]["text"]
    assert "The store answers in" in shell("doctor").out
