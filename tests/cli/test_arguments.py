"""A credential among the arguments of a command is refused and repeated nowhere (K11)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from secrets import token_hex, token_urlsafe

import click
import pytest

from lockgate import Gate, MemoryStore, run
from lockgate.cli.main import lockgate
from lockgate.core.credentials import without_credentials
from lockgate.sessions import Session, SignedCookie

from .calling import Shell

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


@pytest.mark.parametrize("kind", SECRETS)
def test_a_credential_in_any_place_of_any_command_is_refused_and_not_repeated_K11(
    shell: Shell, kind: str
) -> None:
    text, secret = SECRETS[kind]
    tried = 0
    for arguments in calls(text):
        out, err = shell("", *arguments, code=2)
        assert "every user of this machine sees" in err
        assert secret not in out + err, arguments
        tried += 1
    assert tried > 500


def test_no_usage_error_repeats_a_long_word_K11(shell: Shell) -> None:
    """As a pepper, which has no shape of its own."""
    for secret in (
        "5MIUaWpZTLOjQ69Vb9KjzBNe973xClsivSZtJTja2x9sInS7",
        "_8f852ae1e999b9f9a90492226137ed1a311d5ac5b84d9",
    ):
        for command in (
            *("SECRET", "--SECRET", "keys SECRET", "keys list org_1 SECRET", "db SECRET"),
            *("keys list org_1 --limit SECRET", "keys list --SECRET", "demo --port SECRET"),
            *("demo --framework SECRET", "orgs place org_1 SECRET", "routes SECRET"),
            *("doctor --gate SECRET", "simulate --plan SECRET", "explain org_1 --scope SECRET"),
            "orgs usage org_1 --by SECRET",
        ):
            out, err = shell(command.replace("SECRET", secret), code=2)
            assert err and secret not in out + err, command


def test_a_credential_in_the_place_of_a_gate_or_brand_is_not_repeated_K11(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("LOCKGATE_BRAND", KEY)
        out, err = shell("doctor", code=2)
        assert "cannot be part of a key" in err and KEY[20:] not in out + err
    monkeypatch.setenv("LOCKGATE_GATE", f"redis://:{PASSWORD}@127.0.0.1:1/0")
    out, err = shell("doctor", code=2)
    assert "A URL is no gate" in err and PASSWORD not in out + err


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


def test_a_terminal_obeys_no_character_of_an_error_or_a_document_K11(shell: Shell) -> None:
    for arguments in (["keys", "\x9b2J\u202e"], ["orgs", "place", "o", "\x1b[2J"], ["\x07\u200f"]):
        assert shell("", *arguments, code=2).err.replace("\n", "").isprintable()
    for id in ("org\x9b2J", "org\u202egro", "org\ud800", "\U000e0041", "a\u2028b"):
        out = shell("orgs show --json", id).out
        assert out.removesuffix("\n").isprintable() and out.count("\n") == 1
        assert json.loads(out)["organization_id"] == id
