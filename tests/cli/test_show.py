"""``lockgate keys show``: a key and its creation, from whatever an operator has of it."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest

from lockgate import Actor, Gate, acting, run
from lockgate.cli import main
from lockgate.options import StoreOptions

from .calling import Said, done

PEPPER = "a-pepper-of-these-tests-8f2c41d0"


@pytest.fixture
def key(settings: None, capsys: Said) -> Any:
    """A key that a signed-in person created."""
    gate = Gate(
        os.environ["LOCKGATE_STORE"],
        brand="acme",
        peppers=[PEPPER.encode()],
        store_options=StoreOptions(deadline=30),
    )
    with acting(Actor("user", "auth0|65f2", "192.0.2.7")):
        made = run(gate.keys.create("org_1", "ci"))
    for number in range(3):
        run(gate.organizations.place("org_1", "creator", rpm=number + 1))
    run(gate.close())
    return {"text": made.text, "id": made.key.id, "prefix": made.key.prefix}


def test_the_creator_of_a_key_is_found_by_its_text_prefix_or_id(
    key: Any, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = done(capsys, "keys", "show", "org_1", key["id"])
    creation = shown["creation"]
    assert set(creation) == {"at", "action", "actor"}
    assert creation["action"] == "key_created"
    assert creation["actor"] == {"kind": "user", "id": "auth0|65f2", "address": "192.0.2.7"}
    assert creation["at"] == shown["created_at"]
    assert done(capsys, "keys", "show", key["id"]) == shown
    assert done(capsys, "keys", "show", f"{key['prefix']}...") == shown
    for line in (key["text"], f"Authorization: Bearer {key['text']}"):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{line}\n"))
        assert main(["keys", "show"]) == 0
        out, err = capsys.readouterr()
        rows = [row.split() for row in out.splitlines()]
        assert ["made_by", "user", "auth0|65f2"] in rows
        assert ["made_from", "192.0.2.7"] in rows
        assert "This is the whole text of the key." in err
        assert key["text"] not in out + err


def test_a_successor_was_made_by_the_rotation(key: Any, capsys: Said) -> None:
    successor = done(capsys, "keys", "rotate", "org_1", key["id"])
    creation = done(capsys, "keys", "show", successor["id"])["creation"]
    assert (creation["action"], creation["actor"]["kind"]) == ("key_rotated", "operator")
    assert done(capsys, "keys", "show", key["id"])["creation"]["action"] == "key_created"


def test_a_text_that_finds_no_single_key_is_refused(
    key: Any, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(capsys, "keys", "create", "org_2", "other")
    for arguments, code, told in (
        (["acme_live_" + "z" * 8], 1, "No key was found"),
        (["org_1"], 1, "No key was found"),
        ([key["text"]], 2, "shell's history"),
        (["org_2", key["id"]], 1, "keys find ID"),
    ):
        assert main(["keys", "show", *arguments]) == code
        out, err = capsys.readouterr()
        assert out == "" and told in err
        assert key["text"] not in err
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["keys", "show"]) == 2
    assert "Standard input" in capsys.readouterr().err
