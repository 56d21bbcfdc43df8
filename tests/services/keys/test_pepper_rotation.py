"""Rotations of a pepper while processes of two deploys serve, on real servers (K9)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockgate import Event, Plan, PlanBook
from lockgate.errors import KeyNotFound
from lockgate.services.keys import rejected_rows

from ..shared_stores import KINDS, MODES, Drive, driving, gate_on, shared_store

A, B = b"the first pepper of these tests 1", b"the second pepper of these tests"
START: dict[str, Any] = {"peppers": [A]}
KNOWN: dict[str, Any] = {"peppers": [A], "next_pepper": B}
USED: dict[str, Any] = {"peppers": [B, A]}
DONE: dict[str, Any] = {"peppers": [B]}


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with shared_store(request.param, tmp_path) as found:
        yield found


@pytest.fixture(params=MODES)
def drive(request: pytest.FixtureRequest) -> Iterator[Drive]:
    with driving(request.param) as found:
        yield found


def test_k9_keys_of_a_rotation_are_good_on_every_process_of_neighbouring_deploys(
    url: str, drive: Drive
) -> None:
    """Each deploy meets the one before it and is rolled back once, with keys used in between."""
    steps = {name: gate_on(url, plans=_NO_LIMITS, **options) for name, options in _STEPS.items()}
    texts = [drive(steps["start"].keys.create("org_1", "before")).text]
    for before, after in (("start", "known"), ("known", "used")):
        for name in (after, before, after, before, after):
            texts.append(drive(steps[name].keys.create("org_1", name)).text)
            for text in texts:
                assert drive(steps[name].authenticate(text)).organization == "org_1"
    for text in texts:
        assert drive(steps["used"].authenticate(text)).organization == "org_1"
    drive(steps["used"].keys.seal())
    assert list(drive(steps["used"].keys.census())) == [steps["done"].format.peppers.scheme]
    for text in texts:
        assert drive(steps["done"].authenticate(text)).organization == "org_1"
    for gate in steps.values():
        drive(gate.close())


_NO_LIMITS = PlanBook([Plan("free", None, None, None, None)])
_STEPS = {"start": START, "known": KNOWN, "used": USED, "done": DONE}


def test_a_key_under_an_unknown_pepper_is_an_error_in_the_log_once_a_minute(
    url: str, drive: Drive, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now, told = [1000.0], list[Event]()
    monkeypatch.setattr(rejected_rows, "monotonic", lambda: now[0])
    new = gate_on(url, peppers=[B, A])
    old = gate_on(url, peppers=[A], observer=told.append)
    text = drive(old.keys.create("org_1", "moves")).text
    drive(old.authenticate(text))
    drive(new.authenticate(text))
    told.clear()
    for seconds in (0, 59, 2, 58, 61):
        now[0] += seconds
        with pytest.raises(KeyNotFound):
            drive(old.authenticate(text))
    rejected = [event.fields for event in told if event.name == "key_row_rejected"]
    # At 0, 61 and 180 seconds.
    assert [fields["reason"] for fields in rejected] == ["unknown_pepper"] * 3
    assert {fields["scheme"] for fields in rejected} == {new.format.peppers.scheme}
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(lines) == 3
    assert "next_pepper" in lines[0] and new.format.peppers.newest in lines[0]
    assert text not in str(lines) and B.hex() not in str(lines) and B.decode() not in str(lines)
    drive(new.close())
    drive(old.close())


def test_a_digest_of_a_scheme_that_no_release_here_knows_is_an_error_in_the_log(
    url: str, drive: Drive
) -> None:
    told = list[Event]()
    gate = gate_on(url, peppers=[A], observer=told.append)
    created = drive(gate.keys.create("org_1", "of a later release"))
    later = created.key.kept._replace(scheme="hmac-sha3:0a1b2c3d")
    assert drive(gate.store.rehash_if(created.key.handle, created.key.kept, later))
    for _ in range(2):
        with pytest.raises(KeyNotFound):
            drive(gate.authenticate(created.text))
    (rejected,) = [event.fields for event in told if event.name == "key_row_rejected"]
    assert (rejected["reason"], rejected["scheme"]) == ("unknown_scheme", "hmac-sha3:0a1b2c3d")
    assert "release" in str(rejected["remedy"])
    drive(gate.close())
