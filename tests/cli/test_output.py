"""Tables on narrow terminals, through pipes and in colour: an id is never cropped."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from typing import Final

import pytest

from lockgate.cli.output import print_fields, print_table

from .calling import Said, Shell

LONG: Final = "org_fe0de417069441c9b5d1e277fa0d67c3"


def on_a_terminal(*arguments: str, columns: int) -> str:
    """Run the command on a terminal of so many columns; return all that it shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    shown = bytearray()
    with subprocess.Popen(
        [sys.executable, "-m", "lockgate", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm"},
    ) as process:
        os.close(theirs)
        with suppress(OSError):  # Linux reports the end of the other side as EIO.
            while some := os.read(ours, 4096):
                shown += some
    os.close(ours)
    assert process.returncode == 0, shown
    return shown.decode()


@pytest.mark.usefixtures("sqlite")
def test_ids_stay_whole_on_a_terminal_of_80_columns(shell: Shell) -> None:
    key = shell.json("keys create --days 30", LONG, "the nightly batch of all reports")
    for command in (f"keys list {LONG}", f"keys find {key['prefix']}", f"explain {LONG}"):
        shown = on_a_terminal(*command.split(), columns=80)
        assert "\N{HORIZONTAL ELLIPSIS}" not in shown
        assert key["id"] in shown
        plain = shown.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
        rows = [line for line in plain if LONG in line or key["id"] in line]
        assert rows and all(len(row) <= 80 for row in rows)


@pytest.mark.usefixtures("sqlite")
def test_a_pipe_gets_every_column_whatever_the_environment(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = shell.json("keys create org_1 ci --days 30")
    for variables in (
        {},
        {"COLUMNS": "40"},
        {"FORCE_COLOR": "1", "TERM": "dumb"},
        {"TTY_COMPATIBLE": "1"},
    ):
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            out, err = shell("keys list org_1")
        for text in (key["id"], f"{key['prefix']}...", key["created_at"], key["expires_at"]):
            assert text in out
        assert "Left out" not in err


def test_a_value_wider_than_the_terminal_folds_and_truth_is_a_word(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    print_fields([("ends soon", False), ("slot", True), ("end", None)])
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["no", "yes", "-"]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    print_table(["id", "name"], [("x" * 36, "ci")])
    said = capsys.readouterr()
    assert said.out.count("x") == 36
    assert said.err == "Left out for lack of width: name. --json and a pipe have all.\n"
