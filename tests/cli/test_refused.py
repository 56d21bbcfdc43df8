"""``lockgate keys refused``: the keys of all organizations by their refusals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import get_args

import pytest

import lockgate
from lockgate import Gate, run
from lockgate.cli import main
from lockgate.core.timestamps import HOUR, MINUTE
from lockgate.core.usage_history import UsageHistory
from lockgate.errors import InsufficientScope, KeyRevoked, RateLimitExceeded
from lockgate.services.usage.most_refused import Period, most_refused
from lockgate.stores.answers import HistoryOwner
from tests.services.shared_stores import KINDS, gate_on, shared_store

from .calling import Said, done

PEPPER = "a-pepper-of-these-tests-8f2c41d0"


@pytest.fixture(params=KINDS)
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", PEPPER)
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)
    with shared_store(request.param, tmp_path) as found:
        monkeypatch.setenv("LOCKGATE_STORE", found)
        yield found


def recording(url: str) -> Gate:
    return gate_on(url, peppers=[PEPPER.encode()], usage_history=lockgate.UsageHistory())


def test_the_key_with_the_most_429s_comes_first(capsys: Said, url: str) -> None:
    gate = recording(url)
    busy = run(gate.keys.create("org_1", "batch"))
    quiet = run(gate.keys.create("org_2", "ci", ["jobs:write"]))
    gone = run(gate.keys.create("org_3", "old"))
    run(gate.keys.create("org_4", "never used"))
    for _ in range(12):
        with suppress(RateLimitExceeded):
            run(gate.authenticate(busy.text, address="192.0.2.7"))
    for _ in range(3):
        with pytest.raises(InsufficientScope):
            run(gate.authenticate(quiet.text, requires="jobs:read"))
    run(gate.keys.revoke("org_3", gone.key.id))
    with pytest.raises(KeyRevoked):
        run(gate.authenticate(gone.text))
    run(gate.close())

    expected = [("org_1", busy.key.id), ("org_2", quiet.key.id), ("org_3", gone.key.id)]
    for last in ("minute", "day"):
        found = done(capsys, "keys", "refused", "--last", last)
        assert (found["last"], found["more"]) == (last, 0)
        ids = [(one["organization_id"], one["key_id"]) for one in found["keys"]]
        assert ids == expected
    first, second, third = done(capsys, "keys", "refused")["keys"]
    assert set(first) == {
        *("organization_id", "key_id", "name", "prefix", "refused", "statuses"),
        *("last_error", "last_address"),
    }
    assert (first["name"], first["refused"], first["statuses"]) == (
        "batch",
        {"minute": 2},
        {"429": 2},
    )
    assert first["last_error"]["text"] == "RATE_LIMIT_EXCEEDED"
    assert first["last_address"]["text"] == "192.0.2.7"
    assert second["statuses"] == {"403": 3}
    assert third["refused"] == {"KEY_REVOKED": 1}

    assert main(["keys", "refused", "--most", "1"]) == 0
    said = capsys.readouterr()
    title, row = said.out.splitlines()
    assert title.split()[:3] == ["429", "organization", "key"]
    assert row.split()[:6] == ["2", "org_1", busy.key.id, "2", "x", "minute"]
    assert "2 more keys were refused" in said.err


def test_without_refusals_the_reason_is_told(capsys: Said, url: str) -> None:
    done(capsys, "keys", "create", "org_1", "ci")
    found = done(capsys, "keys", "refused")
    assert (found["keys"], found["more"]) == ([], 0)
    assert main(["keys", "refused"]) == 0
    said = capsys.readouterr()
    assert said.out == "" and "Gate(features=[UsageHistory()])" in said.err


def test_only_refusals_of_the_period_count(url: str) -> None:
    gate = recording(url)
    key = run(gate.keys.create("org_1", "ci")).key
    now = run(gate.now())
    history = UsageHistory()
    history.refuse(now - 30 * MINUTE, "minute", 5)
    history.refuse(now - 5 * HOUR, "day", 7)
    owners = HistoryOwner("org_1", key.handle), HistoryOwner("org_1", None)
    run(gate.store.add_history(dict.fromkeys(owners, history)))
    found = {
        last: [
            one.refused
            for one in run(most_refused(gate.store, gate.organizations, now, last, 5)).keys
        ]
        for last in get_args(Period)
    }
    run(gate.close())
    assert found == {"minute": [], "hour": [{"minute": 5}], "day": [{"minute": 5, "day": 7}]}


def test_refusals_of_no_present_key_are_a_row_of_their_own(url: str) -> None:
    gate = recording(url)
    key = run(gate.keys.create("org_1", "ci")).key
    now = run(gate.now())
    own, all_of_them = UsageHistory(), UsageHistory()
    own.refuse(now, "minute", 2)
    all_of_them.refuse(now, "minute", 5)
    owners = {HistoryOwner("org_1", key.handle): own, HistoryOwner("org_1", None): all_of_them}
    run(gate.store.add_history(owners))
    found = run(most_refused(gate.store, gate.organizations, now, "hour", 5))
    run(gate.close())
    ids = [(one.key and one.key.id, one.refused) for one in found.keys]
    assert ids == [(None, {"minute": 3}), (key.id, {"minute": 2})]


def test_every_organization_and_key_is_read_page_by_page(url: str) -> None:
    gate = recording(url)
    now = run(gate.now())
    histories: dict[HistoryOwner, UsageHistory] = {}
    for number in range(60):
        organization = f"org_{number}"
        key = run(gate.keys.create(organization, "ci")).key
        for owner in (HistoryOwner(organization, key.handle), HistoryOwner(organization, None)):
            histories[owner] = UsageHistory()
            histories[owner].refuse(now, "minute", number + 1)
    several = [run(gate.keys.create("org_many", str(n))).key for n in range(60)]
    one, total = UsageHistory(), UsageHistory()
    one.refuse(now, "minute", 1000)
    total.refuse(now, "minute", 60_000)
    histories |= {HistoryOwner("org_many", key.handle): one for key in several}
    histories[HistoryOwner("org_many", None)] = total
    owners = [*histories]
    for start in range(0, len(owners), 50):
        some = {owner: histories[owner] for owner in owners[start : start + 50]}
        run(gate.store.add_history(some))
    shown: list[str] = []
    found = run(most_refused(gate.store, gate.organizations, now, "hour", 70, shown.append))
    run(gate.close())
    assert {one.key.id for one in found.keys[:60] if one.key} == {key.id for key in several}
    rest = [(one.organization, one.refused["minute"]) for one in found.keys[60:]]
    assert rest == [(f"org_{n - 1}", n) for n in range(60, 50, -1)]
    assert found.more == 50
    assert shown[-1].startswith("61 organizations")
