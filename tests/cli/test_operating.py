"""``lockgate explain`` and ``lockgate doctor``: an operator's questions, on real servers."""

from __future__ import annotations

import importlib
import io
import json
import re
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from secrets import token_hex
from typing import Any
from unittest.mock import ANY

import pytest
from sqlalchemy import make_url

from lockgate import Gate, migrations, run
from lockgate.cli import main
from lockgate.core.quota_leases import LeaseRequest
from lockgate.options import StoreOptions
from lockgate.stores.sql import opened_file
from lockgate.stores.sql.engines import blocking_engine
from tests.patience import until
from tests.servers import redis_server, shared
from tests.services.shared_stores import KINDS, shared_store

from .test_json_documents import documented
from .test_routes import GATE, STARLETTE

Said = pytest.CaptureFixture[str]
OLD, NEW = "a-pepper-of-these-tests-8f2c41d0", "another-pepper-of-these-tests-6a"


@pytest.fixture(params=KINDS)
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """An environment as an operator has it: a store, a brand and a pepper."""
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", OLD)
    for name in ("LOCKGATE_GATE", "LOCKGATE_NEXT_PEPPER"):
        monkeypatch.delenv(name, raising=False)
    with shared_store(request.param, tmp_path) as found:
        monkeypatch.setenv("LOCKGATE_STORE", found)
        yield found


@pytest.fixture
def sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", OLD)
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)
    with shared_store("sqlite", tmp_path) as found:
        monkeypatch.setenv("LOCKGATE_STORE", found)
        yield found


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of an operator, except for the store."""
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", OLD)
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)


LIMITED = """
from lockgate import Gate, Limit, Rule
from lockgate.options import StoreOptions
from lockgate.starlette import protect
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

TOKENS = Limit("tokens", "100/minute")
LOGINS = Limit("logins", "2/hour", by="address")
gate = Gate({store!r}, brand="acme", store_options=StoreOptions(hold_limits=[TOKENS]))


async def answer(request):
    return Response()


app = Starlette(routes=[Route("/models", answer), Route("/logins", answer, methods=["POST"])])
protect(
    app,
    gate,
    rules={{
        "GET /models": "models:read",
        "POST /logins": Rule("models:read", limits=[LOGINS]),
    }},
)
"""

OPEN = """
from lockgate import Gate, Limit, Rule
from lockgate.starlette import protect
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

LOGIN = Limit("login", "2/minute", by="address")
TENANTS = Limit("tenants", "100/hour", by=lambda request: None)
gate = Gate({store!r}, brand="acme")


async def answer(request):
    return Response()


app = Starlette(
    routes=[Route(path, answer, methods=["POST"]) for path in ("/login", "/ping", "/uploads")]
)
protect(
    app,
    gate,
    rules={{
        "POST /login": Rule(public=True, limits=[LOGIN, TENANTS]),
        "POST /ping": Rule(public=True),
        "POST /uploads": Rule("jobs:write", limits=[TENANTS, LOGIN]),
    }},
)
"""

METERED = """
from lockgate import Gate, Limit, Plan, PlanBook

UNITS = Limit("units", "5/month", soft=True)
plan = Plan("metered", rpm=None, rph=None, rpd=None, concurrent=None, limits=[UNITS])
gate = Gate({store!r}, brand="acme", plans=PlanBook([plan], custom=[], default="metered"))
"""

MONTHLY = """
from lockgate import Gate, Limit
from lockgate.options import StoreOptions

MONTH = Limit("month", "1000/month")
gate = Gate({store!r}, brand="acme", store_options=StoreOptions(hold_limits=[MONTH]))
"""

LEASED_AT = 1_800_000_000_000_000
LEASED = """
from lockgate import Gate, Plan, PlanBook
from lockgate.options import StoreOptions

plan = Plan("busy", rpm=900, rph=None, rpd=None, concurrent=None)
gate = Gate({store!r}, brand="acme", plans=PlanBook([plan], default="busy"),
            store_options=StoreOptions(clock=lambda: {at}))
"""


def answer(capsys: Said, *arguments: str, code: int = 0) -> Any:
    """The JSON that a command prints."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def used_up(url: str, pepper: str = OLD) -> tuple[str, str]:
    """Spend the minute of ``org_1``; return the id and the text of its key."""
    gate = Gate(
        url, brand="acme", peppers=[pepper.encode()], store_options=StoreOptions(deadline=30)
    )
    created = run(gate.keys.create("org_1", "ci"))
    for _ in range(10):
        run(gate.authenticate(created.text))
    run(gate.close())
    return created.key.id, created.text


def test_explain_has_the_documented_shape(
    capsys: Said, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, text = used_up(url)
    found = answer(capsys, "explain", "org_1")
    assert set(found) == {
        *("organization_id", "plan", "assigned_plan", "at", "refused", "cost", "scopes"),
        *("windows", "limits", "slots", "leased", "keys", "more_keys"),
        *("built_in_plans", "unjudged", "unread"),
    }
    assert [found[name] for name in ("organization_id", "plan")] == ["org_1", "free"]
    assert found["assigned_plan"] is None
    minute, hour, day = found["windows"]
    assert (minute["name"], minute["limit"], minute["used"], minute["left"]) == (
        "minute",
        10,
        10,
        0,
    )
    assert (hour["name"], hour["left"], day["name"], day["left"]) == ("hour", 90, "day", 490)
    assert found["refused"]["code"] == "RATE_LIMIT_EXCEEDED"
    assert found["refused"]["until"] == minute["until"] > found["at"]
    assert found["refused"]["advice"]
    assert found["slots"] == {"limit": 2, "used": 0, "until": None}
    (key,) = found["keys"]
    assert (key["id"], key["name"], key["state"], key["refused"]) == (id, "ci", "active", None)
    assert key["prefix"] == text[:15]
    assert found["more_keys"] is False
    assert answer(capsys, "explain", "org_1", id)["keys"] == [key]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n"))
    assert answer(capsys, "explain")["keys"] == [key]


def test_explain_shows_named_limits_and_holds(
    capsys: Said, sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"service_{token_hex(4)}"
    (tmp_path / f"{module}.py").write_text(LIMITED.format(store=sqlite))
    service: Any = importlib.import_module(module)
    run(service.gate.subjects.charge("address", "192.0.2.7", [service.LOGINS], 2))
    taken = run(service.gate.holds.take("org_1", {service.TOKENS: 60}))
    run(service.gate.holds.take("org_1", {service.TOKENS: 30}))
    run(service.gate.holds.settle(taken.id, 5))
    asked = ("explain", "org_1", "--address", "192.0.2.7", "--app", f"{module}:app")
    found = answer(capsys, *asked, "--request", "GET /models")
    assert found["refused"] is None
    assert found["limits"] == [
        {
            "name": "tokens",
            "by": "organization",
            "source": "hold",
            "soft": False,
            "windows": [
                {"name": "minute", "limit": 100, "used": 35, "left": 65, "until": None, "held": 30}
            ],
        },
        {
            "name": "logins",
            "by": "address",
            "source": "rule",
            "soft": False,
            "windows": [
                {"name": "hour", "limit": 2, "used": 2, "left": 0, "until": ANY, "held": 0}
            ],
        },
    ]
    refused = answer(capsys, *asked, "--request", "POST /logins")["refused"]
    assert refused["code"] == "RATE_LIMIT_EXCEEDED" and "'logins' of the rule" in refused["advice"]
    assert refused["until"] == found["limits"][1]["windows"][0]["until"]
    assert main([*asked, "--request", "GET /models"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^tokens +organization +hold +minute +35 +30 +100 +65 +-$", out, re.M)
    logins = f"rules with the limit 'logins' are refused until {refused['until']}"
    assert re.search(rf"^next request +admitted; requests to {logins}$", out, re.M)
    run(service.gate.close())


def test_explain_says_at_once_that_a_full_limit_refuses_holds_and_charges(
    capsys: Said, sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"service_{token_hex(4)}"
    (tmp_path / f"{module}.py").write_text(MONTHLY.format(store=sqlite))
    service: Any = importlib.import_module(module)
    key = run(service.gate.keys.create("org_1", "ci")).text
    asked = ("explain", "org_1", "--gate", f"{module}:gate")
    run(service.gate.charge("org_1", {service.MONTH: 999}))
    assert main(list(asked)) == 0
    assert re.search(r"^next request +admitted$", capsys.readouterr().out, re.M)
    run(service.gate.charge("org_1", {service.MONTH: 1}))
    found = answer(capsys, *asked)
    assert found["refused"] is None
    ends = found["limits"][0]["windows"][0]["until"]
    told = f"holds and charges of 'month' are refused until {ends}"
    assert main(list(asked)) == 0
    assert re.search(rf"^next request +admitted; {told}$", capsys.readouterr().out, re.M)
    for _ in range(10):
        run(service.gate.authenticate(key))
    assert main(list(asked)) == 0
    lines = r"^next request +refused: .*\nuntil +\S+\nbesides +"
    assert re.search(rf"{lines}{told}$", capsys.readouterr().out, re.M)
    run(service.gate.close())


@pytest.fixture
def open_service(sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of a service with open routes."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"service_{token_hex(4)}"
    (tmp_path / f"{name}.py").write_text(OPEN.format(store=sqlite))
    return importlib.import_module(name)


def test_a_request_to_an_open_route_is_explained_by_its_limits(
    capsys: Said, open_service: Any
) -> None:
    login = [open_service.LOGIN]
    asked = ("explain", "--app", f"{open_service.__name__}:app", "--request", "POST /login")
    run(open_service.gate.subjects.charge("address", "192.0.2.7", login, 1))
    found = answer(capsys, *asked, "--address", "192.0.2.7")
    assert set(found) == documented()["an open route of explain"]
    assert found == {
        "request": "POST /login",
        "address": "192.0.2.7",
        "at": ANY,
        "refused": None,
        "limits": [
            {
                "name": "login",
                "by": "address",
                "source": "rule",
                "soft": False,
                "windows": [
                    {"name": "minute", "limit": 2, "used": 1, "left": 1, "until": None, "held": 0}
                ],
            }
        ],
        "unjudged": [{"name": "tenants", "by": "function"}],
    }
    run(open_service.gate.subjects.charge("address", "192.0.2.7", login, 1))
    refused = answer(capsys, *asked, "--address", "192.0.2.7")
    assert refused["refused"]["code"] == "RATE_LIMIT_EXCEEDED"
    assert refused["refused"]["until"] == refused["limits"][0]["windows"][0]["until"] > found["at"]
    assert answer(capsys, *asked, "--address", "192.0.2.8")["refused"] is None
    assert main([*asked, "--address", "192.0.2.7"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^next request +refused: RATE_LIMIT_EXCEEDED", out, re.M)
    assert re.search(r"^login +address +rule +minute +2 +- +2 +0 ", out, re.M)
    assert "The limit 'tenants' of the route is by a function of the request" in out
    run(open_service.gate.close())


def test_limits_whose_subject_is_not_given_are_named_as_unjudged(
    capsys: Said, open_service: Any
) -> None:
    app = ("--app", f"{open_service.__name__}:app")
    of_open = answer(capsys, "explain", *app, "--request", "POST /login")
    both = [{"name": "login", "by": "address"}, {"name": "tenants", "by": "function"}]
    assert (of_open["refused"], of_open["limits"], of_open["unjudged"]) == (None, [], both)
    guarded = ("explain", "org_1", *app, "--request", "POST /uploads")
    assert answer(capsys, *guarded)["unjudged"] == both[::-1]
    assert answer(capsys, *guarded, "--address", "192.0.2.7")["unjudged"] == both[1:]
    assert main([*guarded]) == 0
    assert "The limit 'login' of the route is by address: give one" in capsys.readouterr().out
    run(open_service.gate.close())


def test_an_open_route_without_a_limit_or_with_an_organization_is_wrong_usage(
    capsys: Said, open_service: Any
) -> None:
    app = ("--app", f"{open_service.__name__}:app")
    assert main(["explain", *app, "--request", "POST /ping"]) == 2
    assert "its rule has no limit" in capsys.readouterr().err
    assert main(["explain", "org_1", *app, "--request", "POST /login"]) == 2
    assert "Leave out ORGANIZATION" in capsys.readouterr().err
    assert main(["explain", *app, "--request", "POST /login", "--address", "here"]) == 2
    assert "'here' is no IP address" in capsys.readouterr().err
    run(open_service.gate.close())


def test_without_the_gate_of_the_service_explain_says_whose_numbers_it_judges_by(
    capsys: Said, sqlite: str
) -> None:
    used_up(sqlite)
    assert answer(capsys, "explain", "org_1")["built_in_plans"] is True
    assert main(["explain", "org_1"]) == 0
    plan = capsys.readouterr().out.splitlines()[1]
    assert plan.startswith("plan          free (with lockgate's numbers: ")
    assert main(["orgs", "show", "org_1"]) == 0
    assert "The limits are those of lockgate's plan 'free'" in capsys.readouterr().err
    own = ("--rpm", "6000", "--rph", "none", "--rpd", "none")
    assert main(["orgs", "limits", "org_1", *own]) == 0
    assert answer(capsys, "explain", "org_1")["built_in_plans"] is False
    assert main(["explain", "org_1"]) == 0
    assert "lockgate's numbers" not in capsys.readouterr().out
    assert main(["orgs", "show", "org_1"]) == 0
    assert capsys.readouterr().err == ""


def test_without_the_gate_of_the_service_explain_judges_by_none_of_its_plans(
    capsys: Said, sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"service_{token_hex(4)}"
    text = METERED.format(store=sqlite)
    (tmp_path / f"{module}.py").write_text(text)
    gate: Gate = importlib.import_module(module).gate
    key = run(gate.keys.create("org_1", "ci")).text
    run(gate.organizations.place("org_1", "metered"))
    run(gate.authenticate(key, cost=873))
    assert main(["explain", "org_1"]) == 2
    out, err = capsys.readouterr()
    assert (out, "'metered', whose numbers only the service has" in err) == ("", True)
    found = answer(capsys, "explain", "org_1", "--gate", f"{module}:gate")
    assert (found["refused"], found["built_in_plans"]) == (None, False)
    run(gate.close())


def test_explain_tells_the_units_that_are_out_on_leases(
    capsys: Said, sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"service_{token_hex(4)}"
    (tmp_path / f"{module}.py").write_text(LEASED.format(store=sqlite, at=LEASED_AT))
    gate: Gate = importlib.import_module(module).gate
    asked = ("explain", "org_1", "--gate", f"{module}:gate")
    token = gate.format.parse(run(gate.keys.create("org_1", "ci")).text)
    assert answer(capsys, *asked)["leased"] is None
    assert main([*asked]) == 0
    assert "leased" not in capsys.readouterr().out
    lease = LeaseRequest("0" * 16, 12, 1_000_000)
    run(gate.store.admit(token, 1, gate.plans, LEASED_AT, lease=lease))
    until = "2027-01-15T08:00:01.000Z"
    assert answer(capsys, *asked)["leased"] == {"units": 12, "until": until}
    assert main([*asked]) == 0
    told = f"12 of the units left are leased to processes until {until}"
    assert told in capsys.readouterr().out
    run(gate.close())


def test_explain_marks_a_soft_quota_whose_use_is_above_its_limit(
    capsys: Said, sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"service_{token_hex(4)}"
    (tmp_path / f"{module}.py").write_text(METERED.format(store=sqlite))
    service: Any = importlib.import_module(module)
    key = run(service.gate.keys.create("org_1", "ci")).text
    run(service.gate.authenticate(key, cost=7))
    asked = ("explain", "org_1", "--gate", f"{module}:gate")
    found = answer(capsys, *asked)
    assert found["refused"] is None
    (units,) = found["limits"]
    assert (units["soft"], units["windows"][0]["left"]) == (True, 0)
    assert main([*asked]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^units +organization +plan +month +7 +- +5 \(soft\) +0 ", out, re.M)
    run(service.gate.close())


@pytest.mark.usefixtures("sqlite")
def test_explain_prints_tables_for_people(capsys: Said, sqlite: str) -> None:
    id, text = used_up(sqlite)
    capsys.readouterr()
    assert main(["explain", "org_1"]) == 0
    out = capsys.readouterr().out
    for words in ("refused: RATE_LIMIT_EXCEEDED", "until", "minute", id, "active"):
        assert words in out
    assert text not in out


def test_explain_takes_no_key_text_as_an_argument(capsys: Said, sqlite: str) -> None:
    _, text = used_up(sqlite)
    capsys.readouterr()
    assert main(["explain", text]) == 2
    out, err = capsys.readouterr()
    assert "standard input" in err
    assert text not in out + err
    assert main(["explain", "org_1", "no-such-key"]) == 1


def test_doctor_finds_a_sound_store_and_counts_keys_by_pepper(capsys: Said, url: str) -> None:
    used_up(url)
    found = answer_any(capsys, "doctor")
    # The Redis of the tests has no persistence; a cache needs none.
    lacks = ["persistence"] if url.startswith("redis://") else []
    assert [f["check"] for f in found["findings"] if f["level"] == "problem"] == lacks
    levels = {(finding["check"], finding["level"]) for finding in found["findings"]}
    assert {("store", "ok"), ("schema", "ok"), ("clock", "ok"), ("peppers", "ok")} <= levels
    assert ("proxy", "note") in levels
    for finding in found["findings"]:
        assert set(finding) == {"check", "level", "text", "advice"}
        assert OLD not in str(finding)


def test_doctor_names_the_pepper_that_a_process_lacks(
    capsys: Said, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used_up(url, NEW)
    scheme = Gate(brand="acme", peppers=[NEW.encode()]).format.peppers.scheme
    found = answer(capsys, "doctor", code=1)
    (problem,) = [
        f for f in found["findings"] if (f["check"], f["level"]) == ("peppers", "problem")
    ]
    assert f"1 live keys and tokens are under {scheme}. They are refused." == problem["text"]
    assert "next_pepper" in problem["advice"]
    monkeypatch.setenv("LOCKGATE_NEXT_PEPPER", NEW)
    known = [f for f in answer_any(capsys, "doctor")["findings"] if f["check"] == "peppers"]
    assert [finding["level"] for finding in known] == ["ok"]
    monkeypatch.delenv("LOCKGATE_NEXT_PEPPER")
    monkeypatch.setenv("LOCKGATE_PEPPER", f"{OLD} {NEW}")
    older = [f for f in answer_any(capsys, "doctor")["findings"] if f["check"] == "peppers"]
    assert [finding["level"] for finding in older] == ["note"]


def answer_any(capsys: Said, *arguments: str) -> Any:
    """The JSON that a command prints, whatever it found."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) in {0, 1}
    return json.loads(capsys.readouterr().out)


def test_doctor_warns_of_a_redis_that_evicts_keys_or_writes_no_disk(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", OLD)
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)
    with redis_server() as server:
        client = server.client()
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "volatile-lru")
        client.config_set("appendonly", "no")
        client.config_set("save", "")
        monkeypatch.setenv("LOCKGATE_STORE", server.url())
        found = answer(capsys, "doctor", code=1)
    problems = {f["check"]: f["text"] for f in found["findings"] if f["level"] == "problem"}
    assert set(problems) == {"eviction", "persistence"}
    assert "noeviction" in problems["eviction"]
    assert "appendonly yes" in problems["persistence"]


def writes(found: dict[str, Any]) -> tuple[str, str]:
    """The finding about writes: its level, and its text with its advice."""
    (finding,) = [f for f in found["findings"] if f["check"] == "writes"]
    return finding["level"], f"{finding['text']} {finding['advice']}"


@pytest.mark.usefixtures("url")
def test_doctor_leaves_nothing_that_lists_show(capsys: Said) -> None:
    found = answer_any(capsys, "doctor")
    assert {f["level"] for f in found["findings"] if f["check"] == "writes"} == {"ok"}
    assert answer(capsys, "orgs", "list")["organizations"] == []


def test_doctor_finds_a_full_disk_under_sqlite(capsys: Said, sqlite: str, tmp_path: Path) -> None:
    """The disk ends at the end of the write-ahead log, so reads succeed."""
    used_up(sqlite)
    (file,) = tmp_path.rglob("*.db")
    with closing(sqlite3.connect(file)) as other:
        other.executescript(
            "PRAGMA wal_autocheckpoint = 0; CREATE TABLE other (content);"
            "INSERT INTO other VALUES (zeroblob(1000000));"
        )
        log = file.with_name(f"{file.name}-wal").stat().st_size
        command = [sys.executable, "-m", "lockgate", "doctor", "--json"]
        done = subprocess.run(
            command,
            capture_output=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (log, log)),
        )
    assert done.returncode == 1, done.stderr
    level, text = writes(json.loads(done.stdout))
    assert level == "problem"
    assert "takes no writes" in text and "see whether the disk is full" in text


def test_doctor_finds_a_disk_that_is_almost_full(
    capsys: Said, sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used_up(sqlite)
    monkeypatch.setattr(opened_file, "_LITTLE", 2**60)
    (disk,) = [f for f in answer(capsys, "doctor", code=1)["findings"] if f["check"] == "disk"]
    assert disk["level"] == "problem"
    assert "MB left" in disk["text"]


@pytest.mark.usefixtures("operator")
def test_doctor_finds_a_database_in_which_it_may_not_insert(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
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
    level, text = writes(answer(capsys, "doctor", code=1))
    assert level == "problem"
    assert "this user may not do that" in text


@pytest.mark.usefixtures("operator")
def test_doctor_finds_a_redis_that_is_full_or_cannot_save(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis_server() as server, server.client() as redis:
        monkeypatch.setenv("LOCKGATE_STORE", server.url())
        used_up(server.url())
        redis.set("other", "x" * 2**20)
        redis.config_set("maxmemory", 2**20)
        level, text = writes(answer(capsys, "doctor", code=1))
        assert level == "problem"
        assert "its memory is full" in text
        redis.config_set("maxmemory", 0)
        # A folder is in the place of the file that is to be written.
        folder, name = (redis.config_get(one)[one] for one in ("dir", "dbfilename"))
        file = Path(str(folder), str(name))
        file.unlink(missing_ok=True)
        file.mkdir()
        redis.config_set("save", "3600 1")
        redis.bgsave()
        until(lambda: redis.info("persistence")["rdb_last_bgsave_status"] == "err")
        level, text = writes(answer(capsys, "doctor", code=1))
        assert level == "problem"
        assert "cannot write to its disk" in text


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "postgresql://nobody@127.0.0.1:1/none"])
def test_doctor_exits_with_3_for_a_store_that_does_not_answer(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", OLD)
    monkeypatch.setenv("LOCKGATE_STORE", url)
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)
    found = answer(capsys, "doctor", code=3)
    (problem,) = [f for f in found["findings"] if (f["check"], f["level"]) == ("store", "problem")]
    assert "no server answers there" in problem["advice"]


def test_doctor_checks_the_database_while_its_redis_is_away(
    capsys: Said, sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used_up(sqlite)
    monkeypatch.setenv("LOCKGATE_STORE", f"{sqlite} redis://127.0.0.1:1")
    found = answer(capsys, "doctor", code=3)["findings"]
    store = {f["level"]: f for f in found if f["check"] == "store"}
    assert store["ok"]["text"].startswith("The database answers in")
    assert store["problem"]["text"].startswith("Redis does not answer: ConnectionError")
    assert {(f["check"], f["level"]) for f in found} >= {("schema", "ok"), ("peppers", "ok")}


def test_doctor_advises_db_check_for_a_missing_table(capsys: Said, sqlite: str) -> None:
    used_up(sqlite)
    with sqlite3.connect(sqlite.removeprefix("sqlite:///").partition("?")[0]) as database:
        database.execute("ALTER TABLE lockgate_accounts RENAME TO gone")
    found = answer(capsys, "doctor", code=3)["findings"]
    (problem,) = [f for f in found if f["level"] == "problem"]
    assert "lockgate db check" in problem["advice"]


@pytest.mark.parametrize("command", [["explain"], ["orgs", "show"], ["keys", "list"]])
def test_a_command_about_damaged_windows_ends_with_the_remedy_and_code_3(
    capsys: Said, sqlite: str, command: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    used_up(sqlite)
    with sqlite3.connect(sqlite.removeprefix("sqlite:///").partition("?")[0]) as database:
        database.execute("UPDATE lockgate_organizations SET windows = x'ff', used = x'ff'")
    capsys.readouterr()
    assert main([*command, "org_1"]) == 3
    assert "The store cannot be used: the lines above say why." in capsys.readouterr().err
    assert "set its columns windows, used and made to NULL" in caplog.text


def test_doctor_notes_a_store_without_a_key(capsys: Said, url: str) -> None:
    run(Gate(url, brand="acme").close())
    (keys,) = [f for f in answer_any(capsys, "doctor")["findings"] if f["check"] == "keys"]
    assert (keys["level"], keys["text"]) == ("note", "The store has no live key.")
    assert "URL" in keys["advice"]
    used_up(url)
    assert not [f for f in answer_any(capsys, "doctor")["findings"] if f["check"] == "keys"]


def test_doctor_calls_a_store_in_memory_a_problem(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_STORE", "memory://")
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)
    found = answer(capsys, "doctor", code=1)["findings"]
    (problem,) = [f for f in found if f["level"] == "problem"]
    assert problem["check"] == "keys" and "memory://" in problem["text"]


def test_doctor_names_tables_that_are_missing_and_settings_that_lack(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "service_with_problems.py").write_text(
        "from lockgate import Gate\n"
        "from lockgate.sessions import SignedCookie\n"
        "from lockgate.stores.sql import SqlStore\n"
        "from sqlalchemy import create_engine\n"
        f"store = SqlStore(create_engine('sqlite:///{tmp_path}/keys.db'))\n"
        "gate = Gate(store, brand='acme', sessions=SignedCookie(['fedcba9876543210' * 2]))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKGATE_GATE", "service_with_problems:gate")
    found = answer(capsys, "doctor", code=3)
    problems = {f["check"]: f for f in found["findings"] if f["level"] == "problem"}
    assert set(problems) == {"schema", "origins"}
    assert "lockgate db upgrade" in problems["schema"]["text"]
    assert "public_url" in problems["origins"]["advice"]


def test_doctor_names_the_origins_and_trusts_the_proxies_of_the_service(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "service_without_problems.py").write_text(
        "from lockgate import Gate\n"
        "from lockgate.options import WebOptions\n"
        "from lockgate.sessions import SignedCookie\n"
        f"gate = Gate('sqlite:///{tmp_path}/keys.db?mode=rwc', brand='acme',\n"
        "            peppers=[b'fedcba9876543210'],\n"
        "            sessions=SignedCookie(['fedcba9876543210' * 2]),\n"
        "            web_options=WebOptions(public_url='https://console.example.com',\n"
        "                                   trusted_proxies=['10.0.0.0/8']))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKGATE_GATE", "service_without_problems:gate")
    found = {f["check"]: f for f in answer(capsys, "doctor")["findings"]}
    assert (found["origins"]["level"], found["proxy"]["level"]) == ("ok", "ok")
    assert "console.example.com" in found["origins"]["text"]


def test_doctor_prints_a_table_for_people(capsys: Said, sqlite: str) -> None:
    used_up(sqlite)
    capsys.readouterr()
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "The store answers in" in out and "hmac-sha256:" in out


def test_explain_tells_that_a_key_is_for_other_addresses(
    capsys: Said, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(url, brand="acme", peppers=[OLD.encode()], store_options=StoreOptions(deadline=30))
    made = run(gate.keys.create("org_1", "office", addresses=["192.0.2.0/24"]))
    run(gate.close())
    (key,) = answer(capsys, "explain", "org_1")["keys"]
    assert (key["addresses"], key["refused"]) == (["192.0.2.0/24"], None)
    assert answer(capsys, "explain", "org_1", made.key.id, "--address", "192.0.2.7") == {
        **answer(capsys, "explain", "org_1", made.key.id),
        "at": ANY,
    }
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{made.text}\n"))
    refused = answer(capsys, "explain", "--address", "198.51.100.7")["refused"]
    assert refused["code"] == "INSUFFICIENT_SCOPE"
    assert "192.0.2.0/24 only, and the client is 198.51.100.7" in refused["advice"]
    assert main(["explain", "org_1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("192.0.2.0/24")
    assert main(["explain", "org_1", "--address", "here"]) == 2
    assert "'here' is no IP address" in capsys.readouterr().err


def test_damaged_windows_are_found_by_doctor_and_emptied_by_a_reset(
    capsys: Said, sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, _ = used_up(sqlite)
    windows = answer(capsys, "doctor", "--organizations")["findings"][-2]
    assert (windows["check"], windows["level"]) == ("windows", "ok")
    assert "of 1 organizations are sound" in windows["text"]
    for answered in ("y\n", None):
        with sqlite3.connect(sqlite.removeprefix("sqlite:///").partition("?")[0]) as database:
            database.execute(
                "UPDATE lockgate_organizations SET windows = x'ff' WHERE id = CAST('org_1' AS BLOB)"
            )
        found = answer(capsys, "doctor", "--organizations", code=1)["findings"]
        (problem,) = [f for f in found if f["level"] == "problem"]
        assert (problem["check"], "org_1" in problem["text"]) == ("windows", True)
        assert "lockgate orgs reset" in problem["advice"]
        if answered is not None:
            monkeypatch.setattr("sys.stdin", io.StringIO(answered))
            assert main(["orgs", "reset", "org_1"]) == 0
            assert "its windows are damaged" in capsys.readouterr().err
        else:
            assert answer(capsys, "orgs", "reset", "org_1", "--yes")["usage"]["day"]["used"] == 0
        assert answer(capsys, "explain", "org_1", id)["refused"] is None


def test_a_reset_asks_before_it_empties_calendar_quotas(
    capsys: Said, sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"service_{token_hex(4)}"
    (tmp_path / f"{module}.py").write_text(METERED.format(store=sqlite))
    service: Any = importlib.import_module(module)
    run(service.gate.authenticate(run(service.gate.keys.create("org_1", "ci")).text, cost=7))
    for answered, used in (("n\n", 7), ("y\n", 0)):
        monkeypatch.setattr("sys.stdin", io.StringIO(answered))
        main(["orgs", "reset", "org_1", "--gate", f"{module}:gate"])
        assert "calendar quotas included" in capsys.readouterr().err
        (units,) = answer(capsys, "explain", "org_1", "--gate", f"{module}:gate")["limits"]
        assert units["windows"][0]["used"] == used
    run(service.gate.close())


def test_doctor_reads_the_windows_of_all_organizations(capsys: Said, url: str) -> None:
    used_up(url)
    found = answer_any(capsys, "doctor", "--organizations")["findings"]
    (windows,) = [f for f in found if f["check"] == "windows"]
    assert (windows["level"], windows["advice"]) == ("ok", None)


def test_doctor_exits_with_3_for_a_file_that_does_not_exist(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", OLD)
    monkeypatch.setenv("LOCKGATE_STORE", f"sqlite:///{tmp_path}/none.db")
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)
    answer(capsys, "doctor", code=3)
    assert not (tmp_path / "none.db").exists()


def test_a_wrong_pepper_is_named(capsys: Said, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = used_up(url)
    monkeypatch.setenv("LOCKGATE_PEPPER", NEW)
    found = answer(capsys, "doctor", code=1)["findings"]
    assert any("its pepper is probably wrong" in (one["advice"] or "") for one in found)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n"))
    assert main(["keys", "verify"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "LOCKGATE_PEPPER" in err and text[20:] not in err
    wrong = text[:-1] + ("a" if text[-1] != "a" else "b")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{wrong}\n"))
    assert main(["keys", "verify"]) == 1
    monkeypatch.setenv("LOCKGATE_PEPPER", f"{NEW} {OLD}")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n"))
    assert main(["keys", "verify"]) == 0
    found = answer_any(capsys, "doctor")["findings"]
    assert not any("probably wrong" in (one["advice"] or "") for one in found)


@pytest.mark.usefixtures("settings")
def test_a_costly_request_is_explained(capsys: Said) -> None:
    key = answer(capsys, "keys", "create", "org_1", "ci", "--scope", "jobs:read")
    found = answer(capsys, "explain", "org_1", "--cost", "11", "--scope", "jobs:write")
    assert (found["cost"], found["scopes"]) == (11, ["jobs:write"])
    assert found["refused"]["code"] == "RATE_LIMIT_EXCEEDED"
    assert "cost 11 never fits" in found["refused"]["advice"]
    assert found["keys"][0]["refused"]["code"] == "INSUFFICIENT_SCOPE"
    assert main(["explain", "org_1", key["id"], "--cost", "5"]) == 0
    assert ["cost", "5"] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_request_is_explained_by_the_route_of_an_application(
    capsys: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"service_{token_hex(4)}"  # Python loads a module of a name once.
    (tmp_path / f"{module}.py").write_text(GATE + STARLETTE)
    monkeypatch.chdir(tmp_path)
    app = "--app", f"{module}:app"
    found = answer(capsys, "explain", "org_1", *app, "--request", "POST /jobs/7?x=1")
    assert (found["cost"], found["scopes"], found["refused"]) == (5, ["jobs:write"], None)
    for request, told in (
        ("GET /health", "open"),
        ("PUT /jobs/7", "405"),
        ("/jobs/7", "write it as"),
    ):
        assert main(["explain", "org_1", *app, "--request", request]) == 2
        assert told in capsys.readouterr().err
    for wrong in (app, ("--request", "GET /x"), (*app, "--request", "GET /x", "--cost", "2")):
        assert main(["explain", "org_1", *wrong]) == 2
