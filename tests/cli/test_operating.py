"""``lockgate explain`` and ``lockgate doctor``: an operator's questions, on real servers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockgate import Gate, run
from lockgate.cli import main
from tests.servers import redis_server
from tests.services.shared_stores import KINDS, shared_store

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


def answer(capsys: Said, *arguments: str, code: int = 0) -> Any:
    """The JSON that a command prints."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def used_up(url: str, pepper: str = OLD) -> tuple[str, str]:
    """Spend the minute of ``org_1``; return the id and the text of its key."""
    gate = Gate(url, brand="acme", peppers=[pepper.encode()], deadline=30)
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
        *("organization_id", "plan", "assigned_plan", "at", "refused"),
        *("windows", "slots", "keys", "more_keys"),
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


def test_doctor_finds_nothing_wrong_and_counts_keys_by_pepper(capsys: Said, url: str) -> None:
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


def test_doctor_warns_of_a_redis_that_evicts_or_keeps_nothing(
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


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "postgresql://nobody@127.0.0.1:1/none"])
def test_doctor_says_that_a_store_does_not_answer_by_exit_code_3(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", OLD)
    monkeypatch.setenv("LOCKGATE_STORE", url)
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)
    found = answer(capsys, "doctor", code=3)
    assert ("store", "problem") in {(f["check"], f["level"]) for f in found["findings"]}


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
    found = answer(capsys, "doctor", code=1)
    problems = {f["check"]: f for f in found["findings"] if f["level"] == "problem"}
    assert set(problems) == {"schema", "origins"}
    assert "lockgate db upgrade" in problems["schema"]["text"]
    assert "public_url" in problems["origins"]["advice"]


def test_doctor_names_the_origins_and_trusts_the_proxies_of_the_service(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "service_without_problems.py").write_text(
        "from lockgate import Gate\n"
        "from lockgate.sessions import SignedCookie\n"
        "gate = Gate(brand='acme', sessions=SignedCookie(['fedcba9876543210' * 2]),\n"
        "            public_url='https://console.example.com', trusted_proxies=['10.0.0.0/8'])\n"
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
    assert "It answers in" in out and "hmac-sha256:" in out
