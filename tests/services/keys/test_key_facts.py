"""Facts and conditions of keys: creator, labels, addresses and maximum age."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from lockgate import ConfigurationError, Gate, MemoryStore, Registration, run
from lockgate.core.api_keys import ApiKey, KeyDetails
from lockgate.core.ledger import Peek
from lockgate.core.timestamps import DAY
from lockgate.errors import AddressNotAllowed, InvalidRequest, KeyNotFound
from lockgate.options import KeyOptions
from lockgate.services.keys.keys import KeyPage
from lockgate.sessions import SignedCookie
from lockgate.testing import HandClock
from tests.gates import flat_gate

PEPPER = b"a pepper of the tests, 32 bytes."


def gate_of(**options: Any) -> Gate:
    defaults: dict[str, Any] = {"peppers": [PEPPER], "clock": HandClock()}
    return flat_gate(
        options.pop("store", None) or MemoryStore(), brand="acme", **defaults | options
    )


def described(key: ApiKey) -> KeyDetails:
    assert key.details is not None
    return key.details


def test_a_key_keeps_its_creator_and_a_successor_tells_its_own() -> None:
    keys = gate_of().keys
    key = run(keys.create("org_1", "a", created_by="user:ada")).key
    assert described(run(keys.get("org_1", key.id))).created_by == "user:ada"
    rotated = run(keys.rotate("org_1", key.id, created_by="user:bob"))
    assert described(rotated.old).created_by == "user:ada"
    assert described(rotated.successor).created_by == "user:bob"
    again = run(keys.rotate("org_1", rotated.successor.id)).successor
    assert again.details is None


def test_a_key_without_facts_has_no_details() -> None:
    keys = gate_of().keys
    key = run(keys.create("org_1", "a")).key
    assert key.details is None
    assert run(keys.update("org_1", key.id, labels={}, addresses=[])) == key


def test_labels_are_replaced_by_an_update_and_kept_by_a_rotation() -> None:
    keys = gate_of().keys
    key = run(keys.create("org_1", "a", created_by="shell", labels={"team": "ci", "env": "x"})).key
    key = run(keys.update("org_1", key.id, labels={"team": "web"}))
    assert described(key) == KeyDetails(created_by="shell", labels=(("team", "web"),))
    rotated = run(keys.rotate("org_1", key.id))
    assert described(rotated.old).labels == described(rotated.successor).labels
    assert described(rotated.successor).rotated_at is None
    renamed = run(keys.update("org_1", rotated.successor.id, name="b"))
    assert described(renamed).labels == (("team", "web"),)


def test_a_list_is_filtered_by_labels_page_by_page() -> None:
    keys = gate_of().keys
    wanted = {"team": "ci", "env": "prod"}
    for number in range(250):
        labels = {"team": "ci"} | ({"env": "prod"} if number % 3 == 0 else {})
        run(keys.create("org_1", f"key {number}", labels=labels))
    found: list[str] = []
    page = KeyPage([], None)
    while True:
        page = run(keys.list("org_1", limit=20, cursor=page.cursor, labels=wanted))
        found += [key.name for key in page.keys]
        if page.cursor is None:
            break
        assert len(page.keys) == 20
    assert sorted(found) == sorted(f"key {n}" for n in range(0, 250, 3))
    assert run(keys.list("org_1", labels={"team": "other"})) == KeyPage([], None)
    assert len(run(keys.list("org_1", limit=250)).keys) == 250


def test_every_wrong_fact_is_named() -> None:
    keys = gate_of(key_options=KeyOptions(max_age_days=90)).keys
    with pytest.raises(InvalidRequest) as caught:
        run(
            keys.create(
                "org_1", "a", ["*"], 91, created_by="", labels={"": "x"}, addresses=["nowhere"]
            )
        )
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
    gate = gate_of()
    with caplog.at_level(logging.DEBUG):
        made = run(gate.keys.create("org_1", "a", created_by="user:ada", labels={"team": "ci-7"}))
        run(gate.keys.update("org_1", made.key.id, labels={"team": "ci-8"}))
        rotated = run(gate.keys.rotate("org_1", made.key.id))
        run(gate.authenticate(rotated.text))
        run(gate.keys.revoke("org_1", made.key.id, successors=True))
    assert "ci-" not in caplog.text
    assert "ci-" not in f"{made!r} {made.key!r} {rotated!r}"


def test_a_key_with_an_allow_list_is_for_its_addresses_only() -> None:
    gate = gate_of()
    made = run(gate.keys.create("org_1", "a", addresses=["192.0.2.0/24", "2001:db8::7"]))
    for address in ("192.0.2.9", "2001:db8::7", "::ffff:192.0.2.1"):
        assert run(gate.authenticate(made.text, address=address)).key is not None
    for address in ("198.51.100.1", "2001:db8::8", "", "unix"):
        with pytest.raises(AddressNotAllowed) as refused:
            run(gate.authenticate(made.text, address=address))
        assert (refused.value.status, refused.value.code) == (403, "INSUFFICIENT_SCOPE")
        assert (refused.value.organization, refused.value.key) == ("org_1", made.key.id)
    with pytest.raises(AddressNotAllowed):
        run(gate.authenticate(made.text))
    reading = run(
        gate.store.charge("org_1", Peek(gate.plans.default.windows), gate.clock and gate.clock())
    )
    assert reading.used[0] == 3
    assert run(gate.keys.get("org_1", made.key.id)).request_count == 3


def test_a_successor_has_the_allow_list_of_the_rotated_key() -> None:
    gate = gate_of()
    made = run(gate.keys.create("org_1", "a", addresses=["192.0.2.7"]))
    rotated = run(gate.keys.rotate("org_1", made.key.id))
    for text in (made.text, rotated.text):
        assert run(gate.authenticate(text, address="192.0.2.7")).key is not None
        with pytest.raises(AddressNotAllowed):
            run(gate.authenticate(text, address="192.0.2.8"))


@pytest.mark.parametrize("forged", [None, KeyDetails(addresses=("0.0.0.0/0",)), KeyDetails()])
def test_a_list_that_a_writer_of_the_database_changed_opens_no_key(
    forged: KeyDetails | None,
) -> None:
    """For a process that has admitted the key before, and for another one."""
    store = MemoryStore()
    gate = gate_of(store=store)
    made = run(gate.keys.create("org_1", "a", addresses=["192.0.2.7"]))
    run(gate.authenticate(made.text, address="192.0.2.7"))
    run(
        store.update_if(run(gate.keys.get("org_1", made.key.id)), made.key._replace(details=forged))
    )
    with pytest.raises(KeyNotFound):
        run(gate_of(store=store).authenticate(made.text, address="198.51.100.1"))


def test_a_change_of_this_release_keeps_what_a_later_one_wrote() -> None:
    later = KeyDetails.read({"labels": [["team", "ci"]], "hours": {"from": 8}})
    assert later.written() == {"labels": (("team", "ci"),), "hours": {"from": 8}}
    assert KeyDetails.read(later._replace(labels=()).written()).others == (
        ("hours", '{"from": 8}'),
    )


def test_a_maximum_age_gives_new_keys_an_expiry() -> None:
    gate = gate_of(key_options=KeyOptions(max_age_days=90))
    keys, clock = gate.keys, gate.clock
    assert clock is not None
    now = clock()
    assert run(keys.create("org_1", "a")).key.expires_at == now + 90 * DAY
    assert run(keys.create("org_1", "a", ["*"], 30)).key.expires_at == now + 30 * DAY
    with pytest.raises(InvalidRequest, match="at most 90 days"):
        run(keys.create("org_1", "a", ["*"], 90.01))


def test_no_update_takes_a_key_past_its_maximum_age() -> None:
    gate = gate_of(key_options=KeyOptions(max_age_days=90))
    keys, clock = gate.keys, gate.clock
    assert isinstance(clock, HandClock)
    key = run(keys.create("org_1", "a", ["*"], 30)).key
    clock.now += 20 * DAY
    assert run(keys.update("org_1", key.id, expires_in_days=70)).expires_at == clock.now + 70 * DAY
    assert run(keys.update("org_1", key.id, expires_in_days=1)).expires_at == clock.now + DAY
    assert run(keys.update("org_1", key.id, expires_in_days=None)).expires_at == (
        key.created_at + 90 * DAY
    )
    with pytest.raises(InvalidRequest, match="maximum age"):
        run(keys.update("org_1", key.id, expires_in_days=70.1))


def test_a_key_from_before_the_maximum_keeps_its_expiry_and_its_successor_has_one() -> None:
    store, clock = MemoryStore(), HandClock()
    old = run(gate_of(store=store, clock=clock).keys.create("org_1", "a")).key
    long = run(gate_of(store=store, clock=clock).keys.create("org_1", "a", ["*"], 400)).key
    clock.now += 100 * DAY
    keys = gate_of(store=store, clock=clock, key_options=KeyOptions(max_age_days=90)).keys
    assert run(keys.update("org_1", old.id, name="b")).expires_at is None
    with pytest.raises(InvalidRequest, match="rotate it"):
        run(keys.update("org_1", old.id, expires_in_days=1))
    ages = run(keys.ages())
    assert (ages.ending, ages.first, ages.too_old) == (0, (), 2)
    for key in (old, long):
        successor = run(keys.rotate("org_1", key.id)).successor
        assert successor.expires_at == successor.created_at + 90 * DAY


def test_keys_that_end_soon_are_counted_and_the_first_are_named() -> None:
    gate = gate_of()
    for days in (15, 14, 3, 5):
        run(gate.keys.create(f"org_{days}", "a", ["*"], days))
    rotated = run(gate.keys.create("org_1", "a", ["*"], 2)).key
    run(gate.keys.rotate("org_1", rotated.id))
    revoked = run(gate.keys.create("org_1", "a", ["*"], 2)).key
    run(gate.keys.revoke("org_1", revoked.id))
    ages = run(gate.keys.ages())
    # The successor of the rotated key has two days as well.
    assert [key.organization for key in ages.first] == ["org_1", "org_3", "org_5", "org_14"]
    assert (ages.ending, ages.too_old) == (4, 0)


@pytest.mark.parametrize("days", [0, -1, True, 40_000])
def test_a_maximum_age_that_cannot_be_is_told_when_the_gate_is_made(days: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_age_days"):
        gate_of(key_options=KeyOptions(max_age_days=days))


def test_the_first_key_of_an_agent_names_it_and_has_the_maximum_age() -> None:
    secret = "a session secret of the tests"
    gate = gate_of(
        key_options=KeyOptions(max_age_days=30),
        sessions=SignedCookie([secret]),
        public_url="https://console.example.com",
        registration=Registration(session_secrets=[secret]),
    )
    assert gate.accounts is not None
    made = run(gate.accounts.register("a bot", "ada@example.com", address="192.0.2.1"))
    assert described(made.key).created_by == "agent"
    assert made.key.expires_at is not None
    assert made.key.expires_at - made.key.created_at < 30 * DAY + 1000


def test_an_explanation_names_the_addresses_of_a_key() -> None:
    gate = gate_of()
    made = run(gate.keys.create("org_1", "a", addresses=["192.0.2.7"]))
    (explained,) = run(gate.explain("org_1", made.key.id)).keys
    assert replace(explained).key.addresses == ("192.0.2.7",)
