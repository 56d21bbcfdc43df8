"""``lockgate orgs usage`` and ``lockgate keys refused``, as an operator reads them."""

from __future__ import annotations

from contextlib import suppress
from typing import get_args

import pytest

from lockgate import Limit, UsageHistory, run
from lockgate.core.timestamps import HOUR, MINUTE
from lockgate.core.usage_history import UsageHistory as Counted
from lockgate.errors import InsufficientScope, KeyRevoked, RateLimitExceeded
from lockgate.services.usage.most_refused import Period, most_refused
from lockgate.stores.answers import HistoryOwner

from .calling import Shell, serving

pytestmark = pytest.mark.usefixtures("url")
BARS = "█" * 30


def refusals(name: str, **at: int) -> Counted:
    """A history of refusals: how many, by the instant ``at`` which they were."""
    history = Counted()
    history.refuse(at["at"], name, at["times"])
    return history


def test_usage_is_a_table_with_bars_or_one_document(shell: Shell) -> None:
    gate = serving(features=[UsageHistory()])
    created = run(gate.keys.create("org_1", "ci"))
    for _ in range(12):
        with suppress(RateLimitExceeded):
            run(gate.authenticate(created.text, address="192.0.2.7"))
    run(gate.close())
    lines = [line.split() for line in shell("orgs usage org_1 --by day").out.splitlines()]
    assert lines[0] == ["day", "admitted", "refused"]
    assert lines[1][1:] == ["10", BARS, "2", "x", "minute"]
    assert lines[3:6] == [["admitted", "10"], ["refused", "2"], ["429", "2"]]
    assert lines[6][:4] == ["last", "address", "192.0.2.7", "at"]
    assert lines[7][:3] == ["last", "error", "RATE_LIMIT_EXCEEDED"]

    found = shell.json("orgs usage org_1 --key", created.key.id)
    assert (found["key_id"], found["by"]) == (created.key.id, "hour")
    assert sum(cell["admitted"] for cell in found["cells"]) == found["admitted"] == 10
    assert (found["refused"], found["statuses"]) == ({"minute": 2}, {"429": 2})
    assert found["last_address"]["text"] == "192.0.2.7"

    out, err = shell("orgs usage org_2")
    nothing = "admitted 0 refused 0 last address - last error -"
    assert out.split() == nothing.split()
    assert "A service records usage with Gate(features=[UsageHistory()])" in err
    shell("orgs usage org_2 --key", created.key.id, code=1)
    shell("orgs usage org_1 --by week", code=2)


def test_units_of_named_limits_have_columns_of_their_own(shell: Shell) -> None:
    gate = serving(features=[UsageHistory()])
    caller = run(gate.authenticate(run(gate.keys.create("org_1", "ci")).text))
    tokens, images = Limit("tokens", "1000/day"), Limit("images", "9/day")
    taken = run(gate.holds.take(caller, {tokens: 900, images: 3}))
    assert run(gate.holds.settle(taken.id, {"tokens": 812, "images": 1}))
    run(gate.close())
    lines = [line.split() for line in shell("orgs usage org_1 --by day").out.splitlines()]
    assert lines[0] == ["day", "admitted", "images", "tokens", "refused"]
    assert lines[1][1:] == ["1", BARS, "1", "812", "-"]
    assert lines[3:6] == [["admitted", "1"], ["images", "1"], ["tokens", "812"]]
    title, row = (line.split() for line in shell("orgs usage org_1 --keys").out.splitlines())
    assert title == ["id", "admitted", "images", "tokens", "last", "error", "name"]
    assert row[1:] == ["1", "1", "812", "-", "ci"]
    found = shell.json("orgs usage org_1")
    (cell,) = found["cells"]
    assert found["used"] == cell["used"] == {"tokens": 812, "images": 1}


def test_the_most_refused_key_comes_first(shell: Shell) -> None:
    gate = serving(features=[UsageHistory()])
    busy = run(gate.keys.create("org_1", "batch"))
    quiet = run(gate.keys.create("org_2", "ci", ["jobs:write"]))
    gone = run(gate.keys.create("org_3", "old"))
    for organization in ("org_1", "org_4"):
        run(gate.keys.create(organization, "never used"))
    beside = run(gate.keys.create("org_1", "beside"))
    run(gate.authenticate(beside.text))
    for _ in range(11):
        with suppress(RateLimitExceeded):
            run(gate.authenticate(busy.text, address="192.0.2.7"))
    for _ in range(3):
        with pytest.raises(InsufficientScope):
            run(gate.authenticate(quiet.text, requires="jobs:read"))
    run(gate.keys.revoke("org_3", gone.key.id))
    with pytest.raises(KeyRevoked):
        run(gate.authenticate(gone.text))
    run(gate.close())

    for last in ("minute", "day"):
        found = shell.json("keys refused --last", last)
        assert (found["last"], found["more"]) == (last, 0)
        assert [(one["organization_id"], one["key_id"]) for one in found["keys"]] == [
            *(("org_1", busy.key.id), ("org_2", quiet.key.id), ("org_3", gone.key.id)),
        ]
    first, second, third = shell.json("keys refused")["keys"]
    assert (first["name"], first["refused"], first["statuses"]) == (
        *("batch", {"minute": 2}),
        {"429": 2},
    )
    assert first["last_error"]["text"] == "RATE_LIMIT_EXCEEDED"
    assert first["last_address"]["text"] == "192.0.2.7"
    assert (second["statuses"], third["refused"]) == ({"403": 3}, {"KEY_REVOKED": 1})
    out, err = shell("keys refused --most 1")
    title, row = out.splitlines()
    assert title.split()[:3] == ["429", "organization", "key"]
    assert row.split()[:6] == ["2", "org_1", busy.key.id, "2", "x", "minute"]
    assert "2 more keys were refused" in err

    found = shell.json("orgs usage org_1 --keys")
    assert (found["organization_id"], found["by"]) == ("org_1", "hour")
    first, second = found["keys"]
    assert set(first) == {
        *("key_id", "name", "prefix", "admitted", "used", "refused", "statuses", "last_error")
    }
    assert (first["key_id"], first["admitted"], first["statuses"]) == (busy.key.id, 9, {"429": 2})
    assert (second["name"], second["admitted"], second["statuses"]) == ("beside", 1, {})
    title, row, _ = shell("orgs usage org_1 --keys").out.splitlines()
    assert title.split() == ["id", "admitted", "429", "last", "error", "name"]
    assert row.split()[0] == busy.key.id and row.split()[-1] == "batch"
    shell("orgs usage org_1 --keys --key", busy.key.id, code=2)


def test_without_refusals_the_reason_is_told(shell: Shell) -> None:
    shell("keys create org_1 ci")
    found = shell.json("keys refused")
    assert (found["keys"], found["more"]) == ([], 0)
    out, err = shell("keys refused")
    assert out == "" and "Gate(features=[UsageHistory()])" in err


def test_only_refusals_of_the_period_count_and_those_of_no_present_key_have_a_row() -> None:
    gate = serving(features=[UsageHistory()])
    key = run(gate.keys.create("org_1", "ci")).key
    now = run(gate.now())
    for handle in (key.handle, None):
        history = refusals("minute", at=now - 30 * MINUTE, times=5)
        history.refuse(now - 5 * HOUR, "day", 7)
        if handle is None:  # The organization's have three more than its key's.
            history.refuse(now, "minute", 3)
        run(gate.store.add_history({HistoryOwner("org_1", handle): history}))
    found = {
        last: [
            (one.key and one.key.id, one.refused)
            for one in run(most_refused(gate.store, gate.organizations, now, last, 5)).keys
        ]
        for last in get_args(Period)
    }
    run(gate.close())
    of_none = (None, {"minute": 3})
    assert found == {
        "minute": [of_none],
        "hour": [(key.id, {"minute": 5}), of_none],
        "day": [(key.id, {"minute": 5, "day": 7}), of_none],
    }


def test_every_organization_and_key_is_read_page_by_page() -> None:
    gate = serving(features=[UsageHistory()])
    now = run(gate.now())
    histories: dict[HistoryOwner, Counted] = {}
    for number in range(1, 61):
        organization = f"org_{number}"
        key = run(gate.keys.create(organization, "ci")).key
        for handle in (key.handle, None):
            own = refusals("minute", at=now, times=number)
            histories[HistoryOwner(organization, handle)] = own
    several = [run(gate.keys.create("org_many", str(n))).key for n in range(60)]
    one = refusals("minute", at=now, times=1000)
    histories |= {HistoryOwner("org_many", key.handle): one for key in several}
    histories[HistoryOwner("org_many", None)] = refusals("minute", at=now, times=60_000)
    owners = [*histories]
    for start in range(0, len(owners), 50):
        some = {owner: histories[owner] for owner in owners[start : start + 50]}
        run(gate.store.add_history(some))
    shown: list[str] = []
    found = run(most_refused(gate.store, gate.organizations, now, "hour", 70, shown.append))
    run(gate.close())
    assert {one.key.id for one in found.keys[:60] if one.key} == {key.id for key in several}
    rest = [(one.organization, one.refused["minute"]) for one in found.keys[60:]]
    assert rest == [(f"org_{n}", n) for n in range(60, 50, -1)]
    assert found.more == 50
    assert shown[-1].startswith("61 organizations")
