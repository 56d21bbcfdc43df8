"""After a restore: the changes that the backup lacks are listed, and made again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .calling import Shell

PEPPERS = "q8Hd02Xb7sPz4LmNv1RtYk6WcJf9AeGu", "Zx81mKq0Rt5vBn7cLp3sWd9fGh2jYu6a"


@pytest.fixture
def folder(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a service with a store in SQLite."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKGATE_STORE", "sqlite:///keys.db")
    monkeypatch.setenv("LOCKGATE_PEPPER", PEPPERS[0])
    shell("db upgrade --store sqlite:///keys.db?mode=rwc")
    return tmp_path


def made(shell: Shell, organization: str, name: str) -> str:
    found: str = shell.json("keys create", organization, name)["id"]
    return found


def backup(folder: Path, to: str, of: str) -> None:
    """Copy a database that no process has open, with its log."""
    for suffix in ("", "-wal", "-shm"):
        (folder / f"{to}{suffix}").unlink(missing_ok=True)
        if (folder / f"{of}{suffix}").exists():
            shutil.copy(folder / f"{of}{suffix}", folder / f"{to}{suffix}")


def test_the_changes_of_all_organizations_are_made_again_after_a_restore(
    shell: Shell, folder: Path
) -> None:
    leaked, wide, late = (made(shell, f"org_{n}", "ci") for n in (1, 2, 2))
    backup(folder, "backup.db", "keys.db")
    since = shell.json("audit org_2")["changes"][0]["at"]
    shell("keys revoke org_1", leaked, "--yes")
    narrowed = ["--scope", "jobs:read", "--days", "30", "--name", "narrow", "--label", "team=a"]
    shell("keys update org_2", wide, *narrowed)
    shell("keys update org_2", late, "--days", "1")
    unknown = made(shell, "org_3", "new")
    shell("keys revoke org_3", unknown, "--yes")
    changes = shell.json("audit --since", since)
    actions = [(c["organization_id"], c["action"]) for c in changes["changes"]]
    assert actions[:2] == [("org_3", "key_revoked"), ("org_3", "key_created")]
    assert ("org_1", "key_revoked") in actions
    for change in changes["changes"]:
        if change["key_id"] == late and change["action"] == "key_updated":
            change["to"]["expires_at"] = "2020-01-01T00:00:00.000Z"  # It has passed meanwhile.
    (folder / "changes.json").write_text(json.dumps(changes))

    backup(folder, "keys.db", "backup.db")
    assert shell.json("keys list org_1")["keys"][0]["state"] == "active"
    for _ in range(2):  # Again: nothing changes.
        again = shell.json("audit --replay changes.json", code=1)
        rest = [(c["organization_id"], c["action"]) for c in again["remaining"]]
        assert ("org_3", "key_created") in rest
        assert ("org_3", "key_revoked") in rest
        assert ("org_2", "key_created") not in rest  # The backup has it.
        assert {"org_1", "org_2"} == {c["organization_id"] for c in again["made"]}
    assert shell.json("keys list org_1")["keys"][0]["state"] == "revoked"
    found = {key["id"]: key for key in shell.json("keys list org_2")["keys"]}
    assert found[late]["state"] == "revoked"
    assert (found[wide]["scopes"], found[wide]["name"]) == (["jobs:read"], "narrow")
    assert found[wide]["labels"] == {"team": "a"}
    assert found[wide]["expires_at"] is not None
    assert "made again" in shell("audit --replay changes.json", code=1).out


PART = '{"changes": [{"at": "2026-11-23T00:00:00.000Z", "number": 1, "to": {}}]}'


def test_a_file_that_is_no_audit_is_wrong_usage(shell: Shell, folder: Path) -> None:
    for text in ("{}", "[]", "no JSON", '{"changes": [1]}', '{"changes": [{"to": {}}]}', PART):
        (folder / "changes.json").write_text(text)
        assert "lockgate audit --json" in shell("audit --replay changes.json", code=2).err


@pytest.mark.usefixtures("folder")
def test_rows_are_sealed_with_a_new_pepper(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    made(shell, "org_1", "ci")
    assert shell.json("keys seal") == {"sealed": 0, "refused": 0}
    monkeypatch.setenv("LOCKGATE_PEPPER", f"{PEPPERS[1]} {PEPPERS[0]}")
    assert shell.json("keys seal") == {"sealed": 1, "refused": 0}
    assert "0 rows were sealed, 0 refused." in shell("keys seal").out
    monkeypatch.setenv("LOCKGATE_PEPPER", "p5Tg7Yh2Jk9Lm3Nb6Vc1Xz8Qw4Er0Ui")
    assert "1 refused" in shell("keys seal", code=1).out
