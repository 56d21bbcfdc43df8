"""Usage errors of the command: a sentence on stderr, with exit code 2."""

from __future__ import annotations

import builtins
import io
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import pytest

from lockgate import __version__
from lockgate.__main__ import main as run_command
from lockgate.cli import main
from lockgate.core.weak_secrets import PUBLISHED


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the command's stderr after a failure."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.strip()
    assert "Traceback" not in err
    return err


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str], taken: int) -> None:
    message = said(capsys, "demo", "--port", str(taken))
    assert f"port {taken}" in message
    assert "in use" in message
    assert message.startswith("lockgate demo: ")


@pytest.mark.parametrize("host", ["nonsense.invalid", "a..b", "192.0.2.1", "x" * 300])
def test_the_demo_names_an_address_that_it_cannot_bind(
    capsys: pytest.CaptureFixture[str], host: str
) -> None:
    assert host in said(capsys, "demo", "--port", "0", "--host", host)


def test_an_empty_address_is_refused_with_the_one_for_every_address(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "0.0.0.0" in said(capsys, "demo", "--port", "0", "--host", "")


@pytest.mark.parametrize("store", ["nosql://user:hunter2@host/0", "hunter2", "nosql://[hunter2"])
def test_the_demo_refuses_an_unknown_store_without_its_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(store))
    message = said(capsys, "demo", "--port", "0", "--store", "-")
    for known in ("memory://", "postgresql://", "redis+cluster://", "redis+sentinel://"):
        assert known in message
    assert "hunter2" not in message


def test_the_demo_uses_no_store_of_the_environment_with_a_development_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a service's own, and every reader of lockgate could sign in to its data."""
    secrets = ("LOCKGATE_PEPPER", "LOCKGATE_SESSION_SECRET")
    for name in secrets:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCKGATE_STORE", "nosql://user:hunter2@host")
    for name in secrets:
        message = said(capsys, "demo", "--port", "0")
        assert f"set {name}" in message or f"and {name}" in message
        assert "--store" in message
        assert "hunter2" not in message
        monkeypatch.setenv(name, f"{name} of these tests")
    assert "No store is known for nosql://" in said(capsys, "demo", "--port", "0")


@pytest.mark.parametrize("port", ["70000", "-1", "http", "", "8000.5", "\u0663\u0664x"])
def test_the_demo_refuses_a_port_out_of_range(
    capsys: pytest.CaptureFixture[str], port: str
) -> None:
    message = said(capsys, "demo", f"--port={port}")
    assert "--port" in message
    assert "65535" in message
    assert "_port" not in message


@pytest.mark.parametrize("deadline", ["0", "-1", "nan", "inf"])
def test_a_deadline_of_zero_or_less_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, deadline: str
) -> None:
    store = f"--store=sqlite:///{tmp_path}/demo.db?mode=rwc"
    message = said(capsys, "demo", "--port=0", store, f"--deadline={deadline}")
    assert "use more than 0" in message


@pytest.mark.parametrize(
    "arguments", [[], ["dance"], ["demo", "--framework", "django"], ["demo", "--dance"]]
)
def test_an_unknown_command_prints_the_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert "Usage: lockgate" in said(capsys, *arguments)


@pytest.mark.parametrize("missing", ["uvicorn"])
def test_a_command_names_its_missing_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **fields: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **fields)

    monkeypatch.setattr(builtins, "__import__", without)
    for module in ("command", "servers"):
        monkeypatch.delitem(sys.modules, f"lockgate.demo.{module}", raising=False)
    message = said(capsys, "demo")
    assert missing in message
    assert "pip install 'lockgate[demo]'" in message


def test_the_command_names_its_extra_where_click_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "click", None)
    for module in [name for name in sys.modules if name.startswith("lockgate.cli")]:
        monkeypatch.delitem(sys.modules, module)
    assert run_command() == 2
    assert "needs click: pip install 'lockgate[cli]'" in capsys.readouterr().err


def test_a_command_starts_without_the_modules_of_the_web() -> None:
    """They took half of the time in which every command starts."""
    script = "import lockgate.cli, sys; print([n for n in sys.modules if 'lockgate.web' in n])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert found.stdout.split() == [b"[]"]


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"lockgate, version {__version__}\n"


@pytest.mark.parametrize(
    ("name", "value"), [("LOCKGATE_PEPPER", "short"), ("LOCKGATE_SESSION_SECRET", "short")]
)
def test_a_short_secret_in_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    message = said(capsys, "demo", "--port", "0")
    assert "16" in message
    assert value not in message.replace("shorter", "")


GUESSABLE = [*sorted(PUBLISHED), "a" * 40]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("LOCKGATE_PEPPER", value) for value in GUESSABLE),
        *(("LOCKGATE_SESSION_SECRET", value) for value in [*GUESSABLE, "not UTF-8 at all: \udcff"]),
    ],
)
def test_a_secret_in_the_environment_that_can_be_guessed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    message = said(capsys, "demo", "--port", "0")
    assert "secrets.token_" in message
    assert value not in message


@pytest.mark.parametrize("variable", ["LOCKGATE_PEPPER", "LOCKGATE_NEXT_PEPPER"])
@pytest.mark.parametrize(
    ("written", "told"),
    [
        *((text, "begins or ends with white space") for text in ("{}\n", " {}", "{} ", "{}\r\n")),
        *((text, "blanks, and nothing else") for text in ("{0}x\n{0}y", "{0}x \n{0}y", "{0}\t{0}")),
    ],
)
def test_a_pepper_with_white_space_around_it_is_refused_by_the_command_D53(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    written: str,
    told: str,
) -> None:
    """The service would have another pepper: ``os.environ[...].encode()`` strips nothing."""
    secret = token_urlsafe(32)
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv(variable, written.format(secret))
    for command in (["keys", "create", "org_1", "ci"], ["doctor"]):
        message = said(capsys, *command, "--store", "memory://")
        assert told in message
        assert variable in message
        assert secret not in message


@pytest.mark.parametrize("command", ["demo", "db"])
def test_help_is_no_error_and_shows_no_secret_of_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("LOCKGATE_STORE", "postgresql://user:hunter2@host/database")
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "--store" in out
    assert "hunter2" not in out


def test_the_command_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lockgate", "demo", "--port", "0", "--store", "nosql://"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "memory://" in done.stderr
    assert "Traceback" not in done.stderr
