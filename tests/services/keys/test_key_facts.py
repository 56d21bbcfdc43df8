"""Facts and conditions of keys: creator, labels, addresses and maximum age."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from lockgate import ConfigurationError, Registration, run
from lockgate.core.api_keys import ApiKey, KeyDetails
from lockgate.core.ledger import Peek
from lockgate.core.timestamps import DAY
from lockgate.errors import AddressNotAllowed, InvalidRequest, KeyNotFound
from lockgate.options import KeyOptions
from lockgate.services.keys.keys import KeyPage
from lockgate.sessions import SignedCookie

from ..bench import Bench
from ..shared_stores import gate_on, shared_store

PEPPER = b"a pepper of the tests, 32 bytes."


def described(key: ApiKey) -> KeyDetails:
    assert key.details is not None
    return key.details


def test_a_key_keeps_its_creator_and_a_successor_tells_its_own() -> None:
    keys = Bench().gate.keys
    key = run(keys.create("org_1", "a", created_by="user:ada")).key
    assert described(run(keys.get("org_1", key.id))).created_by == "user:ada"
    rotated = run(keys.rotate("org_1", key.id, created_by="user:bob"))
    assert described(rotated.old).created_by == "user:ada"
    assert described(rotated.successor).created_by == "user:bob"
    again = run(keys.rotate("org_1", rotated.successor.id)).successor
    assert again.details is None
    plain = run(keys.create("org_1", "a")).key
    assert plain.details is None
    assert run(keys.update("org_1", plain.id, labels={}, addresses=[])) == plain


def test_labels_are_replaced_by_an_update_and_kept_by_a_rotation() -> None:
    keys = Bench().gate.keys
    labels = {"team": "ci", "env": "x"}
    key = run(keys.create("org_1", "a", created_by="shell", labels=labels)).key
    key = run(keys.update("org_1", key.id, labels={"team": "web"}))
    assert described(key) == KeyDetails(created_by="shell", labels=(("team", "web"),))
    rotated = run(keys.rotate("org_1", key.id))
    assert described(rotated.old).labels == described(rotated.successor).labels
    assert described(rotated.successor).rotated_at is None
    renamed = run(keys.update("org_1", rotated.successor.id, name="b"))
    assert described(renamed).labels == (("team", "web"),)


def test_a_list_is_filtered_by_labels_page_by_page() -> None:
    keys = Bench().gate.keys
    wanted = {"team": "ci", "env": "prod"}
    for number in range(250):
        labels = {"team": "ci"} | ({"env": "prod"} if number % 3 == 0 else {})
        run(keys.create("org_1", f"key {number}", labels=labels))
    pages: list[KeyPage] = []
    while not pages or pages[-1].cursor is not None:
        cursor = pages[-1].cursor if pages else None
        pages.append(run(keys.list("org_1", limit=20, cursor=cursor, labels=wanted)))
    assert {len(page.keys) for page in pages[:-1]} == {20}
    found = [key.name for page in pages for key in page.keys]
    assert sorted(found) == sorted(f"key {n}" for n in range(0, 250, 3))
    assert run(keys.list("org_1", labels={"team": "other"})) == KeyPage([], None)
    assert len(run(keys.list("org_1", limit=250)).keys) == 250


def test_every_wrong_fact_is_named() -> None:
    keys = Bench(key_options=KeyOptions(max_age_days=90)).gate.keys
    wrong: dict[str, Any] = {"created_by": "", "labels": {"": "x"}, "addresses": ["nowhere"]}
    with pytest.raises(InvalidRequest) as caught:
        run(keys.create("org_1", "a", ["*"], 91, **wrong))
    fields = [problem.field for problem in caught.value.problems]
    assert fields == ["expires_in_days", "created_by", "labels", "addresses"]
    key = run(keys.create("org_1", "a")).key
    with pytest.raises(InvalidRequest) as caught:
        run(keys.update("org_1", key.id, labels={"a": ""}, addresses=["192.0.2.7/24"]))
    assert [problem.field for problem in caught.value.problems] == ["labels", "addresses"]
    with pytest.raises(InvalidRequest, match="labels"):
        run(keys.list("org_1", labels={"": ""}))
    with pytest.raises(InvalidRequest, match="created_by"):
        run(keys.rotate("org_1", key.id, created_by=""))


def test_no_log_line_and_no_text_of_a_key_shows_labels(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    keys = bench.gate.keys
    with caplog.at_level(logging.DEBUG):
        made = bench.create(created_by="user:ada", labels={"team": "ci-7"})
        run(keys.update("org_1", made.key.id, labels={"team": "ci-8"}))
        rotated = run(keys.rotate("org_1", made.key.id))
        bench.admit(rotated.text)
        run(keys.revoke("org_1", made.key.id, successors=True))
    assert "ci-" not in caplog.text
    assert "ci-" not in f"{made!r} {made.key!r} {rotated!r}"


def test_a_key_with_an_allow_list_and_its_successor_are_for_its_addresses_only() -> None:
    bench = Bench(peppers=[PEPPER])
    made = bench.create(addresses=["192.0.2.0/24", "2001:db8::7"])
    for address in ("192.0.2.9", "2001:db8::7", "::ffff:192.0.2.1"):
        assert bench.admit(made.text, address=address).key is not None
    for address in ("198.51.100.1", "2001:db8::8", "", "unix"):
        refused: Any = bench.refuses(AddressNotAllowed, made.text, address=address)
        assert (refused.status, refused.code) == (403, "INSUFFICIENT_SCOPE")
        assert (refused.organization, refused.key) == ("org_1", made.key.id)
    bench.refuses(AddressNotAllowed, made.text)
    windows = bench.gate.plans.default.windows
    reading = run(bench.gate.store.charge("org_1", Peek(windows), bench.clock()))
    assert reading.used[0] == 3
    assert run(bench.gate.keys.get("org_1", made.key.id)).request_count == 3
    (explained,) = run(bench.gate.explain("org_1", made.key.id)).keys
    assert explained.key.addresses == ("192.0.2.0/24", "2001:db8::7")
    rotated = run(bench.gate.keys.rotate("org_1", made.key.id))
    for text in (made.text, rotated.text):
        assert bench.admit(text, address="192.0.2.7").key is not None
        bench.refuses(AddressNotAllowed, text, address="192.0.3.8")


@pytest.mark.parametrize("forged", [None, KeyDetails(addresses=("0.0.0.0/0",)), KeyDetails()])
def test_a_list_that_a_writer_of_the_database_changed_opens_no_key_K1(
    forged: KeyDetails | None, tmp_path: Path
) -> None:
    """For a process that has admitted the key before, and for another one."""
    with shared_store("sqlite", tmp_path) as url:
        gates = [gate_on(url, peppers=[PEPPER]) for _ in range(2)]
        made = run(gates[0].keys.create("org_1", "a", addresses=["192.0.2.7"]))
        run(gates[0].authenticate(made.text, address="192.0.2.7"))
        row = run(gates[0].keys.get("org_1", made.key.id))
        assert run(gates[1].store.update_if(row, made.key._replace(details=forged)))
        for gate in gates:
            with pytest.raises(KeyNotFound):
                run(gate.authenticate(made.text, address="198.51.100.1"))
            run(gate.close())


def test_a_change_of_this_release_keeps_what_a_later_one_wrote() -> None:
    later = KeyDetails.read({"labels": [["team", "ci"]], "hours": {"from": 8}})
    assert later.written() == {"labels": (("team", "ci"),), "hours": {"from": 8}}
    assert KeyDetails.read(later._replace(labels=()).written()).others == (
        ("hours", '{"from": 8}'),
    )


def test_a_maximum_age_gives_new_keys_and_those_of_agents_an_expiry() -> None:
    secret = "a session secret of the tests"
    bench = Bench(
        key_options=KeyOptions(max_age_days=90),
        sessions=SignedCookie([secret]),
        public_url="https://console.example.com",
        registration=Registration(session_secrets=[secret]),
    )
    now = bench.clock.now
    assert bench.create().key.expires_at == now + 90 * DAY
    assert bench.create(expires_in_days=30).key.expires_at == now + 30 * DAY
    with pytest.raises(InvalidRequest, match="at most 90 days"):
        bench.create(expires_in_days=90.01)
    assert bench.gate.accounts is not None
    made = run(bench.gate.accounts.register("a bot", "ada@example.com", address="192.0.2.1"))
    assert described(made.key).created_by == "agent"
    assert made.key.expires_at == now + 90 * DAY


def test_no_update_takes_a_key_past_its_maximum_age() -> None:
    bench = Bench(key_options=KeyOptions(max_age_days=90))
    keys, clock = bench.gate.keys, bench.clock
    key = bench.create(expires_in_days=30).key
    clock.now += 20 * DAY
    for days, expiry in (
        (70, clock.now + 70 * DAY),
        (1, clock.now + DAY),
        (None, key.created_at + 90 * DAY),
    ):
        assert run(keys.update("org_1", key.id, expires_in_days=days)).expires_at == expiry
    with pytest.raises(InvalidRequest, match="maximum age"):
        run(keys.update("org_1", key.id, expires_in_days=70.1))


def test_a_key_from_before_the_maximum_keeps_its_expiry_and_its_successor_has_one() -> None:
    before = Bench()
    old, long = before.create().key, before.create(expires_in_days=400).key
    before.clock.now += 100 * DAY
    options = KeyOptions(max_age_days=90)
    keys = Bench(before.store, clock=before.clock, key_options=options).gate.keys
    assert run(keys.update("org_1", old.id, name="b")).expires_at is None
    with pytest.raises(InvalidRequest, match="rotate it"):
        run(keys.update("org_1", old.id, expires_in_days=1))
    ages = run(keys.ages())
    assert (ages.ending, ages.first, ages.too_old) == (0, (), 2)
    for key in (old, long):
        successor = run(keys.rotate("org_1", key.id)).successor
        assert successor.expires_at == successor.created_at + 90 * DAY


def test_keys_that_end_soon_are_counted_and_the_first_are_named() -> None:
    bench = Bench()
    keys = bench.gate.keys
    for days in (15, 14, 3, 5):
        bench.create(f"org_{days}", expires_in_days=days)
    rotated, revoked = (bench.create(expires_in_days=2).key for _ in range(2))
    run(keys.rotate("org_1", rotated.id))
    run(keys.revoke("org_1", revoked.id))
    ages = run(keys.ages())
    # The successor of the rotated key has two days as well.
    assert [key.organization for key in ages.first] == ["org_1", "org_3", "org_5", "org_14"]
    assert (ages.ending, ages.too_old) == (4, 0)


@pytest.mark.parametrize("days", [0, -1, True, 40_000])
def test_a_maximum_age_that_cannot_be_is_told_when_the_gate_is_made(days: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_age_days"):
        Bench(key_options=KeyOptions(max_age_days=days))
