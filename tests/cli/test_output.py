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

from lockgate.cli import main
from lockgate.cli.output import print_fields, print_table

from .calling import Said, done

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
@pytest.mark.parametrize(
    "command",
    [("keys", "list", LONG), ("keys", "find", "{prefix}"), ("explain", LONG), ("orgs", "list")],
    ids=" ".join,
)
def test_ids_stay_whole_on_a_terminal_of_80_columns(capsys: Said, command: tuple[str, ...]) -> None:
    key = done(capsys, "keys", "create", LONG, "the nightly batch of all reports", "--days", "30")
    shown = on_a_terminal(*(word.format(**key) for word in command), columns=80)
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    assert (LONG if command[0] == "orgs" else key["id"]) in shown
    plain = shown.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    rows = [line for line in plain if LONG in line or key["id"] in line]
    assert rows and all(len(row) <= 80 for row in rows)


@pytest.mark.usefixtures("sqlite")
@pytest.mark.parametrize(
    "variables",
    [{}, {"COLUMNS": "40"}, {"FORCE_COLOR": "1", "TERM": "dumb"}, {"TTY_COMPATIBLE": "1"}],
    ids=str,
)
def test_a_pipe_gets_every_column_whatever_the_environment(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    key = done(capsys, "keys", "create", "org_1", "ci", "--days", "30")
    assert main(["keys", "list", "org_1"]) == 0
    said = capsys.readouterr()
    for text in (key["id"], f"{key['prefix']}...", key["created_at"], key["expires_at"]):
        assert text in said.out
    assert "Left out" not in said.err


def test_a_value_wider_than_the_terminal_folds(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    print_table(["id", "name"], [("x" * 36, "ci")])
    said = capsys.readouterr()
    assert said.out.count("x") == 36
    assert said.err == "Left out for lack of width: name. --json and a pipe have all.\n"


def test_truth_is_a_word_and_no_value_a_dash(capsys: Said) -> None:
    print_fields([("ends soon", False), ("slot", True), ("end", None)])
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["no", "yes", "-"]
