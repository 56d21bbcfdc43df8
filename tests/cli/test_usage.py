"""``lockgate orgs usage``, as an operator reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lockgate import Gate, Limit, UsageHistory, run
from lockgate.cli import main
from lockgate.errors import InsufficientScope, RateLimitExceeded
from lockgate.options import StoreOptions
from tests.services.shared_stores import KINDS, shared_store

Said = pytest.CaptureFixture[str]
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


def test_usage_is_a_table_with_bars_or_one_document(capsys: Said, url: str) -> None:
    gate = Gate(
        url,
        brand="acme",
        peppers=[PEPPER.encode()],
        store_options=StoreOptions(deadline=30),
        features=[UsageHistory()],
    )
    created = run(gate.keys.create("org_1", "ci"))
    for _ in range(12):
        with suppress(RateLimitExceeded):
            run(gate.authenticate(created.text, address="192.0.2.7"))
    run(gate.close())

    assert main(["orgs", "usage", "org_1", "--by", "day"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["day", "admitted", "refused"]
    assert lines[1].split()[1:] == ["10", "█" * 30, "2", "x", "minute"]
    assert lines[3].split() == ["admitted", "10"]
    assert lines[4].split() == ["refused", "2"]
    assert lines[5].split() == ["429", "2"]
    assert lines[6].split()[:4] == ["last", "address", "192.0.2.7", "at"]
    assert lines[7].split()[:3] == ["last", "error", "RATE_LIMIT_EXCEEDED"]

    capsys.readouterr()
    assert main(["orgs", "usage", "org_1", "--key", created.key.id, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {
        *("organization_id", "key_id", "by", "at", "admitted", "used", "refused", "cells"),
        *("statuses", "last_address", "last_error"),
    }
    assert (found["key_id"], found["by"]) == (created.key.id, "hour")
    assert sum(cell["admitted"] for cell in found["cells"]) == found["admitted"] == 10
    assert (found["refused"], found["statuses"]) == ({"minute": 2}, {"429": 2})
    assert found["last_address"]["text"] == "192.0.2.7"

    assert main(["orgs", "usage", "org_2"]) == 0
    said = capsys.readouterr()
    assert said.out.split() == [
        *("admitted", "0", "refused", "0", "last", "address", "-", "last", "error", "-")
    ]
    assert "A service records usage with Gate(features=[UsageHistory()])" in said.err
    assert main(["orgs", "usage", "org_2", "--key", created.key.id]) == 1
    assert main(["orgs", "usage", "org_1", "--by", "week"]) == 2


def test_units_of_named_limits_have_columns_of_their_own(capsys: Said, url: str) -> None:
    gate = Gate(
        url,
        brand="acme",
        peppers=[PEPPER.encode()],
        store_options=StoreOptions(deadline=30),
        features=[UsageHistory()],
    )
    caller = run(gate.authenticate(run(gate.keys.create("org_1", "ci")).text))
    tokens, images = Limit("tokens", "1000/day"), Limit("images", "9/day")
    taken = run(gate.holds.take(caller, {tokens: 900, images: 3}))
    assert run(gate.holds.settle(taken.id, {"tokens": 812, "images": 1}))
    run(gate.close())
    assert main(["orgs", "usage", "org_1", "--by", "day"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["day", "admitted", "images", "tokens", "refused"]
    assert lines[1][1:] == ["1", "█" * 30, "1", "812", "-"]
    assert lines[3:6] == [["admitted", "1"], ["images", "1"], ["tokens", "812"]]
    assert main(["orgs", "usage", "org_1", "--keys"]) == 0
    title, row = (line.split() for line in capsys.readouterr().out.splitlines())
    assert title == ["id", "admitted", "images", "tokens", "last", "error", "name"]
    assert row[1:] == ["1", "1", "812", "-", "ci"]
    assert main(["orgs", "usage", "org_1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (cell,) = found["cells"]
    assert found["used"] == cell["used"] == {"tokens": 812, "images": 1}


def test_the_most_refused_key_comes_first(capsys: Said, url: str) -> None:
    gate = Gate(
        url,
        brand="acme",
        peppers=[PEPPER.encode()],
        store_options=StoreOptions(deadline=30),
        features=[UsageHistory()],
    )
    quiet = run(gate.keys.create("org_1", "quiet"))
    busy = run(gate.keys.create("org_1", "busy", ["jobs:write"]))
    run(gate.keys.create("org_1", "never used"))
    run(gate.authenticate(quiet.text))
    with pytest.raises(InsufficientScope):
        run(gate.authenticate(busy.text, requires="jobs:read"))
    for _ in range(12):
        with suppress(RateLimitExceeded):
            run(gate.authenticate(busy.text))
    run(gate.close())
    assert main(["orgs", "usage", "org_1", "--keys", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["organization_id"], found["by"]) == ("org_1", "hour")
    first, second = found["keys"]
    assert set(first) == {
        *("key_id", "name", "prefix", "admitted", "used", "refused", "statuses", "last_error")
    }
    assert (first["key_id"], first["admitted"]) == (busy.key.id, 9)
    assert first["statuses"] == {"403": 1, "429": 4}
    assert first["refused"] == {"INSUFFICIENT_SCOPE": 1, "minute": 4}
    assert (second["name"], second["admitted"], second["statuses"]) == ("quiet", 1, {})
    assert main(["orgs", "usage", "org_1", "--keys"]) == 0
    title, row, _ = capsys.readouterr().out.splitlines()
    assert title.split() == ["id", "admitted", "403", "429", "last", "error", "name"]
    assert row.split()[0] == busy.key.id and row.split()[-1] == "busy"
    assert main(["orgs", "usage", "org_1", "--keys", "--key", busy.key.id]) == 2
