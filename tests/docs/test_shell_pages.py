"""The `console` blocks of the pages on the command line: run in a shell, and compared with a page.

Ids, keys, instants and names of operators differ in each run. They stand for themselves: one on a
page is replaced by the one that the run printed in its place, also in the commands that follow.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests import migrated

from .blocks import OF_THE_SHELL, ROOT, blocks, commands

PEPPER = "a-pepper-of-these-tests-8f2c41d0"
STAGES = Path(__file__).parent / "stages"
DIFFERS = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # The id of a key.
    r"|org_[0-9a-f]{32}"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    r"|acme_live_\w+(?:\.\.\.)?"
    r"|operator \S+"
)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A shell in the folder of a service, with its settings, and a command `lockgate`."""
    command = tmp_path / "bin" / "lockgate"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lockgate "$@"\n')
    command.chmod(0o755)
    return {
        "PATH": f"{command.parent}:/usr/bin:/bin",
        "PYTHONUNBUFFERED": "1",  # Keeps the order of output and notes, as on a terminal.
        "PYTHONPATH": os.pathsep.join(sys.path),
        "LOCKGATE_GATE": "gates:gate",
        "LOCKGATE_STORE": f"sqlite:///{tmp_path}/keys.db?mode=rwc",
        "LOCKGATE_PEPPER": PEPPER,
    }


@pytest.mark.parametrize("page", OF_THE_SHELL, ids=lambda page: page.name)
def test_the_commands_of_a_page_print_what_it_shows(
    page: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "gates.py").write_text((STAGES / "gates.py").read_text())
    old_table(tmp_path)
    if page.name == "on-call.md":
        stage = [sys.executable, str(STAGES / "operated.py")]
        there = {**environment, "PYTHONPATH": f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"}
        subprocess.run(stage, cwd=tmp_path, env=there, timeout=120, check=True)
    else:
        migrated.sqlite(tmp_path / "keys.db")
        (tmp_path / "keys.db").chmod(0o600)
    known: dict[str, str] = {}
    for _, block in blocks(page.read_text(), "console"):
        for command, expected in commands(block):
            ran = subprocess.run(
                ["bash", "-uc", f"{replaced(command, known)} 2>&1"],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            known |= zip(DIFFERS.findall(expected), DIFFERS.findall(ran.stdout), strict=False)
            assert words(ran.stdout) == words(replaced(expected, known)), command


def replaced(text: str, known: dict[str, str]) -> str:
    return DIFFERS.sub(lambda found: known.get(found[0], found[0]), text)


def words(text: str) -> list[list[str]]:
    """The words of each line: the widths of columns follow from the values."""
    return [line.split() for line in text.strip().splitlines()]


def old_table(tmp_path: Path) -> None:
    """A table of keys of the reader's own, and the view that a page makes of it."""
    with sqlite3.connect(tmp_path / "old.db") as database:
        database.execute(
            "CREATE TABLE tokens (team TEXT, label TEXT, token_hash TEXT, start TEXT, made TEXT, "
            "ends TEXT, disabled INTEGER)"
        )
        for number in range(3):
            text = "tok_" + sha256(str(number).encode()).hexdigest()[:40]
            digest = sha256(text.encode()).hexdigest()
            row = "org_2", f"key {number}", digest, text[:8], "2024-03-01 12:00:00", None
            database.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, number == 2))
        for _, statements in blocks((ROOT / "docs" / "migrating.md").read_text(), "sql"):
            database.executescript(statements)
