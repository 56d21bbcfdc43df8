"""A credential among the arguments of a command is refused and repeated nowhere (K11)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from secrets import token_hex, token_urlsafe

import click
import pytest

from lockgate import Gate, MemoryStore, run
from lockgate.cli import main
from lockgate.cli.main import lockgate
from lockgate.core.credentials import without_credentials
from lockgate.sessions import Session, SignedCookie

KEY = run(Gate(MemoryStore(), brand="acme").keys.create("org_1", "ci")).text
COOKIE = SignedCookie([token_urlsafe(32)]).issue(Session("org_1", "ada"))
JWT = f"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZGEifQ.{token_urlsafe(64)}"
PASSWORD = f"{token_hex(8)}Pw"
SECRETS = {
    "key": (KEY, KEY[20:]),
    "key of another brand": (KEY.replace("acme", "other"), KEY[20:]),
    "dashboard token": (KEY.replace("_live_", "_dashboard_"), KEY[20:]),
    "session": (COOKIE, COOKIE.rpartition(".")[2]),
    "JSON Web Token": (JWT, JWT.rpartition(".")[2]),
    "URL of Redis": (f"redis://:{PASSWORD}@127.0.0.1:1/0", PASSWORD),
    "URL of PostgreSQL": (f"postgresql://u:{PASSWORD}@127.0.0.1:1/db", PASSWORD),
    "URL with a query": (f"postgresql://127.0.0.1:1/db?user=u&password={PASSWORD}", PASSWORD),
}
"""A text to paste, and its secret part."""


def commands(group: click.Group, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*names, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)


def calls(secret: str) -> Iterator[list[str]]:
    """Each command with the secret as its name, each of its arguments, options and their values."""
    yield [secret]
    yield [f"--{secret}"]
    for names, command in commands(lockgate):
        for before in range(4):
            yield [*names, *"abc"[:before], secret]
        yield [*names, f"--{secret}"]
        yield [*names, f"-{secret}"]
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("-"):
                    yield [*names, option, secret]
                    yield [*names, f"{option}={secret}"]
                    yield [*names, "a", option, f"team={secret}"]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GATE", "STORE", "SOURCE", "NEXT_PEPPER", "ENVIRONMENT"):
        monkeypatch.delenv(f"LOCKGATE_{name}", raising=False)
    monkeypatch.setenv("LOCKGATE_STORE", "memory://")
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", token_urlsafe(32))


@pytest.mark.parametrize("kind", SECRETS)
def test_a_credential_in_any_place_of_any_command_is_refused_and_not_repeated_K11(
    capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    text, secret = SECRETS[kind]
    tried = 0
    for arguments in calls(text):
        code = main(arguments)
        said = capsys.readouterr()
        assert code == 2, arguments
        assert "every user of this machine sees" in said.err
        assert secret not in said.out + said.err, arguments
        tried += 1
    assert tried > 500


@pytest.mark.parametrize(
    "secret",
    [
        "5MIUaWpZTLOjQ69Vb9KjzBNe973xClsivSZtJTja2x9sInS7",
        "_8f852ae1e999b9f9a90492226137ed1a311d5ac5b84d9",
    ],
)
def test_no_usage_error_repeats_a_long_word_K11(
    capsys: pytest.CaptureFixture[str], secret: str
) -> None:
    """As a pepper, which has no shape of its own."""
    for arguments in (
        [secret],
        [f"--{secret}"],
        ["keys", secret],
        ["keys", "list", "org_1", secret],
        ["keys", "list", "org_1", "--limit", secret],
        ["keys", "list", f"--{secret}"],
        ["db", secret],
        ["demo", "--port", secret],
        ["demo", "--framework", secret],
        ["orgs", "place", "org_1", secret],
        ["routes", secret],
        ["doctor", "--gate", secret],
        ["simulate", "--plan", secret],
        ["explain", "org_1", "--scope", secret],
        ["orgs", "usage", "org_1", "--by", secret],
    ):
        assert main(arguments) == 2, arguments
        said = capsys.readouterr()
        assert secret not in said.out + said.err, arguments
        assert said.err


def test_a_url_in_the_place_of_a_gate_is_not_repeated_K11(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKGATE_GATE", f"redis://:{PASSWORD}@127.0.0.1:1/0")
    assert main(["doctor"]) == 2
    said = capsys.readouterr()
    assert "A URL is no gate" in said.err
    assert PASSWORD not in said.out + said.err


def test_a_key_in_the_place_of_the_brand_is_not_repeated_K11(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKGATE_BRAND", KEY)
    assert main(["doctor"]) == 2
    said = capsys.readouterr()
    assert "cannot be part of a key" in said.err
    assert KEY[20:] not in said.out + said.err


def test_an_error_moves_no_cursor_of_a_terminal_K11(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["keys", "\x9b2J\u202e"], ["orgs", "place", "o", "\x1b[2J"], ["\x07\u200f"]):
        assert main(arguments) == 2
        told = capsys.readouterr().err.replace("\n", "")
        assert told.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "org_2NNEqL2nrIRdJ194ndJqAHwEfxC",
        "acme_prod_customer_1",
        "acme_live_51c0aXyZ",
        "acme_live_51c0a...",
        "app.services.gates:gate",
        "an-org.example.com.a-long-label-of-a-domain",
        "postgresql://user@host/database?sslmode=verify-full",
        "5f0c51c0-5a4e-4f3b-8c1d-0b1f2f3a4b5c",
        "a" * 128,
    ],
)
def test_ids_prefixes_and_modules_are_no_credentials(text: str) -> None:
    assert without_credentials(text) == text


@pytest.mark.parametrize("id", ["org\x9b2J", "org\u202egro", "org\ud800", "\U000e0041", "a\u2028b"])
def test_json_has_escapes_for_what_a_terminal_would_obey_K11(
    capsys: pytest.CaptureFixture[str], id: str
) -> None:
    assert main(["orgs", "show", id, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.removesuffix("\n").isprintable() and out.count("\n") == 1
    assert json.loads(out)["organization_id"] == id
