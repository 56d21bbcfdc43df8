"""Rotations of a pepper while processes of two deploys serve, on real servers (K9)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from lockgate import Plan, PlanBook
from lockgate.errors import KeyNotFound
from lockgate.services.keys import rejected_rows

from ..bench import Bench
from ..shared_stores import Drive, gate_on

A, B = b"the first pepper of these tests 1", b"the second pepper of these tests"
STEPS: dict[str, dict[str, Any]] = {
    "start": {"peppers": [A]},
    "known": {"peppers": [A], "next_pepper": B},
    "used": {"peppers": [B, A]},
    "done": {"peppers": [B]},
}
NO_LIMITS = PlanBook([Plan("free", None, None, None, None)])


def test_k9_keys_of_a_rotation_are_good_on_every_process_of_neighbouring_deploys(
    url: str, drive: Drive
) -> None:
    """Each deploy meets the one before it and is rolled back once, with keys used in between."""
    steps = {name: gate_on(url, plans=NO_LIMITS, **options) for name, options in STEPS.items()}
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


def test_a_key_under_an_unknown_pepper_is_an_error_in_the_log_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]
    monkeypatch.setattr(rejected_rows, "monotonic", lambda: now[0])
    old = Bench(**STEPS["start"])
    new = Bench(old.store, **STEPS["used"])
    text = old.create().text
    old.admit(text)
    new.admit(text)
    old.told.clear()
    for seconds in (0, 59, 2, 58, 61):
        now[0] += seconds
        old.refuses(KeyNotFound, text)
    rejected = [event.fields for event in old.told if event.name == "key_row_rejected"]
    # At 0, 61 and 180 seconds.
    assert [fields["reason"] for fields in rejected] == ["unknown_pepper"] * 3
    peppers = new.gate.format.peppers
    assert {fields["scheme"] for fields in rejected} == {peppers.scheme}
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(lines) == 3
    assert "next_pepper" in lines[0] and peppers.newest in lines[0]
    assert text not in str(lines) and B.hex() not in str(lines) and B.decode() not in str(lines)
