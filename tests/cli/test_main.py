"""Usage errors of the command: a sentence on stderr, with exit code 2."""

from __future__ import annotations

import builtins
import socket
import subprocess
import sys
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import pytest

from lockgate import __version__
from lockgate.__main__ import main as run_command
from lockgate.core.weak_secrets import PUBLISHED

from .calling import Shell

DEMO = "demo --port 0"


@pytest.fixture(autouse=True)
def without_store(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo takes its own, unless the environment names one."""
    monkeypatch.delenv("LOCKGATE_STORE")


def refused(shell: Shell, words: str, *more: str, given: str | None = None) -> str:
    """Return the command's stderr after a wrong usage."""
    out, err = shell(words, *more, given=given, code=2)
    assert out == "" and err.strip()
    return err


def test_the_demo_names_an_address_that_it_cannot_bind(shell: Shell) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        message = refused(shell, f"demo --port {port}")
    assert f"port {port}" in message and "in use" in message
    assert message.startswith("lockgate demo: ")
    for host in ("nonsense.invalid", "a..b", "192.0.2.1", "x" * 300):
        assert host in refused(shell, f"{DEMO} --host {host}")
    assert "0.0.0.0" in refused(shell, f"{DEMO} --host ''")
    for wrong in ("70000", "-1", "http", "", "8000.5", "\u0663\u0664x"):
        message = refused(shell, f"demo --port={wrong}")
        assert "--port" in message and "65535" in message and "_port" not in message


@pytest.mark.parametrize("store", ["nosql://user:hunter2@host/0", "hunter2", "nosql://[hunter2"])
def test_the_demo_refuses_an_unknown_store_without_its_password(shell: Shell, store: str) -> None:
    message = refused(shell, f"{DEMO} --store -", given=store)
    for known in ("memory://", "postgresql://", "redis+cluster://", "redis+sentinel://"):
        assert known in message
    assert "hunter2" not in message


def test_the_demo_uses_no_store_of_the_environment_with_a_development_secret(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a service's own, and every reader of lockgate could sign in to its data."""
    secrets = ("LOCKGATE_PEPPER", "LOCKGATE_SESSION_SECRET")
    for name in secrets:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCKGATE_STORE", "nosql://user:hunter2@host")
    for name in secrets:
        message = refused(shell, DEMO)
        assert f"set {name}" in message or f"and {name}" in message
        assert "--store" in message and "hunter2" not in message
        monkeypatch.setenv(name, f"{name} of these tests")
    assert "No store is known for nosql://" in refused(shell, DEMO)


def test_a_deadline_of_zero_or_less_is_refused(shell: Shell, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/demo.db?mode=rwc"
    for deadline in ("0", "-1", "nan", "inf"):
        message = refused(shell, f"{DEMO} --store={store} --deadline={deadline}")
        assert "use more than 0" in message


def test_an_unknown_command_prints_the_usage(shell: Shell) -> None:
    for words in ("", "dance", "demo --framework django", "demo --dance"):
        assert "Usage: lockgate" in refused(shell, words)


def test_a_command_names_its_missing_extra(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **fields: Any) -> Any:
        if name.partition(".")[0] == "uvicorn":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **fields)

    monkeypatch.setattr(builtins, "__import__", without)
    for module in ("command", "servers"):
        monkeypatch.delitem(sys.modules, f"lockgate.demo.{module}", raising=False)
    message = refused(shell, "demo")
    assert "uvicorn" in message and "pip install 'lockgate[demo]'" in message


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


def test_a_secret_in_the_environment_that_can_be_guessed_is_refused_and_not_repeated(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKGATE_SESSION_SECRET", token_urlsafe(32))
    for name in ("LOCKGATE_PEPPER", "LOCKGATE_SESSION_SECRET"):
        with monkeypatch.context() as patched:
            for value in (*sorted(PUBLISHED), "a" * 40, "not UTF-8 at all: \udcff"):
                if name == "LOCKGATE_PEPPER" and not value.isascii():
                    continue
                patched.setenv(name, value)
                message = refused(shell, DEMO)
                assert "secrets.token_" in message and value not in message
            patched.setenv(name, "short")
            message = refused(shell, DEMO)
            assert "16" in message and "short" not in message.replace("shorter", "")


@pytest.mark.parametrize("variable", ["LOCKGATE_PEPPER", "LOCKGATE_NEXT_PEPPER"])
def test_a_pepper_with_white_space_around_it_is_refused_by_the_command_D53(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """The service would have another pepper: ``os.environ[...].encode()`` strips nothing."""
    secret = token_urlsafe(32)
    for told, forms in (
        ("begins or ends with white space", ("{}\n", " {}", "{} ", "{}\r\n")),
        ("blanks, and nothing else", ("{0}x\n{0}y", "{0}x \n{0}y", "{0}\t{0}")),
    ):
        for form in forms:
            monkeypatch.setenv(variable, form.format(secret))
            for command in ("keys create org_1 ci", "doctor"):
                message = refused(shell, f"{command} --store memory://")
                assert told in message and variable in message and secret not in message


def test_help_and_version_are_no_error_and_show_no_secret_of_the_environment(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKGATE_STORE", "postgresql://user:hunter2@host/database")
    for command in ("demo", "db"):
        out = shell(f"{command} --help").out
        assert "--store" in out and "hunter2" not in out
    assert shell("--version").out == f"lockgate, version {__version__}\n"


def test_the_command_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lockgate", "demo", "--port", "0", "--store", "nosql://"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "memory://" in done.stderr and "Traceback" not in done.stderr
